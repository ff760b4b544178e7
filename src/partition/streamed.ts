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
import type { Attributes, TensorType } from '../ir/graph.js';
import type { Expansion, OperatorEntry, OperatorView } from '../ir/operator.js';
import { constant } from '../ir/ops/constants.js';
import { type Layout, layoutFromFactors, type PartialAxis, replicated } from '../sharding-propagation/layout.js';
import { axesSize } from '../sharding-propagation/mesh.js';
import type { Strategy, Stream } from '../sharding-propagation/strategy.js';
import { type AddOperator, addExpansion, IllegalStrategy, type OperatorNames } from './expand.js';
import { type Fragment, int64Constant } from './fragment.js';
import { withNeutralPadding } from './neutral-padding.js';

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
    const parts = entry.streamed(view, (name) => this.sizeOf(name), this.isPadded(this.operator.stream.streamed));
    const there = parts.online?.there ?? null;
    const own = this.withoutPadding(names.inputs);
    const goes = rule.inputs.map((dims) => this.follows(dims));
    let travelling = own.map((name, index) => (goes[index] ? this.entered(name, index) : name));
    let made: readonly string[] = [];
    /** By result that follows its block: the part of the rank's own block, and the sum that goes round. */
    const home = new Map<number, string>();
    for (let hop = 0; hop < this.count; hop++) {
      const isLast = hop === this.count - 1;
      const arrived = travelling;
      if (!isLast) travelling = arrived.map((name, index) => (goes[index] ? this.sent(name) : name));
      // What stays is brought into the form of a hop in each of them anew: no copy of it is alive between hops (defer.ts).
      const blocks = arrived.map((name, index) => {
        if (goes[index]) return name;
        return this.hasBoth(rule.inputs[index]) ? this.blockOf(name, index, hop) : this.entered(name, index);
      });
      const { first, online } = parts;
      if (online) {
        const step = hop === 0 ? first : isLast ? online.last : online.next;
        const given = there ? [...blocks, this.positionsAt(hop, there)] : blocks;
        const behind = [...(there ? [there] : []), ...online.kept];
        made = this.compute(step, [...given, ...made], behind, isLast ? view.outputs.length : online.kept.length);
        continue;
      }
      const added = this.compute(first, blocks, [], view.outputs.length);
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
    return name === streamed || name === beside ? Math.ceil(size / this.count) : size;
  }

  private isPadded(factor: string): boolean {
    return (this.operator.rule.factors.get(factor)?.size ?? 1) % this.count !== 0;
  }

  /** The operands with zeros where a block has no positions, so that sums over blocks are those over positions. */
  private withoutPadding(names: OperatorNames['inputs']): OperatorNames['inputs'] {
    const { rule, view, strategy, stream } = this.operator;
    const factors = new Map(rule.factors);
    for (const name of [stream.streamed, stream.beside]) {
      const factor = factors.get(name);
      if (factor) factors.set(name, { ...factor, kind: 'contracting' });
    }
    // A truth value does no harm; where both factors are, the streamed one is not cut.
    const inputs = rule.inputs.map((dims, index) => {
      if (!dims || view.inputs[index]?.dtype === 'bool') return null;
      return this.hasBoth(dims) ? dims.map((own) => (own.includes(stream.streamed) ? [] : own)) : dims;
    });
    return withNeutralPadding(
      this.fragment,
      { ...rule, factors, inputs },
      { axes: strategy.axes, carried: null, owed: strategy.owed },
      names,
    );
  }

  /** Which positions of the block of a hop are there, in the dimensions given. */
  private positionsAt(hop: number, dims: NonNullable<Dims>): string {
    const { streamed, axes } = this.operator.stream;
    const [size, block] = [this.operator.rule.factors.get(streamed)?.size ?? 1, this.sizeOf(streamed)];
    const table = Array.from({ length: this.count * block }, (_, at) => (at < size ? 1 : 0));
    const rows = this.fragment.constant(constant('bool', table, [this.count, block]));
    const [picked] = this.fragment.add({
      op: 'Gather',
      attributes: { axis: 0 },
      inputs: [rows, this.numberOf(hop)],
      results: [{ type: { dtype: 'bool', shape: [1, block] }, layout: replicated([1, block]), varying: axes }],
      lowering: 'slice',
    });
    const shape = dims.map((names) => (names.length === 0 ? 1 : block));
    return this.relabelled(picked as string, { dtype: 'bool', shape }, replicated(shape), axes);
  }

  /** An operand as the hops have it: a rank's block by itself, cut over other axes as before. */
  private entered(name: string | null, index: number): string | null {
    const { rule, view, stream } = this.operator;
    const [dims, type] = [rule.inputs[index], view.inputs[index]];
    if (name === null || !type || !dims || !(this.has(dims, stream.streamed) || this.has(dims, stream.beside)))
      return name;
    const { partial } = this.fragment.get(name).layout;
    return this.relabelled(name, this.typeOf(type, dims), this.layoutOf(dims, partial), stream.axes);
  }

  private typeOf({ dtype, shape }: TensorType, dims: NonNullable<Dims>): TensorType {
    return {
      dtype,
      shape: shape.map((own, axis) => {
        const names = dims[axis] ?? [];
        return names.length === 0 ? own : names.reduce((product, name) => product * this.sizeOf(name), 1);
      }),
    };
  }

  private layoutOf(dims: NonNullable<Dims>, partial: readonly PartialAxis[]): Layout {
    return layoutFromFactors(dims, (name) => this.sizeOf(name), this.strategy.axes, partial, this.fragment.mesh);
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

  /** Of an operand with both factors the part of the block that a hop is about: its positions along the streamed one are picked. */
  private blockOf(name: string | null, index: number, hop: number): string | null {
    const { rule, view, stream } = this.operator;
    const [dims, whole] = [rule.inputs[index], view.inputs[index]];
    if (name === null || !dims || !whole) return name;
    const axis = dims.findIndex((own) => own.includes(stream.streamed));
    if (dims[axis]?.length !== 1)
      throw new IllegalStrategy(`operand ${index} of ${view.name} has ${stream.streamed} beside other factors`);
    const { partial } = this.fragment.get(name).layout;
    return this.fragment.add({
      op: 'Gather',
      attributes: { axis },
      inputs: [name, this.positionsOf(hop)],
      results: [
        {
          type: this.typeOf(whole, dims),
          layout: this.layoutOf(dims, partial),
          varying: stream.axes,
        },
      ],
      lowering: 'slice',
    })[0] as string;
  }

  /** The positions of the block that a rank has at a hop; those that are not there are the last one. */
  private positionsOf(hop: number): string {
    const { streamed } = this.operator.stream;
    const [size, block] = [this.operator.rule.factors.get(streamed)?.size ?? 1, this.sizeOf(streamed)];
    const along = this.fragment.constant(int64Constant(Array.from({ length: block }, (_, at) => at)));
    const positions = this.numbers('Add', [this.numberOf(hop, block), along], block);
    return this.isPadded(streamed)
      ? this.numbers('Min', [positions, this.fragment.constant(int64Constant([size - 1]))], block)
      : positions;
  }

  /** The number of the block that a rank has at a hop, times `factor`: an int64 [1]. */
  private numberOf(hop: number, factor = 1): string {
    const own = this.fragment.coordinate(this.operator.stream.axes, 1);
    const numbers = Array.from({ length: this.count }, (_, rank) => factor * ((rank - hop + this.count) % this.count));
    return this.numbers('Gather', [this.fragment.constant(int64Constant(numbers)), own], 1, { axis: 0 });
  }

  private numbers(op: string, inputs: readonly string[], count: number, attributes: Attributes = {}): string {
    return this.fragment.add({
      op,
      attributes,
      inputs,
      results: [
        {
          type: { dtype: 'int64', shape: [count] },
          layout: replicated([count]),
          varying: this.operator.stream.axes,
        },
      ],
      lowering: 'slice',
    })[0] as string;
  }

  private sum(one: string, other: string): string {
    const { dtype, shape, layout, varying = [] } = this.fragment.get(one);
    const results = [{ type: { dtype, shape }, layout, varying }];
    return this.fragment.add({ op: 'Add', inputs: [one, other], results, lowering: 'indexed' })[0] as string;
  }

  /** What is done with one block, over the other axes as the operator would be; `behind`: dimensions of operands behind its own. */
  private compute(
    expansion: Expansion,
    inputs: readonly (string | null)[],
    behind: readonly NonNullable<Dims>[],
    results: number,
  ): readonly string[] {
    const { view, rule } = this.operator;
    const sizes = [...rule.factors].map(([name, factor]) => [name, { ...factor, size: this.sizeOf(name) }] as const);
    return addExpansion(
      this.fragment,
      {
        view: {
          ...view,
          inputs: inputs.map((name) => (name === null ? null : this.fragment.get(name))),
          outputs: Array.from({ length: results }, () => ({ dtype: 'float32', shape: [] })),
        },
        rule: { ...rule, factors: new Map(sizes), inputs: [...rule.inputs, ...behind] },
        strategy: this.strategy,
        expansion,
      },
      { inputs, outputs: [] },
      this.addOperator,
    ) as readonly string[];
  }
}
