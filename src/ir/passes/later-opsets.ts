/**
 * @file Operators of opsets after INTERNAL_OPSET in its form, as a table from operator to conversion. Other operators of these
 * opsets are the same, take more types, or are new and have an entry of their own in the registry.
 */
import { isFloating } from '../dtype.js';
import { resultOf } from '../fused-regions/matching.js';
import { INTERNAL_OPSET } from '../graph.js';
import type { SourceNode } from '../onnx/model.js';
import { constant } from '../ops/constants.js';
import { numberAttribute, type Rewrite, type RewriteContext } from './rewrite.js';

/** By operator; null where its form is the same. */
const CONVERSIONS: Readonly<Record<string, Rewrite>> = {
  Attention: windowsInMask,
  CausalConvWithState: asRuntimes,
  LinearAttention: asRuntimes,
  Mod: floatingRemainder,
  SpaceToDepth: spaceToDepth,
  SwiGLU: swishTimes,
};

/** The node in its form of INTERNAL_OPSET; null where it is the same. */
export const convertLaterOpsets: Rewrite = (node, context) =>
  (Object.hasOwn(CONVERSIONS, node.op) ? CONVERSIONS[node.op]?.(node, context) : null) ?? null;

/** ONNX took the operator over from ONNX Runtime: only the domain differs. */
function asRuntimes(node: SourceNode): readonly SourceNode[] {
  return [{ ...node, domain: 'com.microsoft', opset: 1 }];
}

/**
 * Windows to the left and right of each query become a part of the mask. A query's position counts the keys before the first
 * query: those of a cache or, where `nonpad_kv_seqlen` states how many keys each sample has, those that it does not make
 * itself. A mask of one dimension, which is new as well, is the same for all queries.
 */
function windowsInMask(node: SourceNode, context: RewriteContext): readonly SourceNode[] | null {
  const { left_window_size: _left, right_window_size: _right, ...attributes } = node.attributes;
  const [query = null, key = null, value = null, mask = null, past = null, ...others] = node.inputs;
  const given = mask === null ? null : context.typeOf(mask);
  const lengthOf = (name: string | null) => (name === null ? 0 : (context.typeOf(name).shape.at(-2) ?? 1));
  const columns = given?.shape.at(-1) ?? lengthOf(key) + lengthOf(past);
  const { steps, add } = stepsOf(node);
  const sides = windowSides(node, context, add, { queries: lengthOf(query), columns, before: lengthOf(past) });
  const isVector = given?.shape.length === 1;
  if (sides.length === 0 && !isVector) {
    const isSame = Object.keys(attributes).length === Object.keys(node.attributes).length;
    return isSame ? null : [{ ...node, attributes, opset: INTERNAL_OPSET }];
  }
  const [first = null, second] = sides;
  const window = second === undefined ? first : add('And', [first, second], 'window');
  const joined = () => {
    if (given === null) return window;
    if (window === null) return add('Expand', [mask], 'mask', { shape: [lengthOf(query), columns] });
    if (given.dtype === 'bool') return add('And', [mask, window], 'mask');
    const [open, closed] = [0, Number.NEGATIVE_INFINITY].map((number) =>
      context.literal(`${resultOf(node)}/${number === 0 ? 'open' : 'closed'}`, constant(given.dtype, [number])),
    );
    return add('Add', [mask, add('Where', [window, open ?? null, closed ?? null], 'addend')], 'mask');
  };
  const whole = joined();
  return [
    ...steps,
    { ...node, attributes, inputs: [query, key, value, whole, past, ...others], opset: INTERNAL_OPSET },
  ];
}

