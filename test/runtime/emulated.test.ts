/**
 * @file Emulated ranks: no weights, no values, the same instructions, bytes and memory as ranks that compute; and in an order of
 * events that follows from the stated times of segments and links.
 */
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import test from 'ava';
import { Control, makeControlBuffer } from '../../src/runtime/control.js';
import { EmulatedClock, EmulatedTransport } from '../../src/runtime/emulated.js';
import { runProgram } from '../../src/runtime/run-program.js';
import type { CollectiveCall, TransferCall, Transport } from '../../src/runtime/transport.js';
import { trainingStep, written } from '../pipelines/staged-training.js';
import { slowTests } from '../selection.js';

const slow = slowTests(test);

slow('emulated ranks count what computing ranks count, without weights', async (t) => {
  const folder = mkdtempSync(join(tmpdir(), 'autopar-test-'));
  try {
    const { graph, inputs } = await trainingStep('llama-tiny', 2);
    const { program } = await written(folder, graph, { kind: '1f1b', stages: 2, microBatches: 2, tp: 2 });
    const computed = await runProgram(folder, inputs, { steps: 2 });
    rmSync(join(folder, 'program', 'weights'), { recursive: true });
    rmSync(join(folder, 'program', 'segments'), { recursive: true });
    const seconds = program.stages.map(({ segments }) =>
      Object.fromEntries(Object.keys(segments).map((id) => [id, 1e-4])),
    );
    const emulation = { seconds, link: { bytesPerSecond: 1e9, latency: 1e-5 } };
    const emulated = await runProgram(folder, {}, { steps: 2, emulation });
    t.deepEqual([emulated.outputs, emulated.tensors, emulated.history], [{}, {}, {}]);
    for (const [rank, { peakBytes, bytesCommunicated, byKind }] of computed.ranks.entries()) {
      const other = emulated.ranks[rank];
      t.is(other?.peakBytes, peakBytes);
      t.is(other?.bytesCommunicated, bytesCommunicated);
      for (const [kind, { count }] of Object.entries(byKind)) t.is(other?.byKind[kind]?.count, count, kind);
    }
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
});

/** A transport that records the tensors it is given, and returns the given times. */
function carrier(times: readonly number[]): Transport & { readonly sent: number[] } {
  const sent: number[] = [];
  return {
    sent,
    start: () => 0,
    wait: (_call, result) => result.set(new Uint8Array(Float64Array.from(times).buffer)),
    send: (_call, tensor) => sent.push(new Float64Array(tensor.slice().buffer)[0] as number),
    receive: () => new Uint8Array(Float64Array.of(times[0] ?? 0).buffer),
    blocked: () => 0,
  };
}

test('a collective ends after its last member began, and what the ring and the link take', (t) => {
  const clock = new EmulatedClock(new Control(makeControlBuffer(1), 1), 0);
  const began = clock.current;
  const link = { bytesPerSecond: 1e9, latency: 1e-3 };
  const transport = new EmulatedTransport(carrier([began, began + 0.004]), clock, link);
  const call: CollectiveCall = {
    collective: { kind: 'all-reduce', reduction: 'sum' },
    dtype: 'float32',
    members: [0, 1],
    member: 0,
    inputBytes: 3e6,
    outputBytes: 3e6,
    slot: 0,
  };
  transport.start(call, new Uint8Array());
  transport.wait(call, new Uint8Array());
  // Two ring steps of 1 ms, and half of 3 MB twice.
  t.true(Math.abs(clock.current - began - (0.004 + 0.002 + 0.003)) < 1e-9);
  clock.pass(0.001);
  t.true(Math.abs(clock.current - began - 0.01) < 1e-9);
});

test('collectives of a group go one after the other, and those of a bucket as one message', (t) => {
  const clock = new EmulatedClock(new Control(makeControlBuffer(1), 1), 0);
  const began = clock.current;
  const transport = new EmulatedTransport(carrier([began, began]), clock, { bytesPerSecond: 1e9, latency: 1e-3 });
  const call = (members: readonly number[], bucket?: number): CollectiveCall => ({
    ...{ collective: { kind: 'all-reduce', reduction: 'sum' }, dtype: 'float32', members, member: 0, slot: 0 },
    ...{ inputBytes: 1e6, outputBytes: 1e6 },
    ...(bucket === undefined ? {} : { bucket }),
  });
  const after = (waited: CollectiveCall) => {
    transport.wait(waited, new Uint8Array());
    return Math.round((clock.current - began) * 1e6);
  };
  // 1 ms on the wire each, and twice 1 ms of latency for a message.
  const [alone, first, second, other] = [call([0, 1]), call([0, 1], 7), call([0, 1], 7), call([0, 2])];
  for (const each of [alone, first, second, other]) transport.start(each, new Uint8Array());
  t.is(after(other), 3000);
  t.is(after(second), 7000);
  t.is(after(first), 7000);
  t.is(after(alone), 7000);
  transport.start(first, new Uint8Array());
  t.is(after(first), 10_000, 'in the next step it is another message');
});

test('a step begins at zero with all lines free, whatever was before', (t) => {
  const clock = new EmulatedClock(new Control(makeControlBuffer(1), 1), 0);
  const line = carrier([0]);
  const transport = new EmulatedTransport(line, clock, { bytesPerSecond: 1e9, latency: 1e-3 });
  for (let step = 0; step < 2; step++) {
    clock.begin();
    t.is(clock.current, 0);
    clock.pass(0.001);
    transport.send({ label: 'x', peer: 1, bytes: 2e6 }, new Uint8Array());
  }
  t.is(line.sent[1], line.sent[0]);
  t.is(Math.round((line.sent[0] ?? 0) * 1e6), 4000);
});

test('tensors to one rank go one after the other, to another beside them', (t) => {
  const clock = new EmulatedClock(new Control(makeControlBuffer(1), 1), 0);
  const began = clock.current;
  const line = carrier([began]);
  const transport = new EmulatedTransport(line, clock, { bytesPerSecond: 1e9, latency: 1e-3 });
  const call = (peer: number): TransferCall => ({ label: 'x', peer, bytes: 2e6 });
  for (const peer of [1, 1, 2]) transport.send(call(peer), new Uint8Array());
  const after = line.sent.map((time) => Math.round((time - began) * 1e6));
  t.deepEqual(after, [3000, 5000, 3000]);
  t.is(clock.current, began, 'the sender goes on');
});
