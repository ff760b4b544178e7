/**
 * @file Reshape and similar operators: other shapes over the same row-major elements. They cost nothing and carry everything.
 *
 * Reshape's rule comes from walking the two shapes from the major end, splitting off the common part of the two
 * dimensions at hand each time: [8, 12] → [8, 3, 4] is `a (b c) -> a b c`. Where what is left has no common divisor
 * ([3, 4] against [2, 6]) the walk goes on from the minor end, and the middle that fits nothing stays whole.
 */
import type { FactorRule } from '../factor-rule.js';
import { type Attributes, elementCount } from '../graph.js';
import type { Operator, OperatorEntry } from '../operator.js';
import { bindRule, dimensionSize } from '../rule-text.js';
import { entry, isFree } from './entry.js';
import {
  axesFromFront,
  dimensionNames,
  integers,
  mismatch,
  neededIntegers,
  numberOf,
  operand,
  result,
} from './operands.js';
import { type GradientBody, withGradients } from './operator-gradient.js';

const entries: readonly OperatorEntry[] = [
  entry({
    op: 'Reshape',
    family: 'view',
    constantInputs: [{ index: 1, attribute: 'shape', form: 'ints' }],
    complete: (operator) => {
      const { allowzero: _, ...rest } = operator.attributes;
      const shape = reshapedShape(operator);
      return shape.includes(0) ? { ...rest, allowzero: 1, shape } : { ...rest, shape };
    },
    infer: (operator) => [{ dtype: operand(operator, 0).dtype, shape: reshapedShape(operator) }],
    rule: (operator) => reshapeRule(operator),
    linear: () => [[0]],
    resize: (operator, rule, size) => ({
      ...operator.attributes,
      shape: (rule.outputs[0] ?? []).map((names) => dimensionSize(names, size)),
    }),
    work: isFree,
    isView: true,
    note: 'Neighbouring dimensions whose sizes have no common divisor with the new ones are not sharded.',
  }),
  entry({
    op: 'Flatten',
    family: 'view',
    infer: (operator) => {
      const { dtype, shape } = operand(operator, 0);
      const axis = numberOf(operator, 'axis', 1);
      const cut = axis < 0 ? axis + shape.length : axis;
      if (cut < 0 || cut > shape.length) throw mismatch(operator, `axis ${axis} is outside rank ${shape.length}`);
      return [{ dtype, shape: [elementCount(shape.slice(0, cut)), elementCount(shape.slice(cut))] }];
    },
    rule: (operator) => reshapeRule(operator),
    linear: () => [[0]],
    work: isFree,
    isView: true,
  }),
  entry({
    op: 'Squeeze',
    family: 'view',
    constantInputs: [{ index: 1, attribute: 'axes', form: 'ints' }],
    infer: (operator) => {
      const { dtype, shape } = operand(operator, 0);
      const axes = squeezedAxes(operator);
      const wide = axes.find((axis) => shape[axis] !== 1);
      if (wide !== undefined) throw mismatch(operator, `dimension ${wide} is not 1`);
      return [{ dtype, shape: shape.filter((_, axis) => !axes.includes(axis)) }];
    },
    rule: (operator) => {
      const axes = squeezedAxes(operator);
      const names = dimensionNames(operand(operator, 0).shape.length);
      const kept = names.filter((_, axis) => !axes.includes(axis));
      return `${names.map((name, axis) => (axes.includes(axis) ? '1' : name)).join(' ')} -> ${kept.join(' ')}`;
    },
    linear: () => [[0]],
    complete: axesSqueezed,
    // Named, since a shard may have dimensions of size 1 that the whole has not.
    resize: axesSqueezed,
    work: isFree,
    isView: true,
  }),
  entry({
    op: 'Unsqueeze',
    family: 'view',
    constantInputs: [{ index: 1, attribute: 'axes', form: 'ints' }],
    complete: (operator) => ({ ...operator.attributes, axes: unsqueezedAxes(operator) }),
    infer: (operator) => {
      const { dtype, shape } = operand(operator, 0);
      const axes = unsqueezedAxes(operator);
      const rest = [...shape];
      return [
        {
          dtype,
          shape: Array.from({ length: shape.length + axes.length }, (_, axis) =>
            axes.includes(axis) ? 1 : (rest.shift() ?? 1),
          ),
        },
      ];
    },
    rule: (operator) => {
      const axes = unsqueezedAxes(operator);
      const names = dimensionNames(operand(operator, 0).shape.length);
      const rest = [...names];
      const widened = Array.from({ length: names.length + axes.length }, (_, axis) =>
        axes.includes(axis) ? '1' : rest.shift(),
      );
      return `${names.join(' ')} -> ${widened.join(' ')}`;
    },
    linear: () => [[0]],
    work: isFree,
    isView: true,
  }),
];

/** The result's gradient in the operand's shape. */
const backToShape: GradientBody = (write) => {
  const { shape } = operand(write.operator, 0);
  // A size of 0 is meant as such there.
  const attributes = shape.includes(0) ? { shape, allowzero: 1 } : { shape };
  write.add('Reshape', ['grad0'], attributes, 'd0');
};

export const reshapeEntries = withGradients(entries, {
  Reshape: backToShape,
  Flatten: backToShape,
  Squeeze: (write) => {
    const axes = squeezedAxes(write.operator);
    if (axes.length > 0) write.add('Unsqueeze', ['grad0'], { axes }, 'd0');
    else write.become(0, 'grad0', operand(write.operator, 0).dtype);
  },
  Unsqueeze: (write) => {
    write.add('Squeeze', ['grad0'], { axes: unsqueezedAxes(write.operator) }, 'd0');
  },
});

