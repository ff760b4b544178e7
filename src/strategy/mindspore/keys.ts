/**
 * @file Keys of operators in a strategy checkpoint: `<Primitive>_<first parameter>`, as MindSpore makes them.
 *
 *     BatchMatMul_h.0.attn.c_attn.weight      Add_h.0.attn.c_attn.bias      Softmax_0   Softmax_1
 *
 * A parameter that is cast to 16 bits is that of the operator that reads the cast. MindSpore omits operators without a
 * parameter, and lets a second operator on one parameter overwrite the first. Here the former are counted, per primitive
 * in graph order, and a key that is taken gets an ordinal: `…weight.2`.
 */
import { type Graph, type Node, storedIn } from '../../ir/graph.js';
import { makersOf } from '../../ir/makers-and-readers.js';
import { operatorOf } from '../../ir/operator-of.js';
import { isConversion, operatorRole } from '../../ir/ops/index.js';
import { primitiveOf } from './primitives.js';

/** A key per operator, in graph order; no two are equal. */
export function strategyKeys(graph: Graph): ReadonlyMap<Node, string> {
  const keys = new Map<Node, string>();
  const taken = new Set<string>();
  const counts = new Map<string, number>();
  const firstParameter = firstParameters(graph);
  for (const node of graph.nodes) {
    const primitive = primitiveOf(operatorOf(graph, node));
    const parameter = firstParameter(node);
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

/** The first parameter of an operator: an operand, or the operand of one that is cast. */
export function firstParameters(graph: Graph): (node: Node) => string | null {
  const makers = makersOf(graph.nodes);
  const stored = (name: string | null): string | null => {
    if (isParameter(graph, name)) return name;
    const maker = name === null ? undefined : makers.get(name);
    return maker && isConversion(maker) ? stored(maker.inputs[0] ?? null) : null;
  };
  return ({ inputs }) => {
    for (const input of inputs) {
      const name = stored(input);
      if (name !== null) return name;
    }
    return null;
  };
}

/** Whether an operator is a rounding that a recipe of 16 bits adds: MindSpore's file has none. */
export function isRounding(node: Node): boolean {
  return operatorRole(node) === 'rounding';
}

function counted(counts: Map<string, number>, primitive: string): number {
  const count = counts.get(primitive) ?? 0;
  counts.set(primitive, count + 1);
  return count;
}
