/**
 * @file Normalisation by statistics of the batch: what a file has in evaluation form, with running statistics as weights, takes
 * the mean and variance of the whole (global) batch, and its running statistics are state that moves towards them.
 *
 *     running' = momentum · running + (1 − momentum) · batch
 *
 * as ONNX defines it: momentum is the share that stays (PyTorch's module calls 1 − momentum so), and the variance is that of the
 * batch itself, divided by its size n (PyTorch's module keeps the unbiased one, n / (n − 1) times as large).
 */
import type { Graph, Node } from '../graph.js';
import { moduleText } from '../onnx/module-path.js';
import type { TrainingForm } from '../operator.js';
import { entryOf } from '../ops/index.js';
import type { IdentityUse } from '../parameters/identities.js';
import { unitsOf } from '../parameters/units.js';
import { ForwardWriter, readIn } from '../passes/forward-writer.js';

type Form = Extract<TrainingForm, { kind: 'batch-statistics' }>;

/**
 * The graph with batch statistics, and how many operators take them. A weight that serves the running statistics of several
 * modules (exporters merge equal values) becomes one for each; a module that is called twice moves its own twice in a step.
 */
export function takeBatchStatistics(
  graph: Graph,
  identities: readonly IdentityUse[],
): { readonly graph: Graph; readonly taken: number } {
  const found = new Set(graph.nodes.filter((node) => movable(graph, node)));
  if (found.size === 0) return { graph, taken: 0 };
  const write = new ForwardWriter(graph);
  const owners = ownersOf(graph, [...found], identities);
  /** What the running statistics are by now: the weight, or what an earlier call of the module made of them. */
  const current = new Map<string, string>();
  const nodes = graph.nodes.map((node) => {
    const form = formOf(node);
    if (!form || !found.has(node)) return node;
    const inputs = [...node.inputs];
    const outputs = [...node.outputs];
    for (const { operand, result } of form.running) {
      const weight = graph.weights.get(inputs[operand] ?? '');
      const wanted = owners.get(placeKey(node, operand)) ?? inputs[operand] ?? '';
      if (!weight) continue;
      const owner = write.weights.has(wanted) ? wanted : write.weight(wanted, weight);
      inputs[operand] = current.get(owner) ?? owner;
      outputs[result] ??= write.tensor(`${owner}/next`, weight);
      current.set(owner, outputs[result] ?? owner);
    }
    return { ...node, attributes: { ...node.attributes, [form.mode]: 1 }, inputs, outputs };
  });
  for (const [input, output] of current) write.state.push({ input, output });
  return { graph: write.graph(nodes), taken: found.size };
}

/** The graph with running statistics as they are: fine-tuning with few samples per step keeps them. */
export function keepRunningStatistics(graph: Graph): Graph {
  const read = readIn(graph, graph.nodes);
  const nodes = graph.nodes.map((node) => {
    const form = formOf(node);
    const moved = form?.running.some(({ result }) => read.has(node.outputs[result] ?? ''));
    if (!form || moved) return node;
    return { ...node, attributes: { ...node.attributes, [form.mode]: 0 }, outputs: node.outputs.slice(0, 1) };
  });
  return { ...graph, nodes };
}

function formOf({ op, domain }: Node): Form | null {
  const form = entryOf(op, domain)?.training;
  return form?.kind === 'batch-statistics' ? form : null;
}

/** Its running statistics are weights: what is computed or fed cannot be state. */
function movable(graph: Graph, node: Node): boolean {
  return formOf(node)?.running.every(({ operand }) => graph.weights.has(node.inputs[operand] ?? '')) ?? false;
}

/** The name of the statistics that each place has: one per module that is called, however often. */
function ownersOf(
  graph: Graph,
  found: readonly Node[],
  identities: readonly IdentityUse[],
): ReadonlyMap<string, string> {
  const weights = [
    ...new Set(found.flatMap((node) => formOf(node)?.running.map(({ operand }) => node.inputs[operand] ?? '') ?? [])),
  ];
  const owners = new Map<string, string>();
  const nodeOf = new Map(found.map((node) => [node.name, node]));
  for (const units of unitsOf(graph, weights, identities).values()) {
    for (const unit of units) {
      // Calls of one module agree in all their weights; operators without a module are told apart by them.
      const calls = new Map<string, string>();
      for (const { node, operand } of unit.places) {
        const reader = nodeOf.get(node);
        if (!reader) continue;
        const key = JSON.stringify([moduleText(reader.module), reader.inputs.slice(1)]);
        const name = calls.get(key) ?? (calls.size === 0 ? unit.name : `${unit.name}.${calls.size + 1}`);
        calls.set(key, name);
        owners.set(placeKey(reader, operand), name);
      }
    }
  }
  return owners;
}

function placeKey({ name }: Node, operand: number): string {
  return JSON.stringify([name, operand]);
}
