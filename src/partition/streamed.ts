/**
 * @file A factor that streams (the mark `>`): it is on the axes of another factor, and its chunks are passed round the ranks.
 *
 *     rank r, hop 0 … n−1:   holds chunk (r − hop) mod n, starts to send it to rank r + 1, computes with it
 *
 * The operator's body runs on one chunk per hop (OperatorEntry.streamed). An operand that has the streamed factor alone travels
 * round the ring, n − 1 sends; one with both factors is whole along the streamed one, and each hop slices its chunk. A result
 * with the factor beside it is joined on its rank; one with the streamed factor follows its chunk, from the chunk's second
 * rank, and is back after n − 1 sends.
 *
 * A chunk on a rank other than its own is not a shard that a layout could describe: between the hops such tensors vary.
 */
import type { FactorRule, TensorFactors } from '../ir/factor-rule.js';
import type { Attributes, TensorType } from '../ir/graph.js';
import type { Expansion, Operator, OperatorEntry, Streamed } from '../ir/operator.js';
import { constant } from '../ir/ops/constants.js';
import { ZIGZAG } from '../ir/passes/order-sequence.js';
import { type Layout, layoutFromFactors, type PartialAxis, replicated } from '../sharding-propagation/layout.js';
import { axesSize, type SubAxis } from '../sharding-propagation/mesh.js';
import type { Strategy, Stream } from '../sharding-propagation/strategy.js';
import { type AddOperator, addExpansion, IllegalStrategy, type OperatorNames } from './expand.js';
import { type Fragment, int64Constant, zeroConstant } from './fragment.js';
import { withNeutralPadding } from './neutral-padding.js';
import { type HopPart, PIECES, partsOfHop } from './zigzag.js';

/** An operator under a strategy that streams one of its factors. */
export interface StreamedOperator {
  readonly entry: OperatorEntry;
  readonly operator: Operator;
  readonly rule: FactorRule;
  readonly strategy: Strategy;
  readonly stream: Stream;
  /** Layouts of its results. */
  readonly results: readonly (Layout | null)[];
}

/** Adds the hops of a streamed operator; returns its results' names. */
export function addStreamed(
  fragment: Fragment,
  streaming: StreamedOperator,
  names: OperatorNames,
  addOperator: AddOperator,
): readonly (string | null)[] {
  return new Hops(fragment, streaming, addOperator).run(names);
}

class Hops {
  private readonly count: number;
  private readonly strategy: Strategy;
  /** Pieces of a chunk: two where the sequence is in zig-zag order and the attention causal (zigzag.ts). */
  private readonly pieces: number;

  constructor(
    private readonly fragment: Fragment,
    private readonly streaming: StreamedOperator,
    private readonly addOperator: AddOperator,
  ) {
    const { strategy, stream } = streaming;
    const axes = Object.entries(strategy.axes).filter(([name]) => name !== stream.streamed && name !== stream.beside);
    this.count = axesSize(fragment.mesh, stream.axes);
    this.strategy = { axes: Object.fromEntries(axes), partialOperands: null, pending: { kind: 'none' } };
    this.pieces = this.isZigzag() ? PIECES : 1;
  }

