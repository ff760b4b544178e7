/**
 * @file Experts that each take up to a capacity of tokens, in place of every token through every expert (GShard, Lepikhin et al.
 * 2021). A sample is a group: capacity and dropped tokens are per sample, so that they are the same at every degree of
 * parallelism and number of micro-batches.
 *
 *     capacity C = ⌈factor · k · tokens of a sample / experts⌉
 *     places [g, E, C]    for each expert the first C tokens that chose it
 *     rows [g, E·C, d]    = the tokens at these places                              where tokens are
 *     [E, g·C, d] ─► the experts' matmuls ─► [E, g·C, d]                            where experts are
 *     result [g, tokens, d] = Σ of the experts' results, by gate, for its token     where tokens are
 *
 * Slots that no token fills compute some token with gate zero. A token that finds no slot is dropped by that expert: only its
 * residual stays. Nothing here depends on a mesh: between `rows` and the experts' matmuls a layout changes from groups to
 * experts, which is an all-to-all.
 */

import { AutoparError } from '../error.js';
import { type Graph, type Node, typeOf } from '../graph.js';
import { needed } from '../needed.js';
import { constant } from '../ops/constants.js';
import { ForwardWriter } from '../passes/forward-writer.js';
import type { Dispatch } from './dispatches.js';
import { ExpertWriter } from './expert-writer.js';
import { type ExpertMixture, findExperts } from './find-experts.js';
import { chosenPerToken } from './routers.js';
import { samplesIn } from './samples.js';

export interface DispatchOptions {
  /** How tokens reach the experts of their top k; as the file has it by default. */
  readonly dispatch?: Dispatch;
  /** An expert's capacity, as a multiple of its even share of a sample's tokens; every token by default. Needs `dispatch`. */
  readonly capacityFactor?: number;
}

/** A layer of experts that was dispatched. */
export interface DispatchedExperts {
  /** The module, or the last operator. */
  readonly name: string;
  readonly experts: number;
  readonly chosen: number;
  /** Tokens of a sample, and slots of an expert for them. */
  readonly tokens: number;
  readonly capacity: number;
  /** The graph's output [samples, experts]: tokens that chose each expert. */
  readonly counts: string;
}

/**
 * The graph with experts dispatched. Each layer adds an output with the tokens that chose each expert.
 * @throws AutoparError (usage) `no-experts` where no layer of experts is found that has a gate of the top k
 */
export function dispatchExperts(
  graph: Graph,
  { dispatch = 'padded', capacityFactor }: DispatchOptions,
): { readonly graph: Graph; readonly layers: readonly DispatchedExperts[] } {
  const write = new ForwardWriter(graph);
  const samplesOf = samplesIn(graph);
  const layers: DispatchedExperts[] = [];
  const made = new Map<Node, readonly Node[]>();
  const gone = new Set<Node>();
  for (const mixture of findExperts(graph)) {
    const chosen = mixture.choice === null ? chosenPerToken(graph, mixture) : null;
    const samples = samplesOf(mixture.root);
    // Samples of one token have no capacity to share.
    if (chosen === null || !samples || samples.tokens === 1) continue;
    const { groups, tokens } = samples;
    const share = ((capacityFactor ?? mixture.experts) * chosen * tokens) / mixture.experts;
    const capacity = Math.max(1, Math.min(tokens, Math.ceil(share - 1e-9)));
    const layer = new DispatchLayer(graph, write, mixture, { groups, tokens, capacity }, dispatch);
    const counts = layer.layer();
    made.set(mixture.end, write.take());
    for (const node of mixture.nodes) gone.add(node);
    for (const tensor of mixture.tensors) write.tensors.delete(tensor);
    const { module } = mixture.end;
    layers.push({
      name: module.join('.') || mixture.end.name,
      experts: mixture.experts,
      chosen,
      tokens,
      capacity,
      counts,
    });
  }
  if (layers.length === 0)
    throw new AutoparError(
      'no-experts',
      'usage',
      `--dispatch needs experts with top-k routing in a known form, and ${graph.name} has none`,
      {},
      'leave it out; docs/parallelism.md lists the written forms',
    );
  const nodes = graph.nodes.flatMap((node) => made.get(node) ?? (gone.has(node) ? [] : [node]));
  const outputs = [...graph.outputs, ...layers.map(({ counts }) => counts)];
  // Copies of tokens and of gates have no reader any more.
  const read = needed(nodes, outputs);
  return { graph: { ...write.graph(read), outputs }, layers };
}

interface DispatchSizes {
  readonly groups: number;
  readonly tokens: number;
  readonly capacity: number;
}

/** One layer while it is written. */
class DispatchLayer {
  private readonly write: ExpertWriter;

  constructor(
    private readonly graph: Graph,
    writer: ForwardWriter,
    private readonly mixture: ExpertMixture,
    private readonly sizes: DispatchSizes,
    private readonly dispatch: Dispatch,
  ) {
    this.write = new ExpertWriter(graph, writer, mixture, 'dispatch');
  }

