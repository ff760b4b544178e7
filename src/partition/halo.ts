/**
 * @file Operators whose windows reach into neighbouring shards (factors of kind `halo`), for all operators that have such:
 *
 *     before   = the last rows of the rank before        slice, permute
 *     behind   = the first rows of the rank behind       slice, permute
 *     extended = before · own shard · behind             concat; positions outside of the tensor get the operator's padding value
 *     result   = the operator on it, without padding
 *
 * Where shards of operand and result begin at different positions (windows of 3 over 10 positions make 8), ranks read from other
 * offsets of their extended operand: a table states them, by rank. Borders of gradients are not sent back: each gradient is an
 * operator on windows of its own, and reads the borders that it needs.
 */
import type { FactorRule, Halo } from '../ir/factor-rule.js';
import type { Attributes, TensorType } from '../ir/graph.js';
import type { Expansion, Operator, OperatorEntry } from '../ir/operator.js';
import { constant } from '../ir/ops/constants.js';
import { operatorEntry } from '../ir/ops/index.js';
import { resultNames, tensorsByName } from '../ir/written-names.js';
import { type Borders, bordersOf, followers } from '../sharding-propagation/halo.js';
import { type Layout, replicated } from '../sharding-propagation/layout.js';
import { axesSize, type SubAxis } from '../sharding-propagation/mesh.js';
import type { Strategy } from '../sharding-propagation/strategy.js';
import type { Fragment, FragmentOperator, FragmentResult } from './fragment.js';
import { asRows, reshaped } from './lower-reshard.js';

/** A sharded dimension under windows. */
interface ShardedWindow {
  readonly factor: string;
  readonly halo: Halo;
  readonly size: number;
  readonly axes: readonly SubAxis[];
  readonly borders: Borders;
}

/** The dimensions of an operator that are sharded and need borders. */
export function shardedHalos(fragment: Fragment, rule: FactorRule, strategy: Strategy): readonly ShardedWindow[] {
  return followers(rule, strategy.axes).flatMap(([{ name, size }, halo]) => {
    const axes = strategy.axes[halo.of] ?? [];
    const shards = axesSize(fragment.mesh, axes);
    if (shards === 1) return [];
    const borders = bordersOf(halo, size, rule.factors.get(halo.of)?.size ?? 1, shards);
    return [{ factor: name, halo, size, axes, borders }];
  });
}

/** The operands, those with such dimensions extended by the borders that their windows read. */
export function withBorders(
  fragment: Fragment,
  rule: FactorRule,
  halos: readonly ShardedWindow[],
  inputs: readonly (string | null)[],
): readonly (string | null)[] {
  return inputs.map((input, operand) =>
    halos.reduce((current, halo) => {
      const dimension = rule.inputs[operand]?.findIndex((names) => names.includes(halo.factor)) ?? -1;
      return current === null || dimension < 0 ? current : extended(fragment, current, dimension, halo);
    }, input),
  );
}

/** Adds the operator on extended operands; the part of its result beyond the rank's shard is sliced off. */
export function addOnBorders(
  fragment: Fragment,
  entry: OperatorEntry,
  plain: FragmentOperator,
  rule: FactorRule,
  halos: readonly ShardedWindow[],
): readonly string[] {
  const wanted = plain.results.map((result) => {
    if (!result) return null;
    const name = fragment.tensor(result.type, result.layout, result.name, result.varying ?? []);
    return { result: { ...result, name }, shape: fragment.get(name).localShape };
  });
  const made = addLocal(fragment, entry, plain, wanted);
  return wanted.flatMap((own, index) => {
    const name = made[index];
    if (!own || !name) return [];
    const surplus = halos.flatMap((halo) => {
      const dimension = rule.outputs[index]?.findIndex((names) => names.includes(halo.halo.of)) ?? -1;
      const isLonger = dimension >= 0 && fragment.get(name).localShape[dimension] !== own.shape[dimension];
      return isLonger ? [{ halo, dimension }] : [];
    });
    return surplus.reduce((current, { halo, dimension }, at) => {
      const { halo: window, borders } = halo;
      const length = own.shape[dimension] ?? 1;
      const places = borders.starts.map(
        (start, rank) => rank * length - (start * window.up + window.before - window.reach + 1),
      );
      const last = at === surplus.length - 1 ? own.result : undefined;
      return taken(fragment, current, dimension, halo.axes, places, length, last);
    }, name);
  });
}

