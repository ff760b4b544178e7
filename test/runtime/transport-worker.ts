/**
 * @file A rank that does nothing but communicate: for each round, all starts and then all waits, with random pauses.
 */
import { parentPort, workerData } from 'node:worker_threads';
import { Control } from '../../src/runtime/control.js';
import { SharedMemoryTransport, type SharedRegions } from '../../src/runtime/shared-memory.js';
import type { CollectiveCall } from '../../src/runtime/transport.js';

export interface TransportJob {
  readonly rank: number;
  readonly ranks: number;
  readonly control: SharedArrayBuffer;
  readonly regions: SharedRegions;
  /** Collectives of one round are in flight together. */
  readonly rounds: readonly (readonly { readonly call: CollectiveCall; readonly input: Uint8Array }[])[];
}

const { rank, ranks, control, regions, rounds } = workerData as TransportJob;
const transport = new SharedMemoryTransport(regions, rank, new Control(control, ranks));
const cell = new Int32Array(new SharedArrayBuffer(4));
const results = rounds.map((round, index) => {
  if ((index * 7 + rank * 3) % 5 === 0) Atomics.wait(cell, 0, 0, 3);
  for (const { call, input } of round) {
    const scratch = input.slice();
    transport.start(call, scratch);
    scratch.fill(0xff);
  }
  const waited = [...round].reverse().map(({ call }) => {
    const result = new Uint8Array(call.outputBytes);
    transport.wait(call, result);
    return result;
  });
  return waited.reverse();
});
parentPort?.postMessage(results);
