/**
 * @file Experts with weights of their own, trained over ep: exported weights are under the file's own names, and what one rank
 * trains.
 */
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import test from 'ava';
import { Checkpoints } from '../../src/api/execution/checkpoints.js';
import { randomInputs } from '../../src/api/execution/inputs.js';
import { type CompileOptions, compile, exportWeights, importModel, openSession } from '../../src/api/index.js';
import { readCompiled } from '../../src/api/output/folder.js';
import { openCompiled } from '../../src/api/verify.js';
import type { AutoparError } from '../../src/ir/error.js';
import { loadWeight } from '../../src/ir/onnx/tensors.js';
import { writeOnnx } from '../../src/ir/onnx/writer.js';
import { numbersOf } from '../../src/ir/ops/constants.js';
import { openSafetensors } from '../../src/program/safetensors.js';
import { difference } from '../pipelines/difference.js';
import { type ExpertForm, routedExperts, SMALL } from '../pipelines/expert-models.js';
import { slowTests } from '../selection.js';

const slow = slowTests(test);

const folder = mkdtempSync(join(tmpdir(), 'autopar-test-'));
test.after.always(() => rmSync(folder, { recursive: true, force: true }));

function written(form: ExpertForm): string {
  const model = join(folder, `${form}.onnx`);
  writeFileSync(model, writeOnnx(routedExperts(form, { ...SMALL, layers: 1, attends: false })));
  return model;
}

/** Weights after a step, in both kinds of file. */
async function exported(model: string, name: string, options: Partial<CompileOptions>) {
  const directory = join(folder, name);
  const training = { loss: { kind: 'mse' }, optimizer: { kind: 'sgd', learningRate: 0.1, momentum: 0.9 } } as const;
  await compile({ model, output: directory, training, ...options });
  const { imported } = await openCompiled(directory);
  const session = await openSession(directory);
  const checkpoints = await Checkpoints.open(directory, await readCompiled(directory));
  await session.step(randomInputs(imported.graph, 1));
  await checkpoints.save(session, { step: 1, state: {} });
  await session.close();
  await checkpoints.close();
  const [onnx, safetensors] = [join(folder, `${name}.onnx`), join(folder, `${name}.safetensors`)];
  for (const output of [onnx, safetensors]) await exportWeights({ directory, output });
  return { onnx, safetensors };
}

/** Weights of a model file that has values, by the file's names. */
async function weightsOf(file: string): Promise<Readonly<Record<string, readonly number[]>>> {
  const { weights } = (await importModel(file, { keepsParameters: true })).graph;
  const values = [...weights].map(async ([name, { dtype, shape, source, role }]) => {
    const data = await loadWeight(source);
    return data && role === 'parameter' ? [[name, numbersOf({ dtype, shape, data }).map(Number)] as const] : [];
  });
  return Object.fromEntries((await Promise.all(values)).flat());
}

slow('weights of experts that ep has stacked are exported under their own names', async (t) => {
  const model = written('unrolled');
  const apart = await exported(model, 'apart', { devices: 2, degrees: { dp: 2, tp: 1, ep: 2 } });
  const alone = await exported(model, 'alone', { devices: 1 });
  const [wanted, got, before] = [await weightsOf(alone.onnx), await weightsOf(apart.onnx), await weightsOf(model)];
  const own = Object.keys(wanted).filter((name) => name.includes('experts.3.'));
  t.is(own.length, 4);
  t.deepEqual(Object.keys(got).sort(), Object.keys(wanted).sort());
  for (const name of Object.keys(wanted)) {
    t.true(difference(wanted[name] ?? [], got[name] ?? []) < 1e-5, name);
    if (own.includes(name)) t.true(difference(before[name] ?? [], got[name] ?? []) > 1e-4, name);
  }
  const [one, other] = [await openSafetensors(alone.safetensors), await openSafetensors(apart.safetensors)];
  const entries = (file: typeof one) => Object.fromEntries([...file.entries].map(([key, { shape }]) => [key, shape]));
  t.deepEqual(entries(other), entries(one));
  for (const key of one.entries.keys()) {
    const [a, b] = [await one.read(key), await other.read(key)];
    t.true(difference(numbersOf(a).map(Number), numbersOf(b).map(Number)) < 1e-5, key);
  }
  await one.close();
  await other.close();
});

/** Four steps of a plan, with a checkpoint behind the first two; `from` goes on with one that is there. */
async function losses(directory: string, from?: string): Promise<readonly number[]> {
  const { imported } = await openCompiled(directory);
  const inputs = randomInputs(imported.graph, 1);
  const session = await openSession(directory);
  const checkpoints = await Checkpoints.open(directory, await readCompiled(directory));
  const found: number[] = [];
  const run = async (steps: number) => {
    for (let step = 0; step < steps; step++) {
      const { loss } = (await session.step(inputs)).outputs;
      found.push(loss ? Number(numbersOf(loss)[0]) : Number.NaN);
    }
  };
  try {
    if (from === undefined) {
      await run(2);
      await checkpoints.save(session, { step: 2, state: {} });
    } else {
      const { folder: source, checkpoint } = await checkpoints.find(from);
      await session.restore(source, checkpoint.tensors);
    }
    await run(2);
    return found.slice(-2);
  } finally {
    await session.close();
    await checkpoints.close();
  }
}

for (const form of ['operator', 'unrolled'] as const)
  slow(`experts written as ${form} go on from checkpoints of every plan, their own to the bit`, async (t) => {
    const model = written(form);
    const plans: Readonly<Record<string, Partial<CompileOptions>>> = {
      one: { devices: 1 },
      ep2: { devices: 2, degrees: { dp: 2, tp: 1, ep: 2 }, axes: 'roles' },
      sent: { devices: 2, degrees: { dp: 2, tp: 1, ep: 2 }, dispatch: 'padded' },
    };
    const runs = new Map<string, readonly number[]>();
    const at = (name: string) => join(folder, `${form}-${name}`);
    for (const [name, options] of Object.entries(plans)) {
      const optimizer = { kind: 'adamw', learningRate: 1e-2 } as const;
      await compile({ model, output: at(name), training: { loss: { kind: 'mse' }, optimizer }, ...options });
      runs.set(name, await losses(at(name)));
    }
    for (const [to, from] of [
      ['one', 'ep2'],
      ['ep2', 'ep2'],
      ['ep2', 'one'],
      ['sent', 'ep2'],
      ['one', 'sent'],
    ] as const) {
      const [own = [], found] = [runs.get(from), await losses(at(to), at(from))];
      if (to === from) t.deepEqual(found, own);
      else t.true(difference(own, found) < 1e-5, `${to} from ${from}: ${found} and ${own}`);
    }
    t.true(difference(runs.get('one') ?? [], (runs.get('one') ?? []).toReversed()) > 1e-3, 'losses change');
  });

test('a loss that balances experts knows those with weights of their own, on one rank too', async (t) => {
  const loss = { kind: 'mse', moeBalance: 0.5 } as const;
  const training = { loss, optimizer: { kind: 'sgd', learningRate: 0.1 } } as const;
  const asked = { model: written('masked'), output: join(folder, 'balanced'), devices: 1, training };
  const { plan, verification } = await compile({ ...asked, verify: true });
  t.true(verification?.passed);
  t.true(plan.passes.some(({ name }) => name === 'stack-experts'));
  // Weights of one expert cannot be kept from training apart from the others'.
  const frozen = ['layers.0.experts.experts.1.up.weight'];
  const error = await t.throwsAsync(compile({ ...asked, force: true, training: { ...training, frozen } }));
  t.is((error as AutoparError).code, 'unknown-parameter');
});