/** The operator, or its expansion, on a rank's local tensors. Results that are sliced further are rows. */
function addLocal(
  fragment: Fragment,
  entry: OperatorEntry,
  plain: FragmentOperator,
  wanted: readonly ({ readonly result: FragmentResult; readonly shape: readonly number[] } | null)[],
): readonly (string | null)[] {
  const inputs = plain.inputs.map((name) => (name === null ? null : fragment.get(name)));
  const operator = localOperator(
    plain,
    inputs.map((type) => type && { dtype: type.dtype, shape: type.localShape }),
  );
  const types = entry.infer(operator);
  const results = wanted.map((own, index): FragmentResult | null => {
    const shape = types[index]?.shape ?? [];
    if (!own) return null;
    if (shape.join() === own.shape.join()) return own.result;
    return rowsOf(fragment, plain.inputs, { dtype: own.result.type.dtype, shape }, own.result.layout.partial);
  });
  if (!entry.isWritten) {
    const added = fragment.add({ ...plain, results, lowering: 'halo' });
    let next = 0;
    return results.map((result) => (result ? (added[next++] ?? null) : null));
  }
  if (!entry.expansion) throw new Error(`${plain.op} is written out and has no expansion`);
  const outputs = types.map((type, index) => (results[index] ? type : null));
  return addWritten(fragment, entry.expansion({ ...operator, outputs }), plain, results);
}

/** An expansion of the operator as a rank has it: its tensors are rows, but for the results. */
function addWritten(
  fragment: Fragment,
  { nodes, constants }: Expansion,
  plain: FragmentOperator,
  results: readonly (FragmentResult | null)[],
): readonly (string | null)[] {
  const names = tensorsByName(plain.inputs, []);
  const made = resultNames(results);
  for (const [name, value] of Object.entries(constants)) names.set(name, fragment.constant(value));
  for (const { op, domain = '', attributes = {}, inputs, outputs } of nodes) {
    const read = inputs.map((name) => (name === null ? null : (names.get(name) as string)));
    const entry = operatorEntry({ op, domain });
    const local = read.map((name) => (name === null ? null : fragment.get(name)));
    const types = entry.infer({
      ...localOperator(
        { op, domain, attributes },
        local.map((type) => type && { dtype: type.dtype, shape: type.localShape }),
      ),
      outputCount: outputs.length,
    });
    const added = fragment.add({
      op,
      domain,
      attributes,
      inputs: read,
      results: types
        .slice(0, outputs.length)
        .map((type, index) => results[made.indexOf(outputs[index] ?? '')] ?? rowsOf(fragment, read, type)),
      lowering: 'halo',
    });
    for (const [index, name] of outputs.entries()) names.set(name, added[index] as string);
  }
  return made.map((name, index) => (results[index] ? (names.get(name) ?? null) : null));
}

/** A result that is not a shard of a tensor: it varies where any of the operands differs between ranks. */
function rowsOf(
  fragment: Fragment,
  operands: readonly (string | null)[],
  type: TensorType,
  partial?: Layout['partial'],
): FragmentResult {
  const rows = operands.flatMap((name) => (name === null ? [] : [asRows(fragment, name, type.shape)]));
  const partialAxes = partial ?? rows.find(({ layout }) => layout.partial.length > 0)?.layout.partial ?? [];
  const varying = [...new Set(rows.flatMap((own) => own.varying ?? []))];
  return { type, layout: { ...replicated(type.shape), partial: partialAxes }, varying };
}

function localOperator(
  { op, domain = '', attributes = {} }: Pick<FragmentOperator, 'op' | 'domain' | 'attributes'>,
  inputs: Operator['inputs'],
): Operator {
  return { name: op, op, domain, attributes, inputs, outputs: [], outputCount: 1 };
}

/** A shard with the borders that windows over it read. */
function extended(fragment: Fragment, tensor: string, dimension: number, halo: ShardedWindow): string {
  const { axes, size, borders, halo: window } = halo;
  const { shardSize, before, behind, length, starts } = borders;
  const ranks = starts.map((_, rank) => rank);
  /** The part with positions outside of the tensor filled in; `first` is its first position on each rank. */
  const filled = (part: string, first: (rank: number) => number, count: number) => {
    const isInside = ranks.map((rank) =>
      Array.from({ length: count }, (_, at) => first(rank) + at >= 0 && first(rank) + at < size),
    );
    return isInside.flat().every(Boolean) ? part : masked(fragment, part, dimension, axes, isInside, window.fill);
  };
  const from = (name: string, start: number, count: number, step: number) => {
    const shape = fragment.get(name).localShape.map((own, axis) => (axis === dimension ? count : own));
    const border = { axes, dimension, block: shardSize, from: start };
    const rows = cutOut(fragment, name, dimension, start, count, { ...asRows(fragment, name, shape), border });
    return fragment.passOn(rows, border, step);
  };
  const parts = [
    ...(before > 0
      ? [filled(from(tensor, shardSize - before, before, 1), (rank) => rank * shardSize - before, before)]
      : []),
    filled(tensor, (rank) => rank * shardSize, shardSize),
    ...(behind > 0 ? [filled(from(tensor, 0, behind, -1), (rank) => (rank + 1) * shardSize, behind)] : []),
  ];
  const joined =
    parts.length === 1
      ? (parts[0] as string)
      : local(fragment, 'Concat', parts, { axis: dimension }, [dimension, before + shardSize + behind]);
  const places = starts.map((start, rank) => start - (rank * shardSize - before));
  const low = places.reduce((least, place) => Math.min(least, place), 0);
  const high = places.reduce((most, place) => Math.max(most, place + length), before + shardSize + behind);
  const padded = withPadding(fragment, joined, dimension, -low, high - (before + shardSize + behind), window.fill);
  const shifted = places.map((place) => place - low);
  return taken(fragment, padded, dimension, axes, shifted, length);
}

