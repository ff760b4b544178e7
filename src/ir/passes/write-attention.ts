/**
 * @file Pass `write-attention`: ONNX's Attention and ONNX Runtime's GroupQueryAttention in plain operators (attention-writer.ts),
 * where a sequence is sharded over ranks and the operators are lowered one by one.
 */
import { type GraphIndex, indexGraph } from '../fused-regions/matching.js';
import type { Graph, Node } from '../graph.js';
import { operatorOf } from '../operator-of.js';
import { numberOf } from '../ops/operands.js';
import { AttentionWriter } from './attention-writer.js';
import { ForwardWriter, readIn } from './forward-writer.js';
import { isWrittenGrouped, writeGrouped } from './grouped-attention-form.js';

/** How an operator is written, and whether this node of it is. */
interface Form {
  readonly isWritten: (graph: Graph, node: Node) => boolean;
  readonly write: (write: AttentionWriter, index: GraphIndex, node: Node) => void;
}

const FORMS: Readonly<Record<string, Form>> = {
  Attention: { isWritten: isWrittenPlain, write: writePlain },
  'com.microsoft GroupQueryAttention': { isWritten: isWrittenGrouped, write: writeGrouped },
};

/** The graph with every attention written out that has no cache and only one result that is read. */
export function attentionInPlainOperators(graph: Graph): Graph {
  const read = readIn(graph, graph.nodes);
  const formOf = (node: Node) => {
    const form = FORMS[node.domain === '' ? node.op : `${node.domain} ${node.op}`];
    const isAlone = node.outputs.slice(1).every((name) => !read.has(name));
    return form && isAlone && form.isWritten(graph, node) ? form : null;
  };
  if (!graph.nodes.some(formOf)) return graph;
  const writer = new ForwardWriter(graph);
  const masks = new Map<string, string>();
  const index = indexGraph(graph);
  const nodes = graph.nodes.flatMap((node) => {
    const form = formOf(node);
    if (!form) return [node];
    const write = new AttentionWriter(writer, node, masks);
    form.write(write, index, node);
    for (const name of node.outputs.slice(1)) if (name !== null) writer.tensors.delete(name);
    return write.into(node.outputs[0] as string);
  });
  return writer.graph(nodes);
}

/** Whether it has no further operands or attributes: an attention with more of them stays one operator. */
function isWrittenPlain(_: Graph, { inputs, attributes }: Node): boolean {
  return inputs.slice(4).every((name) => name === null) && attributes['softmax_precision'] === undefined;
}

function writePlain(write: AttentionWriter, { graph }: GraphIndex, node: Node): void {
  const operator = operatorOf(graph, node);
  const [query = '', key = '', value = '', mask = null] = node.inputs as readonly string[];
  const isFlat = operator.inputs[0]?.shape.length === 3;
  const [heads, keyHeads] = [numberOf(operator, 'q_num_heads', 1), numberOf(operator, 'kv_num_heads', 1)];
  const perHead = (name: string, count: number) => (isFlat ? write.perHead(name, count) : name);
  const queries = perHead(query, heads);
  const result = write.attended({
    query: queries,
    key: perHead(key, keyHeads),
    value: perHead(value, keyHeads),
    scale: numberOf(operator, 'scale', 0) || 1 / Math.sqrt(write.shapeOf(queries)[3] ?? 1),
    softcap: numberOf(operator, 'softcap', 0),
    masks: mask === null ? [] : [mask],
    isCausal: numberOf(operator, 'is_causal', 0) !== 0,
    window: null,
    sink: null,
  });
  if (isFlat) write.joined(result);
}
