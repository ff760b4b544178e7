/**
 * @file From the sharded graph of a training step to its kernels. Operators of one group and phase that are not products run
 * as one kernel, whose traffic is what enters and leaves; layout changes that only feed products or attention cost nothing,
 * since their kernels read strided operands; chains of element-wise groups with one reader are one kernel, as every
 * framework's fused bias, activation and dropout are.
 */
import { isCausalMask } from '../../ir/blocks/causal-mask.js';
import { type GraphIndex, indexGraph, shapeOf } from '../../ir/blocks/matching.js';
import { isFloating } from '../../ir/dtype.js';
import { elementCount, type Graph, type Node } from '../../ir/graph.js';
import type { OperatorFamily } from '../../ir/operator.js';
import { entryOf } from '../../ir/ops/index.js';
import type { ComputeNode, ShardedGraph, ShardedNode, ShardedTensor } from '../../partition/sharded-graph.js';
import type { PartWork, Work } from './work.js';

/** The name of a part for each operator group: which of the parts a node belongs to. */
export type PartOf = (group: string) => string;

/** The work of each part, by the part's name. `graph` is the unsharded training graph that `sharded` was lowered from. */
export function readWork(graph: Graph, sharded: ShardedGraph, partOf: PartOf): ReadonlyMap<string, PartWork> {
  const reading = new Reading(graph, sharded);
  const parts = new Map<string, Draft>();
  const draft = (group: string) => {
    const name = partOf(group);
    const found = parts.get(name) ?? newDraft();
    parts.set(name, found);
    return found;
  };
  for (const kernel of reading.kernels()) {
    const { forward, backward } = draft(kernel.group);
    (kernel.phase === 'forward' ? forward : backward).push(kernel.work);
  }
  for (const kept of reading.kept()) {
    const own = draft(kept.group);
    if (kept.mask) own.savedMasks += kept.elements;
    else {
      own.saved += kept.elements;
      if (kept.repeated) own.savedRepeated += kept.elements;
    }
  }
  for (const { group, elements, experts } of reading.parameters()) {
    const own = draft(group);
    own.parameters += elements;
    if (experts) own.expertParameters += elements;
  }
  return parts;
}

/** A tensor that a rank holds for long: a parameter with its state, or what a micro-batch keeps for its backward. */
export interface NamedTensor {
  /** The weight's name, or that of the sharded graph's tensor. */
  readonly tensor: string;
  readonly kind: 'parameter' | 'activation';
  /** Of one rank's block. */
  readonly elements: number;
  /** Truth values, a byte each. */
  readonly mask: boolean;
  /** The same on every tensor-parallel rank. */
  readonly repeated: boolean;
  /** A weight per expert. */
  readonly experts: boolean;
}

/** What each part holds, by the part's name; the sums over these are those of `readWork`. */
export function readTensors(
  graph: Graph,
  sharded: ShardedGraph,
  partOf: PartOf,
): ReadonlyMap<string, readonly NamedTensor[]> {
  const reading = new Reading(graph, sharded);
  const named = new Map<string, NamedTensor[]>();
  const add = (group: string, tensor: NamedTensor) => {
    const part = partOf(group);
    named.set(part, [...(named.get(part) ?? []), tensor]);
  };
  for (const { group, name, elements, experts } of reading.parameters())
    add(group, { tensor: name, kind: 'parameter', elements, mask: false, repeated: false, experts });
  for (const { group, name, elements, mask, repeated } of reading.kept())
    add(group, { tensor: name, kind: 'activation', elements, mask, repeated, experts: false });
  return named;
}

interface Draft {
  readonly forward: Work[];
  readonly backward: Work[];
  parameters: number;
  expertParameters: number;
  saved: number;
  savedRepeated: number;
  savedMasks: number;
}

function newDraft(): Draft {
  return { forward: [], backward: [], parameters: 0, expertParameters: 0, saved: 0, savedRepeated: 0, savedMasks: 0 };
}