function withPadding(
  fragment: Fragment,
  tensor: string,
  dimension: number,
  before: number,
  behind: number,
  fill: number,
): string {
  if (before === 0 && behind === 0) return tensor;
  const { dtype, localShape } = fragment.get(tensor);
  const side = (count: number) => localShape.map((_, axis) => (axis === dimension ? count : 0));
  const attributes = {
    mode: 'constant',
    pads: [...side(before), ...side(behind)],
    constant_value: constant(dtype, [fill], []),
  };
  return local(fragment, 'Pad', [tensor], attributes, [dimension, (localShape[dimension] ?? 1) + before + behind]);
}

/** `length` positions of a dimension from the one that each rank begins at; where all begin alike no table is needed. */
function taken(
  fragment: Fragment,
  tensor: string,
  dimension: number,
  axes: readonly SubAxis[],
  starts: readonly number[],
  length: number,
  result?: FragmentResult,
): string {
  const [first = 0] = starts;
  if (starts.every((start) => start === first)) return cutOut(fragment, tensor, dimension, first, length, result);
  const table = constant(
    'int64',
    starts.flatMap((start) => Array.from({ length }, (_, at) => start + at)),
    [starts.length, length],
  );
  const rows = rowOf(fragment, fragment.constant(table), axes, [length]);
  return local(fragment, 'Gather', [tensor, rows], { axis: dimension }, [dimension, length], result, axes);
}

function cutOut(
  fragment: Fragment,
  tensor: string,
  dimension: number,
  start: number,
  length: number,
  result?: FragmentResult,
): string {
  if (!result && start === 0 && fragment.get(tensor).localShape[dimension] === length) return tensor;
  const attributes = { starts: [start], ends: [start + length], axes: [dimension], steps: [1] };
  return local(fragment, 'Slice', [tensor], attributes, [dimension, length], result);
}

/** The tensor where a rank's row of a table says so along a dimension, `fill` elsewhere. */
function masked(
  fragment: Fragment,
  tensor: string,
  dimension: number,
  axes: readonly SubAxis[],
  isInside: readonly (readonly boolean[])[],
  fill: number,
): string {
  const { dtype, localShape } = fragment.get(tensor);
  const length = isInside[0]?.length ?? 0;
  const table = fragment.constant(constant('bool', isInside.flat().map(Number), [isInside.length, length]));
  const across = localShape.map((_, axis) => (axis === dimension ? length : 1));
  const condition = rowOf(fragment, table, axes, across);
  const other = fragment.constant(constant(dtype, [fill], []));
  const { border } = fragment.get(tensor);
  const result = border && { ...asRows(fragment, tensor, localShape, axes), border };
  return local(fragment, 'Where', [condition, tensor, other], {}, [dimension, length], result, axes, 1);
}

/** A rank's row of a table with one for each, in the shape given. */
function rowOf(fragment: Fragment, table: string, axes: readonly SubAxis[], shape: readonly number[]): string {
  const index = fragment.coordinate(axes, 1);
  return reshaped(fragment, local(fragment, 'Gather', [table, index], { axis: 0 }, [0, 1], undefined, axes), shape);
}

/** An operator on rows that changes the size of one dimension of an operand (the first, by default). */
function local(
  fragment: Fragment,
  op: string,
  inputs: readonly string[],
  attributes: Attributes,
  [dimension, size]: readonly [number, number],
  result?: FragmentResult,
  more: readonly SubAxis[] = [],
  of = 0,
): string {
  const source = inputs[of] ?? '';
  const shape = fragment.get(source).localShape.map((own, axis) => (axis === dimension ? size : own));
  const [made] = fragment.add({
    op,
    attributes,
    inputs,
    results: [result ?? asRows(fragment, source, shape, more)],
    lowering: 'slice',
  });
  return made as string;
}
