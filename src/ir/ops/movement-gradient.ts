/**
 * @file Gradients of operators that move elements: they move gradients back. Dropped elements get zeros; the gradients of
 * repeated elements are summed.
 */
import type { DType } from '../dtype.js';
import { elementCount } from '../graph.js';
import { madeOnce } from '../remembered.js';
import { constant } from './constants.js';
import { cuts, padding, padsOn, permutation, splitSizes } from './movement-shapes.js';
import { axisOf, neededIntegers, numberOf, operand, result, text } from './operands.js';
import type { GradientBody, OperatorGradient } from './operator-gradient.js';

export const MOVEMENT_GRADIENTS: Readonly<Record<string, GradientBody>> = {
  Transpose: (write) => {
    const order = permutation(write.operator);
    const perm = order.map((_, axis) => order.indexOf(axis));
    write.add('Transpose', ['grad0'], { perm }, 'd0');
  },
  Expand: (write) => {
    const { dtype, shape } = result(write.operator, 0);
    write.into(0, 'grad0', dtype, shape);
  },
  Slice: (write) => sliceGradient(write),
  Split: (write) => splitGradient(write),
  Concat: (write) => concatGradient(write),
  Pad: (write) => {
    const { shape } = operand(write.operator, 0);
    const mode = text(write.operator, 'mode', 'constant');
    if (mode === 'constant') {
      const pads = [0, 1].flatMap((end) => padding(write.operator).map((both) => 0 - (both[end] ?? 0)));
      if (write.wants(0)) write.add('Pad', ['grad0'], { mode, pads }, 'd0');
      return;
    }
    const axes = padding(write.operator).flatMap(([before, after], axis) =>
      before === 0 && after === 0 ? [] : [{ axis, places: paddedPlaces(mode, shape[axis] ?? 1, before, after) }],
    );
    placesGradient(write, axes);
  },
  Tile: (write) => tileGradient(write),
  DepthToSpace: (write) => depthToSpaceGradient(write),
  SpaceToDepth: (write) => {
    const blocksize = numberOf(write.operator, 'blocksize', 1);
    write.add('DepthToSpace', ['grad0'], { blocksize }, 'd0');
  },
};

function sliceGradient(write: OperatorGradient): void {
  const { operator } = write;
  const { dtype, shape } = operand(operator, 0);
  if (elementCount(result(operator, 0).shape) === 0) {
    write.none(0);
    return;
  }
  const sizes = [...result(operator, 0).shape];
  let name = 'grad0';
  for (const { axis, start, step, size, whole, part } of cuts(operator)) {
    if (whole) continue;
    const length = shape[axis] ?? 1;
    if (part !== null) {
      name = amongParts(write, name, { sizes, axis, part, count: length / size });
    } else {
      const places = Array.from({ length: size }, (_, at) => start + at * step);
      name = pushedBack(write, name, dtype, { axis, places, length });
    }
    sizes[axis] = length;
  }
  write.become(0, name, dtype);
}

/** A part's gradient at its place among the equal parts of a dimension, with zeros for the other parts. */
function amongParts(
  write: OperatorGradient,
  name: string,
  at: {
    readonly sizes: readonly number[];
    readonly axis: number;
    readonly part: number;
    readonly count: number;
  },
): string {
  const { sizes, axis, part, count } = at;
  const single = write.add('Unsqueeze', [name], { axes: [axis] });
  const padded = write.add('Pad', [single], { pads: padsOn(sizes.length + 1, axis, part, count - 1 - part) });
  const shape = sizes.map((size, other) => (other === axis ? size * count : size));
  return write.add('Reshape', [padded], { shape });
}

/** Concatenates the gradients of the parts. A part without a gradient is zero. */
function splitGradient(write: OperatorGradient): void {
  const { operator } = write;
  const { dtype, shape } = operand(operator, 0);
  const axis = axisOf(operator, 'axis', shape.length, 0);
  const sizes = splitSizes(operator);
  const value = constant(dtype, [0], [1]);
  const zeros = new Map<number, string>();
  const parts = sizes.map((size, index) => {
    if (write.has(index)) return `grad${index}`;
    const part = { shape: shape.map((whole, other) => (other === axis ? size : whole)), value };
    return madeOnce(zeros, size, () => write.add('ConstantOfShape', [], part));
  });
  write.add('Concat', parts, { axis }, 'd0');
}

