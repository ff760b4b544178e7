/**
 * @file Normalisation by statistics of the batch: an operator that the file has in evaluation form, with running statistics as
 * weights, takes the mean and variance of the whole (global) batch, and its running statistics are state that moves towards them.
 *
 *     running' = momentum · running + (1 − momentum) · batch
 *
 * as ONNX defines it: momentum is the share that stays (1 − momentum of PyTorch's module), and the variance is that of the batch
 * itself, divided by its size n (PyTorch's module stores the unbiased one, n / (n − 1) times as large).
 */
import { AutoparError } from '../error.js';
import type { Attributes, Graph, Node, TensorType } from '../graph.js';
import { moduleText, withoutIterations } from '../onnx/module-path.js';
import type { TrainingForm } from '../operator.js';
import { constant } from '../ops/constants.js';
import { entryOf } from '../ops/index.js';
import type { IdentityUse } from '../parameters/identities.js';
import { parameterUnits } from '../parameters/units.js';
import { ForwardWriter, readIn } from '../passes/forward-writer.js';
import { madeOnce } from '../remembered.js';

type BatchStatisticsForm = Extract<TrainingForm, { kind: 'batch-statistics' }>;

/**
 * The samples that statistics are taken of: the whole batch, or consecutive parts of it, each part separately. The running
 * statistics are updated once per step, by the mean over all parts.
 */
export interface StatisticsParts {
  /** Parts of the graph's own batch. */
  readonly here: number;
  /** Parts of the batch of a step: more than `here` where the graph covers one micro-batch of it. */
  readonly whole: number;
}

export const ONE_PART: StatisticsParts = { here: 1, whole: 1 };

/**
 * The graph with batch statistics, and how many operators take them. A weight that holds the running statistics of several
 * modules (exporters merge equal values) becomes one per module; a module that is called twice updates its own twice in a step.
 * @throws AutoparError (usage) `bad-option` where the number of parts does not divide the batch
 */
export function takeBatchStatistics(
  graph: Graph,
  identities: readonly IdentityUse[],
  parts: StatisticsParts = ONE_PART,
): { readonly graph: Graph; readonly taken: number } {
  const found = new Set(graph.nodes.filter((node) => movable(graph, node)));
  if (found.size === 0) return { graph, taken: 0 };
  const write = new ForwardWriter(graph);
  const owners = ownersOf(graph, [...found], identities);
  /** The current running statistics: the weight, or the result of an earlier call of the module. */
  const current = new Map<string, string>();
  /** Statistics of the parts from the latest call. */
  const statistics = new Map<string, string>();
  const nodes = graph.nodes.flatMap((node): readonly Node[] => {
    const form = formOf(node);
    if (!form || !found.has(node)) return [node];
    const inputs = [...node.inputs];
    const outputs = [...node.outputs];
    const moves: Move[] = [];
    for (const { operand, result } of form.running) {
      const weight = graph.weights.get(inputs[operand] ?? '');
      const wanted = owners.get(placeKey(node, operand)) ?? inputs[operand] ?? '';
      if (!weight) continue;
      const owner = write.weights.has(wanted) ? wanted : write.weight(wanted, weight);
      inputs[operand] = current.get(owner) ?? owner;
      outputs[result] ??= write.tensor(`${owner}/next`, weight);
      current.set(owner, outputs[result] ?? owner);
      moves.push({ operand, result, owner, before: statistics.get(owner) ?? null, type: weight });
      statistics.set(owner, `${node.name}/statistics${result}`);
    }
    const own = { ...node, attributes: { ...node.attributes, [form.mode]: 1 }, inputs, outputs };
    return parts.whole === 1 ? [own] : inParts(own, moves, parts, write);
  });
  for (const [input, output] of current) write.state.push({ input, output });
  return { graph: write.graph(nodes), taken: found.size };
}

