import { closeSync, ftruncateSync, mkdtempSync, openSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import test from 'ava';
import { encodeModel } from '../../src/ir/onnx/schema.js';
import { autopar } from '../cli/autopar.js';
import { model, node, value } from '../ir/model-maker.js';

/** Weights of 256 MiB each. */
const WIDTH = 8192;
const BYTES = 4 * WIDTH * WIDTH;
const LAYERS = 4;

/** Peak memory, in bytes, of a process: written where AUTOPAR_PEAK says when its main thread ends. */
const MEASURE = `const { isMainThread } = require('node:worker_threads');
if (isMainThread) process.on('exit', () =>
  require('node:fs').writeFileSync(process.env.AUTOPAR_PEAK, String(process.resourceUsage().maxRSS * 1024)));`;

for (const words of [
  ['--tp', '2', '--devices', '2'],
  ['--tp', '2', '--devices', '2', '--precision', 'bf16'],
  ['--tp', '2', '--cluster', '1x2:h100-sxm-80', '--precision', 'fp16'],
  ['--pp', '2', '--devices', '2'],
  ['--pp', '2', '--devices', '2', '--train', '--loss', 'mse'],
]) {
  test.serial(`compile ${words.join(' ')} of a weight file of 1 GiB holds at most 600 MB`, async (t) => {
    const folder = mkdtempSync(join(tmpdir(), 'autopar-test-'));
    t.teardown(() => rmSync(folder, { recursive: true, force: true }));
    const layers = Array.from({ length: LAYERS }, (_, layer) => layer);
    const graph = {
      node: layers.map((layer) => node('MatMul', [layer === 0 ? 'x' : `y${layer - 1}`, `w${layer}`], [`y${layer}`])),
      input: [value('x', [4, WIDTH])],
      output: [value(`y${LAYERS - 1}`, [4, WIDTH])],
      initializer: layers.map((layer) => ({
        name: `w${layer}`,
        dims: [WIDTH, WIDTH],
        data_type: 1,
        data_location: 1,
        external_data: Object.entries({ location: 'w.bin', offset: `${layer * BYTES}`, length: `${BYTES}` }).map(
          ([key, text]) => ({ key, value: text }),
        ),
      })),
    };
    writeFileSync(join(folder, 'm.onnx'), encodeModel(model(graph)));
    // Zeros that take no room on the disk.
    const file = openSync(join(folder, 'w.bin'), 'w');
    ftruncateSync(file, LAYERS * BYTES);
    closeSync(file);
    writeFileSync(join(folder, 'measure.cjs'), MEASURE);
    const env = { NODE_OPTIONS: `--require ${join(folder, 'measure.cjs')}`, AUTOPAR_PEAK: join(folder, 'peak') };
    const { code, stderr } = await autopar(['compile', 'm.onnx', ...words, '-o', 'd'], {
      cwd: folder,
      env,
      alone: true,
    });
    t.is(code, 0, stderr);
    const peak = Number(readFileSync(join(folder, 'peak'), 'utf8'));
    t.log(`${Math.round(peak / 1e6)} MB`);
    t.true(peak > 0 && peak <= 600e6, `${peak} bytes`);
  });
}
