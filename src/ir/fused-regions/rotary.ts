/**
 * @file Rotary embedding: pairs (a, b) of a head's features rotated by an angle, (a·cos − b·sin, b·cos + a·sin).
 *
 *     pairs of halves        a = x[: d/2], b = x[d/2 :]     Llama, GPT-NeoX
 *     interleaved pairs      a = x[0::2],  b = x[1::2]      GPT-J, the original
 *
 * Written with the whole head, x·cos + rotated(x)·sin where rotated(x) joins −b and a, or pair by pair and then joined. Parts
 * come from Slice, from Split, or from a Reshape to [… , d/2, 2] or [… , 2, d/2] and its two elements. With a partial
 * rotation the region is the rotated part. The computation of cos and sin stays outside.
 */
import type { Node } from '../graph.js';
import {
  type DraftMatch,
  type GraphIndex,
  isOp,
  makerOf,
  numberAttribute,
  numbersAttribute,
  operandOf,
  otherOperand,
  resultOf,
  scalarOf,
  shapeOf,
  withCasts,
} from './matching.js';

/** Operators at which a rotary embedding is found. */
export const ROTARY_ANCHORS: readonly string[] = ['Add', 'Concat', 'Reshape'];

/** The rotary embedding that ends in `anchor`. */
export function findRotary(index: GraphIndex, anchor: Node): DraftMatch | null {
  return isOp(anchor, 'Add') ? wholeHead(index, anchor) : pairByPair(index, anchor);
}

/** x·cos + rotated(x)·sin. */
function wholeHead(index: GraphIndex, anchor: Node): DraftMatch | null {
  const [left, right] = anchor.inputs.map((input) => makerOf(index, input, 'Mul'));
  if (!left || !right) return null;
  for (const [plain, turning] of [
    [left, right],
    [right, left],
  ] as const) {
    for (const position of [0, 1]) {
      const rotated = joinedBy(index, makerOf(index, operandOf(turning, position), 'Concat', 'Reshape'));
      const negative = rotated && negated(index, rotated.first);
      const pair = rotated && negative && pairOf(index, rotated.second, negative.of);
      if (!rotated || !pair || pair.interleaved !== rotated.interleaved) continue;
      const cos = otherOperand(plain, pair.whole);
      const sin = operandOf(turning, 1 - position);
      if (cos === null || cos === pair.whole) continue;
      return draft(index, {
        nodes: [anchor, plain, turning, ...rotated.nodes, negative.node, ...pair.nodes],
        inputs: [pair.whole, cos, sin],
        output: resultOf(anchor),
        interleaved: pair.interleaved,
      });
    }
  }
  return null;
}

/** a·cos − b·sin joined with b·cos + a·sin. */
function pairByPair(index: GraphIndex, anchor: Node): DraftMatch | null {
  const joined = joinedBy(index, anchor);
  const difference = joined && makerOf(index, joined.first, 'Sub');
  const sum = joined && makerOf(index, joined.second, 'Add');
  if (!difference || !sum) return null;
  const [minuend, subtrahend] = difference.inputs.map((input) => makerOf(index, input, 'Mul'));
  const addends = sum.inputs.map((input) => makerOf(index, input, 'Mul'));
  if (!minuend || !subtrahend) return null;
  for (const [i, j] of PLACES) {
    const [a, cos] = [operandOf(minuend, i), operandOf(minuend, 1 - i)];
    const [b, sin] = [operandOf(subtrahend, j), operandOf(subtrahend, 1 - j)];
    const [straight, crossed] = [
      addends.find((node) => node && isProduct(node, b, cos)),
      addends.find((node) => node && isProduct(node, a, sin)),
    ];
    const pair = straight && crossed && straight !== crossed ? pairOf(index, a, b) : null;
    if (!pair || !straight || !crossed || pair.interleaved !== joined.interleaved) continue;
    return draft(index, {
      nodes: [difference, sum, minuend, subtrahend, straight, crossed, ...joined.nodes, ...pair.nodes],
      inputs: [pair.whole, cos, sin],
      output: resultOf(anchor),
      interleaved: pair.interleaved,
    });
  }
  return null;
}

