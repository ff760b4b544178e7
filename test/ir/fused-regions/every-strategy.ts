/**
 * @file A region under every strategy: the proof that its composed rule claims no more than its body keeps.
 */
import type { ConstantTensor, Graph, Node } from '../../../src/ir/graph.js';
import { writeOnnx } from '../../../src/ir/onnx/writer.js';
import { operatorOf } from '../../../src/ir/operator-of.js';
import { constant, numbersOf } from '../../../src/ir/ops/constants.js';
import { ruleOf } from '../../../src/ir/ops/index.js';
import { lowerOperator } from '../../../src/partition/lower-operator.js';
import { evaluate } from '../../../src/runtime/evaluate.js';
import { type Mesh, makeMesh } from '../../../src/sharding-propagation/mesh.js';
import { checkStrategy, type Strategy } from '../../../src/sharding-propagation/strategy.js';
import { simulateFragment } from '../../partition/simulate-fragment.js';
import { makeRun, type Values } from '../ops/one-node.js';

const run = makeRun();

const TOLERANCE = 1e-4;

const MESHES = [
  makeMesh([['dp', 2]]),
  makeMesh([['tp', 4]]),
  makeMesh([
    ['dp', 2],
    ['tp', 2],
  ]),
];

/**
 * Every assignment of the mesh's axes (and of the first half of a large one) to the factors that may be sharded, and to one that
 * streams beside another.
 */
function strategies(graph: Graph, node: Node, mesh: Mesh): readonly Strategy[] {
  const operator = operatorOf(graph, node);
  const rule = ruleOf(operator);
  const names = [...rule.factors.values()].filter(({ kind }) => kind !== 'whole').map(({ name }) => name);
  const streamed = names.filter((name) => rule.factors.get(name)?.streams);
  const choices = [
    ...names.map((name) => [name]),
    ...streamed.flatMap((name) => names.flatMap((beside) => (beside === name ? [] : [[beside, name]]))),
  ];
  let all: readonly Record<string, readonly string[]>[] = [{}];
  for (const axis of mesh.axes) {
    const subs = axis.subAxes.map(({ name }) => name);
    all = all.flatMap((axes) => [
      axes,
      ...choices.flatMap((choice) =>
        [subs, subs.slice(0, 1)].map((part) => ({
          ...axes,
          ...Object.fromEntries(choice.map((name) => [name, [...(axes[name] ?? []), ...part]])),
        })),
      ),
    ]);
  }
  return all
    .map((axes): Strategy => ({ axes, partialOperands: null, pending: { kind: 'none' } }))
    .filter((strategy) => checkStrategy(rule, strategy, [], mesh) === null);
}

/**
 * Lowers the only node of a graph under every strategy (or `most` of them, spread evenly), runs it on shards and compares with
 * the whole; returns how many were tried. @throws Error that names the strategy under which it is another
 */
export async function provesRight(graph: Graph, seed: number, most = Number.POSITIVE_INFINITY): Promise<number> {
  const [node] = graph.nodes;
  if (!node) throw new Error('no region');
  const operator = operatorOf(graph, node);
  const values = node.inputs.map((name, index): Values => {
    const type = graph.tensors.get(name ?? '');
    if (!type) throw new Error('no type');
    const weight = graph.weights.get(name ?? '');
    if (weight?.source.kind === 'inline') return { ...type, data: numbersOf({ ...type, data: weight.source.data }) };
    const count = type.shape.reduce((product, size) => product * size, 1);
    const data = Array.from({ length: count }, (_, at) => Math.sin(seed + 7 * index + 1.7 * at));
    return { ...type, data: type.dtype === 'int64' ? data.map((value) => Math.floor(3.9 + 3.9 * value)) : data };
  });
  const feeds = Object.fromEntries(
    node.inputs.flatMap((name, index): (readonly [string, ConstantTensor])[] => {
      const value = values[index];
      return name !== null && value && graph.inputs.includes(name)
        ? [[name, constant(value.dtype, value.data, value.shape)]]
        : [];
    }),
  );
  const whole = await evaluate(writeOnnx(graph), feeds);
  const expected = graph.outputs.map((name) => numbersOf(whole[name] as ConstantTensor));
  const results = expected.map((_, index) => `out${index}`);
  let tried = 0;
  const all = MESHES.flatMap((mesh) => strategies(graph, node, mesh).map((strategy) => ({ mesh, strategy })));
  for (let at = 0; at < all.length; at += Math.max(1, all.length / most)) {
    const { mesh, strategy } = all[Math.floor(at)] ?? {};
    if (mesh && strategy) {
      const { fragment } = lowerOperator(operator, strategy, mesh);
      const operands = new Map(values.map((value, index) => [`in${index}`, value]));
      const made = await simulateFragment(fragment, operands, results, run);
      for (const [index, numbers] of expected.entries()) {
        const got = made[index]?.data;
        const wrong = numbers.findIndex((value, at) => !(Math.abs(value - (got?.[at] ?? Number.NaN)) <= TOLERANCE));
        if (wrong >= 0)
          throw new Error(
            `${JSON.stringify(strategy.axes)}: ${got?.[wrong]} is not ${numbers[wrong]} (result ${index})`,
          );
      }
      tried++;
    }
  }
  return tried;
}