type Phase = 'forward' | 'backward';

interface Kernel {
  readonly group: string;
  readonly phase: Phase;
  readonly work: Work;
}

/** Families that may be lowered to products beside other work: attention in parts, recurrent cells. */
const WITH_PRODUCTS: ReadonlySet<OperatorFamily> = new Set(['attention', 'recurrent']);

/** Families whose groups are one kernel that reads and writes. */
const MOVES: ReadonlySet<OperatorFamily> = new Set(['view']);

type AttentionSizes = Omit<Extract<Work, { readonly kind: 'attention' }>, 'kind' | 'backward'>;

class Reading {
  /** By name of an unsharded node: its group. */
  private readonly groupOf = new Map<string, string>();
  /** By group: the forward operator. */
  private readonly heads = new Map<string, Node>();
  private readonly readers = new Map<string, ShardedNode[]>();
  private readonly makers = new Map<string, ShardedNode>();
  private readonly weights: ReadonlySet<string>;
  private readonly outputs: ReadonlySet<string>;
  /** The unsharded graph. */
  private readonly index: GraphIndex;
  /** Weights of three dimensions. */
  private readonly stacked: ReadonlySet<string>;

  constructor(
    graph: Graph,
    private readonly sharded: ShardedGraph,
  ) {
    this.index = indexGraph(graph);
    this.stacked = new Set([...graph.weights].flatMap(([name, { shape }]) => (shape.length === 3 ? [name] : [])));
    for (const node of graph.nodes) {
      if (node.phase === 'forward' && !this.heads.has(node.group)) this.heads.set(node.group, node);
    }
    for (const node of graph.nodes) this.groupOf.set(node.name, forwardGroup(node, this.heads));
    for (const node of sharded.nodes) {
      for (const name of inputsOf(node)) {
        const list = this.readers.get(name);
        if (list) list.push(node);
        else this.readers.set(name, [node]);
      }
      for (const name of outputsOf(node)) this.makers.set(name, node);
    }
    this.weights = new Set([...sharded.weights.map(({ tensor }) => tensor), ...sharded.constants.keys()]);
    this.outputs = new Set(sharded.outputs.map(({ tensor }) => tensor));
  }

  *kernels(): Generator<Kernel> {
    const gathered = new Map<string, ShardedNode[]>();
    for (const node of this.sharded.nodes) {
      if (node.scope !== 'micro') continue;
      const key = `${phaseOf(node)} ${this.group(node)}`;
      const list = gathered.get(key);
      if (list) list.push(node);
      else gathered.set(key, [node]);
    }
    const chained = this.chains(gathered);
    for (const [key, nodes] of gathered) {
      const [phase = 'forward', ...rest] = key.split(' ') as [Phase, ...string[]];
      const group = rest.join(' ');
      for (const node of nodes) {
        if (node.kind !== 'communicate') continue;
        const tensor = this.tensor(node.collective.kind === 'all-gather' ? node.output : node.input);
        if (this.mergesIntoSum(node.output, group)) continue;
        const elements = elementCount(tensor.localShape);
        const loss = this.family(group) === 'loss';
        const activation = node.collective.kind === 'all-reduce' && !loss && elements > 1e5;
        yield {
          group,
          phase,
          work: { kind: 'exchange', collective: node.collective.kind, elements, activation, loss },
        };
      }
      const computes = nodes.filter((node) => node.kind === 'compute');
      const family = this.family(group);
      if (family === 'attention' && this.isScores(group)) yield this.attention(group, phase);
      else if (family === 'contraction' || family === 'convolution') yield* this.products(group, phase, computes);
      else if (!MOVES.has(family) && !this.sumsWeightGradients(group, computes)) {
        if (WITH_PRODUCTS.has(family)) yield* this.productsWithin(group, phase, computes);
        const elements = chained.get(key) ?? this.traffic(computes);
        if (elements > 0)
          yield {
            group,
            phase,
            work: {
              kind: 'memory',
              elements,
              repeated: this.repeated(computes),
              norm: family === 'normalisation',
              loss: family === 'loss',
            },
          };
      }
    }
  }