/** A running statistic: the operand that it is, and the result that is its next value. */
interface Move {
  readonly operand: number;
  readonly result: number;
  /** The weight that it is before the step. */
  readonly owner: string;
  /** Statistics of the parts from an earlier call of the module. */
  readonly before: string | null;
  readonly type: TensorType;
}

/**
 * A normalisation of each part by its own statistics: the parts' channels side by side, as if they were more channels.
 *
 *     x [g·n, c, …] → [g, n, c, …] → [n, g, c, …] → [n, g·c, …] → normalised → back
 */
function inParts(
  node: Node,
  moves: readonly Move[],
  { here: groups, whole }: StatisticsParts,
  write: ForwardWriter,
): readonly Node[] {
  const [data = '', scale = '', bias = ''] = node.inputs as readonly string[];
  const type = write.tensors.get(data);
  if (!type) throw new Error(`tensor ${data} is not in the graph`);
  const [batch = 1, channels = 1, ...positions] = type.shape;
  if (batch % groups !== 0) throw uneven(node, batch, groups);
  const at = (name: string) => `${node.name}/${name}`;
  const add = (...given: readonly [name: string, op: string, inputs: readonly string[], attributes?: Attributes]) =>
    groups === 1 ? (given[2][0] as string) : write.add(at(given[0]), node, given[1], given[2], given[3] ?? {});
  const swapped = [1, 0, ...type.shape.slice(1).map((_, axis) => axis + 2)];
  const apart = add('apart', 'Reshape', [data], { shape: [groups, batch / groups, channels, ...positions] });
  const transposed = add('transposed', 'Transpose', [apart], { perm: swapped });
  const beside = add('beside', 'Reshape', [transposed], { shape: [batch / groups, groups * channels, ...positions] });
  const each = (vector: string) => {
    const copies = add(`${vector}/copies`, 'Expand', [vector], { shape: [groups, channels] });
    return add(`${vector}/each`, 'Reshape', [copies], { shape: [groups * channels] });
  };
  const operands: (string | null)[] = [beside, each(scale), each(bias)];
  // The statistics do not depend on the running ones before. ONNX Runtime writes them over the operands: each call has zeros of
  // its own, computed from different operands, since equal constants and equal operators are merged.
  const results: (string | null)[] = [];
  for (const { operand, result, owner, before, type: own } of moves) {
    const none = write.value(at(`zero${operand}`), constant(own.dtype, [0], []));
    const zeros = write.add(at(`none${operand}`), node, 'Mul', [before ?? owner, none]);
    operands[operand] = before === null ? each(zeros) : zeros;
    results[result] = write.tensor(at(`statistics${result}`), { ...own, shape: [groups * channels] });
  }
  const [output = ''] = node.outputs as readonly string[];
  const normal =
    groups === 1
      ? output
      : write.tensor(at('normal'), { ...type, shape: [batch / groups, groups * channels, ...positions] });
  const first = write.take();
  const single: Node = {
    ...node,
    attributes: { ...node.attributes, momentum: 0 },
    inputs: operands,
    outputs: [normal, ...results.slice(1)],
  };
  const parted = add('parted', 'Reshape', [normal], { shape: [batch / groups, groups, channels, ...positions] });
  const back = add('back', 'Transpose', [parted], { perm: swapped });
  const joined: readonly Node[] =
    groups === 1
      ? []
      : [
          {
            ...node,
            name: at('joined'),
            group: at('joined'),
            op: 'Reshape',
            attributes: { shape: type.shape },
            inputs: [back],
            outputs: [output],
          },
        ];
  const momentum = Number(node.attributes['momentum'] ?? DEFAULT_MOMENTUM);
  const after = write.take();
  // Where micro-batches have some of the parts each, their shares are added up for the update.
  const update = { ...node, phase: 'update' as const };
  const step = groups < whole ? node : update;
  const running = moves.flatMap(({ operand, result, type: own }) => {
    const scalar = (name: string, value: number) => write.value(at(name), constant(own.dtype, [value], []));
    const weight = scalar(`weight${result}`, ((1 - momentum) * groups) / whole);
    const mean =
      groups === 1 ? (results[result] as string) : meanOfParts(results[result] as string, at(`mean${result}`));
    const share = write.add(at(`share${result}`), step, 'Mul', [mean, weight]);
    const was = node.inputs[operand] as string;
    const kept = write.add(at(`kept${result}`), update, 'Mul', [was, scalar(`momentum${result}`, momentum)]);
    const name = at(`moved${result}`);
    const outputs = [node.outputs[result] as string];
    const moved: Node = { ...update, name, group: name, op: 'Add', attributes: {}, inputs: [kept, share], outputs };
    return [...write.take(), moved];
  });
  function meanOfParts(statistics: string, name: string): string {
    const rows = write.add(`${name}/parts`, step, 'Reshape', [statistics], { shape: [groups, channels] });
    return write.add(name, step, 'ReduceMean', [rows], { axes: [0], keepdims: 0 });
  }
  return [...first, single, ...after, ...joined, ...running].map((made) => ofForward(made, node));
}