  run(names: OperatorNames): readonly (string | null)[] {
    const { entry, operator, rule, results, stream } = this.streaming;
    if (!entry.streamed) throw new Error(`${operator.op} has a factor that streams and no form for chunks`);
    const steps = entry.streamed(operator, (name) => this.sizeOf(name), this.isPadded(stream.streamed));
    const own = this.withoutPadding(names.inputs);
    const goes = rule.inputs.map((dims) => this.follows(dims));
    let travelling = own.map((name, index) => (goes[index] ? this.entered(name, index) : name));
    /** The running values of rows, by piece of the rank's own positions. */
    const rows: (readonly string[])[] = [];
    /** By result: sums of the rank's own rows by their pieces, or of the current hop's chunk. */
    const sums: string[][] = operator.outputs.map(() => []);
    /** By result that follows its chunk: the part of the rank's own chunk. */
    const home = new Map<number, string>();
    for (let hop = 0; hop < this.count; hop++) {
      const arrived = travelling;
      if (hop < this.count - 1) travelling = arrived.map((name, index) => (goes[index] ? this.sent(name) : name));
      const added: string[][] = operator.outputs.map(() => []);
      for (const part of partsOfHop(hop, this.count, this.pieces > 1)) {
        // A stationary operand is brought into the form of a hop in each hop anew: no copy is alive between hops (defer.ts).
        const operands = arrived.map((name, index) => this.pickedChunk(name, index, hop, part, goes[index] === true));
        if (steps.online) this.continued(steps, rows, part, operands, hop);
        else {
          const made = this.compute(steps.first, operands, rule.inputs, operator.outputs.length);
          for (const [index, name] of made.entries())
            this.addTo(this.follows(rule.outputs[index]) ? added : sums, index, name, part);
        }
      }
      for (const [index, parts] of added.entries()) {
        if (parts.length === 0) continue;
        const made = this.joined(parts, rule.outputs[index], stream.streamed);
        const before = sums[index]?.[0];
        if (before === undefined) sums[index] = [made];
        else if (hop > 1) sums[index] = [this.sum(this.sent(before) as string, made)];
        else {
          home.set(index, before);
          sums[index] = [made];
        }
      }
    }
    const { online } = steps;
    const ended = online
      ? rows.map((kept) => this.compute(online.end, kept, online.kept, operator.outputs.length))
      : [];
    return operator.outputs.map((type, index) => {
      const parts = online ? ended.flatMap((of) => of[index] ?? []) : (sums[index] ?? []);
      const [layout, own] = [results[index], home.get(index)];
      if (!type || parts.length === 0 || !layout) return null;
      const name = this.joined(parts, rule.outputs[index], stream.beside);
      const whole = own === undefined ? name : this.sum(own, this.sent(name) as string);
      return this.relabelled(whole, type, layout, [], names.outputs[index]);
    });
  }

  /** Continues the rows of a part from their running values in `rows`. */
  private continued(
    { first, online }: Streamed,
    rows: (readonly string[])[],
    { own, byRank }: HopPart,
    operands: readonly (string | null)[],
    hop: number,
  ): void {
    if (!online) return;
    const { rule } = this.streaming;
    const isSecond = byRank && this.isSecond(byRank);
    const [one, other] = rows as [readonly string[], readonly string[]];
    const before = isSecond ? one.map((name, index) => this.chosen(isSecond, other[index] as string, name)) : rows[own];
    const { there, kept, next } = online;
    const given = there ? [...operands, this.positionsAt(hop, there)] : operands;
    const dims = [...rule.inputs, ...(there ? [there] : []), ...kept];
    const made = this.compute(before ? next : first, [...given, ...(before ?? [])], dims, kept.length);
    if (!isSecond) rows[own] = made;
    else {
      rows[0] = made.map((name, index) => this.chosen(isSecond, one[index] as string, name));
      rows[1] = made.map((name, index) => this.chosen(isSecond, name, other[index] as string));
    }
  }

  /** Adds a part's contribution to a result to the piece that it belongs to. */
  private addTo(sums: readonly string[][], result: number, made: string, { own, other, byRank }: HopPart): void {
    const { rule, stream } = this.streaming;
    const pieces = sums[result] as string[];
    const dims = rule.outputs[result];
    const add = (piece: number, name: string) => {
      const before = pieces[piece];
      pieces[piece] = before === undefined ? name : this.sum(before, name);
    };
    const follows = this.follows(dims);
    if (!follows && !this.has(dims, stream.beside)) add(0, made);
    else if (!byRank) add(follows ? other : own, made);
    else {
      const isSecond = this.isSecond(byRank);
      const none = this.fragment.constant(zeroConstant(this.fragment.get(made).dtype));
      add(0, this.chosen(isSecond, none, made));
      add(1, this.chosen(isSecond, made, none));
    }
  }

  /** Pieces of a factor one behind the other. */
  private joined(pieces: readonly string[], dims: TensorFactors | null | undefined, factor: string): string {
    const [first = ''] = pieces;
    if (!dims || pieces.length === 1) return first;
    const { dtype, shape, varying = [], layout } = this.fragment.get(first);
    const axis = this.axisOf(dims, factor);
    const whole = shape.map((size, at) => (at === axis ? size * pieces.length : size));
    return this.made('Concat', pieces, { dtype, shape: whole }, this.layoutOf(dims, layout.partial, this.chunkSizes), {
      attributes: { axis },
      lowering: 'indexed',
      varying,
    });
  }

