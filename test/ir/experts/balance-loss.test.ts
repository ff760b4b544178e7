/**
 * @file The load-balancing loss against its formula, computed here from the scores.
 */
import test from 'ava';
import { randomInputs } from '../../../src/api/execution/inputs.js';
import { runGraph } from '../../../src/api/verification/reference.js';
import { appendLoss } from '../../../src/ir/autodiff/append-loss.js';
import type { Graph } from '../../../src/ir/graph.js';
import { numbersOf } from '../../../src/ir/ops/constants.js';
import { type ExpertForm, type ExpertSizes, routedExperts, SMALL } from '../../pipelines/expert-models.js';

const WEIGHT = 0.7;

/** Σ over layers of the mean over samples of experts · Σ share of choices · mean gate. */
function expected(layers: readonly (readonly number[])[], { batch, steps, experts, chosen }: ExpertSizes): number {
  const indices = (count: number) => Array.from({ length: count }, (_, index) => index);
  const ofSample = (scores: readonly number[], sample: number) => {
    const rows = indices(steps).map((step) => {
      const from = (sample * steps + step) * experts;
      const row = scores.slice(from, from + experts).map(Math.exp);
      const sum = row.reduce((all, value) => all + value, 0);
      return row.map((value) => value / sum);
    });
    const shares = indices(experts).map(
      (expert) =>
        rows.filter((row) => row.filter((other) => other > (row[expert] ?? 0)).length < chosen).length /
        (chosen * steps),
    );
    const gates = indices(experts).map((expert) => rows.reduce((all, row) => all + (row[expert] ?? 0), 0) / steps);
    return experts * shares.reduce((all, share, expert) => all + share * (gates[expert] ?? 0), 0);
  };
  const mean = (values: readonly number[]) => values.reduce((all, value) => all + value, 0) / values.length;
  return layers.reduce((all, scores) => all + mean(indices(batch).map((sample) => ofSample(scores, sample))), 0);
}

for (const [form, skew] of [
  ['einsum', {}],
  ['operator', {}],
  ['capacity', {}],
  ['einsum', { bias: 50 }],
] as const satisfies readonly (readonly [ExpertForm, Partial<ExpertSizes>])[])
  test(`the loss has the balance of routers besides: ${form} ${JSON.stringify(skew)}`, async (t) => {
    const sizes = { ...SMALL, ...skew };
    const graph: Graph = { ...routedExperts(form, sizes), batch: [{ input: 'ids', axis: 0 }] };
    const router = skew.bias ? /experts.Add_output|experts\/Add/ : /router/;
    const scores = graph.nodes.flatMap(({ op, name, outputs }) =>
      router.test(name) && op === (skew.bias ? 'Add' : 'MatMul') ? (outputs[0] ?? []) : [],
    );
    t.is(scores.length, sizes.layers);
    const lossOf = async (moeBalance?: number) => {
      const scored = appendLoss(graph, { kind: 'mse', ...(moeBalance === undefined ? {} : { moeBalance }) });
      const results = await runGraph(scored.graph, randomInputs(scored.graph, 3), scores);
      const numbers = (name: string) =>
        numbersOf(results[name] ?? { dtype: 'float32', shape: [0], data: new Uint8Array() }).map(Number);
      return { loss: numbers(scored.loss)[0] ?? Number.NaN, layers: scores.map(numbers) };
    };
    const [plain, balanced] = [await lossOf(), await lossOf(WEIGHT)];
    const wanted = expected(plain.layers, sizes);
    t.log(wanted);
    t.true(Math.abs(balanced.loss - plain.loss - WEIGHT * wanted) < 1e-4 * wanted);
  });

test('a balance of nothing is refused', (t) => {
  const graph = routedExperts('einsum', { ...SMALL, chosen: SMALL.experts });
  t.throws(() => appendLoss(graph, { kind: 'mse', moeBalance: 1 }), { message: /needs experts with top-k routing/ });
});