  /** What the forward makes and the backward reads, each tensor once. */
  *kept(): Generator<{ group: string; name: string; elements: number; mask: boolean; repeated: boolean }> {
    for (const [name, readers] of this.readers) {
      if (this.weights.has(name) || !readers.some((reader) => phaseOf(reader) === 'backward')) continue;
      const maker = this.makers.get(name);
      if (!maker || phaseOf(maker) !== 'forward') continue;
      const tensor = this.tensor(name);
      const mask = tensor.dtype === 'bool';
      if (!mask && !isFloating(tensor.dtype)) continue;
      // A view shares its operand's memory: it is kept where its operand is not.
      if (maker.kind === 'compute' && isView(maker) && this.keptElsewhere(maker)) continue;
      const elements = elementCount(tensor.localShape);
      yield { group: this.group(maker), name, elements, mask, repeated: elements === elementCount(tensor.shape) };
    }
  }

  *parameters(): Generator<{ group: string; name: string; elements: number; experts: boolean }> {
    const counted = new Set<string>();
    for (const { tensor, weight } of this.sharded.weights) {
      if (counted.has(weight)) continue;
      const reader = this.readers.get(tensor)?.find((node) => phaseOf(node) === 'forward');
      const type = this.tensor(tensor);
      if (!reader || !isFloating(type.dtype)) continue;
      counted.add(weight);
      const experts = type.shape.length === 3 && this.family(this.group(reader)) === 'contraction';
      yield { group: this.group(reader), name: weight, elements: elementCount(type.localShape), experts };
    }
  }

  /**
   * Whether what a reduction gives is only added to what others of its kind give, and is not the last of them: partial sums
   * are added first, and reduced once.
   */
  private mergesIntoSum(tensor: string, group: string): boolean {
    if (!this.heads.has(group)) return false;
    const readers = this.readers.get(tensor) ?? [];
    const [sum] = readers;
    if (!sum || readers.length > 1 || this.heads.has(this.group(sum)) || sum.kind !== 'compute') return false;
    return sum.inputs[0] === tensor || sum.inputs[1] !== tensor || this.addedAgain(sum);
  }

  private addedAgain(sum: ComputeNode): boolean {
    const [output] = sum.outputs;
    const readers = output ? (this.readers.get(output) ?? []) : [];
    return readers.length === 1 && readers[0] !== undefined && !this.heads.has(this.group(readers[0]));
  }

  /** Gradients of a weight that several places share are accumulated where the product writes them. */
  private sumsWeightGradients(group: string, nodes: readonly ComputeNode[]): boolean {
    return !this.heads.has(group) && nodes.every((node) => outputsOf(node).every((name) => this.outputs.has(name)));
  }

  private keptElsewhere(view: ComputeNode): boolean {
    const [source] = view.inputs;
    if (!source) return false;
    return (this.readers.get(source) ?? []).some((reader) => phaseOf(reader) === 'backward');
  }

  /** The two products of a recognised attention, of queries and keys and of scores and values; null of anything else. */
  private productsOfBlock(group: string): readonly [scores: ComputeNode, values: ComputeNode] | null {
    if (!this.heads.get(group)?.body) return null;
    const products = this.sharded.nodes.filter(
      (node): node is ComputeNode =>
        node.kind === 'compute' &&
        node.phase === 'forward' &&
        this.group(node) === group &&
        entryOf(node.op, node.domain)?.family === 'contraction',
    );
    const [scores, values, ...others] = products;
    if (!scores || !values || others.length > 0) return null;
    return [scores, values].every(({ outputs: [output] }) => output && this.tensor(output).localShape.length >= 3)
      ? [scores, values]
      : null;
  }

