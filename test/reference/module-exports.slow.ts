/**
 * @file Exports by both of PyTorch's exporters of modules with parameters and buffers of every kind: autopar trains the elements
 * that the module calls parameters, and no others, and its losses are PyTorch's.
 */
import { execFileSync } from 'node:child_process';
import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import test from 'ava';
import { importModel } from '../../src/api/models/import.js';
import { importedFor, trainingForm } from '../../src/api/models/training-form.js';
import { loadWeight } from '../../src/ir/onnx/tensors.js';
import { numbersOf } from '../../src/ir/ops/constants.js';
import { readNpz } from '../../src/program/arrays/npz.js';
import { missing } from '../missing.js';
import { WHOLE } from '../selection.js';
import { ownSteps } from './own-training.js';
import { torchAbsence } from './torch.js';

interface Exported {
  readonly name: string;
  readonly kinds: readonly string[];
}

const absence = torchAbsence('onnxscript');
/** Of the modules one of each so many is exported, which takes seconds. */
const EVERY = WHOLE ? 1 : 3;

/** The elements of all trained weights, sorted. */
async function trainedElements(file: string): Promise<readonly number[]> {
  const { graph, trained } = trainingForm(await importModel(file, importedFor({})), {});
  const elements: number[] = [];
  for (const name of trained) {
    const weight = graph.weights.get(name);
    const data = weight ? await loadWeight(weight.source) : null;
    if (weight && data) elements.push(...numbersOf({ ...weight, data }));
  }
  return elements.sort((left, right) => left - right);
}

if (missing(absence !== null, absence ?? '') !== null) test.skip(`${absence}`, () => undefined);
else {
  const folder = mkdtempSync(join(tmpdir(), 'autopar-test-'));
  test.after.always(() => rmSync(folder, { recursive: true, force: true }));

  test('what modules call parameters is trained, and as PyTorch trains it', async (t) => {
    const said = execFileSync(
      process.env['AUTOPAR_PYTHON'] || 'python3',
      ['test/reference/module_exports.py', folder, String(EVERY)],
      { encoding: 'utf8' },
    );
    const cases = said.trim().split('\n');
    t.true(cases.length > 10 / EVERY);
    for (const line of cases) {
      const { name, kinds } = JSON.parse(line) as Exported;
      const { x, target, elements, losses } = readNpz(readFileSync(join(folder, `${name}.npz`)), name);
      if (!x || !target || !elements || !losses) throw new Error(`${name} lacks arrays`);
      const expected = numbersOf(losses);
      for (const kind of kinds) {
        const file = join(folder, `${name}.${kind}.onnx`);
        t.deepEqual(await trainedElements(file), numbersOf(elements), `${name}, ${kind}: elements`);
        const optimizer = { kind: 'sgd', learningRate: 0.05 } as const;
        const own = await ownSteps({ file, dims: {}, loss: { kind: 'mse' }, arrays: { x, target } }, { optimizer }, 20);
        own.losses.forEach((loss, step) => {
          const wanted = expected[step] ?? Number.NaN;
          t.true(
            Math.abs(loss - wanted) <= 1e-5 * Math.max(1, Math.abs(wanted)),
            `${name}, ${kind}, ${step}: ${loss}, ${wanted}`,
          );
        });
      }
    }
  });
}
