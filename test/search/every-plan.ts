/**
 * @file Brute force for whole graphs: every combination of candidates and reshard layouts of a small graph, lowered and priced.
 */
import type { Cluster } from '../../src/cost-model/cluster.js';
import { memoryOf, priceGraph } from '../../src/cost-model/predict.js';
import { stepPrice } from '../../src/cost-model/price.js';
import type { Graph, Node } from '../../src/ir/graph.js';
import { operatorOf } from '../../src/ir/operator-of.js';
import type { SharedReshard } from '../../src/partition/assignment.js';
import { partition } from '../../src/partition/partition.js';
import { candidatesOf } from '../../src/search/candidates.js';
import { type Layout, layoutKey } from '../../src/sharding-propagation/layout.js';
import type { Mesh } from '../../src/sharding-propagation/mesh.js';
import type { OperatorPin } from '../../src/sharding-propagation/pin.js';
import { makeResharder } from '../../src/sharding-propagation/resharding.js';
import { rolesOf } from '../../src/sharding-propagation/roles.js';
import { readersByTensor } from '../../src/strategy/readers.js';
import { GraphBuilder } from './small-graphs.js';

/** One projection read by two operators whose results are joined: the projection's resharding is shared. */
export function diamond(): Graph {
  const builder = new GraphBuilder();
  const x = builder.input('x', [6, 64]);
  const projected = builder.add('projected', 'MatMul', [x, builder.weight('A', [64, 96])]);
  const left = builder.add('left', 'MatMul', [projected, builder.weight('B', [96, 5])]);
  const right = builder.add('right', 'Softmax', [projected], { axis: -1 });
  const total = builder.add('total', 'MatMul', [right, builder.weight('C', [96, 5])]);
  return builder.build([builder.add('sum', 'Add', [left, total])]);
}

/** The cost of a plan, and the bytes that it needs on a device. */
interface Priced {
  readonly cost: number;
  readonly peak: number;
}

interface Asked {
  /** Axes whose degree is given. */
  readonly pinned: ReadonlySet<string>;
  readonly pins?: readonly OperatorPin[];
}

/** Every combination of candidates and of layouts of sharedReshards, lowered. */
export function everyPlan(graph: Graph, mesh: Mesh, cluster: Cluster, { pinned, pins = [] }: Asked): readonly Priced[] {
  const resharder = makeResharder(mesh, stepPrice(cluster, mesh));
  const readers = [...readersByTensor(graph)];
  const sets = graph.nodes.map((node) => ({
    node,
    set: candidatesOf({
      operator: operatorOf(graph, node),
      mesh,
      cluster,
      // The first dimension of every operand and result is the batch here.
      families: {
        place: 'elsewhere',
        digits: {},
        factors: {
          batch: new Set([node.op === 'MatMul' ? 'm' : 'a0']),
          sequence: new Set(),
          heads: new Set(),
          expert: new Set(),
        },
      },
      roles: rolesOf(),
      weights: node.inputs.map((input) => input !== null && graph.weights.has(input)),
      axes: 'roles',
      pinned,
      // Beside the matmuls, only the softmax is among the operators that do nine tenths of the work.
      heavy: node.op === 'Softmax',
      hints: new Map(),
      pins: pins.filter((pin) => pin.node === node.name),
    }),
  }));
  const plans: Priced[] = [];
  forAll(
    sets.map(({ set }) => set.strategies.length),
    (choice) => {
      const state = new Map(sets.map(({ node, set }, index) => [node.name, { set, index: choice[index] as number }]));
      const demanded = (name: string, operand: number) => {
        const chosen = state.get(name);
        return chosen?.set.operands[chosen.index]?.[operand] as Layout;
      };
      const options = readers.map(([tensor, list]) => {
        const producer = graph.nodes.find((node: Node) => node.outputs.includes(tensor));
        const chosen = producer && state.get(producer.name);
        const produced = chosen ? [chosen.set.results[chosen.index]?.[0] as Layout] : [];
        // An input may come in, and readers may share, what any of their candidates asks for.
        const isOpen = graph.inputs.includes(tensor) || list.length > 1;
        const wanted = list.flatMap((reader) => {
          if (reader.kind !== 'operator') return [];
          const asked = state.get(reader.name)?.set.operands ?? [];
          return isOpen
            ? asked.map((operands) => operands[reader.operand] as Layout)
            : [demanded(reader.name, reader.operand)];
        });
        const isOutput = list.some((reader) => reader.kind === 'output');
        const settled = isOpen ? wanted.filter((layout) => layout.partial.length === 0) : wanted;
        const all = isOutput ? produced.filter((layout) => layout.partial.length === 0) : [...produced, ...settled];
        return [...new Map(all.map((layout) => [layoutKey(layout), layout])).values()];
      });
      const strategies = new Map(
        [...state].map(([name, { set, index }]) => [name, set.strategies[index] as (typeof set.strategies)[number]]),
      );
      forAll(
        options.map((list) => list.length),
        (picks) => {
          const sharedReshards: SharedReshard[] = readers.map(([tensor, list], index) => ({
            tensor,
            readers: list,
            layout: options[index]?.[picks[index] as number] as Layout,
          }));
          const inputs = new Map(
            graph.inputs.flatMap((input) => {
              const reshard = sharedReshards.find((candidate) => candidate.tensor === input);
              return reshard && reshard.layout.partial.length === 0 ? [[input, reshard.layout] as const] : [];
            }),
          );
          if (inputs.size < graph.inputs.length) return;
          const sharded = partition(graph, { mesh, strategies, inputs, sharedReshards }, resharder);
          const { peakBytes } = memoryOf(sharded, cluster);
          plans.push({ cost: priceGraph(sharded, cluster), peak: peakBytes });
        },
      );
    },
  );
  return plans;
}

/** Calls `visit` with every combination of numbers below the sizes. */
function forAll(sizes: readonly number[], visit: (choice: readonly number[]) => void): void {
  if (sizes.some((size) => size === 0)) return;
  const choice = sizes.map(() => 0);
  for (;;) {
    visit(choice);
    let digit = choice.length - 1;
    while (digit >= 0 && choice[digit] === (sizes[digit] as number) - 1) choice[digit--] = 0;
    if (digit < 0) return;
    choice[digit] = (choice[digit] as number) + 1;
  }
}
