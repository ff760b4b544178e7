/**
 * @file From the sharded graph of a training step to its kernels. Operators of one group and phase that are not matmuls run
 * as one kernel, whose traffic is its operands and results; layout changes that only feed matmuls or attention cost nothing,
 * since their kernels read strided operands; chains of elementwise groups with one reader are one kernel, as every
 * framework's fused bias, activation and dropout are.
 */
import { isFloating } from '../../ir/dtype.js';
import { elementCount, type Graph } from '../../ir/graph.js';
import { appendTo, groupBy } from '../../ir/group-by.js';
import type { OperatorFamily } from '../../ir/operator.js';
import { madeOnce } from '../../ir/remembered.js';
import { type AttentionWork as AttentionSizes, kernelPartOf } from '../../partition/kernels.js';
import {
  type CommunicationNode,
  type ComputeNode,
  readsOf,
  resultsOf,
  type ShardedGraph,
  type ShardedNode,
} from '../../partition/sharded-graph.js';
import { liveTensors } from './live-tensors.js';
import { matmuls, matmulsWithin } from './matmul-work.js';
import { chainTraffic, isRepeated, traffic } from './memory-traffic.js';
import { isView, type PassPhase, phaseOf, StepGraph } from './step-graph.js';
import { type ModelWork, NO_WORK, type PartWork, type StepWork } from './work.js';

/** The name of a part for each operator group: which of the parts a node belongs to. */
export type PartOf = (group: string) => string;

/**
 * Whether an operator group belongs to a scan: matmuls whose kernels do the elementwise work between them, and recompute the
 * forward's results in the backward, as those for state-space layers do (Dao and Gu 2024).
 */
export type InScan = (group: string) => boolean;

/** The parts of a model that its operators and weights belong to. */
export interface ModelParts {
  readonly partOf: PartOf;
  readonly inScan: InScan;
  /** The part that holds a weight, where it is not its first reader's: a weight that every layer reads belongs to no layer. */
  readonly holderOf: (weight: string) => string | undefined;
}

/** The work of each part, by the part's name. `graph` is the unsharded training graph that `sharded` was lowered from. */
export function readWork(
  graph: Graph,
  sharded: ShardedGraph,
  { partOf, inScan, holderOf }: ModelParts,
): ReadonlyMap<string, PartWork> {
  const step = new StepGraph(graph, sharded);
  const parts = new Map<string, DraftWork>();
  const draft = (group: string, name = partOf(group)) => madeOnce(parts, name, newDraft);
  for (const kernel of kernels(step, inScan)) {
    const { forward, backward } = draft(kernel.group);
    (kernel.phase === 'forward' ? forward : backward).push(kernel.work);
  }
  for (const { group, elements, mask, repeated } of storedActivations(step, inScan)) {
    const own = draft(group);
    if (mask) own.savedMasks += elements;
    else {
      own.saved += elements;
      if (repeated) own.savedRepeated += elements;
    }
  }
  for (const { group, name, elements, experts, trained } of weights(step)) {
    const own = draft(group, holderOf(name));
    if (!trained) own.buffers += elements;
    else {
      own.parameters += elements;
      if (experts) own.expertParameters += elements;
    }
  }
  for (const [name, { elements, shared }] of liveTensors(step, partOf, inScan)) {
    const own = parts.get(name);
    if (own) Object.assign(own, { live: elements, liveShared: shared });
  }
  return parts;
}

/** Work that concerns several parts: experts per token, and parameters of the part `first` that `last` reads too. */
export function readShared(graph: Graph, sharded: ShardedGraph, partOf: PartOf): Pick<ModelWork, 'chosen' | 'tied'> {
  const step = new StepGraph(graph, sharded);
  const elements = new Map<string, number>();
  const readIn = new Map<string, Set<string>>();
  for (const { tensor, weight } of sharded.weights) {
    const type = step.tensor(tensor);
    if (!isFloating(type.dtype) || graph.weights.get(weight)?.role !== 'parameter') continue;
    elements.set(weight, elementCount(type.localShape));
    const parts = madeOnce(readIn, weight, () => new Set<string>());
    for (const node of step.readersOf(tensor)) if (phaseOf(node) === 'forward') parts.add(partOf(step.group(node)));
  }
  const tied = [...readIn].filter(([, parts]) => parts.has('first') && parts.has('last'));
  return {
    chosen: step.routes.chosen,
    tied: tied.reduce((sum, [weight]) => sum + (elements.get(weight) ?? 0), 0),
  };
}

/** A tensor that a rank holds for long: a parameter with its state, a buffer, or a stored activation of a micro-batch. */
export interface LongLivedTensor {
  /** The weight's name, or that of the sharded graph's tensor. */
  readonly tensor: string;
  readonly kind: 'parameter' | 'buffer' | 'activation';
  /** Elements of one rank's shard. */
  readonly elements: number;
  /** Booleans, a byte each. */
  readonly mask: boolean;
  /** The same on every tensor-parallel rank. */
  readonly repeated: boolean;
  /** A weight per expert. */
  readonly experts: boolean;
}

