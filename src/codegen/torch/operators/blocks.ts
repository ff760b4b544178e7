/**
 * @file Recognised blocks in torch functions, where a rank computes them alone: normalisations and activations that exporters
 * write out. A block with operands of several types is written out as in the file.
 */
import { BLOCK_DOMAIN } from '../../../ir/blocks/block.js';
import {
  has,
  number,
  numberIn,
  resultOf,
  shapeOf,
  type TorchNode,
  type TorchOperator,
  textIn,
  tuple,
  typeOf,
  x,
} from './operator.js';

export const blockOperators: readonly TorchOperator[] = [
  block('RMSNormalization', (node) => normalisation('rms_norm', node, has(node, 1) ? [x(node, 1)] : [])),
  block('LayerNormalization', (node) => {
    // One vector may be the scale or the bias.
    const vectors = node.operands.slice(1).length;
    return vectors === 1 ? null : normalisation('layer_norm', node, vectors === 0 ? [] : [x(node, 1), x(node, 2)]);
  }),
  block('Gelu', (node) => {
    const approximate = textIn(node, 'approximate', 'none');
    if (approximate === 'none') return `F.gelu(${x(node)})`;
    return approximate === 'tanh' ? `F.gelu(${x(node)}, approximate="tanh")` : null;
  }),
  block('SwiGLU', (node) => `F.silu(${x(node)}) * ${x(node, 1)}`),
];

function block(op: string, text: (node: TorchNode) => string | null): TorchOperator {
  return { op, domain: BLOCK_DOMAIN, text: (node) => (isOfOneType(node) ? text(node) : null) };
}

function isOfOneType(node: TorchNode): boolean {
  return node.operands.every((_, index) => typeOf(node, index).dtype === resultOf(node).dtype);
}

/** Scale and bias have the shape of what is normalised. */
function normalisation(name: string, node: TorchNode, vectors: readonly string[]): string | null {
  const shape = shapeOf(node).slice(numberIn(node, 'axis', -1));
  const isVector = vectors.every((_, index) => String(shapeOf(node, index + 1)) === String(shape));
  if (!isVector || String(resultOf(node).shape) !== String(shapeOf(node))) return null;
  const epsilon = number(numberIn(node, 'epsilon', 1e-5), 'float32');
  return `F.${name}(${[x(node), tuple(shape), ...vectors, `eps=${epsilon}`].join(', ')})`;
}