  /** Whether a rank's part of this hop is of second pieces: a bool of shape [1]. */
  private isSecond(byRank: readonly number[]): string {
    const own = this.fragment.coordinate(this.streaming.stream.axes, 1);
    const table = this.fragment.constant(constant('bool', byRank, [byRank.length]));
    return this.made('Gather', [table, own], { dtype: 'bool', shape: [1] }, replicated([1]), {
      attributes: { axis: 0 },
    });
  }

  private chosen(condition: string, one: string, other: string): string {
    const named = this.fragment.get(this.fragment.get(one).shape.length > 0 ? one : other);
    return this.made('Where', [condition, one, other], named, named.layout, { lowering: 'indexed' });
  }

  /**
   * The sequence is in zig-zag order for as many ranks as there are, has as many queries as keys, and whoever has it has nothing
   * else in that dimension.
   */
  private isZigzag(): boolean {
    const { operator, rule, stream } = this.streaming;
    if (operator.attributes[ZIGZAG] !== this.count) return false;
    const names = [stream.streamed, stream.beside];
    const [keys = 1, queries = 1] = names.map((name) => rule.factors.get(name)?.size);
    const isAlone = (dims: TensorFactors | null) =>
      dims?.every((own) => own.length === 1 || !names.some((name) => own.includes(name))) ?? true;
    return (
      keys === queries &&
      keys % (PIECES * this.count) === 0 &&
      [...rule.inputs, ...rule.outputs].every(isAlone) &&
      !rule.outputs.some((dims) => this.hasBoth(dims))
    );
  }

  /** Whether a tensor travels round the ring with its chunk. */
  private follows(dims: TensorFactors | null | undefined): boolean {
    return this.has(dims, this.streaming.stream.streamed) && !this.has(dims, this.streaming.stream.beside);
  }

  private hasBoth(dims: TensorFactors | null | undefined): boolean {
    return this.has(dims, this.streaming.stream.streamed) && this.has(dims, this.streaming.stream.beside);
  }

  private has(dims: TensorFactors | null | undefined, factor: string): boolean {
    return dims?.some((own) => own.includes(factor)) ?? false;
  }

  private axisOf(dims: TensorFactors | null, factor: string): number {
    return dims?.findIndex((own) => own.includes(factor)) ?? -1;
  }

  /** The size of a factor in the computation of a hop. */
  private sizeOf(name: string): number {
    const { streamed, beside } = this.streaming.stream;
    return this.chunkSizes(name) / (name === streamed || name === beside ? this.pieces : 1);
  }

  /** The size of a factor in travelling and in stationary tensors. */
  private readonly chunkSizes = (name: string): number => {
    const size = this.streaming.rule.factors.get(name)?.size ?? 1;
    const { streamed, beside } = this.streaming.stream;
    return name === streamed || name === beside ? Math.ceil(size / this.count) : size;
  };

  private isPadded(factor: string): boolean {
    return (this.streaming.rule.factors.get(factor)?.size ?? 1) % this.count !== 0;
  }

  /** The operands with zeros where a chunk has no positions, so that sums over chunks are those over positions. */
  private withoutPadding(names: OperatorNames['inputs']): OperatorNames['inputs'] {
    const { rule, operator, strategy, stream } = this.streaming;
    const factors = new Map(rule.factors);
    for (const name of [stream.streamed, stream.beside]) {
      const factor = factors.get(name);
      if (factor) factors.set(name, { ...factor, kind: 'contracting' });
    }
    // A bool needs no masking; in a tensor with both factors the streamed one is not sharded.
    const inputs = rule.inputs.map((dims, index) => {
      if (!dims || operator.inputs[index]?.dtype === 'bool') return null;
      return this.hasBoth(dims) ? dims.map((own) => (own.includes(stream.streamed) ? [] : own)) : dims;
    });
    return withNeutralPadding(
      this.fragment,
      { ...rule, factors, inputs },
      { axes: strategy.axes, partialOperands: null, pending: strategy.pending },
      names,
    );
  }

