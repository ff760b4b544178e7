/**
 * @file `npm run bench:collectives`: collectives over two ranks of the shared-memory transport, by dtype and size.
 *
 * Each runs several times in a row after a first run that is not counted; the fastest is printed, in microseconds and as
 * bytes of the whole array per second. Beside it is the time of one thread to copy as many bytes: no collective can be
 * much faster.
 */
import { isMainThread, parentPort, Worker, workerData } from 'node:worker_threads';
import type { ProgramCollective } from '../src/program/program.js';
import { allocate } from '../src/program/typed.js';
import type { DType } from '../src/program/values.js';
import { byteLength } from '../src/program/values.js';
import { Control, makeControlBuffer } from '../src/runtime/control.js';
import { makeRegions, SharedMemoryTransport, type SharedRegions } from '../src/runtime/shared-memory.js';
import type { CollectiveCall } from '../src/runtime/transport.js';

const RANKS = 2;
const DTYPES: readonly DType[] = ['float32', 'float16'];
/** Bytes of the whole array. */
const SIZES = [4096, 65_536, 1 << 20, 8 << 20, 64 << 20];
const KINDS = ['all-reduce', 'all-gather', 'reduce-scatter'] as const;

interface Job {
  readonly rank: number;
  readonly control: SharedArrayBuffer;
  readonly regions: SharedRegions;
}

interface Case {
  readonly kind: (typeof KINDS)[number];
  readonly dtype: DType;
  readonly bytes: number;
}

const CASES: readonly Case[] = KINDS.flatMap((kind) =>
  DTYPES.flatMap((dtype) => SIZES.map((bytes) => ({ kind, dtype, bytes }))),
);

if (isMainThread) await main();
else parentPort?.postMessage(measure(workerData as Job));

async function main(): Promise<void> {
  const control = makeControlBuffer(RANKS);
  const regions = makeRegions(
    0,
    Array.from({ length: RANKS }, () => [Math.max(...SIZES)]),
  );
  const results = await Promise.all(
    Array.from({ length: RANKS }, (_, rank) => {
      const worker = new Worker(new URL(import.meta.url), { workerData: { rank, control, regions } satisfies Job });
      return new Promise<readonly number[]>((resolve, reject) => {
        worker.once('message', resolve);
        worker.once('error', reject);
      });
    }),
  );
  console.log(`${RANKS} ranks, Node ${process.version}, fastest`);
  for (const [index, { kind, dtype, bytes }] of CASES.entries()) {
    const milliseconds = Math.max(...results.map((times) => times[index] as number));
    const copy = copyMilliseconds(bytes);
    const speed = `${(bytes / milliseconds / 1e6).toFixed(2)} GB/s`.padStart(11);
    const times = `${(milliseconds * 1000).toFixed(1).padStart(9)} µs ${speed}`;
    console.log(
      `${kind.padEnd(14)} ${dtype.padEnd(7)} ${sizeText(bytes)} ${times}   copy ${(copy * 1000).toFixed(1)} µs`,
    );
  }
}

/** Milliseconds of the fastest collective of each case, as one rank sees it. */
function measure({ rank, control: buffer, regions }: Job): readonly number[] {
  const control = new Control(buffer, RANKS);
  const transport = new SharedMemoryTransport(regions, rank, control);
  return CASES.map((entry) => {
    const call = callOf(entry, rank);
    const input = allocate(call.inputBytes).fill(0);
    const result = allocate(call.outputBytes).fill(0);
    let fastest = Number.POSITIVE_INFINITY;
    for (let turn = 0; turn < turnsOf(entry.bytes); turn++) {
      control.barrier(rank);
      const from = performance.now();
      transport.start(call, input);
      transport.wait(call, result);
      if (turn > 0) fastest = Math.min(fastest, performance.now() - from);
    }
    return fastest;
  });
}

function callOf({ kind, dtype, bytes }: Case, rank: number): CollectiveCall {
  const share = bytes / RANKS;
  const inner = share / byteLength(dtype, 1);
  const collectives: Readonly<Record<Case['kind'], ProgramCollective>> = {
    'all-reduce': { kind: 'all-reduce', reduction: 'sum' },
    'all-gather': { kind: 'all-gather', outer: 1, inner },
    'reduce-scatter': { kind: 'reduce-scatter', reduction: 'sum', outer: 1, inner },
  };
  return {
    collective: collectives[kind],
    dtype,
    members: Array.from({ length: RANKS }, (_, member) => member),
    member: rank,
    inputBytes: kind === 'all-gather' ? share : bytes,
    outputBytes: kind === 'reduce-scatter' ? share : bytes,
    slot: 0,
  };
}

function copyMilliseconds(bytes: number): number {
  const from = allocate(bytes).fill(0);
  const to = allocate(bytes).fill(0);
  let fastest = Number.POSITIVE_INFINITY;
  for (let turn = 0; turn < turnsOf(bytes); turn++) {
    const start = performance.now();
    to.set(from);
    fastest = Math.min(fastest, performance.now() - start);
  }
  return fastest;
}

function turnsOf(bytes: number): number {
  return bytes >= 8 << 20 ? 12 : 200;
}

function sizeText(bytes: number): string {
  return (bytes >= 1 << 20 ? `${bytes >> 20} MiB` : `${bytes >> 10} KiB`).padStart(7);
}
