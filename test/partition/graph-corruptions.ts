/**
 * @file Ways in which a sharded graph can be wrong, each a change of one thing: for every collective and every tensor all of its
 * kinds. None leaves the meaning of the graph as it is.
 */
import type { DType } from '../../src/ir/dtype.js';
import { checkStages } from '../../src/partition/check.js';
import type { LoweredStage } from '../../src/partition/lower-stages.js';
import {
  type Collective,
  type CommunicationNode,
  readsOf,
  resultsOf,
  type ShardedGraph,
  type ShardedNode,
  type ShardedTensor,
  type StageTransfer,
} from '../../src/partition/sharded-graph.js';
import { axesSize, subAxes } from '../../src/sharding-propagation/mesh.js';

/** One wrong graph. */
export interface CorruptedGraph {
  readonly kind: string;
  readonly where: string;
  readonly graph: ShardedGraph;
}

/** How many corruptions of each kind were tried, up to `most` of each stage's, and those that the check lets pass. */
export function refused(
  stages: readonly LoweredStage[],
  most: number,
): { readonly tried: ReadonlyMap<string, number>; readonly passed: readonly string[] } {
  const tried = new Map<string, number>();
  const passed: string[] = checkStages(stages).map(({ node, problem }) => `right, and refused: ${node}: ${problem}`);
  for (const { graph, sharded } of stages) {
    const byKind = new Map<string, CorruptedGraph[]>();
    for (const one of corruptionsOf(withoutStages(sharded))) {
      const same = byKind.get(one.kind);
      if (same) same.push(one);
      else byKind.set(one.kind, [one]);
    }
    for (const [kind, all] of byKind) {
      const step = Math.max(1, all.length / most);
      const chosen = Array.from({ length: Math.min(most, all.length) }, (_, index) => all[Math.floor(index * step)]);
      tried.set(kind, (tried.get(kind) ?? 0) + chosen.length);
      for (const one of chosen)
        if (one && checkStages([{ graph, sharded: one.graph }]).length === 0) passed.push(`${kind}: ${one.where}`);
    }
  }
  return { tried, passed };
}

/** Every corruption of what stages send one another. */
export function* transferCorruptions(
  stages: readonly LoweredStage[],
): Generator<{ readonly kind: string; readonly where: string; readonly stages: readonly LoweredStage[] }> {
  for (const [index, { sharded }] of stages.entries())
    for (const end of ['sends', 'receives'] as const)
      for (const [position, transfer] of (sharded.pipeline?.[end] ?? []).entries()) {
        const where = `stage ${index} ${end} ${transfer.name}`;
        const changed = (change: (list: readonly StageTransfer[]) => readonly StageTransfer[]) =>
          stages.map((stage, at) => {
            const { pipeline } = stage.sharded;
            if (at !== index || !pipeline) return stage;
            return { ...stage, sharded: { ...stage.sharded, pipeline: { ...pipeline, [end]: change(pipeline[end]) } } };
          });
        const replaced = (other: Partial<StageTransfer>) =>
          changed((list) => list.with(position, { ...transfer, ...other }));
        yield { kind: 'a transfer dropped at one end', where, stages: changed((list) => list.toSpliced(position, 1)) };
        yield { kind: 'a transfer doubled', where, stages: changed((list) => list.toSpliced(position, 0, transfer)) };
        yield { kind: 'a transfer under another name', where, stages: replaced({ name: `${transfer.name}/other` }) };
        yield {
          kind: 'a transfer at another time',
          where,
          stages: replaced({ when: transfer.when === 'micro' ? 'update' : 'micro' }),
        };
        for (const other of stages.keys())
          if (other !== transfer.stage)
            yield { kind: 'a transfer with another stage', where, stages: replaced({ stage: other }) };
        const type = (name: string) => {
          const { dtype, shape, layout, varying, first } = sharded.tensors.get(name) as ShardedTensor;
          return JSON.stringify([dtype, shape, layout, varying, first]);
        };
        const other = [...sharded.tensors.keys()].find((name) => type(name) !== type(transfer.tensor));
        if (other !== undefined)
          yield { kind: 'a transfer of another tensor', where, stages: replaced({ tensor: other }) };
      }
}

/** A stage without the others: tensors that it sends are outputs of its own. */
export function withoutStages(graph: ShardedGraph): ShardedGraph {
  if (!graph.pipeline) return graph;
  const sent = graph.pipeline.sends.map(({ tensor }) => ({ tensor, output: tensor }));
  return { ...graph, outputs: [...graph.outputs, ...sent], pipeline: { ...graph.pipeline, sends: [] } };
}