  /** Which positions of the chunk of a hop are there, in the dimensions given. */
  private positionsAt(hop: number, dims: TensorFactors): string {
    const { streamed, axes } = this.streaming.stream;
    const [size, chunkSize] = [this.streaming.rule.factors.get(streamed)?.size ?? 1, this.chunkSizes(streamed)];
    const table = Array.from({ length: this.count * chunkSize }, (_, at) => (at < size ? 1 : 0));
    const rows = this.fragment.constant(constant('bool', table, [this.count, chunkSize]));
    const [picked] = this.fragment.add({
      op: 'Gather',
      attributes: { axis: 0 },
      inputs: [rows, this.numberOf(hop)],
      results: [{ type: { dtype: 'bool', shape: [1, chunkSize] }, layout: replicated([1, chunkSize]), varying: axes }],
      lowering: 'slice',
    });
    const shape = dims.map((names) => (names.length === 0 ? 1 : chunkSize));
    return this.relabelled(picked as string, { dtype: 'bool', shape }, replicated(shape), axes);
  }

  /** An operand as the hops have it: a rank's chunk by itself, sharded over other axes as before. */
  private entered(name: string | null, index: number): string | null {
    const { rule, operator, stream } = this.streaming;
    const [dims, type] = [rule.inputs[index], operator.inputs[index]];
    if (name === null || !type || !dims || !(this.has(dims, stream.streamed) || this.has(dims, stream.beside)))
      return name;
    const { partial } = this.fragment.get(name).layout;
    const layout = this.layoutOf(dims, partial, this.chunkSizes);
    return this.relabelled(name, this.typeOf(type, dims, this.chunkSizes), layout, stream.axes);
  }

  private typeOf({ dtype, shape }: TensorType, dims: TensorFactors, sizeOf: (name: string) => number): TensorType {
    return {
      dtype,
      shape: shape.map((own, axis) => {
        const names = dims[axis] ?? [];
        return names.length === 0 ? own : names.reduce((product, name) => product * sizeOf(name), 1);
      }),
    };
  }

  private layoutOf(dims: TensorFactors, partial: readonly PartialAxis[], sizeOf: (name: string) => number): Layout {
    return layoutFromFactors(dims, sizeOf, this.strategy.axes, partial, this.fragment.mesh);
  }

