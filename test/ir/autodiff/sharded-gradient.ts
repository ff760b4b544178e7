/**
 * @file A gradient lowered under the forward operator's strategies on two ranks, simulated, and compared with it whole: proof
 * that its dimensions are named by the right factors of the forward.
 */
import type { FactorRule } from '../../../src/ir/factor-rule.js';
import type { Expansion, GradientView, OperatorView } from '../../../src/ir/operator.js';
import { addExpansion } from '../../../src/partition/expand.js';
import { Fragment } from '../../../src/partition/fragment.js';
import { addOperator } from '../../../src/partition/lower-operator.js';
import { makeMesh } from '../../../src/sharding-propagation/mesh.js';
import { refineRule } from '../../../src/sharding-propagation/refine.js';
import { operandLayouts, type Strategy } from '../../../src/sharding-propagation/strategy.js';
import { findingsOf } from '../../partition/fragment-types.js';
import { simulateFragment } from '../../partition/simulate-fragment.js';
import { strategiesOf } from '../../validator/strategies.js';
import { makeRun, type Values } from '../ops/one-node.js';
import type { Case } from '../ops/sample.js';
import { needEntry } from '../ops/simulate.js';
import { difference } from '../ops/values.js';
import {
  type GradientOptions,
  gradientOf,
  gradientViewOf,
  named,
  operandsOf,
  resultGradientsOf,
  runGradient,
} from './sample-gradient.js';

const run = makeRun();
const mesh = makeMesh([['tp', 2]]);

/** At most this many strategies, spread evenly over all. */
const MOST = 12;

/**
 * Runs the gradient whole and under the strategies of the forward operator; returns how many were tried.
 * @throws Error that names each strategy under which the gradient is another, or cannot be lowered.
 */
export async function checkShardedGradient(sample: Case, options: GradientOptions = {}): Promise<number> {
  const seed = options.seed ?? 1;
  const view = gradientViewOf(sample, options);
  const operands = operandsOf(sample, seed);
  const results = await run(sample, operands, view.outputs);
  const values = named(operands, results, resultGradientsOf(view, seed));
  const expansion = gradientOf(view, options.gradient);
  const whole = await runGradient(view, expansion, values, run);
  const all = gradientStrategies(sample, options);
  const step = Math.max(1, all.length / MOST);
  const faults: string[] = [];
  let tried = 0;
  for (let at = 0; at < all.length; at += step) {
    const strategy = all[Math.floor(at)];
    if (!strategy) continue;
    tried++;
    const fault = await faultUnder(view, expansion, strategy, values, whole, options.tolerance ?? 1e-4).catch(
      (error: unknown) => (error instanceof Error ? error.message : String(error)),
    );
    if (fault) faults.push(`${JSON.stringify({ ...strategy.axes, ...strategy.pieces })}: ${fault}`);
  }
  if (faults.length > 0) throw new Error(`gradient of ${sample.op}, sharded:\n${faults.join('\n')}`);
  return tried;
}

/** The forward's strategies on two ranks under which a gradient is lowered. */
export function gradientStrategies(sample: Case, options: GradientOptions): readonly Strategy[] {
  const view = gradientViewOf(sample, options);
  return strategiesOf(needEntry(view.op, view.domain), view, mesh).filter(
    ({ carried, owed, axes }) => carried === null && owed.kind === 'none' && Object.keys(axes).length > 0,
  );
}

async function faultUnder(
  view: GradientView,
  expansion: Expansion,
  strategy: Strategy,
  values: ReadonlyMap<string, Values>,
  whole: readonly (Values | null)[],
  tolerance: number,
): Promise<string | null> {
  const fragment = lowered(view, expansion, strategy);
  const [finding] = findingsOf(fragment);
  if (finding) return finding;
  const wanted = view.wanted.flatMap((flag, index) => (flag ? [index] : []));
  const operands = new Map([...values].map(([name, value]) => [operandName(view, name), value] as const));
  const made = await simulateFragment(
    fragment,
    operands,
    wanted.map((index) => `out${index}`),
    run,
  );
  for (const [at, index] of wanted.entries()) {
    const [got, expected] = [made[at], whole[index]];
    const fault = got && expected && difference(got, expected, tolerance);
    if (fault) return `d${index}: ${fault}`;
  }
  return null;
}

/** The gradient as an expansion of an operator of its own, whose operands are all that the gradient may read. */
function lowered(view: GradientView, expansion: Expansion, strategy: Strategy): Fragment {
  const forward = needEntry(view.op, view.domain).rule(view);
  const given = view.outputs.map((type, index) => (view.given[index] ? type : null));
  const outer: OperatorView = {
    ...view,
    inputs: [...view.inputs, ...view.outputs, ...given],
    outputs: view.inputs.map((type, index) => (view.wanted[index] ? type : null)),
    outputCount: view.inputs.length,
  };
  const rule: FactorRule = {
    ...forward,
    inputs: [
      ...padded(forward.inputs, view.inputs),
      ...padded(forward.outputs, view.outputs),
      ...padded(forward.outputs, given),
    ],
    outputs: padded(forward.inputs, outer.outputs),
  };
  const fragment = new Fragment(mesh);
  const layouts = operandLayouts(rule, strategy, [], mesh);
  const inputs = outer.inputs.map((type, index) => {
    const layout = layouts[index];
    return type && layout ? fragment.tensor(type, layout, `in${index}`) : null;
  });
  const outputs = outer.outputs.map((type, index) => (type ? `out${index}` : null));
  const { pieces, ...unrefined } = strategy;
  const renamed: Expansion = {
    ...expansion,
    nodes: expansion.nodes.map((node) => ({
      ...node,
      inputs: node.inputs.map((name) => (name === null ? null : operandName(view, name))),
      outputs: node.outputs.map((name) => name.replace(/^d(\d+)$/, 'out$1')),
    })),
  };
  const expanded = { view: outer, rule: refineRule(rule, pieces), strategy: unrefined, expansion: renamed, pieces };
  addExpansion(fragment, expanded, { inputs, outputs }, addOperator);
  return fragment;
}

/** Dimensions only of the tensors that are there. */
function padded(dims: FactorRule['inputs'], types: GradientView['inputs']): FactorRule['inputs'] {
  return types.map((type, index) => (type ? (dims[index] ?? null) : null));
}

/** What the gradient calls `out0` is an operand behind all of the forward's, and `grad0` one behind those; `d0` is `out0`. */
function operandName(view: GradientView, name: string): string {
  const [, kind = '', number = ''] = /^(in|out|grad|d)(\d+)$/.exec(name) ?? [];
  if (kind === '') return name;
  if (kind === 'd') return `out${number}`;
  const before = { in: 0, out: view.inputs.length, grad: view.inputs.length + view.outputs.length }[kind] ?? 0;
  return `in${before + Number(number)}`;
}