/** Each operand's part of the result's gradient: one Split if all are wanted, else a Slice for each. */
function concatGradient(write: OperatorGradient): void {
  const { operator } = write;
  const { shape } = operand(operator, 0);
  const axis = axisOf(operator, 'axis', shape.length, 0);
  const sizes = operator.inputs.map((type) => type?.shape[axis] ?? 0);
  if (sizes.every((_, index) => write.wants(index))) {
    const names = sizes.map((_, index) => `d${index}`);
    write.addAll('Split', ['grad0'], names, { axis, split: sizes });
    return;
  }
  let start = 0;
  for (const [index, size] of sizes.entries()) {
    const attributes = { starts: [start], ends: [start + size], axes: [axis], steps: [1] };
    if (write.wants(index)) write.add('Slice', ['grad0'], attributes, `d${index}`);
    start += size;
  }
}

function tileGradient(write: OperatorGradient): void {
  const { dtype, shape } = operand(write.operator, 0);
  const repeats = neededIntegers(write.operator, 'repeats');
  const parts = shape.flatMap((size, axis) => {
    const times = repeats[axis] ?? 1;
    const kept = { size, repeated: false };
    return times === 1 ? [kept] : [{ size: times, repeated: true }, kept];
  });
  const axes = parts.flatMap(({ repeated }, axis) => (repeated ? [axis] : []));
  if (axes.length === 0) {
    write.become(0, 'grad0', dtype);
    return;
  }
  const apart = write.add('Reshape', ['grad0'], { shape: parts.map(({ size }) => size) });
  write.add('ReduceSum', [apart], { axes, keepdims: 0 }, 'd0');
}

/** SpaceToDepth undoes one of the two orders of channels; the other is written out. */
function depthToSpaceGradient(write: OperatorGradient): void {
  const { operator } = write;
  const { shape } = operand(operator, 0);
  const block = numberOf(operator, 'blocksize', 1);
  if (text(operator, 'mode', 'DCR') === 'DCR') {
    write.add('SpaceToDepth', ['grad0'], { blocksize: block }, 'd0');
    return;
  }
  const [n = 1, channels = 1, h = 1, w = 1] = shape;
  const apart = [n, channels / block ** 2, h, block, w, block];
  const spread = write.add('Reshape', ['grad0'], { shape: apart });
  const perm = [0, 1, 3, 5, 2, 4];
  const ordered = write.add('Transpose', [spread], { perm });
  write.add('Reshape', [ordered], { shape }, 'd0');
}

/** The source of each position of a padded dimension; −1 for a constant. Borders with negative padding are cropped first. */
function paddedPlaces(mode: string, length: number, before: number, after: number): readonly number[] {
  const [first, added] = [Math.max(0, -before), Math.max(0, before)];
  const kept = length - first - Math.max(0, -after);
  const source = PLACES[mode] ?? PLACES['constant'];
  return Array.from({ length: length + before + after }, (_, at) => {
    const place = source?.(at - added, kept) ?? -1;
    return place < 0 ? -1 : first + place;
  });
}

const modulo = (value: number, size: number) => ((value % size) + size) % size;

/** Per mode of Pad: the index, among `size` elements, of the element at a position that may be outside of them. */
const PLACES: Readonly<Record<string, (at: number, size: number) => number>> = {
  constant: (at, size) => (at >= 0 && at < size ? at : -1),
  edge: (at, size) => Math.min(Math.max(at, 0), size - 1),
  reflect: (at, size) => {
    if (size === 1) return 0;
    const folded = modulo(at, 2 * (size - 1));
    return folded < size ? folded : 2 * (size - 1) - folded;
  },
  wrap: modulo,
};

/** An axis along which the result's position i is the operand's `places[i]`, or a constant where that is −1. */
interface MovedAxis {
  readonly axis: number;
  readonly places: readonly number[];
}

/** The gradient of an operator that moves elements along some axes, each on its own. */
export function placesGradient(write: OperatorGradient, axes: readonly MovedAxis[]): void {
  const { dtype, shape } = operand(write.operator, 0);
  if (elementCount(result(write.operator, 0).shape) === 0) {
    write.none(0);
    return;
  }
  let name = 'grad0';
  for (const { axis, places } of axes) {
    name = pushedBack(write, name, dtype, { axis, places, length: shape[axis] ?? 1 });
  }
  write.become(0, name, dtype);
}