  /** The same data under another name, type and layout. */
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
    const { axes } = this.streaming.stream;
    const to = Array.from({ length: this.count }, (_, member) => (member + 1) % this.count);
    return this.fragment.communicate({ kind: 'permute', to }, axes, name, this.fragment.get(name).layout);
  }

  /** An operand as a part of a hop has it. */
  private pickedChunk(name: string | null, index: number, hop: number, part: HopPart, isThere: boolean): string | null {
    const { rule, stream } = this.streaming;
    const dims = rule.inputs[index];
    if (name === null || !dims) return name;
    const hasBoth = this.hasBoth(dims);
    // In an operand with both factors, the streamed one is whole: the positions of the chunk, or of the part, are gathered.
    const chunk = isThere
      ? name
      : hasBoth
        ? this.chunkOf(name, index, hop, part)
        : (this.entered(name, index) as string);
    if (this.pieces === 1) return chunk;
    const ofRows = this.piece(chunk, dims, stream.beside, part.own, part.byRank);
    return hasBoth ? ofRows : this.piece(ofRows, dims, stream.streamed, part.other, part.byRank);
  }

  /** A piece of a tensor along a factor; the tensor itself where it lacks the factor. */
  private piece(
    name: string,
    dims: TensorFactors | null,
    factor: string,
    at: number,
    byRank: readonly number[] | undefined,
  ): string {
    const axis = this.axisOf(dims, factor);
    if (!dims || axis < 0) return name;
    const { dtype, shape, layout, varying = [] } = this.fragment.get(name);
    const size = this.sizeOf(factor);
    const type = { dtype, shape: shape.map((own, dimension) => (dimension === axis ? size : own)) };
    const dimsOf = layout.dims.map((pieces, dimension) => (dimension === axis ? [{ size, axes: [] }] : pieces));
    const cut = { dims: dimsOf, partial: layout.partial };
    if (!byRank) {
      const attributes = { starts: [at * size], ends: [(at + 1) * size], axes: [axis], steps: [1] };
      return this.made('Slice', [name], type, cut, { attributes, varying });
    }
    const along = this.numbers('Add', [this.byRank(byRank.map((piece) => piece * size)), this.countTo(size)], size);
    return this.made('Gather', [name, along], type, cut, { attributes: { axis } });
  }

  /**
   * The part of an operand with both factors that a hop computes with: its positions along the streamed factor are gathered.
   */
  private chunkOf(name: string, index: number, hop: number, part: HopPart): string {
    const { rule, operator, stream } = this.streaming;
    const [dims, whole] = [rule.inputs[index], operator.inputs[index]];
    if (!dims || !whole) return name;
    const axis = this.axisOf(dims, stream.streamed);
    if (dims[axis]?.length !== 1)
      throw new IllegalStrategy(
        `operand ${index} of ${operator.name} has ${stream.streamed} together with other factors`,
      );
    const { partial } = this.fragment.get(name).layout;
    const sizes = (factor: string) => (factor === stream.streamed ? this.sizeOf(factor) : this.chunkSizes(factor));
    return this.made(
      'Gather',
      [name, this.positionsOf(hop, part)],
      this.typeOf(whole, dims, sizes),
      this.layoutOf(dims, partial, sizes),
      { attributes: { axis } },
    );
  }

  /** The positions that a part reads in the chunk of a hop; positions beyond the end are replaced by the last one. */
  private positionsOf(hop: number, { other, byRank }: HopPart): string {
    const { streamed } = this.streaming.stream;
    const [size, length] = [this.streaming.rule.factors.get(streamed)?.size ?? 1, this.sizeOf(streamed)];
    const first = this.numberOf(hop, this.pieces * length, (rank) => (byRank?.[rank] ?? other) * length);
    const positions = this.numbers('Add', [first, this.countTo(length)], length);
    return this.isPadded(streamed)
      ? this.numbers('Min', [positions, this.fragment.constant(int64Constant([size - 1]))], length)
      : positions;
  }

  /** The number of the chunk that a rank has at a hop, times `factor`, plus `behind`: an int64 [1]. */
  private numberOf(hop: number, factor = 1, behind: (rank: number) => number = () => 0): string {
    return this.byRank(
      Array.from({ length: this.count }, (_, rank) => factor * ((rank - hop + this.count) % this.count) + behind(rank)),
    );
  }

  /** A rank's own of some numbers: an int64 [1]. */
  private byRank(numbers: readonly number[]): string {
    const own = this.fragment.coordinate(this.streaming.stream.axes, 1);
    return this.numbers('Gather', [this.fragment.constant(int64Constant(numbers)), own], 1, { axis: 0 });
  }

  private countTo(count: number): string {
    return this.fragment.constant(int64Constant(Array.from({ length: count }, (_, at) => at)));
  }

  private numbers(op: string, inputs: readonly string[], count: number, attributes: Attributes = {}): string {
    return this.made(op, inputs, { dtype: 'int64', shape: [count] }, replicated([count]), { attributes });
  }

  /** Adds an operator on values that vary between ranks. */
  private made(
    op: string,
    inputs: readonly string[],
    { dtype, shape }: TensorType,
    layout: Layout,
    { attributes = {}, varying = this.streaming.stream.axes, lowering = 'slice' }: StreamedOwn,
  ): string {
    const results = [{ type: { dtype, shape }, layout, varying }];
    return this.fragment.add({ op, attributes, inputs, results, lowering })[0] as string;
  }

  private sum(one: string, other: string): string {
    const { dtype, shape, layout, varying = [] } = this.fragment.get(one);
    const results = [{ type: { dtype, shape }, layout, varying }];
    return this.fragment.add({ op: 'Add', inputs: [one, other], results, lowering: 'indexed' })[0] as string;
  }

  /** The computation on one chunk, sharded over the other axes as the operator is; `dims`: those of the operands. */
  private compute(
    expansion: Expansion,
    inputs: readonly (string | null)[],
    dims: FactorRule['inputs'],
    results: number,
  ): readonly string[] {
    const { operator, rule } = this.streaming;
    const sizes = [...rule.factors].map(([name, factor]) => [name, { ...factor, size: this.sizeOf(name) }] as const);
    return addExpansion(
      this.fragment,
      {
        operator: {
          ...operator,
          inputs: inputs.map((name) => (name === null ? null : this.fragment.get(name))),
          outputs: Array.from({ length: results }, () => ({ dtype: 'float32', shape: [] })),
        },
        rule: { ...rule, factors: new Map(sizes), inputs: dims },
        strategy: this.strategy,
        expansion,
      },
      { inputs, outputs: [] },
      this.addOperator,
    ) as readonly string[];
  }
}

/** Options of an added operator; `indexed`: it runs where it stands, `slice`: once its reader does (defer.ts). */
interface StreamedOwn {
  readonly attributes?: Attributes;
  readonly varying?: readonly SubAxis[];
  readonly lowering?: 'slice' | 'indexed';
}