/** Tensors that each part holds, by the part's name; the sums over these are those of `readWork`. */
export function readTensors(
  graph: Graph,
  sharded: ShardedGraph,
  { partOf, inScan, holderOf }: ModelParts,
): ReadonlyMap<string, readonly LongLivedTensor[]> {
  const step = new StepGraph(graph, sharded);
  const named = new Map<string, LongLivedTensor[]>();
  const add = (group: string, tensor: LongLivedTensor, part = partOf(group)) => appendTo(named, part, tensor);
  for (const { group, name, elements, experts, trained } of weights(step)) {
    const kind = trained ? 'parameter' : 'buffer';
    add(group, { tensor: name, kind, elements, mask: false, repeated: false, experts }, holderOf(name));
  }
  for (const { group, name, elements, mask, repeated } of storedActivations(step, inScan))
    add(group, { tensor: name, kind: 'activation', elements, mask, repeated, experts: false });
  return named;
}

interface DraftWork {
  readonly forward: StepWork[];
  readonly backward: StepWork[];
  parameters: number;
  expertParameters: number;
  buffers: number;
  saved: number;
  savedRepeated: number;
  savedMasks: number;
  live: number;
  liveShared: number;
}

function newDraft(): DraftWork {
  return { ...NO_WORK, forward: [], backward: [] };
}

interface Kernel {
  readonly group: string;
  readonly phase: PassPhase;
  readonly work: StepWork;
}

/** Families that may be lowered to matmuls beside other work: attention in parts, recurrent cells. */
const WITH_MATMULS: ReadonlySet<OperatorFamily> = new Set(['attention', 'recurrent']);

/** Families whose groups are one kernel that reads and writes. */
const MOVES: ReadonlySet<OperatorFamily> = new Set(['view']);

function* kernels(graph: StepGraph, inScan: InScan): Generator<Kernel> {
  const gathered = groupBy(graph.sharded.nodes, (node) =>
    node.phase === 'update' ? null : `${phaseOf(node)} ${graph.group(node)}`,
  );
  const chained = chainTraffic(graph, gathered);
  for (const [key, nodes] of gathered) {
    const [phase = 'forward', ...rest] = key.split(' ') as [PassPhase, ...string[]];
    const group = rest.join(' ');
    for (const node of nodes) {
      if (node.kind !== 'communicate') continue;
      const tensor = graph.tensor(node.collective.kind === 'all-gather' ? node.output : node.input);
      if (mergesIntoSum(graph, node, group)) continue;
      const elements = elementCount(tensor.localShape);
      const loss = graph.family(group) === 'loss';
      const activation = node.collective.kind === 'all-reduce' && !loss;
      yield {
        group: graph.group(madeBy(graph, node)),
        phase,
        work: { kind: 'exchange', collective: node.collective.kind, elements, activation, loss },
      };
    }
    const computes = nodes.filter((node) => node.kind === 'compute');
    const family = graph.family(group);
    const attention = computes.flatMap(({ fused }) => fused?.attention ?? []);
    if (attention.length > 0)
      for (const { dtype: _, ...work } of attention)
        yield { group, phase, work: { kind: 'attention', ...onHeads(work, graph, group) } };
    else if (family === 'contraction' || (family === 'convolution' && !isDepthwise(graph, group)))
      for (const matmul of matmuls(graph, group, phase, computes)) {
        const work: StepWork = inScan(group) ? { ...matmul, wide: true } : matmul;
        yield { group, phase, work };
        if (phase === 'forward' && inScan(group)) yield { group, phase: 'backward', work };
      }
    else if (!MOVES.has(family) && !inScan(group) && !sumsWeightGradients(graph, group, computes)) {
      if (WITH_MATMULS.has(family))
        for (const work of matmulsWithin(graph, group, phase, computes)) yield { group, phase, work };
      const elements = chained.get(key) ?? traffic(graph, computes);
      if (elements > 0)
        yield {
          group,
          phase,
          work: {
            kind: 'memory',
            elements,
            repeated: isRepeated(graph, computes),
            norm: family === 'normalisation',
            loss: family === 'loss',
          },
        };
    }
  }
}

/** Tensor parallelism shards the heads of an attention. */
function onHeads(own: AttentionSizes, graph: StepGraph, group: string): AttentionSizes {
  const head = graph.heads.get(group);
  const whole = head && kernelPartOf(graph.index.graph, head)?.attention;
  if (!whole || own.batch === whole.batch) return own;
  const share = own.batch / whole.batch;
  const keyHeads = Math.max(1, Math.round(whole.keyHeads * share));
  return { ...own, batch: whole.batch, heads: whole.heads * share, keyHeads };
}

/** Whether a convolution has a channel per group: a few multiplications per number it reads, none of them on matrix units. */
function isDepthwise(graph: StepGraph, group: string): boolean {
  const [node] = graph.forwardOf(group);
  const groups = Number(node?.attributes['group'] ?? 1);
  const [output] = node?.outputs ?? [];
  return groups > 1 && !!output && graph.tensor(output).localShape[1] === groups;
}

