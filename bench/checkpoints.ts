/**
 * @file `npm run bench:checkpoints [-- FOLDER]`: seconds and bytes of a checkpoint of a perceptron with AdamW on two ranks (dp 2,
 * tp 2), written and read, against the disk's own rate: the same bytes written and synced from memory, in turns with it. The
 * fastest of each are compared, since other work of the machine and its disk can only add time; processor time shows the share of
 * autopar.
 */
import { closeSync, fsyncSync, mkdtempSync, openSync, rmSync, writeSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { Checkpoints } from '../src/api/execution/checkpoints.js';
import { compile, openSession } from '../src/api/index.js';
import { generatedFile } from '../src/api/models/generated.js';
import { readCompiled } from '../src/api/output/folder.js';

const ROUNDS = 5;
const PIECE = 4 * 2 ** 20;

const folder = mkdtempSync(join(process.argv[2] ?? tmpdir(), 'autopar-bench-'));
try {
  const model = await generatedFile('mlp:layers=4,hidden=3072,batch=4');
  for (const degrees of [
    { dp: 2, tp: 1 },
    { dp: 1, tp: 2 },
  ]) {
    const directory = join(folder, `dp${degrees.dp}`);
    await compile({
      model,
      output: directory,
      devices: 2,
      degrees,
      axes: 'roles',
      initRandom: true,
      training: { loss: { kind: 'mse' }, optimizer: { kind: 'adamw', learningRate: 1e-3 } },
    });
    const session = await openSession(directory);
    const checkpoints = await Checkpoints.open(directory, await readCompiled(directory), 1);
    const [raw, saved, restored, processor]: [number[], number[], number[], number[]] = [[], [], [], []];
    let bytes = 0;
    for (let round = 0; round < ROUNDS; round++) {
      const before = process.cpuUsage();
      const each = await checkpoints.save(session, { step: round, state: {} });
      const { user, system } = process.cpuUsage(before);
      processor.push((user + system) / 1e6);
      bytes = each.bytes;
      saved.push(each.seconds);
      raw.push(rawSeconds(bytes));
      const from = performance.now();
      const found = await checkpoints.find();
      await session.restore(found.folder, found.checkpoint.tensors);
      restored.push((performance.now() - from) / 1000);
    }
    await session.close();
    await checkpoints.close();
    const fastest = (values: readonly number[]) => Math.min(...values);
    const [disk, write, read] = [fastest(raw), fastest(saved), fastest(restored)];
    console.log(
      `dp ${degrees.dp} · tp ${degrees.tp}: ${(bytes / 1e6).toFixed(0)} MB written in ${write.toFixed(2)} s,`,
      `${((100 * disk) / write).toFixed(0)} % of the disk's own rate (${(bytes / disk / 1e6).toFixed(0)} MB/s),`,
      `${fastest(processor).toFixed(2)} s of processor time;`,
      `read and checked in ${read.toFixed(2)} s`,
    );
  }
} finally {
  rmSync(folder, { recursive: true, force: true });
}

/** Seconds to write and sync so many bytes from memory. */
function rawSeconds(bytes: number): number {
  const file = join(folder, 'raw');
  const piece = Buffer.alloc(PIECE, 1);
  const from = performance.now();
  const handle = openSync(file, 'w');
  for (let left = bytes; left > 0; left -= PIECE) writeSync(handle, piece, 0, Math.min(PIECE, left));
  fsyncSync(handle);
  closeSync(handle);
  const seconds = (performance.now() - from) / 1000;
  rmSync(file);
  return seconds;
}
