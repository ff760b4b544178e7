import { spawnSync } from 'node:child_process';
import { existsSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import test from 'ava';
import { importModel } from '../../../src/api/models/import.js';
import { findRegions } from '../../../src/ir/fused-regions/find-regions.js';
import { flattenRegions } from '../../../src/ir/fused-regions/flatten-regions.js';
import { ROOT } from '../../cli/autopar.js';
import { missing } from '../../missing.js';

const FOLDER = join(process.env['AUTOPAR_SHARED'] ?? join(ROOT, '..', 'shared'), 'models', 'skeletons');

/** By the layers they have: 24 with one more Gelu in the head, 48, and 32 with two norms each and one at the end. */
const SKELETONS: Readonly<Record<string, Readonly<Record<string, number>>>> = {
  'bert-large-opset18': { Attention: 24, Gelu: 25 },
  'gpt2-xl-opset18': { Attention: 48, Gelu: 48 },
  'llama3-8b-opset18': { Attention: 32, RMSNormalization: 65, RotaryEmbedding: 64, SwiGLU: 32 },
};

for (const [name, expected] of Object.entries(SKELETONS)) {
  const file = join(FOLDER, `${name}.onnx.xz`);
  const title = `regions of ${name}`;
  const unpacked = existsSync(file) ? spawnSync('xz', ['-dc', file], { maxBuffer: 2 ** 26 }) : null;
  if (missing(unpacked?.status !== 0, `${title} (${file} is absent, or xz is)`)) {
    test.skip(title, (t) => t.pass());
    continue;
  }
  test.serial(title, async (t) => {
    const folder = mkdtempSync(join(tmpdir(), 'autopar-skeleton-'));
    t.teardown(() => rmSync(folder, { recursive: true, force: true }));
    writeFileSync(join(folder, 'model.onnx'), unpacked?.stdout ?? '');
    const plain = flattenRegions((await importModel(join(folder, 'model.onnx'))).graph);
    const found: Record<string, number> = {};
    for (const { kind } of findRegions(plain)) found[kind] = (found[kind] ?? 0) + 1;
    t.deepEqual(found, expected);
  });
}