const PLACES = [
  [0, 0],
  [0, 1],
  [1, 0],
  [1, 1],
] as const;

function isProduct(node: Node, left: string, right: string): boolean {
  return left !== right ? otherOperand(node, left) === right : false;
}

function draft(
  index: GraphIndex,
  found: {
    readonly nodes: readonly Node[];
    readonly inputs: readonly string[];
    readonly output: string;
    readonly interleaved: boolean;
  },
): DraftMatch | null {
  const [whole = '', cos = '', sin = ''] = found.inputs;
  // A single angle for all features, or a number, is not an embedding of positions.
  if (scalarOf(index, cos) !== null || scalarOf(index, sin) !== null) return null;
  if (shapeOf(index, whole).join() !== shapeOf(index, found.output).join()) return null;
  return withCasts(index, {
    kind: 'RotaryEmbedding',
    nodes: found.nodes,
    inputs: found.inputs,
    output: found.output,
    attributes: { interleaved: found.interleaved ? 1 : 0 },
  });
}

function negated(index: GraphIndex, tensor: string): { readonly of: string; readonly node: Node } | null {
  const node = makerOf(index, tensor, 'Neg', 'Mul');
  if (!node) return null;
  if (isOp(node, 'Neg')) return { of: operandOf(node), node };
  const factor = node.inputs.findIndex((input) => scalarOf(index, input) === -1);
  return factor < 0 ? null : { of: operandOf(node, 1 - factor), node };
}

interface JoinedHalves {
  readonly first: string;
  readonly second: string;
  readonly interleaved: boolean;
  readonly nodes: readonly Node[];
}

/** Two parts put together on the last dimension: one after the other, or element by element. */
function joinedBy(index: GraphIndex, node: Node | null): JoinedHalves | null {
  if (!node) return null;
  const concat = isOp(node, 'Reshape') ? makerOf(index, operandOf(node), 'Concat') : node;
  if (concat?.inputs.length !== 2) return null;
  const axis = numberAttribute(concat, 'axis', 0);
  const shape = shapeOf(index, resultOf(concat));
  const [first, second] = [operandOf(concat), operandOf(concat, 1)];
  if (concat === node) {
    if (axis !== shape.length - 1 || shapeOf(index, first).join() !== shapeOf(index, second).join()) return null;
    return { first, second, interleaved: false, nodes: [concat] };
  }
  // Stacked: [… , d/2, 2] or [… , 2, d/2], and then the last two dimensions merged.
  const merged = [...shape.slice(0, -2), (shape.at(-2) ?? 0) * (shape.at(-1) ?? 0)];
  const interleaved = axis === shape.length - 1;
  if (!(interleaved || axis === shape.length - 2) || shape[axis] !== 2) return null;
  if (shapeOf(index, resultOf(node)).join() !== merged.join()) return null;
  const stacked = [first, second].map((tensor) => makerOf(index, tensor, 'Unsqueeze', 'Reshape'));
  const part = shape.filter((_, position) => position !== axis).join();
  const [one, two] = stacked;
  if (!one || !two || stacked.some((view) => !view || shapeOf(index, operandOf(view)).join() !== part)) return null;
  return { first: operandOf(one), second: operandOf(two), interleaved, nodes: [node, concat, one, two] };
}

interface RotaryPair {
  /** The tensor whose last dimension consists of the two parts. */
  readonly whole: string;
  readonly interleaved: boolean;
  readonly nodes: readonly Node[];
}

/** `first` and `second` as the two parts of one tensor's last dimension; null where they are not. */
function pairOf(index: GraphIndex, first: string, second: string): RotaryPair | null {
  return slicedPair(index, first, second) ?? splitPair(index, first, second) ?? elementPair(index, first, second);
}