  /** A recognised attention as the one kernel that devices have for it, whatever its exporter wrote. */
  private sizesOfBlock(group: string, [scores, values]: readonly [ComputeNode, ComputeNode]): AttentionSizes {
    const blockOf = ({ outputs: [output] }: ComputeNode) => (output ? this.tensor(output).localShape : []);
    const [queries = 1, keys = 1] = blockOf(scores).slice(-2);
    const [heads = 1, ...batch] = blockOf(scores).slice(0, -2).reverse();
    return {
      batch: elementCount(batch),
      heads,
      keyHeads: Math.max(1, Math.round(heads * this.headsShared(group, scores))),
      queries,
      keys,
      valueWidth: blockOf(values).at(-1) ?? 1,
      width: scores.flops / (2 * elementCount(blockOf(scores))),
      causal: isCausalMask(this.index, this.heads.get(group)?.inputs[3]),
    };
  }

  /** Heads of keys for one of queries: 1, or less where several share one. Dimensions may lie in any order. */
  private headsShared(group: string, { outputs: [output] }: ComputeNode): number {
    const [query, key] = (this.heads.get(group)?.inputs ?? []).map((name) =>
      name === null ? 0 : elementCount(shapeOf(this.index, name)),
    );
    const [queries = 1, keys = 1] = output ? this.tensor(output).shape.slice(-2) : [];
    return query && key ? key / keys / (query / queries) : 1;
  }

  private attention(group: string, phase: Phase): Kernel {
    const products = this.productsOfBlock(group);
    const sizes = products ? this.sizesOfBlock(group, products) : this.sizesOfOperator(group);
    return { group, phase, work: { kind: 'attention', backward: phase === 'backward', ...sizes } };
  }

  private sizesOfOperator(group: string): AttentionSizes {
    const node = this.sharded.nodes.find(
      (candidate): candidate is ComputeNode =>
        candidate.kind === 'compute' && candidate.phase === 'forward' && this.group(candidate) === group,
    );
    if (!node) throw new Error(`no attention in ${group}`);
    const [query, key, value] = node.inputs.map((name) => (name === null ? [] : this.tensor(name).localShape));
    const heads = Number(node.attributes['q_num_heads'] ?? query?.[1] ?? 1);
    const keyHeads = Number(node.attributes['kv_num_heads'] ?? key?.[1] ?? 1);
    const flat = query?.length === 3;
    return {
      batch: query?.[0] ?? 1,
      heads,
      keyHeads,
      queries: query?.[flat ? 1 : 2] ?? 1,
      keys: key?.[flat ? 1 : 2] ?? 1,
      valueWidth: flat ? (value?.[2] ?? 1) / keyHeads : (value?.[3] ?? 1),
      width: flat ? (query?.[2] ?? 1) / heads : (query?.[3] ?? 1),
      causal: Number(node.attributes['is_causal'] ?? 0) !== 0,
    };
  }

  /** The products of a group; what is beside them is movement, or the sum over broadcast dimensions. */
  private *products(group: string, phase: Phase, nodes: readonly ComputeNode[]): Generator<Kernel> {
    // A product's gradients come in this order: of its data, then of its weight.
    let made = 0;
    for (const node of nodes) {
      const entry = entryOf(node.op, node.domain);
      if (node.flops === 0 || (entry?.family !== 'contraction' && entry?.family !== 'convolution')) continue;
      const [output] = node.outputs;
      const shape = output ? this.tensor(output).localShape : [];
      const elements = elementCount(shape);
      const depth = node.flops / (2 * elements);
      // A convolution's columns are its channels, and all else its rows.
      const columns = (entry.family === 'convolution' ? shape[1] : shape.at(-1)) ?? 1;
      const first = node.inputs[1];
      // Both operands have leading dimensions where products run side by side (experts).
      const second = first ? this.tensor(first).localShape : [];
      const batch = entry.family !== 'convolution' && second.length > 2 ? elementCount(second.slice(0, -2)) : 1;
      yield {
        group,
        phase,
        work: {
          kind: 'matmul',
          batch,
          rows: elements / columns / batch,
          columns,
          depth,
          experts: batch > 1 && this.hasStackedWeight(group),
          tokens: phase === 'backward' && made++ > 0 ? 'depth' : 'rows',
        },
      };
    }
  }

