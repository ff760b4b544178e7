/**
 * @file Entry of a rank's worker thread: load, run, report. Its last message is `done` or `failed`; a rank that was told
 * to stop says nothing.
 */
import { parentPort, workerData } from 'node:worker_threads';
import { AutoparError } from '../program/values.js';
import { Control, Stopped } from './control.js';
import { makeCpuBackend } from './cpu-backend.js';
import { loadRank } from './load-rank.js';
import type { PlainError, RankMessage, RankSetup } from './messages.js';
import { runRank } from './rank-loop.js';
import { SharedMemoryTransport } from './shared-memory.js';

await main(workerData as RankSetup);

async function main(setup: RankSetup): Promise<void> {
  const control = new Control(setup.control, setup.ranks);
  try {
    const onProgress = () => control.enterNative(setup.rank, 'loading');
    onProgress();
    const backend = await makeCpuBackend();
    onProgress();
    const loaded = await loadRank(setup, backend, onProgress);
    control.enter(setup.rank, 'running');
    say({ kind: 'loaded' });
    const transport = new SharedMemoryTransport(setup.regions, setup.rank, control, setup.lines);
    const run = await runRank(setup, loaded, backend, transport, control, (step) => {
      if (setup.rank === 0) say({ kind: 'step', step });
    });
    control.enterNative(setup.rank, 'computing');
    await loaded.release();
    const blocks = [...Object.values(run.outputs).flat(), ...Object.values(run.collected)];
    say({ kind: 'done', ...run }, [...new Set(blocks.map((block) => block.buffer as ArrayBuffer))]);
  } catch (error) {
    if (!(error instanceof Stopped)) say({ kind: 'failed', error: plain(error) });
  } finally {
    control.enter(setup.rank, 'finished');
    for (const { port } of setup.lines) port.close();
  }
}

function say(message: RankMessage, transfer: ArrayBuffer[] = []): void {
  parentPort?.postMessage(message, transfer);
}

function plain(error: unknown): PlainError {
  if (!(error instanceof Error)) return { message: String(error), stack: '', user: null };
  const user =
    error instanceof AutoparError ? { code: error.code, exit: error.exit, where: error.where, hint: error.hint } : null;
  return { message: error.message, stack: error.stack ?? '', user };
}
