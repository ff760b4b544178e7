/**
 * @file How GroupQueryAttention over whole sequences, without a cache, is written in plain operators: causal, with its window,
 * sinks, lengths, and with the rotation of queries and keys by tables of angles, one row for each position.
 */
import { type GraphIndex, makerOf, valuesOf } from '../fused-regions/matching.js';
import type { Graph, Node } from '../graph.js';
import { operatorOf } from '../operator-of.js';
import { numbersOf } from '../ops/constants.js';
import { numberOf, tensor } from '../ops/operands.js';
import type { AttentionWriter } from './attention-writer.js';

const [QUERY, KEY, VALUE, LAST, COSINE, SINE, BIAS, SINK] = [0, 1, 2, 5, 7, 8, 10, 11];
/** A cache and its scales, positions, and weights that normalise queries and keys. */
const KEPT = [3, 4, 9, 12, 13, 14, 15];

/** Whether the operator reads only queries, keys, values, angles, a bias, lengths and sinks. */
export function isWrittenGrouped(graph: Graph, node: Node): boolean {
  const operator = operatorOf(graph, node);
  const [, positions = 1] = operator.inputs[QUERY]?.shape ?? [];
  const total = tensor(operator, 'total_sequence_length');
  const isWhole = total !== undefined && Number(numbersOf(total)[0]) === positions;
  const bias = operator.inputs[BIAS]?.shape;
  const isFull = !bias || bias.slice(-2).join() === `${positions},${positions}`;
  return isWhole && isFull && KEPT.every((index) => !operator.inputs[index]);
}

/** Writes it; its operators end in the result. */
export function writeGrouped(write: AttentionWriter, index: GraphIndex, node: Node): void {
  const { graph } = index;
  const operator = operatorOf(graph, node);
  const [heads, keyHeads] = [numberOf(operator, 'num_heads', 1), numberOf(operator, 'kv_num_heads', 1)];
  const operandAt = (index: number) => node.inputs[index] ?? '';
  const [query, key, value] = operator.inputs[KEY]
    ? [QUERY, KEY, VALUE].map(operandAt)
    : write.parts(operandAt(QUERY), [heads, keyHeads, keyHeads]);
  const withRotary = (name: string) => rotated(write, name, graph, node);
  const queries = write.perHead(query ?? '', heads);
  const [, , positions = 1, width = 1] = write.shapeOf(queries);
  const window = numberOf(operator, 'local_window_size', -1);
  const result = write.attended({
    query: withRotary(queries),
    key: withRotary(write.perHead(key ?? '', keyHeads)),
    value: write.perHead(value ?? '', keyHeads),
    scale: numberOf(operator, 'scale', 0) || 1 / Math.sqrt(width),
    softcap: numberOf(operator, 'softcap', 0),
    masks: [...(operator.inputs[BIAS] ? [operandAt(BIAS)] : []), ...lengths(write, index, node, positions)],
    isCausal: true,
    window: window < 0 ? null : window,
    sink: sinkOf(write, node, heads, numberOf(operator, 'smooth_softmax', 0) > 0),
  });
  write.joined(result);
}

/** A mask [batch, 1, 1, t], true up to each sequence's last token; none where all are known to have the full length. */
function lengths(write: AttentionWriter, index: GraphIndex, node: Node, positions: number): readonly string[] {
  const last = node.inputs[LAST];
  if (!last) return [];
  const spread = makerOf(index, last, 'Expand');
  const known = valuesOf(index, spread?.inputs[0] ?? last);
  if (known?.every((value) => value >= positions - 1)) return [];
  const ends = write.add('Unsqueeze', [write.add('Cast', [last], { to: 7 })], { axes: [1, 2, 3] });
  return [write.add('GreaterOrEqual', [ends, write.positions(positions)])];
}

/** [1, heads, 1, 1]: trained, or zero. */
function sinkOf(write: AttentionWriter, node: Node, heads: number, isSmooth: boolean): string | null {
  const given = node.inputs[SINK];
  if (given) return write.add('Reshape', [given], { shape: [1, heads, 1, 1] });
  return isSmooth ? write.number(0, [1, 1, 1, 1]) : null;
}

/**
 * Heads [batch, heads, positions, features] rotated by the angles of their positions: pairs are features of the first and the
 * second half, or neighbours where interleaved; features beyond the tables' stay.
 */
function rotated(write: AttentionWriter, heads: string, graph: Graph, node: Node): string {
  const operator = operatorOf(graph, node);
  const half = operator.inputs[COSINE]?.shape[1] ?? 0;
  if (numberOf(operator, 'do_rotary', 0) === 0 || half === 0) return heads;
  const [batch = 1, count = 1, positions = 1, width = 1] = write.shapeOf(heads);
  const cut = (name: string, axis: number, start: number, end: number, step = 1) =>
    write.add('Slice', [name], { starts: [start], ends: [end], axes: [axis], steps: [step] });
  const [cosine, sine] = [COSINE, SINE].map((index) => cut(node.inputs[index] ?? '', 0, 0, positions)) as [
    string,
    string,
  ];
  const isInterleaved = numberOf(operator, 'rotary_interleaved', 0) !== 0;
  const [first, second] = isInterleaved
    ? [cut(heads, 3, 0, 2 * half, 2), cut(heads, 3, 1, 2 * half, 2)]
    : [cut(heads, 3, 0, half), cut(heads, 3, half, 2 * half)];
  const product = (name: string, table: string) => write.add('Mul', [name, table]);
  const made = [
    write.add('Sub', [product(first, cosine), product(second, sine)]),
    write.add('Add', [product(first, sine), product(second, cosine)]),
  ];
  const rest = 2 * half < width ? [cut(heads, 3, 2 * half, width)] : [];
  if (!isInterleaved) return write.add('Concat', [...made, ...rest], { axis: 3 });
  const paired = write.add(
    'Concat',
    made.map((name) => write.add('Unsqueeze', [name], { axes: [4] })),
    { axis: 4 },
  );
  const flat = write.add('Reshape', [paired], { shape: [batch, count, positions, 2 * half] });
  return rest.length === 0 ? flat : write.add('Concat', [flat, ...rest], { axis: 3 });
}
