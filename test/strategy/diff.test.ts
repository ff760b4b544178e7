/**
 * @file Differences between plans, and their costs; checkpoints for others refused.
 */
import test from 'ava';
import { AutoparError } from '../../src/ir/error.js';
import { decodeModel } from '../../src/ir/onnx/schema.js';
import { writeOnnx } from '../../src/ir/onnx/writer.js';
import { operatorOf } from '../../src/ir/operator-of.js';
import { entryOf } from '../../src/ir/ops/index.js';
import { annotationsOf } from '../../src/sharding-propagation/annotations/read-annotations.js';
import { resolveAnnotations } from '../../src/sharding-propagation/annotations/resolve-annotations.js';
import { meets, satisfies } from '../../src/sharding-propagation/pin.js';
import { diffPlans, operatorText } from '../../src/strategy/diff.js';
import { checkCheckpoint } from '../../src/strategy/fingerprint.js';
import { mindSporeStrategy } from '../../src/strategy/mindspore/export.js';
import { mindSporePins } from '../../src/strategy/mindspore/import.js';
import { annotateModel } from '../../src/strategy/onnx/annotate.js';
import { annotationPins } from '../../src/strategy/onnx/read-annotations.js';
import { pinsToJson, pinsToYaml } from '../../src/strategy/pin-document.js';
import type { PlacedPlan } from '../../src/strategy/placed-operators.js';
import type { Plan } from '../../src/strategy/plan.js';
import { planPins } from '../../src/strategy/plan-pins.js';
import { llamaGraph, SMALL_LLAMA } from '../search/small-graphs.js';
import { planFor } from './planned.js';

const GRAPH = llamaGraph({ ...SMALL_LLAMA, layers: 4 });

test('a plan does not differ from itself', async (t) => {
  const { plan } = await planFor(GRAPH, { dp: 2, tp: 2 });
  const difference = diffPlans(plan, plan);
  t.true(difference.same);
  t.is(difference.cost?.stepSeconds.before, difference.cost?.stepSeconds.after);
});

test('degrees, strategies, layouts and costs are told apart', async (t) => {
  const { plan: before } = await planFor(GRAPH, { dp: 1, tp: 4 });
  const { plan: after } = await planFor(GRAPH, { dp: 2, tp: 2 });
  const difference = diffPlans(before, after, GRAPH);
  t.false(difference.same);
  const setting = (name: string) => difference.settings.find((entry) => entry.name === name);
  t.like(setting('dp'), { before: '1', after: '2' });
  t.like(setting('mesh'), { before: 'dp 1 · tp 4', after: 'dp 2 · tp 2' });
  t.true(difference.operators.some(({ after: text }) => text?.includes('dp')));
  // Per operator: every layer is there, not only the first of its class.
  const named = difference.operators.filter(({ name }) => name.startsWith('layers.3.'));
  t.true(named.length > 5);
  t.true(difference.tensors.length > 0);
  t.deepEqual(difference.cost?.stepSeconds, {
    before: before.predicted.stepSeconds,
    after: after.predicted.stepSeconds,
  });
  const parts = Object.values(difference.cost?.parts ?? {});
  const sum = (side: 'before' | 'after') => parts.reduce((total, part) => total + part[side], 0);
  t.true(Math.abs(sum('before') - before.predicted.stepSeconds) < 1e-9);
  t.true(Math.abs(sum('after') - after.predicted.stepSeconds) < 1e-9);
});

test('one changed strategy is one line', async (t) => {
  const { plan } = await planFor(GRAPH, { dp: 1, tp: 2 });
  const [name = ''] = Object.keys(plan.operators);
  const changed: Plan = {
    ...plan,
    operators: { ...plan.operators, [name]: { stage: 0, strategy: {}, recompute: true } },
  };
  t.deepEqual(
    diffPlans(plan, changed).operators.map((entry) => entry.name),
    [name],
  );
  t.is(operatorText(changed.operators[name] as never, plan), 'replicated; recomputed');
});

test('layers grouped otherwise need the model', async (t) => {
  const { plan } = await planFor(GRAPH, { dp: 1, tp: 2 });
  const error = t.throws(() => diffPlans(plan, { ...plan, layerClasses: [] }), { instanceOf: AutoparError });
  t.is(error?.code, 'model-needed');
});

test('plans of two models are refused with what differs', async (t) => {
  const { plan } = await planFor(GRAPH, { dp: 1, tp: 2 });
  const other = { ...plan, model: { ...plan.model, fingerprint: 'b'.repeat(64), dims: { batch: 4 } } };
  const error = t.throws(() => diffPlans(plan, other), { instanceOf: AutoparError });
  t.is(error?.code, 'strategy-mismatch');
  t.regex(error?.message ?? '', /dimension batch not bound and 4/);
});

