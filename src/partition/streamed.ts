/**
 * @file A factor that streams (the mark `>`): it is on the axes of another factor, and its blocks are passed round the ranks.
 *
 *     rank r, hop 0 … n−1:   holds block (r − hop) mod n, starts to send it to rank r + 1, computes with it
 *
 * The operator's body runs on each block in turn (OperatorEntry.streamed). An operand that has the streamed factor alone goes round,
 * n − 1 sends; one that has both factors is there whole along the streamed one, and each hop takes its block. A result with the
 * factor beside it is joined on its rank; one with the streamed factor follows its block, from where the block was second, and gets
 * home after n − 1 sends.
 *
 * A block that is not its rank's own is no part of one tensor that a layout could say: between the hops such tensors vary.
 */
import type { FactorRule } from '../ir/factor-rule.js';
import type { TensorType } from '../ir/graph.js';
import type { Expansion, OperatorEntry, OperatorView } from '../ir/operator.js';
import { type Layout, layoutFromFactors, type PartialAxis, replicated } from '../sharding-propagation/layout.js';
import { axesSize } from '../sharding-propagation/mesh.js';
import type { Strategy, Stream } from '../sharding-propagation/strategy.js';
import { type AddOperator, addExpansion, type OperatorNames } from './expand.js';
import { type Fragment, int64Constant } from './fragment.js';
import { markFused } from './fused.js';

type Dims = FactorRule['inputs'][number];

/** An operator under a strategy that streams one of its factors. */
export interface StreamedOperator {
  readonly entry: OperatorEntry;
  readonly view: OperatorView;
  readonly rule: FactorRule;
  readonly strategy: Strategy;
  readonly stream: Stream;
  /** Layouts of its results. */
  readonly results: readonly (Layout | null)[];
}

/** Adds the hops of a streamed operator; returns its results' names. */
export function addStreamed(
  fragment: Fragment,
  operator: StreamedOperator,
  names: OperatorNames,
  addOperator: AddOperator,
): readonly (string | null)[] {
  return new Hops(fragment, operator, addOperator).run(names);
}

class Hops {
  private readonly count: number;
  private readonly strategy: Strategy;

  constructor(
    private readonly fragment: Fragment,
    private readonly operator: StreamedOperator,
    private readonly addOperator: AddOperator,
  ) {
    const { strategy, stream } = operator;
    const axes = Object.entries(strategy.axes).filter(([name]) => name !== stream.streamed && name !== stream.beside);
    this.count = axesSize(fragment.mesh, stream.axes);
    this.strategy = { axes: Object.fromEntries(axes), carried: null, owed: { kind: 'none' } };
  }

  run(names: OperatorNames): readonly (string | null)[] {
    const { entry, view, rule, results } = this.operator;
    if (!entry.streamed) throw new Error(`${view.op} has a factor that streams and no form for its blocks`);
    const parts = entry.streamed(view, (name) => this.sizeOf(name));
    const operands = names.inputs.map((name, index) => (name === null ? null : this.entered(name, index)));
    let travelling = operands;
    let made: readonly string[] = [];
    /** By result that follows its block: the part of the rank's own block, and the sum that goes round. */
    const home = new Map<number, string>();
    for (let hop = 0; hop < this.count; hop++) {
      const isLast = hop === this.count - 1;
      const arrived = travelling;
      if (!isLast)
        travelling = arrived.map((name, index) => (this.follows(rule.inputs[index]) ? this.sent(name) : name));
      const blocks = arrived.map((name, index) =>
        this.hasBoth(rule.inputs[index]) ? this.blockOf(name, index, hop) : name,
      );
      const { first, online } = parts;
      if (online) {
        const step = hop === 0 ? first : isLast ? online.last : online.next;
        made = this.compute(step, blocks, made, online.kept, isLast ? view.outputs.length : online.kept.length);
        continue;
      }
      const added = this.compute(first, blocks, [], [], view.outputs.length);
      made = added.map((part, index) => {
        const before = made[index];
        if (before === undefined) return part;
        if (!this.follows(rule.outputs[index])) return this.sum(before, part);
        if (hop > 1) return this.sum(this.sent(before) as string, part);
        home.set(index, before);
        return part;
      });
    }
    return view.outputs.map((type, index) => {
      const [name, layout, own] = [made[index], results[index], home.get(index)];
      if (!type || name === undefined || !layout) return null;
      const whole = own === undefined ? name : this.sum(own, this.sent(name) as string);
      return this.relabelled(whole, type, layout, [], names.outputs[index]);
    });
  }

