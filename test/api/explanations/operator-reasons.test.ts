/**
 * @file A report's reasons for each operator's sharding, compared with `explain --op` of the operator alone.
 */
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import test, { type ExecutionContext } from 'ava';
import { type CompileOptions, compile, explainOperator, explainPlan, openExplainable } from '../../../src/api/index.js';
import { readAnnotations } from '../../../src/api/requests/annotations.js';
import { slowTests } from '../../selection.js';

const slow = slowTests(test);

const MODEL = 'models/gpt-tiny.onnx';
const FC = '/h.*/mlp/c_fc/MatMul';

async function compiled(t: ExecutionContext, options: Omit<CompileOptions, 'model'>, pinned?: string) {
  const folder = mkdtempSync(join(tmpdir(), 'autopar-test-'));
  t.teardown(() => rmSync(folder, { recursive: true, force: true }));
  const pins = join(folder, 'pins.yaml');
  if (pinned !== undefined)
    writeFileSync(pins, `version: 1\npins:\n  - match: {node: '${pinned}'}\n    factors: {n: tp}\n    why: columns\n`);
  const annotations = pinned === undefined ? {} : { annotations: await readAnnotations(pins) };
  const output = join(folder, 'out');
  const { details } = await compile({ model: MODEL, output, planOnly: true, ...options, ...annotations });
  return { output, pins, operators: (await details()).operators };
}

slow(
  'by price: the figure of the next strategy is the least that explain gives, and the folder says the same',
  async (t) => {
    const cluster = '1x4:a100-sxm-80';
    const { output, operators } = await compiled(t, { cluster, dp: 2, tp: 2, axes: 'roles', globalBatch: 8 });
    const { explainable } = await openExplainable(output);
    let priced = 0;
    for (const { operator, why } of operators) {
      const [reason] = why;
      t.is(reason?.by, 'price', operator);
      if (reason?.by !== 'price' || reason.next === undefined) continue;
      priced += 1;
      const { alternatives, strategy } = explainOperator(explainable, operator);
      const others = alternatives.filter(
        (other) => other.ruledOut === null && JSON.stringify(other.strategy) !== JSON.stringify(strategy),
      );
      t.is(reason.next?.differenceSeconds, others[0]?.differenceSeconds, operator);
      if (reason.next)
        t.true(
          others.some((other) => JSON.stringify(other) === JSON.stringify(reason.next)),
          operator,
        );
    }
    t.true(priced > 20);
    const again = await (await explainPlan(output)).details();
    t.deepEqual(
      again.operators.map(({ operator, why }) => [operator, why]),
      operators.map(({ operator, why }) => [operator, why]),
    );
  },
);

slowTests(test)(
  'beyond the most expensive operators, other strategies are not priced; what recomputes names what it runs again',
  async (t) => {
    const training = { loss: { kind: 'cross_entropy' }, optimizer: { kind: 'sgd', learningRate: 0.1 } } as const;
    const { operators } = await compiled(t, { dp: 2, tp: 2, globalBatch: 8, training, recompute: 'full' });
    const reasons = operators.map(({ why }) => why[0]);
    t.true(operators.length > 80);
    t.true(reasons.findIndex((reason) => reason?.by === 'price' && reason.next === undefined) >= 32);
    const clones = reasons.flatMap((reason) => (reason?.by === 'recompute' ? [reason.operator] : []));
    t.true(clones.includes('/h.0/mlp/c_fc/MatMul'));
  },
);

test('pins name file and line; of equal layers of which some are pinned, the others have a reason of their own', async (t) => {
  const cluster = '1x4:a100-sxm-80';
  const options = { cluster, dp: 2, tp: 2, axes: 'roles', globalBatch: 8 } as const;
  const all = await compiled(t, options, FC);
  const source = { file: all.pins, line: 4, why: 'columns' };
  const rowOf = ({ operators }: typeof all, operator: string) => operators.find((own) => own.operator === operator);
  const row = rowOf(all, '/h.0/mlp/c_fc/MatMul');
  t.like(row?.why, [{ by: 'pins', operators: row?.count, pins: [source] }]);
  // The search chooses these alike without a pin on the second layer.
  const one = await compiled(t, options, '/h.1/mlp/c_fc/MatMul');
  const shared = one.operators.find(({ operator, count }) => count === 2 && operator === '/h.0/mlp/c_fc/MatMul');
  t.like(shared?.why[0], { by: 'pins', operators: 1, pins: [{ line: 4 }] });
  t.is(shared?.why[1]?.by, 'price');
});

slowTests(test)('by propagation: the chains are those of explain', async (t) => {
  const { output, operators } = await compiled(t, { devices: 4, dp: 2, tp: 2, complete: 'propagate' }, FC);
  const { explainable } = await openExplainable(output);
  for (const { operator, why } of operators) {
    const { chains, pins } = explainOperator(explainable, operator);
    const [reason] = why;
    if (reason?.by === 'pins') t.deepEqual(reason.pins, pins);
    else t.deepEqual(reason, { by: 'propagation', chains }, operator);
  }
  const down = operators.find(({ operator }) => operator === '/h.0/mlp/c_proj/MatMul')?.why[0];
  t.true(down?.by === 'propagation' && down.chains.some(({ steps }) => steps.at(-1)?.at === 'pin'));
});
