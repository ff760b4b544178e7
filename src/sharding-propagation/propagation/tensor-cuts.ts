/**
 * @file The cuts of all tensors while propagation runs. They only grow: no cut is ever removed, so a fixed point is reached,
 * and the cut that came first (from a pin of higher priority, or from nearer by) stays.
 */
import type { Graph } from '../../ir/graph.js';
import type { Layout } from '../layout.js';
import { axesSize, type Mesh, type SubAxis } from '../mesh.js';
import { axesOfCut, type Cut, type CutItem, holds, layoutOfCuts, mergeCuts, UNCUT } from './cut.js';
import type { Cause, TensorReason } from './reasons.js';

/** A pin's limit on a tensor's dimension: just this cut, or a number of parts. */
export type Limit = { readonly kind: 'cut'; readonly cut: Cut } | { readonly kind: 'parts'; readonly parts: number };

export interface TensorCuts {
  readonly name: string;
  readonly shape: readonly number[];
  /** Per dimension. */
  readonly cuts: Cut[];
  /** Per dimension the limit of a pin; null where nothing is pinned. */
  limits: readonly Limit[] | null;
  readonly reasons: TensorReason[];
  /** By axis: the round of propagation in which it came. */
  readonly rounds: Map<SubAxis, number>;
}

export class AllCuts {
  private readonly tensors = new Map<string, TensorCuts>();
  /** Tensors that share a buffer: cuts of one are carried to the other. */
  private readonly partners = new Map<string, string>();

  constructor(
    private readonly graph: Graph,
    private readonly mesh: Mesh,
  ) {
    for (const { input, output } of graph.state) {
      this.partners.set(input, output);
      this.partners.set(output, input);
    }
  }

  /** A tensor's cuts; undefined for those that take no part: scalars, and constants, of which every reader has its own shard. */
  of(tensor: string): TensorCuts | undefined {
    const known = this.tensors.get(tensor);
    if (known) return known;
    const type = this.graph.tensors.get(tensor);
    if (!type || type.shape.length === 0 || this.graph.weights.get(tensor)?.role === 'constant') return undefined;
    const made: TensorCuts = {
      name: tensor,
      shape: type.shape,
      cuts: type.shape.map(() => UNCUT),
      limits: null,
      reasons: [],
      rounds: new Map(),
    };
    this.tensors.set(tensor, made);
    return made;
  }

  /** Shards a dimension further, as far as that fits its cuts so far; returns the tensors that changed. */
  add(
    tensor: TensorCuts,
    dimension: number,
    cut: Cut,
    cause: (item: CutItem) => Cause,
    round: number,
  ): readonly string[] {
    const before = tensor.cuts[dimension] ?? UNCUT;
    const limit = tensor.limits?.[dimension];
    let parts = limit?.kind === 'parts' ? axesSize(this.mesh, axesOfCut(before)) : 1;
    const accept = (item: CutItem) => {
      const elsewhere = tensor.cuts.some(
        (other, at) => at !== dimension && other.some((own) => own.axes.some((axis) => item.axes.includes(axis))),
      );
      if (elsewhere || !limit) return !elsewhere;
      if (limit.kind === 'cut') return holds(limit.cut, item);
      parts *= axesSize(this.mesh, item.axes);
      return limit.parts % parts === 0;
    };
    const after = mergeCuts(before, cut, tensor.shape[dimension] ?? 1, accept);
    if (after === before) return [];
    tensor.cuts[dimension] = after;
    for (const item of after)
      for (const axis of item.axes) {
        if (tensor.rounds.has(axis)) continue;
        tensor.rounds.set(axis, round);
        tensor.reasons.push({ axis, dimension, cause: cause(item) });
      }
    const partner = this.of(this.partners.get(tensor.name) ?? '');
    const followed = partner
      ? this.add(partner, dimension, after, () => ({ kind: 'tensor', tensor: tensor.name, dimension }), round)
      : [];
    return [tensor.name, ...followed];
  }

  layout(tensor: TensorCuts): Layout {
    return layoutOfCuts(tensor.shape, tensor.cuts, this.mesh);
  }

  reasons(): ReadonlyMap<string, readonly TensorReason[]> {
    return new Map(
      [...this.tensors].filter(([, { reasons }]) => reasons.length > 0).map(([name, { reasons }]) => [name, reasons]),
    );
  }
}