  /**
   * Products among the operators of a group that is no product itself: those that it was expanded to, and the cells of recurrent
   * layers, which run all steps' inputs at once and then one step after the other.
   */
  private *productsWithin(group: string, phase: Phase, nodes: readonly ComputeNode[]): Generator<Kernel> {
    for (const kernel of this.products(group, phase, nodes)) {
      const { work } = kernel;
      yield work.kind === 'matmul' ? { ...kernel, work: { ...work, tokens: 'rows' } } : kernel;
    }
    for (const node of nodes) {
      if (entryOf(node.op, node.domain)?.family !== 'recurrent') continue;
      const [rows, input, state] = node.inputs.map((name) => (name === null ? [] : this.tensor(name).localShape));
      const [directions = 1, columns = 1, depth = 1] = input ?? [];
      const positions = elementCount(rows?.slice(0, 2) ?? []);
      const product = { kind: 'matmul', columns, experts: false, tokens: 'rows' } as const;
      yield { group, phase, work: { ...product, batch: directions, rows: positions, depth } };
      yield { group, phase, work: { ...product, batch: directions, rows: positions, depth: state?.[2] ?? 1 } };
    }
  }

  /** Whether the forward operator multiplies with a weight per expert: [experts, rows, columns]. */
  private hasStackedWeight(group: string): boolean {
    return (this.heads.get(group)?.inputs ?? []).some((name) => name !== null && this.stacked.has(name));
  }

  /** Elements that enter and leave a set of nodes; what only changes its form costs nothing. */
  private traffic(nodes: readonly ComputeNode[]): number {
    if (nodes.every((node) => node.flops === 0 && isFree(node))) return 0;
    const own = new Set<ShardedNode>(nodes);
    const read = new Set<string>();
    const written = new Set<string>();
    for (const node of nodes) {
      const entry = entryOf(node.op, node.domain);
      for (const [operand, name] of node.inputs.entries()) {
        if (name === null) continue;
        // A lookup reads rows of its table, not all of it.
        if (entry?.indexInput !== undefined && operand === 0 && this.weights.has(name)) continue;
        if (!own.has(this.makers.get(name) as ShardedNode)) read.add(name);
      }
      for (const name of outputsOf(node)) {
        const outside = (this.readers.get(name) ?? []).some((reader) => !own.has(reader));
        if (outside || this.outputs.has(name)) written.add(name);
      }
    }
    return [...read, ...written].reduce((sum, name) => sum + widthOf(this.tensor(name)), 0);
  }

  /**
   * Chains of element-wise groups where each has one reader: traffic of the whole chain, charged to its last group (the
   * others get 0).
   */
  private chains(gathered: ReadonlyMap<string, readonly ShardedNode[]>): ReadonlyMap<string, number> {
    const keyOf = (node: ShardedNode) => `${phaseOf(node)} ${this.group(node)}`;
    const next = new Map<string, string>();
    const computesOf = (key: string) => {
      const nodes = gathered.get(key) ?? [];
      return nodes.every((node): node is ComputeNode => node.kind === 'compute') ? nodes : null;
    };
    const fusible = (key: string) => {
      const [, ...rest] = key.split(' ');
      return this.family(rest.join(' ')) === 'elementwise' && key.startsWith('forward') && computesOf(key) !== null;
    };
    for (const key of gathered.keys()) {
      if (!fusible(key)) continue;
      const after = new Set(
        (computesOf(key) ?? []).flatMap((node) =>
          outputsOf(node).flatMap((name) =>
            (this.readers.get(name) ?? [])
              .map(keyOf)
              .filter((reader) => reader !== key && reader.startsWith('forward')),
          ),
        ),
      );
      const [only] = after;
      if (after.size === 1 && only !== undefined && fusible(only)) next.set(key, only);
    }
    const chained = new Map<string, number>();
    const members = new Map<string, string[]>();
    for (const key of gathered.keys()) {
      let last = key;
      while (next.has(last)) last = next.get(last) as string;
      if (last === key && ![...next.values()].includes(key)) continue;
      members.set(last, [...(members.get(last) ?? []), key]);
    }
    for (const [last, keys] of members) {
      for (const key of keys) chained.set(key, 0);
      chained.set(last, this.traffic(keys.flatMap((key) => computesOf(key) ?? [])));
    }
    return chained;
  }