/** For each side on which a window ends, the name of a mask that is true before its end. */
function windowSides(
  { attributes, inputs, outputs }: SourceNode,
  context: RewriteContext,
  add: ReturnType<typeof stepsOf>['add'],
  { queries, columns, before }: Readonly<Record<'queries' | 'columns' | 'before', number>>,
): readonly string[] {
  const lengths = inputs[6] ?? null;
  const integers = (part: string, count: number, first: number, shape: readonly number[]) => {
    const values = Array.from({ length: count }, (_, place) => place + first);
    return context.literal(`${outputs[0]}/${part}`, constant('int64', values, shape));
  };
  /** For each query the last key that it sees on one side. */
  const end = (part: string, offset: number) => {
    const own = integers(`${part}/places`, queries, offset + (lengths === null ? before : -queries), [queries, 1]);
    const each = lengths === null ? null : add('Reshape', [lengths], `${part}/lengths`, { shape: [-1, 1, 1, 1] });
    return each === null ? own : add('Add', [own, each], part);
  };
  const [left, right] = ['left', 'right'].map((side) => numberAttribute(attributes, `${side}_window_size`, -1));
  const keys = () => integers('keys', columns, 0, [columns]);
  return [
    ...(left === undefined || left < 0 ? [] : [add('GreaterOrEqual', [keys(), end('oldest', -left)], 'recent')]),
    ...(right === undefined || right < 0 ? [] : [add('LessOrEqual', [keys(), end('newest', right)], 'near')]),
  ];
}

/** Gate and value are operands: fused regions and gradients know the two operators. */
function swishTimes(node: SourceNode): readonly SourceNode[] {
  const { steps, add } = stepsOf(node);
  const [gate = null, value = null] = node.inputs;
  add('Mul', [add('Swish', [gate], 'swish', node.attributes), value]);
  return steps;
}

/** Without `fmod` the remainder has the divisor's sign; it was for integers alone, and is for floating-point numbers too. */
function floatingRemainder(node: SourceNode, context: RewriteContext): readonly SourceNode[] | null {
  const [dividend = null, divisor = null] = node.inputs;
  const { dtype } = context.typeOf(dividend ?? '');
  if (numberAttribute(node.attributes, 'fmod', 0) !== 0 || !isFloating(dtype)) return null;
  const { steps, add } = stepsOf(node);
  const zero = context.literal(`${resultOf(node)}/zero`, constant(dtype, [0]));
  const rest = add('Mod', [dividend, divisor], 'remainder', { fmod: 1 });
  const differs = add('Xor', [add('Less', [rest, zero], 'negative'), add('Less', [divisor, zero], 'below')], 'differs');
  const isRest = add('Not', [add('Equal', [rest, zero], 'none')], 'left');
  add('Where', [add('And', [differs, isRest], 'moves'), add('Add', [rest, divisor], 'moved'), rest]);
  return steps;
}

/** It has DepthToSpace's modes: `DCR` is the order that it had, in `CRD` channels come before the positions in a block. */
function spaceToDepth(node: SourceNode, context: RewriteContext): readonly SourceNode[] | null {
  const { mode, ...attributes } = node.attributes;
  if (mode === undefined) return null;
  if (mode !== 'CRD') return [{ ...node, attributes, opset: INTERNAL_OPSET }];
  const { steps, add } = stepsOf(node);
  const [image = null] = node.inputs;
  const [samples = 1, channels = 1, height = 1, width = 1] = context.typeOf(image ?? '').shape;
  const size = numberAttribute(attributes, 'blocksize', 1);
  const [rows, columns] = [height / size, width / size];
  const blocks = add('Reshape', [image], 'blocks', { shape: [samples, channels, rows, size, columns, size] });
  const ordered = add('Transpose', [blocks], 'ordered', { perm: [0, 1, 3, 5, 2, 4] });
  add('Reshape', [ordered], null, { shape: [samples, channels * size * size, rows, columns] });
  return steps;
}

/** Nodes that replace one, and a function that adds the next: it returns the name of its result, the node's own for null. */
function stepsOf(node: SourceNode): {
  readonly steps: readonly SourceNode[];
  readonly add: (
    op: string,
    inputs: SourceNode['inputs'],
    part?: string | null,
    attributes?: SourceNode['attributes'],
  ) => string;
} {
  const steps: SourceNode[] = [];
  const result = resultOf(node);
  return {
    steps,
    add: (op, inputs, part = null, attributes = {}) => {
      const output = part === null ? result : `${result}/${part}`;
      const name = part === null ? node.name : `${node.name || result}/${part}`;
      steps.push({ ...node, name, op, attributes, inputs, outputs: [output], opset: INTERNAL_OPSET });
      return output;
    },
  };
}
