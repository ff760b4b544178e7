/**
 * @file Pins of operators, stages that are laid out, and tokens dispatched to experts leave the search over steps as it is: the
 * plan keeps them, takes what else makes a step fast or lets it fit, and is no slower than the best of dp and tp beside them.
 */
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import test, { type ExecutionContext } from 'ava';
import * as fc from 'fast-check';
import { languageModel } from '../../../models/language-model.js';
import { type CompileResult, compile, type NestedCompileOptions } from '../../../src/api/compile.js';
import { explainProposals } from '../../../src/api/explanations/explain-proposals.js';
import { importModel } from '../../../src/api/models/import.js';
import { type Training, trainedModel } from '../../../src/api/models/training.js';
import { importedFor } from '../../../src/api/models/training-form.js';
import { plan } from '../../../src/api/plan.js';
import { type Annotations, annotationsOf, type PinRecord } from '../../../src/api/requests/annotations.js';
import { AutoparError } from '../../../src/ir/error.js';
import type { Graph } from '../../../src/ir/graph.js';
import { writeOnnx } from '../../../src/ir/onnx/writer.js';
import { gptSizes } from '../../cost-model/step/sizes.js';
import { routedExperts } from '../../pipelines/expert-models.js';
import { EVERYTHING, slowTests } from '../../selection.js';

const slow = slowTests(test);

const TRAINING: Training = { loss: { kind: 'cross_entropy' }, optimizer: { kind: 'adamw', learningRate: 1e-3 } };

const UP = '/layers.0/feed_forward/up/MatMul';

type Saved = Pick<NestedCompileOptions, 'model' | 'output' | 'training' | 'force'>;

function saved(t: ExecutionContext, layers: number, width = 1): Saved {
  const sizes = { hidden: 16 * width, heads: 2, sequence: 8 * width, vocabulary: 32, layers, batch: 8 * width };
  return savedAs(t, languageModel('gpt', gptSizes(sizes), 1), TRAINING);
}

function savedAs(t: ExecutionContext, graph: Graph, training: Training): Saved {
  const folder = mkdtempSync(join(tmpdir(), 'autopar-test-'));
  t.teardown(() => rmSync(folder, { recursive: true, force: true }));
  const model = join(folder, 'model.onnx');
  writeFileSync(model, writeOnnx(graph));
  return { model, output: join(folder, 'out'), training, force: true };
}

function pinned(...pins: readonly PinRecord[]): Annotations {
  return annotationsOf({ version: 1, pins });
}

/** The axes that shard the columns of a product. */
function columns({ plan: { operators } }: Pick<CompileResult, 'plan'>): readonly string[] {
  return operators[UP]?.strategy.n ?? [];
}

const WHOLE = pinned({ match: { node: UP }, factors: { n: '-' } });

slow('where dp and tp do not fit, a step with a pin is found as without one, and the program is right', async (t) => {
  const options = { ...saved(t, 2), cluster: '1x2:a100-sxm-80', memory: 120_000 };
  const free = await compile(options);
  const found = await compile({ ...options, annotations: WHOLE, verify: true });
  t.true(found.verification?.passed);
  t.true(Math.max(...found.plan.predicted.peakBytes) <= 120_000);
  t.is(found.compared?.[0]?.reason, null);
  t.true(found.plan.predicted.stepSeconds <= 1.1 * free.plan.predicted.stepSeconds);
  t.deepEqual(columns(found), []);
});

test('no step is proposed on which an axis that a pin names has one rank, and explain says so', async (t) => {
  const options = { ...saved(t, 2), cluster: '1x4:a100-sxm-80', planOnly: true };
  const over = pinned({ match: { node: UP }, factors: { n: 'tp' } });
  const found = await compile({ ...options, annotations: over });
  t.true(found.plan.degrees.tp > 1);
  t.true(columns(found).every((axis) => axis.startsWith('tp')) && columns(found).length > 0);
  t.true(found.compared?.filter(({ stepSeconds }) => stepSeconds !== null).every(({ degrees }) => degrees.tp > 1));
  const idle = found.searched?.verdicts.filter(({ degrees }) => degrees.tp === 1 && degrees.pp < 4) ?? [];
  t.true(idle.length > 0);
  for (const verdict of idle) t.regex('reason' in verdict ? verdict.reason : '', /^a pin names tp, which has one rank/);
  const again = await explainProposals(options.output ?? '', { sensitivity: true });
  t.deepEqual(again?.sensitivity?.search.first.configuration.degrees, found.searched?.best[0]?.configuration.degrees);
  // One rank is meant where it is given.
  const given = await compile({ ...options, annotations: over, degrees: { tp: 1 } });
  t.is(given.plan.degrees.tp, 1);
});

test('a pin that names sp is kept on ranks that share sequences', async (t) => {
  const annotations = pinned({ match: { tensor: 'ids' }, layout: '[dp, sp]' });
  const options = { ...saved(t, 2), cluster: '1x4:a100-sxm-80', planOnly: true };
  const found = await compile({ ...options, annotations });
  t.true(found.plan.degrees.sp > 1);
  t.is(found.plan.tensors.ids, '[dp, sp]');
});

