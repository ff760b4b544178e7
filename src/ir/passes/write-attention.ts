/**
 * @file Pass `write-attention`: ONNX's Attention in the operators that exporters wrote before there was one, which recognised blocks
 * then stand for. Where ranks share out a sequence its parts are lowered one by one, and the causal mask is what positions make
 * of it, one for all layers:
 *
 *     mask [s, t] = positions [t] ≤ positions [s, 1]
 */
import type { Graph, Node } from '../graph.js';
import { constant } from '../ops/constants.js';
import { numberOf } from '../ops/operands.js';
import { viewOf } from '../view.js';
import { ForwardWriter } from './forward-writer.js';

/** The graph with every Attention written out that has no cache and leaves nothing but its result. */
export function writeAttention(graph: Graph): Graph {
  if (!graph.nodes.some(isWritten)) return graph;
  const writer = new ForwardWriter(graph);
  const masks = new Map<string, string>();
  const nodes = graph.nodes.flatMap((node) => (isWritten(node) ? written(writer, graph, node, masks) : [node]));
  return writer.graph(nodes);
}

/** Operands and attributes beyond these stay with the operator. */
function isWritten({ op, domain, inputs, outputs, attributes }: Node): boolean {
  return (
    op === 'Attention' &&
    domain === '' &&
    inputs.slice(4).every((name) => name === null) &&
    outputs.slice(1).every((name) => name === null) &&
    attributes['softmax_precision'] === undefined
  );
}

/** What hides a key: the least number of float32, as ONNX Runtime's kernel has it; other types take their own. */
const HIDDEN: Readonly<Record<string, number>> = { float16: -65504, bfloat16: -3.3895313892515355e38 };

function written(writer: ForwardWriter, graph: Graph, node: Node, masks: Map<string, string>): readonly Node[] {
  const view = viewOf(graph, node);
  const [query = '', key = '', value = '', mask = null] = node.inputs as readonly string[];
  const output = node.outputs[0] as string;
  const [q, k, v] = [0, 1, 2].map((index) => view.inputs[index]?.shape ?? []) as [number[], number[], number[]];
  const isFlat = q.length === 3;
  const heads = isFlat ? numberOf(view, 'q_num_heads', 1) : (q[1] ?? 1);
  const keyHeads = isFlat ? numberOf(view, 'kv_num_heads', 1) : (k[1] ?? 1);
  const dtype = view.inputs[0]?.dtype ?? 'float32';
  const add = (op: string, inputs: readonly string[], attributes = {}, name = `${node.name}/${op}`) =>
    writer.add(name, node, op, inputs, attributes);
  const number = (of: number) => writer.value(`${node.name}/number`, constant(dtype, [of]));
  const perHead = (name: string, shape: readonly number[], count: number): string => {
    if (!isFlat) return name;
    const [batch = 1, positions = 1, width = 1] = shape;
    const parted = add('Reshape', [name], { shape: [batch, positions, count, width / count] });
    return add('Transpose', [parted], { perm: [0, 2, 1, 3] });
  };
  const repeated = (name: string): string => {
    const groups = heads / keyHeads;
    if (groups === 1) return name;
    const [batch = 1, count = 1, positions = 1, width = 1] = writer.tensors.get(name)?.shape ?? [];
    const apart = add('Unsqueeze', [name], { axes: [2] });
    const spread = add('Expand', [apart], { shape: [batch, count, groups, positions, width] });
    return add('Reshape', [spread], { shape: [batch, heads, positions, width] });
  };
  const queries = perHead(query, q, heads);
  const keys = add('Transpose', [repeated(perHead(key, k, keyHeads))], { perm: [0, 1, 3, 2] });
  const values = repeated(perHead(value, v, keyHeads));
  const width = writer.tensors.get(queries)?.shape[3] ?? 1;
  const scale = numberOf(view, 'scale', 0) || 1 / Math.sqrt(width);
  let scores = add('Mul', [add('MatMul', [queries, keys]), number(scale)]);
  const cap = numberOf(view, 'softcap', 0);
  if (cap !== 0) scores = add('Mul', [add('Tanh', [add('Div', [scores, number(cap)])]), number(cap)]);
  const hide = (where: string) => add('Where', [where, scores, number(HIDDEN[dtype] ?? -3.4028234663852886e38)]);
  if (mask !== null) scores = view.inputs[3]?.dtype === 'bool' ? hide(mask) : add('Add', [scores, mask]);
  if (numberOf(view, 'is_causal', 0) !== 0) {
    const [rows = 1, columns = 1] = writer.tensors.get(scores)?.shape.slice(-2) ?? [];
    scores = hide(causalMask(writer, rows, columns, masks));
  }
  const probabilities = add('Softmax', [scores], { axis: -1 });
  const result = add('MatMul', [probabilities, values], {}, node.name);
  if (isFlat) {
    const [batch = 1, positions = 1] = q;
    const turned = add('Transpose', [result], { perm: [0, 2, 1, 3] });
    const features = heads * (writer.tensors.get(result)?.shape[3] ?? 1);
    add('Reshape', [turned], { shape: [batch, positions, features] });
  }
  const made = writer.take();
  const last = made.at(-1) as Node;
  writer.tensors.delete(last.outputs[0] as string);
  return [...made.slice(0, -1), { ...last, outputs: [output] }];
}

/** True where a query sees a key: at its own position and before. */
function causalMask(writer: ForwardWriter, rows: number, columns: number, masks: Map<string, string>): string {
  const key = `${rows} ${columns}`;
  const known = masks.get(key);
  if (known !== undefined) return known;
  const positions = (count: number, shape: readonly number[]) =>
    writer.value(
      'positions',
      constant(
        'int64',
        Array.from({ length: count }, (_, at) => at),
        shape,
      ),
    );
  const mask = writer.add('causal_mask', { module: [], layer: null }, 'LessOrEqual', [
    positions(columns, [columns]),
    positions(rows, [rows, 1]),
  ]);
  masks.set(key, mask);
  return mask;
}
