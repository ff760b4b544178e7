/**
 * @file Lookups in each sample, or writes to it, as in `hidden[arange(batch), length]`: with one sample, exporters write an
 * index into that sample. For a batch the index is moved to the part of its own sample.
 *
 *     Gather     table [(b 8), 16], index [b]          index + sample · 8
 *     GatherND   table [b, 8, 16], index [b, 2]        (sample, index)
 *     ScatterND  table [b, 8, 16], index [b, 1, 2]     (sample, index)
 */
import { type ConstantTensor, elementCount, type Graph, type Node, typeOf } from '../graph.js';
import { constant } from '../ops/constants.js';
import { type BatchPlace, batchPlaces, type Choose, type Digits, type Missing } from './batch-digit.js';

/** The index is counted from the front of parts of `size`, multiplied by `times` and moved by `plus`. */
export interface MovedIndex {
  readonly size: number | null;
  readonly times: ConstantTensor | null;
  readonly plus: ConstantTensor;
}

export interface LiftedLookup {
  readonly result: Digits;
  readonly index: MovedIndex;
  readonly missing: readonly Missing[];
}

type Lookup = (
  graph: Graph,
  node: Node,
  operands: readonly (Digits | null)[],
  batch: number,
  choose: Choose,
) => LiftedLookup | null;

/** The lookup for `batch` samples; null where it is not a lookup, or does not work on single samples. */
export const liftLookup: Lookup = (graph, node, operands, batch, choose) => {
  const lift = node.domain === '' && Object.hasOwn(LOOKUPS, node.op) ? LOOKUPS[node.op] : undefined;
  const several = operands.some((digits) => batchPlaces(digits ?? []).length > 1);
  return lift && !several ? lift(graph, node, operands, batch, choose) : null;
};

const LOOKUPS: Readonly<Record<string, Lookup>> = {
  Gather: (graph, node, [table = null, index = null], batch, choose) => {
    const [held] = batchPlaces(table ?? []);
    const from = typeOf(graph, node.inputs[0] ?? '').shape;
    const { dtype, shape } = typeOf(graph, node.inputs[1] ?? '');
    const size = from[held?.axis ?? 0] ?? 1;
    // Samples must follow each other as a whole along the dimension that is looked up in.
    if (!held || node.attributes['axis'] !== held.axis || held.minor !== size) return null;
    const sample = batchPlaces(index ?? [])[0] ?? (size > 1 ? indexPlace(node, shape, choose) : null);
    if (!sample) return null;
    const length = (shape[sample.axis] ?? 1) * batch;
    const moves = Array.from({ length }, (_, position) => (Math.floor(position / sample.minor) % batch) * size);
    const along = shape.map((_, axis) => (axis === sample.axis ? length : 1));
    return {
      result: digitAt(held.axis + sample.axis, sample.minor, from.length + shape.length - 1),
      index: { size, times: null, plus: constant(dtype, moves, along) },
      missing: index ? [] : [{ operand: 1, digits: digitAt(sample.axis, sample.minor, shape.length) }],
    };
  },
  GatherND: (graph, node, [table = null, index = null], batch) => {
    const [held] = batchPlaces(table ?? []);
    const [sample] = batchPlaces(index ?? []);
    const from = typeOf(graph, node.inputs[0] ?? '').shape;
    const { shape } = typeOf(graph, node.inputs[1] ?? '');
    if (!held || !sample || (node.attributes['batch_dims'] ?? 0) !== 0) return null;
    const moved = sampleColumn(graph, node, held, sample, batch);
    const rank = from.length + shape.length - 1 - (shape.at(-1) ?? 0);
    return moved && { result: digitAt(sample.axis, 1, rank), index: moved, missing: [] };
  },
  ScatterND: (graph, node, [table = null, index = null, updates = null], batch, choose) => {
    const from = typeOf(graph, node.inputs[0] ?? '').shape;
    const { shape } = typeOf(graph, node.inputs[1] ?? '');
    const depth = shape.at(-1) ?? 0;
    const ones = from.flatMap((size, axis) => (size === 1 && axis < depth ? [{ axis, minor: 1 }] : []));
    const held = batchPlaces(table ?? [])[0] ?? choose(`table ${node.name}`, ones);
    const sample =
      batchPlaces(index ?? [])[0] ?? batchPlaces(updates ?? [])[0] ?? indexPlace(node, shape.slice(0, -1), choose);
    const moved = held && sample ? sampleColumn(graph, node, held, sample, batch) : null;
    if (!held || !sample || !moved) return null;
    const wanted = [
      { operand: 0, digits: digitAt(held.axis, 1, from.length) },
      { operand: 1, digits: digitAt(sample.axis, 1, shape.length) },
      { operand: 2, digits: digitAt(sample.axis, 1, typeOf(graph, node.inputs[2] ?? '').shape.length) },
    ];
    const has = [table, index, updates];
    if (wanted.some(({ operand, digits }) => has[operand] && has[operand]?.join() !== digits.join())) return null;
    return { result: wanted[0]?.digits ?? [], index: moved, missing: wanted.filter(({ operand }) => !has[operand]) };
  },
};

/** Where an index that is the same for all samples gets the batch: a dimension of size 1, else before its first. */
function indexPlace(node: Node, shape: readonly number[], choose: Choose): BatchPlace | null {
  const ones = shape.flatMap((size, axis) => (size === 1 ? [{ axis, minor: 1 }] : []));
  const [first = 1] = shape;
  const places = first > 1 && node.op === 'Gather' ? [...ones, { axis: 0, minor: first }] : ones;
  return choose(`index ${shape.join()}`, places) ?? null;
}

/** Puts the sample's number into the column of coordinates that addresses the dimension of samples. */
function sampleColumn(
  graph: Graph,
  node: Node,
  held: BatchPlace,
  sample: BatchPlace,
  batch: number,
): MovedIndex | null {
  const table = typeOf(graph, node.inputs[0] ?? '').shape;
  const { dtype, shape } = typeOf(graph, node.inputs[1] ?? '');
  const [depth, last] = [shape.at(-1) ?? 0, shape.length - 1];
  const own = table[held.axis] === 1 && shape[sample.axis] === 1;
  if (!own || held.axis >= depth || sample.axis >= last) return null;
  const along = shape.map((size, axis) => (axis === sample.axis ? batch : axis === last ? size : 1));
  const cells = Array.from({ length: elementCount(along) }, (_, position) => ({
    sample: Math.floor(position / depth),
    held: position % depth === held.axis,
  }));
  const kept = cells.map((cell) => (cell.held ? 0 : 1));
  const moves = cells.map((cell) => (cell.held ? cell.sample : 0));
  return { size: null, times: constant(dtype, kept, along), plus: constant(dtype, moves, along) };
}

function digitAt(axis: number, minor: number, rank: number): Digits {
  return Array.from({ length: rank }, (_, index) => (index === axis ? minor : null));
}
