/**
 * @file Attention and rotary embeddings in torch functions.
 */
import { has, number, numberIn, shapeOf, type TorchNode, type TorchOperator, torch, typeOf, x } from './operator.js';

/** Without keys and values of earlier tokens, and without the scores as results. */
function attention(node: TorchNode): string | null {
  const isPlain = numberIn(node, 'softcap', 0) === 0 && !has(node, 4) && !has(node, 5) && !has(node, 6);
  if (!isPlain || node.outputs.slice(1).some((output) => output !== null)) return null;
  // A mask may be shorter than the keys; torch's may not.
  if (has(node, 3) && shapeOf(node, 3).at(-1) !== shapeOf(node, 1).at(-2)) return null;
  const { dtype } = typeOf(node);
  const heads = [numberIn(node, 'q_num_heads', 0), numberIn(node, 'kv_num_heads', 0)];
  const given = [
    ...[0, 1, 2].map((index) => x(node, index)),
    ...(has(node, 3) ? [x(node, 3)] : []),
    ...(heads[0] ? [`heads=${heads[0]}`, `kv_heads=${heads[1]}`] : []),
    ...(numberIn(node, 'is_causal', 0) ? ['causal=True'] : []),
    ...('scale' in node.attributes ? [`scale=${number(numberIn(node, 'scale', 1), dtype)}`] : []),
  ];
  return `attention(${given.join(', ')})`;
}

/** Tables by position, or the angles of every token. */
function rotary(node: TorchNode): string {
  const at = has(node, 3) ? `[${x(node, 3)}]` : '';
  const more = [
    ...(numberIn(node, 'num_heads', 0) ? [`heads=${numberIn(node, 'num_heads', 0)}`] : []),
    ...(numberIn(node, 'interleaved', 0) ? ['interleaved=True'] : []),
    ...(numberIn(node, 'rotary_embedding_dim', 0) ? [`size=${numberIn(node, 'rotary_embedding_dim', 0)}`] : []),
  ];
  return `rotary_embedding(${[x(node), `${x(node, 1)}${at}`, `${x(node, 2)}${at}`, ...more].join(', ')})`;
}

export const attentionOperators: readonly TorchOperator[] = [
  torch('Attention', attention),
  torch('RotaryEmbedding', rotary),
];
