/**
 * @file Fused regions in torch functions, where a rank computes them alone: normalisations and activations that exporters
 * write out. A region with operands of several types is written out as in the file.
 */
import { REGION_DOMAIN } from '../../../ir/fused-regions/fused-region.js';
import {
  dtypeText,
  has,
  number,
  numberIn,
  numbersIn,
  resultOf,
  shapeOf,
  type TorchNode,
  type TorchOperator,
  textIn,
  textsIn,
  tuple,
  typeOf,
  x,
} from './operator.js';

export const regionOperators: readonly TorchOperator[] = [
  region('RMSNormalization', (node) => normalisation('rms_norm', node, has(node, 1) ? [x(node, 1)] : [])),
  region('LayerNormalization', (node) => {
    // One vector may be the scale or the bias.
    const vectors = node.operands.slice(1).length;
    return vectors === 1 ? null : normalisation('layer_norm', node, vectors === 0 ? [] : [x(node, 1), x(node, 2)]);
  }),
  region('Gelu', (node) => {
    const approximate = textIn(node, 'approximate', 'none');
    if (approximate === 'none') return `F.gelu(${x(node)})`;
    return approximate === 'tanh' ? `F.gelu(${x(node)}, approximate="tanh")` : null;
  }),
  { op: 'Attention', domain: REGION_DOMAIN, text: attention },
  region('SwiGLU', (node) => `F.silu(${x(node)}) * ${x(node, 1)}`),
];

function region(op: string, text: (node: TorchNode) => string | null): TorchOperator {
  return { op, domain: REGION_DOMAIN, text: (node) => (isOfOneType(node) ? text(node) : null) };
}

function isOfOneType(node: TorchNode): boolean {
  return node.operands.every((_, index) => typeOf(node, index).dtype === resultOf(node).dtype);
}

/**
 * The attributes are those of a formula (ir/fused-regions/attention-formula.ts). Beside a mask, torch's memory-efficient
 * kernels need as many heads of keys as of queries.
 */
function attention(node: TorchNode): string | null {
  const { dtype } = resultOf(node);
  const orders = ['queries', 'keys', 'values'].map((name) => numbersIn(node, name));
  const masks = masksOf(node);
  if (orders.some((_, index) => typeOf(node, index).dtype !== dtype) || masks.includes(null)) return null;
  const isGrouped = numberIn(node, 'grouped', 0) !== 0;
  const [heads = 1, keyHeads = 1] = orders.map((order, index) => shapeOf(node, index)[order.at(-3) ?? 0] ?? 1);
  const repeated = isGrouped && masks.length > 0 ? `.repeat_interleave(${heads / keyHeads}, -3)` : '';
  const given = [
    ...orders.map((order, index) => `${reordered(x(node, index), order)}${index > 0 ? repeated : ''}`),
    ...(masks.length > 0 ? [masks.join(' + ')] : []),
    ...(numberIn(node, 'causal', 0) ? ['is_causal=True'] : []),
    `scale=${number(numberIn(node, 'scale', 1), 'float32')}`,
    ...(isGrouped && masks.length === 0 ? ['enable_gqa=True'] : []),
  ];
  return `F.scaled_dot_product_attention(${given.join(', ')})`;
}

/** A fill above this is not absorbed: added to scores, it would leave a row without keys shares by its scores, not equal ones. */
const HIDDEN = -1e30;

/** Texts of the masks: a boolean where one hides with −∞, else what is added to scores; null for a mask that is neither. */
function masksOf(node: TorchNode): readonly (string | null)[] {
  const [kinds, fills] = [textsIn(node, 'masks'), numbersIn(node, 'fills')];
  const { dtype } = resultOf(node);
  // The least number, where it is rounded to −∞, would leave a row without keys nothing instead of equal shares.
  const least = numberIn(node, 'guarded', 0) ? null : `torch.finfo(${dtypeText(dtype)}).min`;
  return kinds.map((kind, index) => {
    const [own, fill = 0] = [x(node, index + 3), fills[index]];
    if (kind === 'add') {
      if (typeOf(node, index + 3).dtype === dtype) return own;
      return `${own}${least ? `.clamp(min=${least})` : ''}.to(${dtypeText(dtype)})`;
    }
    if (kinds.length === 1 && fill === Number.NEGATIVE_INFINITY) return kind === 'show' ? own : `~${own}`;
    if (fill > HIDDEN) return null;
    // The shortest digits of the least number are those of a number below it.
    const score = Number.isFinite(fill) && dtype !== 'float32' ? least : number(Math.fround(fill));
    const choice = `torch.where(${own}, ${kind === 'show' ? `0.0, ${score}` : `${score}, 0.0`})`;
    return score === null ? null : dtype === 'float32' ? choice : `${choice}.to(${dtypeText(dtype)})`;
  });
}

/** An operand with its dimensions in this order. */
function reordered(text: string, order: readonly number[]): string {
  const moved = [...order.keys()].filter((place) => order[place] !== place);
  if (moved.length === 0) return text;
  return moved.length === 2 ? `${text}.transpose(${moved.join(', ')})` : `${text}.permute(${order.join(', ')})`;
}

/** Scale and bias have the shape of what is normalised. */
function normalisation(name: string, node: TorchNode, vectors: readonly string[]): string | null {
  const shape = shapeOf(node).slice(numberIn(node, 'axis', -1));
  const isVector = vectors.every((_, index) => String(shapeOf(node, index + 1)) === String(shape));
  if (!isVector || String(resultOf(node).shape) !== String(shapeOf(node))) return null;
  const epsilon = number(numberIn(node, 'epsilon', 1e-5), 'float32');
  return `F.${name}(${[x(node), tuple(shape), ...vectors, `eps=${epsilon}`].join(', ')})`;
}