  /** Whether every large operand is whole on each rank. */
  private repeated(nodes: readonly ComputeNode[]): boolean {
    return nodes.every((node) =>
      [...inputsOf(node), ...outputsOf(node)].every((name) => {
        const { shape, localShape } = this.tensor(name);
        return elementCount(shape) === elementCount(localShape);
      }),
    );
  }

  private isScores(group: string): boolean {
    if (this.heads.get(group)?.body) return this.productsOfBlock(group) !== null;
    return (
      (this.heads.get(group)?.inputs.filter((name) => name !== null).length ?? 0) >= 3 && this.producesScores(group)
    );
  }

  /** Attention proper makes sums over keys; rotary embedding, of the same family, works element by element. */
  private producesScores(group: string): boolean {
    const node = this.sharded.nodes.find(
      (candidate) => candidate.kind === 'compute' && candidate.phase === 'forward' && this.group(candidate) === group,
    );
    if (node?.kind !== 'compute') return false;
    const [output] = node.outputs;
    return output !== null && output !== undefined && node.flops / elementCount(this.tensor(output).localShape) > 8;
  }

  private family(group: string): OperatorFamily {
    const head = this.heads.get(group);
    if (!head) return 'elementwise';
    return entryOf(head.op, head.domain)?.family ?? 'other';
  }

  private group(node: ShardedNode): string {
    return this.groupOf.get(node.origin) ?? node.origin;
  }

  private tensor(name: string): ShardedTensor {
    const tensor = this.sharded.tensors.get(name);
    if (!tensor) throw new Error(`no tensor ${name}`);
    return tensor;
  }
}

/** The group of the forward operator whose gradient a node belongs to; a sum of gradients is a group of its own. */
function forwardGroup({ name, group, phase }: Node, heads: { has(group: string): boolean }): string {
  if (phase === 'forward' || heads.has(group)) return group;
  const [, of = ''] = /^(.*?)\/gradient(?:\/|$)/.exec(name) ?? [];
  return heads.has(of) ? of : group;
}

/** Elements as of a floating-point tensor; truth values are a byte each where those have two. */
function widthOf({ dtype, localShape }: ShardedTensor): number {
  const elements = elementCount(localShape);
  return dtype === 'bool' ? elements / 2 : elements;
}

function isView(node: ComputeNode): boolean {
  return entryOf(node.op, node.domain)?.isView === true;
}

/** Views, and operators that make small tables. */
function isFree(node: ComputeNode): boolean {
  return isView(node) || node.inputs.every((name) => name === null);
}

function phaseOf(node: ShardedNode): Phase {
  return node.phase === 'forward' ? 'forward' : 'backward';
}

function inputsOf(node: ShardedNode): readonly string[] {
  return node.kind === 'compute' ? node.inputs.filter((name) => name !== null) : [node.input];
}

function outputsOf(node: ShardedNode): readonly string[] {
  return node.kind === 'compute' ? node.outputs.filter((name) => name !== null) : [node.output];
}
