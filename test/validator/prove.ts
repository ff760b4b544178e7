/**
 * @file One sample operator under all its strategies: lowered as partition lowers it, run rank by rank, put together, and
 * compared with the operator run whole.
 */
import { lowerOperator } from '../../src/partition/lower-operator.js';
import type { Mesh } from '../../src/sharding-propagation/mesh.js';
import { operatorOfCase } from '../ir/ops/cases.js';
import type { Run, Values } from '../ir/ops/one-node.js';
import type { Case } from '../ir/ops/sample.js';
import { needEntry } from '../ir/ops/simulate.js';
import { difference } from '../ir/ops/values.js';
import { simulateFragment } from '../partition/simulate-fragment.js';
import { MESHES, strategiesOf } from './strategies.js';

export interface Proof {
  readonly tried: number;
  /** Errors with the strategy that shows each; empty if the rule is right. */
  readonly faults: readonly string[];
}

/** At most this many strategies of a mesh are run, spread evenly over all. */
const PER_MESH = 48;

/** Proves one sample on the values given (null for an absent operand). */
export async function prove(
  sample: Case,
  inputs: readonly (Values | null)[],
  run: Run,
  meshes: readonly Mesh[] = MESHES,
): Promise<Proof> {
  const operator = operatorOfCase(sample);
  const entry = needEntry(sample.op, sample.domain);
  const whole = await run(sample, inputs, operator.outputs);
  const faults: string[] = [];
  let tried = 0;
  for (const mesh of meshes) {
    const all = strategiesOf(entry, operator, mesh);
    const step = Math.max(1, all.length / PER_MESH);
    for (let at = 0; at < all.length; at += step) {
      const strategy = all[Math.floor(at)];
      if (!strategy) continue;
      tried++;
      const words = `${mesh.axes.map(({ name, size }) => `${name} ${size}`).join(' ')}: ${JSON.stringify(strategy)}`;
      try {
        const { fragment } = lowerOperator(operator, strategy, mesh);
        const operands = new Map(inputs.flatMap((value, index) => (value ? [[`in${index}`, value] as const] : [])));
        const names = operator.outputs.flatMap((type, index) => (type && whole[index] ? [`out${index}`] : []));
        // Results that only training makes are in no expansion.
        const made = names.filter((name) => fragment.tensors.has(name));
        const results = await simulateFragment(fragment, operands, made, run);
        for (const [index, name] of made.entries()) {
          const expected = whole[Number(name.slice(3))];
          const got = results[index];
          const fault = expected && got && difference(got, expected, sample.tolerance ?? 1e-4);
          if (fault) faults.push(`${words}, ${name}: ${fault}`);
        }
      } catch (error) {
        faults.push(`${words}: ${error instanceof Error ? error.message : error}`);
      }
    }
  }
  return { tried, faults };
}