  /** Whether a tensor goes round with its block. */
  private follows(dims: Dims | undefined): boolean {
    return this.has(dims, this.operator.stream.streamed) && !this.has(dims, this.operator.stream.beside);
  }

  private hasBoth(dims: Dims | undefined): boolean {
    return this.has(dims, this.operator.stream.streamed) && this.has(dims, this.operator.stream.beside);
  }

  private has(dims: Dims | undefined, factor: string): boolean {
    return dims?.some((own) => own.includes(factor)) ?? false;
  }

  /** The size of a factor as the hops see it. */
  private sizeOf(name: string): number {
    const size = this.operator.rule.factors.get(name)?.size ?? 1;
    const { streamed, beside } = this.operator.stream;
    return name === streamed || name === beside ? size / this.count : size;
  }

  /** An operand as the hops have it: a rank's block by itself, cut over other axes as before. */
  private entered(name: string, index: number): string {
    const { rule, view, stream } = this.operator;
    const dims = rule.inputs[index];
    const type = view.inputs[index];
    if (!type || !dims || !(this.has(dims, stream.streamed) || this.has(dims, stream.beside))) return name;
    const isWhole = this.hasBoth(dims);
    const size = (factor: string) =>
      isWhole && factor === stream.streamed ? (rule.factors.get(factor)?.size ?? 1) : this.sizeOf(factor);
    const { partial } = this.fragment.get(name).layout;
    return this.relabelled(name, this.typeOf(type, dims, size), this.layoutOf(dims, size, partial), stream.axes);
  }

  private typeOf({ dtype, shape }: TensorType, dims: NonNullable<Dims>, size: (factor: string) => number): TensorType {
    return {
      dtype,
      shape: shape.map((own, axis) => {
        const names = dims[axis] ?? [];
        return names.length === 0 ? own : names.reduce((product, name) => product * size(name), 1);
      }),
    };
  }

  private layoutOf(dims: NonNullable<Dims>, size: (factor: string) => number, partial: readonly PartialAxis[]): Layout {
    return layoutFromFactors(dims, size, this.strategy.axes, partial, this.fragment.mesh);
  }

  /** The same block under another name, type and layout. */
  private relabelled(
    name: string,
    type: TensorType,
    layout: Layout,
    varying: readonly string[],
    wanted?: string | null,
  ): string {
    const result = this.fragment.tensor(type, layout, wanted ?? undefined, varying);
    const { localShape } = this.fragment.get(result);
    this.fragment.add({
      op: 'Reshape',
      attributes: { shape: [...localShape] },
      inputs: [name],
      results: [{ name: result, type, layout, varying }],
      lowering: 'slice',
    });
    return result;
  }

  /** A tensor of the next rank's before: each rank sends its own on. */
  private sent(name: string | null): string | null {
    if (name === null) return null;
    const { axes } = this.operator.stream;
    const to = Array.from({ length: this.count }, (_, member) => (member + 1) % this.count);
    return this.fragment.communicate({ kind: 'permute', to }, axes, name, this.fragment.get(name).layout);
  }

