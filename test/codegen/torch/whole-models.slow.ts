/**
 * @file Whole models in torch on two ranks: those of PyTorch's exporters against the outputs that PyTorch gave, and generated
 * ones of every family against the bundled runtime.
 */
import { mkdtempSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import test from 'ava';
import { generatedModel } from '../../../models/families.js';
import { writeOnnx } from '../../../src/ir/onnx/writer.js';
import { writeNpz } from '../../../src/program/arrays/npz.js';
import { dimsOf, sharedCases } from '../../api/shared-models.js';
import { difference } from '../../conformance/compare.js';
import { missing } from '../../missing.js';
import { torchAbsence } from '../../reference/torch.js';
import { type Emitted, emitted, type Ran, ranHere, runForked } from './emitted.js';

const absence = torchAbsence('numpy', 'safetensors');

/** Small ones of families that the exporters' models have none of. */
const FAMILIES = [
  'unet:levels=2,width=4,image=16',
  'bert:layers=1,seq=8,hidden=16,heads=4,ffn=32,vocab=32',
  'moe:layers=1,seq=8,hidden=16,heads=4,kv_heads=4,ffn=32,vocab=32,experts=4,topk=2',
] as const;
const TOLERANCE = { rtol: 1e-4, atol: 1e-5 };

if (missing(absence !== null, absence ?? '') !== null) test.skip(`${absence}`, () => undefined);
else {
  const folder = mkdtempSync(join(tmpdir(), 'autopar-torch-models-'));
  const shared = sharedCases();
  const programs = new Map<string, Emitted>();
  const refused = new Map<string, unknown>();
  let ran: ReadonlyMap<string, Ran> = new Map();
  test.before(async () => {
    const ranks = { devices: 2, degrees: { dp: 1, tp: 2 } };
    for (const own of shared)
      try {
        const out = join(folder, own.name);
        const program = await emitted(out, 1, { ...ranks, model: own.file, dims: await dimsOf(own) });
        writeFileSync(join(out, 'inputs.npz'), writeNpz(own.inputs));
        programs.set(own.name, program);
      } catch (error) {
        refused.set(own.name, error);
      }
    for (const [index, family] of FAMILIES.entries())
      try {
        const model = join(folder, `${index}.onnx`);
        writeFileSync(model, writeOnnx(generatedModel(family).build(4)));
        programs.set(family, await emitted(join(folder, `${index}`), 1, { ...ranks, model, initRandom: true }));
      } catch (error) {
        refused.set(family, error);
      }
    ran = runForked([...programs.values()]);
  });
  const ranOf = (name: string): Ran => {
    const result = ran.get(programs.get(name)?.folder ?? '');
    if (!result) throw refused.get(name) ?? new Error('the program did not run');
    return result;
  };

  for (const { name, outputs, tolerance } of shared)
    test(`${name} gives the outputs that PyTorch gave`, (t) => {
      const got = ranOf(name);
      for (const [output, wanted] of Object.entries(outputs)) {
        const value = got.outputs[output];
        t.is(value ? difference(output, value, wanted, tolerance) : 'absent', null);
      }
    });

  for (const family of FAMILIES)
    test(`${family} gives what the bundled runtime gives`, async (t) => {
      const got = ranOf(family);
      const { outputs } = await ranHere(programs.get(family) as Emitted);
      t.true(Object.keys(outputs).length > 0);
      for (const [output, wanted] of Object.entries(outputs)) {
        const value = got.outputs[output];
        t.is(value ? difference(output, value, wanted, TOLERANCE) : 'absent', null);
      }
    });
}