slow('steps of dispatched experts with balanced routers are proposed, and the program is right', async (t) => {
  const options: NestedCompileOptions = {
    ...savedAs(t, routedExperts('einsum'), { ...TRAINING, loss: { kind: 'mse', moeBalance: 0.5 } }),
    ...{ dispatch: 'padded', cluster: '1x4:a100-sxm-80', planOnly: true },
  };
  const plain = await compile({ ...options, axes: 'roles' });
  const found = await compile({ ...options, planOnly: false, verify: true });
  t.true(found.verification?.passed);
  t.true(found.compared?.some(({ proposed, stepSeconds }) => proposed !== null && stepSeconds !== null));
  t.true(found.plan.predicted.stepSeconds <= 1.02 * plain.plan.predicted.stepSeconds);
});

test('steps keep the stages that operators are pinned to', async (t) => {
  const annotations = pinned(
    { match: { module: 'layers.0' }, stage: 0 },
    { match: { module: 'layers.1' }, stage: 0 },
    { match: { module: 'layers.3' }, stage: 1 },
  );
  const { plan: found, compared } = await compile({
    ...saved(t, 4),
    ...{ annotations, cluster: '1x4:a100-sxm-80', memory: 250_000, planOnly: true },
  });
  t.is(found.degrees.pp, 2);
  t.true(compared?.some(({ proposed }) => proposed !== null));
  for (const [name, { stage }] of Object.entries(found.operators)) {
    if (/^\/layers\.[01]\//.test(name)) t.is(stage ?? 0, 0, name);
    if (/^\/layers\.3\//.test(name)) t.is(stage, 1, name);
  }
});

test('micro-batches and schedules are searched for stages that are laid out', async (t) => {
  const layout = 'E t | t*3 H';
  const options = {
    ...saved(t, 4, 32),
    cluster: '1x2:a100-sxm-80',
    degrees: { pp: 2 },
    stages: layout,
    planOnly: true,
  };
  const { plan: found, compared, searched } = await compile(options);
  t.true(compared?.every(({ proposed }) => proposed === null || proposed.stageLayers?.join() === '1,3'));
  t.true(found.schedule.microBatches > 1);
  t.deepEqual(searched?.decided.stageLayers, [1, 3]);
  const one = await compile({ ...options, axes: 'roles' });
  t.true(found.predicted.stepSeconds < one.plan.predicted.stepSeconds);
  const error = await t.throwsAsync(compile({ ...options, stages: 'E t | t H' }), { instanceOf: AutoparError });
  t.is(error?.code, 'bad-stages');
});

test('a pin that fits nothing is refused: one without an operator before steps are searched', async (t) => {
  const texts: string[] = [];
  const options = { ...saved(t, 2), devices: 2, planOnly: true, onProgress: (text: string) => texts.push(text) };
  const refused = async (wrong: PinRecord) =>
    t.throwsAsync(compile({ ...options, annotations: pinned(wrong) }), {
      instanceOf: AutoparError,
      message: /^pins\[0\]/,
    });
  await refused({ match: { node: 'absent' }, factors: { n: 'tp' } });
  t.true(texts.length > 0);
  t.false(texts.includes('searching steps'), texts.join());
  // Other degrees may fit a pin that these do not.
  await refused({ match: { node: UP }, factors: { nn: 'tp' } });
  t.true(texts.includes('searching steps'), texts.join());
});

test('under drawn pins no plan is slower than the best of dp and tp under them', async (t) => {
  const pin = fc.constantFrom<PinRecord>(
    { match: { node: UP }, factors: { n: '-' } },
    { match: { node: UP }, factors: { n: 'tp' } },
    { match: { node: UP }, recompute: true },
    { match: { module: 'layers.1.feed_forward' }, style: 'pairwise' },
    { match: { tensor: 'ids' }, layout: '[dp, -]' },
  );
  const drawn = fc.record({
    pins: fc.uniqueArray(pin, { minLength: 1, maxLength: 2, selector: ({ match }) => JSON.stringify(match) }),
    where: fc.constantFrom({ cluster: '1x4:a100-sxm-80' }, { devices: 4 }),
  });
  const property = fc.asyncProperty(drawn, async ({ pins, where }) => {
    const asked = { ...saved(t, 2), ...where, planOnly: true, prefer: 'fastest', headroom: 0 } as const;
    const options = { ...asked, annotations: pinned(...pins) };
    const read = await importModel(options.model, importedFor(TRAINING));
    const plain = await plan(await trainedModel(read, TRAINING, async () => read), options);
    const found = await compile(options);
    t.true(found.plan.predicted.stepSeconds <= plain.plan.predicted.stepSeconds);
  });
  await t.notThrowsAsync(fc.assert(property, { numRuns: EVERYTHING ? 6 : 2 }));
});