  /** Of an operand with both factors the part of the block that a hop is about. */
  private blockOf(name: string | null, index: number, hop: number): string | null {
    const { rule, view, stream } = this.operator;
    const [dims, whole] = [rule.inputs[index], view.inputs[index]];
    if (name === null || !dims || !whole) return name;
    const { dtype, layout, localShape } = this.fragment.get(name);
    const local = dims.flatMap((factors) =>
      factors.map((factor) => {
        const size = rule.factors.get(factor)?.size ?? 1;
        return { factor, size: size / axesSize(this.fragment.mesh, this.operator.strategy.axes[factor] ?? []) };
      }),
    );
    const place = local.findIndex(({ factor }) => factor === stream.streamed);
    const product = (parts: typeof local) => parts.reduce((all, { size }) => all * size, 1);
    const [outer, inner] = [product(local.slice(0, place)), product(local.slice(place))];
    const rows = (shape: readonly number[]) => ({
      type: { dtype, shape },
      layout: { ...replicated(shape), partial: layout.partial },
      varying: [...new Set([...layout.dims.flat().flatMap(({ axes }) => axes), ...stream.axes])],
    });
    const seen = [outer, this.count, inner];
    const apply = (op: string, inputs: readonly string[], shape: readonly number[], attributes: object) =>
      this.fragment.add({
        op,
        attributes: { ...attributes },
        inputs,
        results: [rows(shape)],
        lowering: 'slice',
      })[0] as string;
    const viewed = localShape.join() === seen.join() ? name : apply('Reshape', [name], seen, { shape: seen });
    const block = apply('Gather', [viewed, this.numberOf(hop)], [outer, 1, inner], { axis: 1 });
    const type = this.typeOf(whole, dims, (factor) => this.sizeOf(factor));
    const to = this.layoutOf(dims, (factor) => this.sizeOf(factor), layout.partial);
    return this.relabelled(block, type, to, stream.axes);
  }

  /** The number of the block that a rank has at a hop: an int64 [1]. */
  private numberOf(hop: number): string {
    const { axes } = this.operator.stream;
    const own = this.fragment.coordinate(axes, 1);
    if (hop === 0) return own;
    const numbers = Array.from({ length: this.count }, (_, rank) => (rank - hop + this.count) % this.count);
    return this.fragment.add({
      op: 'Gather',
      attributes: { axis: 0 },
      inputs: [this.fragment.constant(int64Constant(numbers)), own],
      results: [{ type: { dtype: 'int64', shape: [1] }, layout: replicated([1]), varying: axes }],
      lowering: 'slice',
    })[0] as string;
  }

  private sum(one: string, other: string): string {
    const { dtype, shape, layout, varying = [] } = this.fragment.get(one);
    const results = [{ type: { dtype, shape }, layout, varying }];
    return this.fragment.add({ op: 'Add', inputs: [one, other], results, lowering: 'indexed' })[0] as string;
  }

  /** What is done with one block, over the other axes as the operator would be, and behind its operands what was left before. */
  private compute(
    expansion: Expansion,
    blocks: readonly (string | null)[],
    left: readonly string[],
    kept: readonly NonNullable<Dims>[],
    results: number,
  ): readonly string[] {
    const { view, rule } = this.operator;
    const inputs = [...blocks, ...left];
    const sizes = [...rule.factors].map(([name, factor]) => [name, { ...factor, size: this.sizeOf(name) }] as const);
    const first = this.fragment.nodes.length;
    const made = addExpansion(
      this.fragment,
      {
        view: {
          ...view,
          inputs: inputs.map((name) => (name === null ? null : this.fragment.get(name))),
          outputs: Array.from({ length: results }, () => ({ dtype: 'float32', shape: [] })),
        },
        rule: { ...rule, factors: new Map(sizes), inputs: [...rule.inputs, ...kept] },
        strategy: this.strategy,
        expansion,
      },
      { inputs, outputs: [] },
      this.addOperator,
    ) as readonly string[];
    markFused(this.fragment, first, made);
    return made;
  }
}