  /** Returns the name of the counts. */
  layer(): string {
    const { write } = this;
    const { experts, end } = this.mixture;
    const { groups, tokens, capacity } = this.sizes;
    const root = write.typeOf(this.mixture.root);
    const width = root.shape.at(-1) ?? 1;
    const slots = experts * capacity;
    const gate = write.reshape(write.gate(), [groups, tokens, experts]);
    const isNot = write.add('Equal', [gate, write.scalar(gate, 0)]);
    const counts = this.counts(isNot);
    const earlier = constant(
      'int64',
      Array.from({ length: tokens }, (_, index) => tokens - index),
      [1, tokens, 1],
    );
    const zero = write.value('none', constant('int64', [0]));
    const order = write.value('earlier', earlier);
    const key = write.add('Where', [isNot, zero, order]);
    const places = write.addAll('TopK', [key], { k: [capacity], axis: 1, largest: 1, sorted: 1 }, 2)[1] ?? '';
    const flat = this.perExpert(places);
    const column = write.add('Unsqueeze', [flat], { axes: [2] });
    const rows = write.add('GatherND', [write.reshape(this.mixture.root, [groups, tokens, width]), column], {
      batch_dims: 1,
    });
    const shares = write.add('Unsqueeze', [this.shares(gate, flat)], { axes: [2] });
    const isEmpty = this.dispatch === 'variable' ? write.add('Equal', [shares, write.scalar(shares, 0)]) : null;
    const made = write.results(this.toExperts(this.orZero(isEmpty, rows), width));
    const weighted = this.orZero(isEmpty && this.toExperts(isEmpty, 1), made);
    const across = write.typeOf(weighted).shape.at(-1) ?? 1;
    const back = this.toTokens(weighted, across);
    const scaled = write.add('Mul', [back, shares]);
    const indices = write.add('Expand', [column], { shape: [groups, slots, across] });
    const zeros = write.zeros(scaled, [groups, tokens, across]);
    const summed = write.add('ScatterElements', [zeros, indices, scaled], { axis: 1, reduction: 'add' });
    const [result = ''] = end.outputs;
    write.into(result ?? '', 'Reshape', [summed], { shape: typeOf(this.graph, result ?? '').shape, allowzero: 0 });
    return counts;
  }

  /** [g, experts, int64]: tokens that chose each expert. */
  private counts(isNot: string): string {
    const chosen = this.write.add('Cast', [this.write.add('Not', [isNot])], { to: INT64 });
    return this.write.add('ReduceSum', [chosen], { axes: [1], keepdims: 0 }, COUNTS);
  }

  /** Rows with zero in those that are empty. */
  private orZero(isEmpty: string | null, rows: string): string {
    return isEmpty === null ? rows : this.write.add('Where', [isEmpty, this.write.scalar(rows, 0), rows]);
  }

  /**
   * Places [g, slots, experts] as [g, experts · slots]; never with experts as a dimension that could be sharded over ep: they are
   * the router's.
   */
  private perExpert(places: string): string {
    const { experts } = this.mixture;
    const { groups, capacity } = this.sizes;
    const from = Array.from(
      { length: experts * capacity },
      (_, slot) => (slot % capacity) * experts + Math.floor(slot / capacity),
    );
    const order = this.write.value('order', constant('int64', from, [from.length]));
    return this.write.add('Gather', [this.write.reshape(places, [groups, capacity * experts]), order], { axis: 1 });
  }

  /** The gate of each slot's token, [g, slots]: zero for a slot that no token fills. */
  private shares(gate: string, flat: string): string {
    const { write } = this;
    const { experts } = this.mixture;
    const { groups, tokens, capacity } = this.sizes;
    const all = write.reshape(gate, [groups, tokens * experts]);
    const own = Array.from({ length: experts * capacity }, (_, slot) => Math.floor(slot / capacity));
    const column = write.value('expert', constant('int64', own, [1, own.length]));
    const many = write.value('experts', constant('int64', [experts]));
    const index = write.add('Add', [write.add('Mul', [flat, many]), column]);
    return write.add('GatherElements', [all, index], { axis: 1 });
  }

  /** [g, experts · capacity, width] → [experts, g · capacity, width]. */
  private toExperts(rows: string, width: number): string {
    const { experts } = this.mixture;
    const { groups, capacity } = this.sizes;
    const apart = this.write.reshape(rows, [groups, experts, capacity, width]);
    const transposed = this.write.add('Transpose', [apart], { perm: [1, 0, 2, 3] });
    return this.write.reshape(transposed, [experts, groups * capacity, width]);
  }

  private toTokens(rows: string, width: number): string {
    const { experts } = this.mixture;
    const { groups, capacity } = this.sizes;
    const apart = this.write.reshape(rows, [experts, groups, capacity, width]);
    const transposed = this.write.add('Transpose', [apart], { perm: [1, 0, 2, 3] });
    return this.write.reshape(transposed, [groups, experts * capacity, width]);
  }
}

const INT64 = 7;

const COUNTS = 'tokens_per_expert';

/** Whether a graph's output counts the tokens that chose each expert. */
export function isCount(output: string): boolean {
  return output.includes(`/dispatch/${COUNTS}`);
}