/** Every corruption of a graph. */
export function* corruptionsOf(graph: ShardedGraph): Generator<CorruptedGraph> {
  for (const [index, node] of graph.nodes.entries())
    if (node.kind === 'communicate')
      for (const [kind, wrong] of ofCollective(graph, index, node))
        yield { kind, where: `${node.name}, ${node.output}`, graph: wrong };
  const read = new Set(graph.nodes.flatMap(readsOf));
  for (const name of graph.tensors.keys())
    if (read.has(name) || graph.nodes.some((node) => resultsOf(node).includes(name)))
      for (const [kind, wrong] of ofTensor(graph, name)) yield { kind, where: name, graph: wrong };
}

function* ofCollective(
  graph: ShardedGraph,
  index: number,
  node: CommunicationNode,
): Generator<readonly [string, ShardedGraph]> {
  const input = graph.tensors.get(node.input) as ShardedTensor;
  const output = graph.tensors.get(node.output) as ShardedTensor;
  const without = { ...graph, nodes: graph.nodes.toSpliced(index, 1) };
  const replaced = (other: Partial<CommunicationNode>) => ({
    ...graph,
    nodes: graph.nodes.with(index, { ...node, ...other }),
  });
  yield ['a collective dropped', without];
  const isOnlyGathered =
    graph.outputs.some(({ tensor }) => tensor === node.output) && input.layout.partial.length === 0;
  // A sum over all elements is the same of shards in any place.
  const isMovedToSum =
    ['permute', 'all-to-all'].includes(node.collective.kind) &&
    graph.nodes.every(
      (one) => !readsOf(one).includes(node.output) || (one.kind === 'compute' && /^ReduceSum/.test(one.op)),
    );
  if (!isOnlyGathered && !isMovedToSum)
    yield ['a collective dropped, its operand read instead', readersOf(without, node.output, node.input)];
  yield ['a collective doubled', { ...graph, nodes: graph.nodes.toSpliced(index, 0, node) }];
  const again = `${node.output}/again`;
  const after = readersOf(graph, node.output, again);
  yield [
    'a collective applied to its own result',
    {
      ...after,
      tensors: new Map(graph.tensors).set(again, output),
      nodes: after.nodes.toSpliced(index + 1, 0, { ...node, input: node.output, output: again }),
    },
  ];
  yield ['a collective over no axes', replaced({ axes: [] })];
  if (node.collective.kind === 'permute') {
    const { to } = node.collective;
    const further = to.map((member) => (member + 1) % to.length);
    yield ['shards sent one rank further', replaced({ collective: { kind: 'permute', to: further } })];
  }
  for (const { name } of subAxes(graph.mesh)) {
    if (!node.axes.includes(name)) {
      yield ['a collective over another axis', replaced({ axes: [name] })];
      yield ['a collective over an axis more', replaced({ axes: [...node.axes, name] })];
    } else if (node.axes.length > 1)
      yield ['a collective over fewer axes', replaced({ axes: node.axes.filter((one) => one !== name) })];
  }
  if (node.axes.length > 1 && !ANY_ORDER.has(node.collective.kind))
    yield ['a collective over its axes in another order', replaced({ axes: [...node.axes].reverse() })];
  const elements = input.localShape.reduce((product, size) => product * size, 1);
  for (const collective of others(node.collective, elements, axesSize(graph.mesh, node.axes)))
    yield ['a collective of another kind', replaced({ collective })];
}

/** The order of their axes is that of the sum at most. */
const ANY_ORDER: ReadonlySet<string> = new Set(['all-reduce', 'reduce', 'broadcast']);

function others(collective: Collective, elements: number, members: number): readonly Collective[] {
  const rows = { outer: 1, inner: elements };
  const parts = { outer: 1, inner: elements / members };
  const all: readonly Collective[] = [
    { kind: 'all-reduce', reduction: 'sum' },
    { kind: 'all-reduce', reduction: 'max' },
    { kind: 'all-gather', ...rows },
    { kind: 'reduce-scatter', reduction: 'sum', ...parts },
    { kind: 'all-to-all', split: parts, concat: parts },
    { kind: 'permute', to: Array.from({ length: members }, (_, member) => (member + 1) % members) },
    { kind: 'reduce', reduction: 'sum' },
    { kind: 'broadcast' },
  ];
  const same = (other: Collective) =>
    other.kind === collective.kind &&
    !('reduction' in other && 'reduction' in collective && other.reduction !== collective.reduction) &&
    other.kind !== 'permute';
  return all.filter((other) => !same(other) && JSON.stringify(other) !== JSON.stringify(collective));
}

