/**
 * @file Keys of operators in a strategy checkpoint: `<Primitive>_<first parameter>`, as MindSpore makes them.
 *
 *     BatchMatMul_h.0.attn.c_attn.weight      Add_h.0.attn.c_attn.bias      Softmax_0   Softmax_1
 *
 * MindSpore omits operators without a parameter, and lets a second operator on one parameter overwrite the first. Here
 * the former are counted, per primitive in graph order, and a key that is taken gets an ordinal: `…weight.2`. Casts that a
 * recipe of 16 bits adds have no key, and a parameter is found behind them: keys are those of the model's file.
 */
import { isOfRecipe } from '../../ir/autodiff/held-in-float32.js';
import { type Graph, type Node, storedIn } from '../../ir/graph.js';
import { operatorOf } from '../../ir/operator-of.js';
import { primitiveOf } from './primitives.js';

/** A key per operator of the file, in graph order; no two are equal. */
export function strategyKeys(graph: Graph): ReadonlyMap<Node, string> {
  const keys = new Map<Node, string>();
  const taken = new Set<string>();
  const counts = new Map<string, number>();
  const added = new Map<string, Node>();
  for (const node of graph.nodes) {
    if (isOfRecipe(node)) {
      for (const result of node.outputs) if (result !== null) added.set(result, node);
      continue;
    }
    const primitive = primitiveOf(operatorOf(graph, node));
    const parameter = firstParameter(graph, node, added);
    const base = parameter === null ? `${primitive}_${counted(counts, primitive)}` : `${primitive}_${parameter}`;
    let key = base;
    for (let ordinal = 2; taken.has(key); ordinal++) key = `${base}.${ordinal}`;
    taken.add(key);
    keys.set(node, key);
  }
  return keys;
}

/** Whether a tensor is a parameter as MindSpore counts them: trained or stored, not a constant that was folded. */
export function isParameter(graph: Graph, tensor: string | null): tensor is string {
  const weight = tensor === null ? undefined : storedIn(graph, tensor);
  return weight !== undefined && weight.role !== 'constant';
}

function firstParameter(graph: Graph, node: Node, added: ReadonlyMap<string, Node>): string | null {
  const inFile = (tensor: string | null): string | null => {
    const cast = tensor === null ? undefined : added.get(tensor);
    return cast ? inFile(cast.inputs[0] ?? null) : tensor;
  };
  return node.inputs.map(inFile).find((input) => isParameter(graph, input)) ?? null;
}

function counted(counts: Map<string, number>, primitive: string): number {
  const count = counts.get(primitive) ?? 0;
  counts.set(primitive, count + 1);
  return count;
}