function slicedPair(index: GraphIndex, first: string, second: string): RotaryPair | null {
  const slices = [first, second].map((tensor) => makerOf(index, tensor, 'Slice'));
  const [a, b] = slices;
  if (!a || !b || operandOf(a) !== operandOf(b)) return null;
  const whole = operandOf(a);
  const size = shapeOf(index, whole).at(-1) ?? 0;
  const last = shapeOf(index, whole).length - 1;
  const parts = [a, b].map((slice) => {
    const [start = -1, step = 0] = [numbersAttribute(slice, 'starts')[0], numbersAttribute(slice, 'steps')[0]];
    const only = numbersAttribute(slice, 'axes').join() === String(last);
    return only && (shapeOf(index, resultOf(slice)).at(-1) ?? 0) * 2 === size ? `${start}/${step}` : '';
  });
  const interleaved = parts.join() === '0/2,1/2';
  if (!interleaved && parts.join() !== `0/1,${size / 2}/1`) return null;
  return { whole, interleaved, nodes: [a, b] };
}

function splitPair(index: GraphIndex, first: string, second: string): RotaryPair | null {
  const split = makerOf(index, first, 'Split');
  if (!split || split.outputs.join() !== [first, second].join()) return null;
  const whole = operandOf(split);
  const [left, right] = numbersAttribute(split, 'split');
  const last = numberAttribute(split, 'axis', 0) === shapeOf(index, whole).length - 1;
  return last && left === right ? { whole, interleaved: false, nodes: [split] } : null;
}

/** The elements 0 and 1 of a dimension of two that a Reshape made of the last one. */
function elementPair(index: GraphIndex, first: string, second: string): RotaryPair | null {
  const [a, b] = [elementOf(index, first), elementOf(index, second)];
  if (!a || !b || a.of !== b.of || a.axis !== b.axis || a.position !== 0 || b.position !== 1) return null;
  const view = makerOf(index, a.of, 'Reshape');
  if (!view) return null;
  const whole = operandOf(view);
  const [shape, viewed] = [shapeOf(index, whole), shapeOf(index, a.of)];
  const half = (shape.at(-1) ?? 0) / 2;
  const interleaved = a.axis === viewed.length - 1;
  const wanted = [...shape.slice(0, -1), ...(interleaved ? [half, 2] : [2, half])];
  if (viewed.join() !== wanted.join() || (!interleaved && a.axis !== viewed.length - 2)) return null;
  return { whole, interleaved, nodes: [view, ...a.nodes, ...b.nodes] };
}

interface Element {
  readonly of: string;
  readonly axis: number;
  readonly position: number;
  readonly nodes: readonly Node[];
}

/** One element of a dimension that is dropped: by Gather, or by Split or Slice and a Squeeze. */
function elementOf(index: GraphIndex, tensor: string): Element | null {
  const gather = makerOf(index, tensor, 'Gather');
  if (gather) {
    const position = shapeOf(index, operandOf(gather, 1)).length === 0 ? scalarOf(index, gather.inputs[1]) : null;
    const axis = numberAttribute(gather, 'axis', 0);
    if (position === null) return null;
    const size = shapeOf(index, operandOf(gather))[axis] ?? 0;
    return { of: operandOf(gather), axis, position: position < 0 ? position + size : position, nodes: [gather] };
  }
  const squeeze = makerOf(index, tensor, 'Squeeze', 'Reshape');
  const part = squeeze && makerOf(index, operandOf(squeeze), 'Split', 'Slice');
  if (!squeeze || !part) return null;
  const [before, after] = [shapeOf(index, operandOf(squeeze)), shapeOf(index, tensor)];
  const axis = isOp(part, 'Split') ? numberAttribute(part, 'axis', 0) : (numbersAttribute(part, 'axes')[0] ?? -1);
  if (before[axis] !== 1 || before.filter((_, other) => other !== axis).join() !== after.join()) return null;
  if (isOp(part, 'Slice') && numbersAttribute(part, 'axes').length !== 1) return null;
  if (isOp(part, 'Split') && numbersAttribute(part, 'split').some((size) => size !== 1)) return null;
  const position = isOp(part, 'Split')
    ? part.outputs.indexOf(operandOf(squeeze))
    : (numbersAttribute(part, 'starts')[0] ?? -1);
  return { of: operandOf(part), axis, position, nodes: [part, squeeze] };
}
