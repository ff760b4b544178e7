/**
 * @file Operators that move, slice and join tensors, and those that make tensors, in torch functions.
 */
import { elementCount } from '../../../ir/graph.js';
import {
  atom,
  axisIn,
  constantIn,
  dtypeText,
  fromFront,
  has,
  integersIn,
  microsoft,
  number,
  numberIn,
  rankOf,
  resultOf,
  shapeOf,
  type TorchNode,
  type TorchOperator,
  textIn,
  torch,
  tuple,
  typeOf,
  x,
} from './operator.js';

function reshape(node: TorchNode): string {
  const { shape } = resultOf(node);
  return `${atom(x(node))}.reshape(${shape.length === 0 ? '()' : shape.join(', ')})`;
}

function transpose(node: TorchNode): string {
  const rank = rankOf(node);
  const order = integersIn(node, 'perm') ?? Array.from({ length: rank }, (_, axis) => rank - 1 - axis);
  const moved = order.flatMap((from, to) => (from === to ? [] : [to]));
  const [first, second] = moved;
  if (moved.length === 0) return x(node);
  if (moved.length === 2) return `${atom(x(node))}.transpose(${first}, ${second})`;
  return `${atom(x(node))}.permute(${order.join(', ')})`;
}

function expand(node: TorchNode): string {
  return `torch.broadcast_to(${x(node)}, ${tuple(resultOf(node).shape)})`;
}

/** Per dimension: Python's slice, or `torch.arange` where it goes backwards, which slices of torch do not. */
function slice(node: TorchNode): string | null {
  const { shape } = typeOf(node);
  const starts = integersIn(node, 'starts') ?? [];
  const ends = integersIn(node, 'ends') ?? [];
  const axes = (integersIn(node, 'axes') ?? starts.map((_, index) => index)).map((axis) =>
    fromFront(axis, shape.length),
  );
  const steps = integersIn(node, 'steps') ?? starts.map(() => 1);
  const cuts: (string | null)[] = shape.map(() => null);
  let backwards = 0;
  for (const [index, axis] of axes.entries()) {
    const size = shape[axis] ?? 1;
    const step = steps[index] ?? 1;
    const within = (value: number, low: number, high: number) =>
      Math.min(Math.max(value < 0 ? value + size : value, low), high);
    if (step > 0) {
      const [from, to] = [within(starts[index] ?? 0, 0, size), within(ends[index] ?? size, 0, size)];
      if (from === 0 && to === size && step === 1) continue;
      cuts[axis] = `${from}:${Math.max(from, to)}${step === 1 ? '' : `:${step}`}`;
      continue;
    }
    const [from, to] = [within(starts[index] ?? size, 0, size - 1), within(ends[index] ?? -1 - size, -1, size - 1)];
    cuts[axis] = `torch.arange(${from}, ${Math.min(from, to)}, ${step})`;
    backwards++;
  }
  if (backwards > 1) return null;
  const last = cuts.findLastIndex((cut) => cut !== null);
  if (last < 0) return x(node);
  return `${atom(x(node))}[${cuts
    .slice(0, last + 1)
    .map((cut) => cut ?? ':')
    .join(', ')}]`;
}

function split(node: TorchNode): string {
  const axis = axisIn(node, 0);
  const given = integersIn(node, 'split');
  const count = numberIn(node, 'num_outputs', node.outputs.length);
  const size = shapeOf(node)[axis] ?? 1;
  const part = Math.ceil(size / count);
  const parts = given ?? Array.from({ length: count }, (_, index) => Math.min(part, size - index * part));
  const each = parts.every((own) => own === parts[0]) ? String(parts[0]) : `[${parts.join(', ')}]`;
  const text = `torch.split(${x(node)}, ${each}, dim=${axis})`;
  if (node.outputs.length === 1) return `${text}[0]`;
  // The last parts may be read by nothing.
  return node.outputs.length < parts.length ? `${text}[:${node.outputs.length}]` : text;
}

function concat(node: TorchNode): string {
  return `torch.cat([${node.operands.join(', ')}], dim=${axisIn(node, 0)})`;
}

function pad(node: TorchNode): string | null {
  const { shape, dtype } = typeOf(node);
  const pads = integersIn(node, 'pads') ?? [];
  const axes = (integersIn(node, 'axes') ?? shape.map((_, axis) => axis)).map((axis) => fromFront(axis, shape.length));
  const around = shape.map(() => [0, 0] as [number, number]);
  for (const [index, axis] of axes.entries()) around[axis] = [pads[index] ?? 0, pads[index + axes.length] ?? 0];
  const mode = textIn(node, 'mode', 'constant');
  if (mode !== 'constant')
    return around.reduce(
      (text, [before, after], axis) =>
        before === 0 && after === 0 ? text : `pad_with_own(${text}, ${axis}, ${before}, ${after}, "${mode}")`,
      x(node),
    );
  const [value = 0] = constantIn(node, 'constant_value') ?? [];
  const first = around.findIndex(([before, after]) => before !== 0 || after !== 0);
  if (first < 0) return x(node);
  const amounts = around.slice(first).reverse().flat();
  return `F.pad(${x(node)}, ${tuple(amounts)}, value=${number(value, dtype)})`;
}

function full(node: TorchNode): string {
  const { shape, dtype } = resultOf(node);
  const [value = 0] = constantIn(node, 'value') ?? [];
  return `torch.full(${tuple(shape)}, ${number(value, dtype)}, dtype=${dtypeText(dtype)})`;
}

