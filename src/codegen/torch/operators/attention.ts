/**
 * @file Attention and rotary embeddings in torch functions.
 */
import {
  has,
  microsoft,
  number,
  numberIn,
  shapeOf,
  type TorchNode,
  type TorchOperator,
  torch,
  typeOf,
  x,
} from './operator.js';

/** With keys of earlier tokens, lengths, capped scores, or more results than one, the scores are written out. */
function attention(node: TorchNode): string | null {
  const isPlain = numberIn(node, 'softcap', 0) === 0 && !has(node, 4) && !has(node, 5) && !has(node, 6);
  // A mask may be shorter than the keys; torch's may not.
  const isShort = has(node, 3) && shapeOf(node, 3).at(-1) !== shapeOf(node, 1).at(-2);
  const isLong = !isPlain || isShort || node.outputs.slice(1).some((output) => output !== null);
  const { dtype } = typeOf(node);
  const optional = ['past_k', 'past_v', 'lengths'].flatMap((name, index) =>
    has(node, index + 4) ? [`${name}=${x(node, index + 4)}`] : [],
  );
  const heads = [numberIn(node, 'q_num_heads', 0), numberIn(node, 'kv_num_heads', 0)];
  const given = [
    ...[0, 1, 2].map((index) => x(node, index)),
    ...(has(node, 3) ? [x(node, 3)] : []),
    ...(heads[0] ? [`heads=${heads[0]}`, `kv_heads=${heads[1]}`] : []),
    ...(numberIn(node, 'is_causal', 0) ? ['causal=True'] : []),
    ...('scale' in node.attributes ? [`scale=${number(numberIn(node, 'scale', 1), dtype)}`] : []),
  ];
  if (!isLong) return `attention(${given.join(', ')})`;
  const softcap = numberIn(node, 'softcap', 0);
  const shown = numberIn(node, 'qk_matmul_output_mode', 0);
  const more = [
    ...optional,
    ...(softcap ? [`softcap=${number(softcap, dtype)}`] : []),
    ...(shown ? [`shown=${shown}`] : []),
  ];
  const text = `scored_attention(${[...given, ...more].join(', ')})`;
  return node.outputs.length === 1
    ? `${text}[0]`
    : node.outputs.length === 4
      ? text
      : `${text}[:${node.outputs.length}]`;
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

/** ONNX Runtime's operator: positions stand ahead of the tables; one position is that of the first token. */
function fusedRotary(node: TorchNode): string | null {
  const [position, table] = [shapeOf(node, 1), shapeOf(node, 2)];
  const size = numberIn(node, 'rotary_embedding_dim', 0) || 2 * (table[1] ?? 1);
  const shape = shapeOf(node);
  const heads = numberIn(node, 'num_heads', 0) || (shape.length === 3 ? (shape[2] ?? 1) / size : 0);
  const length = shape.length === 3 ? shape[1] : shape[2];
  const isOne = position.length === 1 && position[0] === 1;
  const places = isOne ? `(${x(node, 1)} + torch.arange(${length})).expand(${shape[0]}, -1)` : x(node, 1);
  const more = [
    ...(heads ? [`heads=${heads}`] : []),
    ...(numberIn(node, 'interleaved', 0) ? ['interleaved=True'] : []),
    `size=${size}`,
  ];
  return `rotary_embedding(${[x(node), `${x(node, 2)}[${places}]`, `${x(node, 3)}[${places}]`, ...more].join(', ')})`;
}

export const attentionOperators: readonly TorchOperator[] = [
  torch('Attention', attention),
  torch('RotaryEmbedding', rotary),
  microsoft('RotaryEmbedding', fusedRotary),
];