interface PushedBack extends MovedAxis {
  readonly length: number;
}

/** If an element occurs more often than this in the result, its gradients are summed under a mask. */
const MOST_LAYERS = 3;

/**
 * Moves the gradient at the places back to the elements that came from there: by a Slice or a Pad if they are consecutive, else
 * by lookups, one for each time that an element occurs.
 */
function pushedBack(write: OperatorGradient, name: string, dtype: DType, at: PushedBack): string {
  const { axis, places, length } = at;
  const behind = operand(write.operator, 0).shape.length - axis - 1;
  const hits = Array.from({ length }, (): number[] => []);
  for (const [place, element] of places.entries()) if (element >= 0) hits[element]?.push(place);
  const many = hits.flatMap((list, element) => (list.length > MOST_LAYERS ? [element] : []));
  // Two elements at most: the edges. Where all occur often (wrapped round and round) each time is a lookup.
  const piled = many.length <= 2 ? many : [];
  const shift = places.indexOf(0);
  const isRow = shift >= 0 && hits.every((list, element) => list.includes(element + shift));
  const parts: string[] = [];
  const used = hits.map((): number[] => []);
  if (isRow) {
    const attributes = { starts: [shift], ends: [shift + length], axes: [axis], steps: [1] };
    parts.push(places.length === length ? name : write.add('Slice', [name], attributes));
    for (const [element, list] of used.entries()) list.push(element + shift);
  } else if (places.every((element, place) => element === place + (places[0] ?? 0))) {
    const [first = 0] = places;
    const { length: rank } = operand(write.operator, 0).shape;
    return write.add('Pad', [name], { pads: padsOn(rank, axis, first, length - first - places.length) });
  }
  const rest = hits.map((list, element) => list.filter((place) => !used[element]?.includes(place)));
  const layers = Math.max(0, ...rest.map((list, element) => (piled.includes(element) ? 0 : list.length)));
  for (let layer = 0; layer < layers; layer++) {
    const sources = rest.map((list, element) => (piled.includes(element) ? -1 : (list[layer] ?? -1)));
    parts.push(lookedUp(write, name, dtype, axis, sources));
  }
  for (const element of piled) {
    const list = rest[element] ?? [];
    const mask = maskAlong(write, places.length, (place) => list.includes(place), behind);
    const zero = write.scalar(dtype, 0);
    const kept = write.add('Where', [mask, name, zero]);
    const sum = write.add('ReduceSum', [kept], { axes: [axis], keepdims: 1 });
    const here = maskAlong(write, length, (place) => place === element, behind);
    parts.push(write.add('Where', [here, sum, zero]));
  }
  return parts.length === 1 ? (parts[0] ?? name) : write.add('Sum', parts);
}

/** Position i along the axis is `name`'s position `sources[i]`, or zero where that is −1. */
function lookedUp(
  write: OperatorGradient,
  name: string,
  dtype: DType,
  axis: number,
  sources: readonly number[],
): string {
  const indices = sources.map((source) => Math.max(0, source));
  const places = write.tensor(constant('int64', indices, [indices.length]));
  const moved = write.add('Gather', [name, places], { axis });
  if (sources.every((source) => source >= 0)) return moved;
  const mask = maskAlong(
    write,
    sources.length,
    (place) => (sources[place] ?? -1) >= 0,
    operand(write.operator, 0).shape.length - axis - 1,
  );
  return write.add('Where', [mask, moved, write.scalar(dtype, 0)]);
}

/** A constant truth value per position of a dimension that `behind` others follow. */
function maskAlong(write: OperatorGradient, length: number, holds: (place: number) => boolean, behind: number): string {
  const values = Array.from({ length }, (_, place) => Number(holds(place)));
  const shape = [length, ...Array.from({ length: behind }, () => 1)];
  return write.tensor(constant('bool', values, shape));
}

/** Places of a dimension that CenterCropPad crops at both ends, or pads with zeros; an odd one is at the end. */
export function centredPlaces(length: number, size: number): readonly number[] {
  const first = Math.floor(Math.abs(length - size) / 2);
  return Array.from({ length: size }, (_, at) => {
    const place = length > size ? at + first : at - first;
    return place >= 0 && place < length ? place : -1;
  });
}