test('a model trained in two ways is one model: what both graphs have is compared, the rest counted', async (t) => {
  const { plan } = await planFor(GRAPH, { dp: 1, tp: 2 });
  const isSharded = ({ strategy }: Plan['operators'][string]) => Object.values(strategy).flat().length > 0;
  const [name = '', other = ''] = Object.keys(plan.operators).filter((own) => isSharded(plan.operators[own] as never));
  const { [name]: _, ...rest } = plan.operators;
  const replicated = { stage: 0, strategy: {}, recompute: false };
  const trained: Plan = {
    ...plan,
    model: { ...plan.model, fingerprint: 'b'.repeat(64) },
    training: { loss: { kind: 'mse' }, optimizer: { kind: 'sgd', learningRate: 0.1 }, trained: 6 },
    operators: { ...rest, [other]: replicated, update: replicated },
  };
  const difference = diffPlans(plan, trained);
  t.false(difference.same);
  t.deepEqual(difference.unshared, { before: 1, after: 1 });
  t.deepEqual(
    difference.operators.map((entry) => entry.name),
    [other],
  );
  const settings = new Map(difference.settings.map((entry) => [entry.name, entry.after]));
  t.is(settings.get('graph'), 'training step');
  t.is(settings.get('loss'), '{"kind":"mse"}');
  // Two models of one name are refused whatever they are trained with.
  const bound = { ...trained, model: { ...trained.model, dims: { batch: 4 } } };
  t.is(t.throws(() => diffPlans(plan, bound), { instanceOf: AutoparError })?.code, 'strategy-mismatch');
  const edited = { ...plan, model: trained.model };
  t.regex(
    t.throws(() => diffPlans(plan, edited), { instanceOf: AutoparError })?.message ?? '',
    /operators, shapes or constants differ/,
  );
});

test('a checkpoint for another model or number of devices lists all that differs', async (t) => {
  const { plan } = await planFor(GRAPH, { dp: 1, tp: 2 });
  const refuse = (model: Plan['model'], devices?: number) =>
    t.throws(() => checkCheckpoint(plan, model, devices, 'plan.json'), { instanceOf: AutoparError });
  t.notThrows(() => checkCheckpoint(plan, plan.model, 2));
  t.regex(refuse(plan.model, 4)?.message ?? '', /these devices: there are 4 devices, not 2/);
  const other = { ...plan.model, name: 'bert', fingerprint: 'b'.repeat(64), dims: { batch: 4 } };
  const error = refuse(other, 8);
  t.is(error?.code, 'strategy-mismatch');
  t.regex(error?.message ?? '', /its name is bert.*dimension batch is 4.*there are 8 devices, not 2/);
  t.regex(refuse({ ...plan.model, fingerprint: 'b'.repeat(64) })?.message ?? '', /operators, shapes or constants/);
});

test('a plan’s choices as pins name every factor, and are what the plan does', async (t) => {
  const { placed } = await planFor(GRAPH, { dp: 2, tp: 2 });
  const { mesh } = placed.assignment;
  const document = planPins(placed);
  const q = document.pins.find(({ match }) => match.node === 'layers.0.q');
  t.deepEqual(q?.factors, { b0: 'dp', m: '-', k: '-', n: 'tp' });
  const text = await pinsToYaml(document, 'a comment\nof two lines');
  t.true(text.startsWith('# a comment of two lines\n'));
  t.deepEqual(JSON.parse(pinsToJson(document)), document);
  const pins = resolveAnnotations(annotationsOf(document), GRAPH, mesh);
  const byNode = new Map(placed.operators.map((operator) => [operator.node.name, operator]));
  let operators = 0;
  for (const pin of pins) {
    if (pin.kind !== 'operator') continue;
    const found = byNode.get(pin.node);
    const operator = found && operatorOf(GRAPH, found.node);
    const entry = operator && entryOf(operator.op, operator.domain);
    if (!found || !entry) throw new Error(pin.node);
    t.true(satisfies(pin, found.strategy, entry.rule(operator), entry.linear(operator), mesh), pin.node);
    operators++;
  }
  t.true(operators >= GRAPH.nodes.length - 2);
});

for (const [name, pinsOf] of [
  [
    'MindSpore’s checkpoint',
    (placed: PlacedPlan) =>
      mindSporePins(mindSporeStrategy(GRAPH, placed).document, GRAPH, { mesh: placed.assignment.mesh, file: 'x' }).pins,
  ],
  [
    'an annotated model',
    (placed: PlacedPlan, plan: Plan) => {
      const model = annotateModel(decodeModel(writeOnnx(GRAPH)), plan, placed);
      return annotationPins(model, GRAPH, { mesh: placed.assignment.mesh, file: 'x' }).pins;
    },
  ],
] as const) {
  test(`pins from ${name} are satisfied by the plan that it was made from`, async (t) => {
    const { plan, placed } = await planFor(GRAPH, { dp: 2, tp: 2 });
    const { mesh } = placed.assignment;
    const pins = resolveAnnotations(annotationsOf(pinsOf(placed, plan)), GRAPH, mesh);
    t.true(pins.length > 20);
    const byNode = new Map(placed.operators.map((operator) => [operator.node.name, operator]));
    for (const pin of pins) {
      if (pin.kind !== 'operator') continue;
      const found = byNode.get(pin.node);
      const results = found?.results.map((layout) => layout && { ...layout, partial: [] }) ?? [];
      const operands = found?.operands.map((layout) => layout && { ...layout, partial: [] }) ?? [];
      for (const [demands, layouts] of [
        [pin.operands, operands],
        [pin.results, results],
      ] as const) {
        for (const [index, demand] of (demands ?? []).entries()) {
          const layout = layouts[index];
          if (demand && layout) t.true(meets(demand, layout, mesh), `${pin.node} ${index}`);
        }
      }
    }
  });
}