/** Operators that update a statistic once per step belong to the operator that made it. */
function ofForward(made: Node, { name }: Node): Node {
  return made.phase === 'update' ? { ...made, forward: name } : made;
}

/** ONNX's default, where a node does not state it. */
const DEFAULT_MOMENTUM = 0.9;

function uneven({ name }: Node, batch: number, parts: number): AutoparError {
  return new AutoparError(
    'bad-option',
    'usage',
    `--batch-statistics: ${parts} parts do not divide the ${batch} samples that '${name}' normalises`,
    { node: name },
    'take another --global-batch, or statistics of the whole batch',
  );
}

/** The graph with frozen running statistics, as for fine-tuning with few samples per step. */
export function keepRunningStatistics(graph: Graph): Graph {
  const read = readIn(graph, graph.nodes);
  const nodes = graph.nodes.map((node) => {
    const form = formOf(node);
    const moved = form?.running.some(({ result }) => read.has(node.outputs[result] ?? ''));
    if (!form || moved) return node;
    return { ...node, attributes: { ...node.attributes, [form.mode]: 0 }, outputs: node.outputs.slice(0, 1) };
  });
  return { ...graph, nodes };
}

function formOf({ op, domain }: Node): BatchStatisticsForm | null {
  const form = entryOf(op, domain)?.training;
  return form?.kind === 'batch-statistics' ? form : null;
}

/** Whether its running statistics are weights: computed tensors and inputs cannot be state. */
function movable(graph: Graph, node: Node): boolean {
  return formOf(node)?.running.every(({ operand }) => graph.weights.has(node.inputs[operand] ?? '')) ?? false;
}

/** By place: the name of its statistics, one per module, however often the module is called. */
function ownersOf(
  graph: Graph,
  found: readonly Node[],
  identities: readonly IdentityUse[],
): ReadonlyMap<string, string> {
  const weights = [
    ...new Set(found.flatMap((node) => formOf(node)?.running.map(({ operand }) => node.inputs[operand] ?? '') ?? [])),
  ];
  const owners = new Map<string, string>();
  const nodeOf = new Map(found.map((node) => [node.name, node]));
  for (const units of parameterUnits(graph, weights, identities).values()) {
    for (const unit of units) {
      // Calls of one module have the same weights; operators without a module are distinguished by their weights.
      const calls = new Map<string, string>();
      for (const { node, operand } of unit.places) {
        const reader = nodeOf.get(node);
        if (!reader) continue;
        const key = JSON.stringify([moduleText(withoutIterations(reader.module)), reader.inputs.slice(1)]);
        const name = madeOnce(calls, key, () => (calls.size === 0 ? unit.name : `${unit.name}.${calls.size + 1}`));
        owners.set(placeKey(reader, operand), name);
      }
    }
  }
  return owners;
}

function placeKey({ name }: Node, operand: number): string {
  return JSON.stringify([name, operand]);
}