/** Stored activations: tensors that the forward makes and the backward reads, each once. */
function* storedActivations(
  graph: StepGraph,
  inScan: InScan,
): Generator<{ group: string; name: string; elements: number; mask: boolean; repeated: boolean }> {
  for (const [name, readers] of graph.read()) {
    if (graph.weights.has(name) || !readers.some((reader) => phaseOf(reader) === 'backward')) continue;
    const maker = graph.makerOf(name);
    if (!maker || phaseOf(maker) !== 'forward') continue;
    const tensor = graph.tensor(name);
    const mask = tensor.dtype === 'bool';
    if (!mask && !isFloating(tensor.dtype)) continue;
    // A view shares its operand's memory: it counts where its operand is not stored.
    if (maker.kind === 'compute' && isView(maker) && storedElsewhere(graph, maker)) continue;
    const elements = elementCount(tensor.localShape);
    const group = graph.group(madeBy(graph, maker));
    const inside = (reader: ShardedNode) => phaseOf(reader) === 'forward' || inScan(graph.group(reader));
    if (inScan(group) && readers.every(inside)) continue;
    yield { group, name, elements, mask, repeated: elements === elementCount(tensor.shape) };
  }
}

/**
 * The node that computed a result: for views and collectives, which belong to their readers, the operator before. A layer's input
 * is its own work where another layer made it, and not where the embedding did: so it counts as its maker's.
 */
function madeBy(graph: StepGraph, node: ShardedNode): ShardedNode {
  if (node.kind === 'compute' && !isView(node)) return node;
  const source = graph.makerOf(readsOf(node)[0] ?? '');
  return source ? madeBy(graph, source) : node;
}

/** A weight of the model as a rank holds it. */
interface RankWeight {
  readonly group: string;
  readonly name: string;
  readonly elements: number;
  readonly experts: boolean;
  readonly trained: boolean;
}

function* weights(graph: StepGraph): Generator<RankWeight> {
  const counted = new Set<string>();
  for (const { tensor, weight } of graph.sharded.weights) {
    if (counted.has(weight)) continue;
    const reader = graph.readersOf(tensor).find((node) => phaseOf(node) === 'forward');
    const type = graph.tensor(tensor);
    if (!reader || !isFloating(type.dtype)) continue;
    counted.add(weight);
    const experts = graph.routes.weights.has(weight);
    const trained = graph.index.graph.weights.get(weight)?.role === 'parameter';
    yield { group: graph.group(reader), name: weight, elements: elementCount(type.localShape), experts, trained };
  }
}

/**
 * Whether a sum of gradients adds the result of a collective to the result of a later one of the same kind: summands are added
 * first, and reduced in one collective. A summand that every rank has whole does not count as a collective.
 */
function mergesIntoSum(graph: StepGraph, { collective, output }: CommunicationNode, group: string): boolean {
  if (!graph.heads.has(group)) return false;
  for (const summand of laterSummands(graph, output)) {
    const maker = graph.makerOf(summand);
    if (maker?.kind !== 'communicate' || maker.collective.kind !== collective.kind) continue;
    if (graph.heads.has(graph.group(maker))) return true;
  }
  return false;
}

/** Tensors that sums of gradients add to this one, behind it. */
function* laterSummands(graph: StepGraph, tensor: string): Generator<string> {
  let name: string | null | undefined = tensor;
  while (name) {
    const [sum, ...others] = graph.readersOf(name);
    if (!sum || others.length > 0 || !isSum(graph, sum)) return;
    for (const input of sum.inputs.slice(sum.inputs.indexOf(name) + 1))
      if (input !== null) yield* summands(graph, input);
    [name] = sum.outputs;
  }
}

/** A tensor, or in its place the summands that it is the sum of. */
function* summands(graph: StepGraph, tensor: string): Generator<string> {
  const open = [tensor];
  for (let name = open.pop(); name !== undefined; name = open.pop()) {
    const maker = graph.makerOf(name);
    if (maker && isSum(graph, maker)) open.push(...maker.inputs.filter((input) => input !== null));
    else yield name;
  }
}

/** Whether a node adds gradients of several readers: no operator of the model does. */
function isSum(graph: StepGraph, node: ShardedNode): node is ComputeNode {
  return node.kind === 'compute' && !graph.heads.has(graph.group(node));
}

/** Gradients of a weight that several places share are accumulated where the matmul writes them. */
function sumsWeightGradients(graph: StepGraph, group: string, nodes: readonly ComputeNode[]): boolean {
  return !graph.heads.has(group) && nodes.every((node) => resultsOf(node).every((name) => graph.outputs.has(name)));
}

function storedElsewhere(graph: StepGraph, view: ComputeNode): boolean {
  const [source] = view.inputs;
  if (!source) return false;
  return graph.readersOf(source).some((reader) => phaseOf(reader) === 'backward');
}