function range(node: TorchNode): string {
  const { dtype, shape } = resultOf(node);
  const [start = 0] = constantIn(node, 'start') ?? [];
  const [delta = 1] = constantIn(node, 'delta') ?? [];
  const count = elementCount(shape);
  if (start === 0 && delta === 1) return `torch.arange(${count}, dtype=${dtypeText(dtype)})`;
  const text = delta === 1 ? `torch.arange(${count})` : `torch.arange(${count}) * ${number(delta, dtype)}`;
  return `(${text} + ${number(start, dtype)}).to(${dtypeText(dtype)})`;
}

function oneHot(node: TorchNode): string | null {
  const depth = constantIn(node, 'depth')?.[0] ?? integerIn(node, 'depth');
  if (depth === undefined || isFloatIndex(node)) return null;
  return `one_hot(${x(node)}, ${depth}, ${x(node, 2)}, ${axisIn(node, -1, rankOf(node) + 1)})`;
}

function integerIn({ attributes }: TorchNode, name: string): number | undefined {
  const value = attributes[name];
  return typeof value === 'number' || typeof value === 'bigint' ? Number(value) : undefined;
}

function isFloatIndex(node: TorchNode): boolean {
  return typeOf(node).dtype.includes('float');
}

function trilu(node: TorchNode): string {
  const k = numberIn(node, 'k', 0);
  const name = numberIn(node, 'upper', 1) ? 'triu' : 'tril';
  return k === 0 ? `torch.${name}(${x(node)})` : `torch.${name}(${x(node)}, ${k})`;
}

function eye(node: TorchNode): string | null {
  const { shape, dtype } = resultOf(node);
  const k = numberIn(node, 'k', 0);
  if (k !== 0) return `torch.ones(${tuple(shape)}, dtype=${dtypeText(dtype)}).tril(${k}).triu(${k})`;
  return `torch.eye(${shape.join(', ')}, dtype=${dtypeText(dtype)})`;
}

function constantText(node: TorchNode): string | null {
  const value = node.attributes['value'];
  if (typeof value !== 'object' || Array.isArray(value) || !('data' in value)) return null;
  const { shape, dtype } = resultOf(node);
  const numbers = constantIn(node, 'value') ?? [];
  const list = `torch.tensor([${numbers.map((one) => number(one, dtype)).join(', ')}], dtype=${dtypeText(dtype)})`;
  return `${list}.reshape(${shape.length === 0 ? '()' : shape.join(', ')})`;
}

/** The blocks of a picture's channels: depth to space and back. */
function depthToSpace(node: TorchNode): string | null {
  const [n, c = 1, h = 1, w = 1] = shapeOf(node);
  const size = numberIn(node, 'blocksize', 1);
  const parts = c / (size * size);
  if (textIn(node, 'mode', 'DCR') === 'CRD') return `F.pixel_shuffle(${x(node)}, ${size})`;
  const seen = `${atom(x(node))}.reshape(${[n, size, size, parts, h, w].join(', ')})`;
  return `${seen}.permute(0, 3, 4, 1, 5, 2).reshape(${resultOf(node).shape.join(', ')})`;
}

function spaceToDepth(node: TorchNode): string {
  const [n, c, h = 1, w = 1] = shapeOf(node);
  const size = numberIn(node, 'blocksize', 1);
  const seen = `${atom(x(node))}.reshape(${[n, c, h / size, size, w / size, size].join(', ')})`;
  return `${seen}.permute(0, 3, 5, 1, 2, 4).reshape(${resultOf(node).shape.join(', ')})`;
}

function shapeText(node: TorchNode): string {
  const rank = rankOf(node);
  const within = (value: number) => Math.min(Math.max(fromFront(value, rank), 0), rank);
  const sizes = shapeOf(node).slice(within(numberIn(node, 'start', 0)), within(numberIn(node, 'end', rank)));
  return `torch.tensor([${sizes.join(', ')}], dtype=torch.int64)`;
}

export const shapingOperators: readonly TorchOperator[] = [
  torch('Reshape', reshape),
  torch('Flatten', reshape),
  torch('Squeeze', reshape),
  torch('Unsqueeze', reshape),
  torch('Transpose', transpose),
  torch('Expand', expand),
  torch('Slice', slice),
  torch('Split', split),
  torch('Concat', concat),
  torch('Pad', pad),
  torch('Tile', (node) => `${atom(x(node))}.repeat(${(integersIn(node, 'repeats') ?? []).join(', ')})`),
  torch('ConstantOfShape', full),
  torch('Constant', constantText),
  torch('Range', range),
  microsoft('Range', range),
  microsoft('Pad', pad),
  microsoft('Trilu', trilu),
  microsoft('ExpandDims', reshape),
  torch('Shape', (node) => shapeText(node)),
  torch('Size', (node) => `torch.tensor(${elementCount(shapeOf(node))})`),
  torch('OneHot', oneHot),
  torch('Trilu', trilu),
  torch('EyeLike', eye),
  torch('DepthToSpace', depthToSpace),
  torch('SpaceToDepth', spaceToDepth),
].map((operator) => (operator.op === 'Tile' ? { ...operator, text: withRank(operator.text) } : operator));

/** A scalar has nothing to repeat. */
function withRank(text: TorchOperator['text']): TorchOperator['text'] {
  return (node) => (rankOf(node) === 0 || !has(node, 0) ? x(node) : text(node));
}