/** Reshape's `shape` with 0 (copy, unless allowzero) and −1 (what is left) resolved. */
function reshapedShape(operator: Operator): readonly number[] {
  const { shape } = operand(operator, 0);
  const copies = numberOf(operator, 'allowzero', 0) === 0;
  const given = neededIntegers(operator, 'shape');
  const wanted = given.map((size, index) => (size === 0 && copies ? (shape[index] ?? 0) : size));
  const known = elementCount(wanted.filter((size) => size !== -1));
  const total = elementCount(shape);
  const resolved = wanted.map((size) => (size === -1 && known > 0 ? total / known : size));
  const isSound = resolved.every((size) => Number.isInteger(size) && size >= 0);
  if (elementCount(resolved) !== total || !isSound || given.filter((size) => size === -1).length > 1)
    throw mismatch(operator, `[${shape.join(', ')}] does not reshape to [${given.join(', ')}]`);
  return resolved;
}

function squeezedAxes(operator: Operator): readonly number[] {
  const { shape } = operand(operator, 0);
  const axes = integers(operator, 'axes');
  return axes ? axesFromFront(operator, axes, shape.length) : shape.flatMap((size, axis) => (size === 1 ? [axis] : []));
}

function axesSqueezed(operator: Operator): Attributes {
  return { ...operator.attributes, axes: squeezedAxes(operator) };
}

function unsqueezedAxes(operator: Operator): readonly number[] {
  const axes = neededIntegers(operator, 'axes');
  return axesFromFront(operator, axes, operand(operator, 0).shape.length + axes.length);
}

function reshapeRule(operator: Operator): FactorRule {
  const { text, sizes } = reshapeText(operand(operator, 0).shape, result(operator, 0).shape);
  return bindRule(text, operator, sizes);
}

/** The rule text of a reshape from one shape to another of as many elements, and its factors' sizes. */
function reshapeText(
  from: readonly number[],
  to: readonly number[],
): { readonly text: string; readonly sizes: Readonly<Record<string, number>> } {
  const walk = new FactorNames();
  const [left, right] = [from.map((): string[] => []), to.map((): string[] => [])];
  const [i, j] = walk.majorEnd(from, to, left, right);
  walk.middle(i, j, left, right);
  const side = (dims: readonly (readonly string[])[]) =>
    dims.map((names) => (names.length > 1 ? `(${names.join(' ')})` : (names[0] ?? '1'))).join(' ');
  return { text: `${side(left)} -> ${side(right)}`, sizes: Object.fromEntries(walk.sizes) };
}

/** The part of a dimension that the walk has not assigned to factors yet. */
interface Rest {
  readonly dimension: number;
  size: number;
}

/** Names factors as the walk finds them. */
class FactorNames {
  readonly sizes = new Map<string, number>();

  #name(size: number): string {
    const ordinal = this.sizes.size;
    const name = ordinal < 26 ? String.fromCharCode(97 + ordinal) : `f${ordinal}`;
    this.sizes.set(name, size);
    return name;
  }

  /** Walks from the major end while dimensions divide each other; returns what is left of both shapes. */
  majorEnd(from: readonly number[], to: readonly number[], left: string[][], right: string[][]): [Rest[], Rest[]] {
    const a = from.map((size, dimension): Rest => ({ dimension, size }));
    const b = to.map((size, dimension): Rest => ({ dimension, size }));
    for (;;) {
      const [x, y] = [a[0], b[0]];
      if (!x || !y) break;
      if (x.size === 1 && y.size === 1 && from[x.dimension] === 1 && to[y.dimension] === 1) {
        this.#share(1, x, y, left, right, 'push');
      } else if (x.size !== 1 && y.size !== 1) {
        const common = x.size === y.size ? x.size : divisor(x.size, y.size);
        if (common <= 1) break;
        this.#share(common, x, y, left, right, 'push');
        // Both have a rest and the rests have no common divisor: beyond here only the minor end can still fit.
        if (x.size > 1 && y.size > 1) break;
      }
      if (x.size === 1) a.shift();
      if (y.size === 1) b.shift();
    }
    return [a, b];
  }

  /** Walks what is left from the minor end; what then remains on either side stays whole. */
  middle(a: Rest[], b: Rest[], left: string[][], right: string[][]): void {
    const [endLeft, endRight]: [string[][], string[][]] = [left.map(() => []), right.map(() => [])];
    for (;;) {
      const [x, y] = [a.at(-1), b.at(-1)];
      if (!x || !y) break;
      if (x.size !== 1 && y.size !== 1) {
        const common = x.size === y.size ? x.size : divisor(x.size, y.size);
        if (common <= 1) break;
        this.#share(common, x, y, endLeft, endRight, 'unshift');
        if (x.size > 1 && y.size > 1) break;
      }
      if (x.size === 1) a.pop();
      if (y.size === 1) b.pop();
    }
    for (const [rests, names] of [
      [a, left],
      [b, right],
    ] as const)
      for (const { dimension, size } of rests) if (size !== 1) names[dimension]?.push(`${this.#name(size)}!`);
    for (const [dimension, names] of endLeft.entries()) left[dimension]?.push(...names);
    for (const [dimension, names] of endRight.entries()) right[dimension]?.push(...names);
  }

  #share(size: number, x: Rest, y: Rest, left: string[][], right: string[][], end: 'push' | 'unshift'): void {
    const name = this.#name(size);
    left[x.dimension]?.[end](name);
    right[y.dimension]?.[end](name);
    x.size /= size;
    y.size /= size;
  }
}

/** Greatest common divisor; 0 where a size is 0, since nothing can be shared then. */
function divisor(a: number, b: number): number {
  if (a === 0 || b === 0) return 0;
  return b % a === 0 ? a : divisor(b % a, a);
}