function* ofTensor(graph: ShardedGraph, name: string): Generator<readonly [string, ShardedGraph]> {
  const tensor = graph.tensors.get(name) as ShardedTensor;
  const changed = (change: Partial<ShardedTensor>) => ({
    ...graph,
    tensors: new Map(graph.tensors).set(name, { ...tensor, ...change }),
  });
  const other: DType = tensor.dtype === 'float32' ? 'int32' : tensor.dtype === 'int64' ? 'float64' : 'float32';
  yield ['a tensor of another dtype', changed({ dtype: other })];
  const { layout } = tensor;
  if (layout.partial.length > 0) {
    yield ['a partial sum said to be whole', changed({ layout: { ...layout, partial: [] } })];
    const partial = layout.partial.map(
      (entry) => ({ ...entry, reduction: entry.reduction === 'sum' ? 'max' : 'sum' }) as const,
    );
    yield ['a partial value of another kind', changed({ layout: { ...layout, partial } })];
  }
  if (tensor.varying) {
    const { varying: _, ...fixed } = tensor;
    yield ['a varying tensor said to be replicated', { ...graph, tensors: new Map(graph.tensors).set(name, fixed) }];
  }
  if (tensor.border) {
    const { border, ...rows } = tensor;
    const moved = (from: number): ShardedTensor => ({ ...rows, border: { ...border, from } });
    const { block, from } = border;
    yield ['a border said to be none', { ...graph, tensors: new Map(graph.tensors).set(name, rows) }];
    yield ['a border said to be the other one', changed(moved(from < 0 ? block : -1))];
    yield ['a border of another row', changed(moved(from + 1))];
  }
  if (tensor.first) {
    const { first: _, ...everywhere } = tensor;
    yield [
      "a first rank's tensor said to be on all ranks",
      { ...graph, tensors: new Map(graph.tensors).set(name, everywhere) },
    ];
  }
  const free = subAxes(graph.mesh).find(
    (sub) => !JSON.stringify([layout, tensor.varying, tensor.first]).includes(`"${sub.name}"`),
  );
  if (!free) return;
  yield [
    'a tensor said to be partial',
    changed({ layout: { ...layout, partial: [...layout.partial, { axis: free.name, reduction: 'sum' }] } }),
  ];
  const first = [...(tensor.first ?? []), free.name];
  yield ["a tensor said to be the first rank's alone", changed({ first })];
  yield ['a tensor said to vary', changed({ varying: [...(tensor.varying ?? []), free.name] })];
  // Weights have the layout of their readers: whether two operands fit is checked where an operator has a rule for its shards.
  if (!graph.nodes.some((node) => resultsOf(node).includes(name))) return;
  const cut = layout.dims.findIndex((pieces) => pieces.length === 1 && pieces[0]?.axes.length === 1);
  const [piece] = layout.dims[cut] ?? [];
  if (!piece || axesSize(graph.mesh, piece.axes) !== free.size) return;
  yield [
    'a tensor sharded over another axis',
    changed({ layout: { ...layout, dims: layout.dims.with(cut, [{ ...piece, axes: [free.name] }]) } }),
  ];
}

/** The graph with everything that reads `from` reading `to`. */
function readersOf(graph: ShardedGraph, from: string, to: string): ShardedGraph {
  const name = (one: string) => (one === from ? to : one);
  const node = (one: ShardedNode): ShardedNode =>
    one.kind === 'compute'
      ? { ...one, inputs: one.inputs.map((input) => input && name(input)) }
      : { ...one, input: name(one.input) };
  return {
    ...graph,
    nodes: graph.nodes.map(node),
    outputs: graph.outputs.map((output) => ({ ...output, tensor: name(output.tensor) })),
    state: graph.state.map((pair) => ({ ...pair, from: name(pair.from) })),
    ...(graph.pipeline
      ? {
          pipeline: {
            ...graph.pipeline,
            sends: graph.pipeline.sends.map((sent) => ({ ...sent, tensor: name(sent.tensor) })),
          },
        }
      : {}),
  };
}
