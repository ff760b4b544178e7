/**
 * @file Entry of a rank's worker thread: load, then answer commands until it is closed or sees the stop flag. A rank that fails
 * reports the failure as its last message; one that stops on the flag sends nothing.
 */
import { type MessagePort, parentPort, workerData } from 'node:worker_threads';
import { BACKENDS, type Backend } from './backend.js';
import { Control, Stopped } from './control.js';
import { DelayedTransport } from './delays.js';
import { openDevice } from './device-client.js';
import { DiskFile } from './disk-file.js';
import { EmulatedClock, EmulatedTransport, makeEmulatedBackend } from './emulated.js';
import { loadRank } from './load-rank.js';
import { plainError, type RankAnswer, type RankCommand, type RankMessage, type RankSetup } from './messages.js';
import { makeOrtBackend } from './ort-backend.js';
import { RankLoop } from './rank-loop.js';
import { SharedMemoryTransport } from './shared-memory.js';
import { TensorStore } from './tensor-store.js';
import type { Transport } from './transport.js';

await main(workerData as RankSetup, parentPort as MessagePort);

async function main(setup: RankSetup, port: MessagePort): Promise<void> {
  const control = new Control(setup.control, setup.ranks);
  const say = (message: RankMessage, transfer: ArrayBuffer[] = []) => port.postMessage(message, transfer);
  const commands = queueOf(port);
  try {
    control.enterNative(setup.rank, 'loading');
    const shared = new SharedMemoryTransport(setup.regions, setup.rank, control, setup.lines);
    const transport = setup.delays ? new DelayedTransport(shared, setup, setup.delays, control) : shared;
    const { emulation } = setup;
    if (emulation) {
      const clock = new EmulatedClock(control, setup.rank);
      const backend = makeEmulatedBackend(clock, emulation.seconds[setup.stageIndex] ?? {}, emulation.moves);
      await serve(setup, backend, new EmulatedTransport(transport, clock, emulation.link), control, commands, say);
    } else if (setup.backend === 'cpu') {
      await serve(setup, await makeOrtBackend(), transport, control, commands, say);
    } else {
      const device = await openDevice(BACKENDS[setup.backend], setup.rank, () => control.isStopped);
      await serve(setup, device, transport, control, commands, say).finally(() => device.close());
    }
  } catch (error) {
    if (!(error instanceof Stopped)) say({ kind: 'failed', error: plainError(error) });
  } finally {
    control.enter(setup.rank, 'finished');
    for (const line of setup.lines) line.port.close();
    port.close();
  }
}

async function serve<Tensor extends object>(
  setup: RankSetup,
  backend: Backend<Tensor>,
  transport: Transport,
  control: Control,
  next: () => Promise<RankCommand>,
  say: (message: RankMessage, transfer?: ArrayBuffer[]) => void,
): Promise<void> {
  const { rank, offloadFolder, memory: limit } = setup;
  const disk = offloadFolder !== null && backend.hasValues ? new DiskFile(offloadFolder, rank) : null;
  const store = new TensorStore(setup.stage, backend, { rank, limit, disk });
  const loaded = await loadRank(setup, backend, store, () => control.enterNative(rank, 'loading'));
  const loop = new RankLoop(setup, loaded, store, backend, transport, control);
  control.enter(rank, 'idle');
  say({ kind: 'loaded', substitutes: loaded.substitutes });
  for (;;) {
    const command = await next();
    control.enter(rank, 'running');
    if (command.kind === 'close') break;
    const answer = await answerTo(command, loop);
    control.enter(rank, 'idle');
    const shards = [...Object.values(answer.shards), ...Object.values(answer.step?.collected ?? {})].flat();
    say({ kind: 'answer', answer }, [...new Set(shards.map((shard) => shard.buffer as ArrayBuffer))]);
  }
  control.enterNative(rank, 'computing');
  await loaded.release();
  disk?.close();
}

async function answerTo<Tensor extends object>(
  command: Exclude<RankCommand, { kind: 'close' }>,
  loop: RankLoop<Tensor>,
): Promise<RankAnswer> {
  switch (command.kind) {
    case 'step':
      return loop.step(command);
    case 'read':
      return loop.read(command.tensors);
    case 'write':
      return loop.write(command.shards);
    case 'save':
      return loop.save(command);
    case 'restore':
      return loop.restore(command);
  }
}

/** Commands in the order in which they came. */
function queueOf(port: MessagePort): () => Promise<RankCommand> {
  const waiting: RankCommand[] = [];
  let wake: (() => void) | null = null;
  port.on('message', (command: RankCommand) => {
    waiting.push(command);
    wake?.();
  });
  return async () => {
    for (;;) {
      const command = waiting.shift();
      if (command) return command;
      await new Promise<void>((resolve) => {
        wake = resolve;
      });
    }
  };
}
