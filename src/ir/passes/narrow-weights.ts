/**
 * @file Weights of an inference in 16 bit. A float32 weight that every reader casts to the 16-bit type, as it is or moved, has
 * that type itself, and is rounded once, when it is read from its file: casts in the graph would read 4 bytes an element and
 * write 2 at every step, and devices would hold both. Tables that are looked up are rounded too, and the rows found are widened,
 * as software does that stores a model in 16 bit: a table that a head shares would be held in both types.
 */
import { isMove } from '../autodiff/mixed-precision.js';
import { isFloating, onnxOfDtype } from '../dtype.js';
import { type Graph, type Node, typeOf, type Weight } from '../graph.js';
import type { HalfType } from '../half.js';
import { readersOf } from '../makers-and-readers.js';
import { convertedSource } from '../onnx/converted-source.js';
import { entryOf, operatorRole } from '../ops/index.js';
import { plainNode } from '../plain-node.js';
import { unusedName } from '../unused-name.js';
import { withOperands } from '../with-operands.js';

/** The graph with its weights in `low` where no reader needs float32: without the casts of these weights. */
export function withNarrowWeights(graph: Graph, low: HalfType): Graph {
  const narrow = new NarrowTensors(graph, low);
  const weights = new Map(graph.weights);
  for (const [name, weight] of graph.weights) {
    if (weight.dtype !== 'float32' || !narrow.add(name, weight.role)) continue;
    weights.set(name, { ...weight, dtype: low, source: convertedSource(weight.source, 'float32', low) });
  }
  const tensors = new Map(graph.tensors);
  for (const name of narrow.tensors) tensors.set(name, { ...typeOf(graph, name), dtype: low });
  for (const name of narrow.casts.keys()) tensors.delete(name);
  const operand = (name: string | null) => narrow.casts.get(name ?? '') ?? name;
  const nodes = graph.nodes.flatMap((node): readonly Node[] => {
    const [made = null] = node.outputs;
    if (made !== null && narrow.casts.has(made)) return [];
    const read = node.inputs.some((name) => name !== operand(name))
      ? withOperands(node, node.inputs.map(operand))
      : node;
    if (made === null || !narrow.rows.has(made)) return [read];
    const rows = unusedName(tensors, `${made}/rows`);
    tensors.set(rows, { ...typeOf(graph, made), dtype: low });
    return [{ ...read, outputs: [rows] }, widening(node, rows, made)];
  });
  return { ...graph, nodes, weights, tensors };
}

/** Tensors of a graph that can be in `low`. */
class NarrowTensors {
  /** Weights, and what operators make that only move their elements. */
  readonly tensors = new Set<string>();
  /** By result of a cast that is not needed, its operand. */
  readonly casts = new Map<string, string>();
  /** Rows of tables that are read in float32. */
  readonly rows = new Set<string>();
  private readonly readers: ReturnType<typeof readersOf<Node>>;
  private readonly outputs: ReadonlySet<string>;

  constructor(
    private readonly graph: Graph,
    private readonly low: HalfType,
  ) {
    this.readers = readersOf(graph.nodes);
    this.outputs = new Set(graph.outputs);
  }

  /** Adds a weight, or a tensor that is moved from one, with everything behind it; false where a reader needs float32. */
  add(name: string, role: Weight['role']): boolean {
    if (!this.isNarrow(name, role)) return false;
    this.tensors.add(name);
    for (const reader of this.readers.get(name) ?? []) {
      const [made = null] = reader.outputs;
      if (this.isCast(reader) && made !== null) this.casts.set(made, name);
      else for (const moved of reader.outputs) if (moved !== null && !this.add(moved, role)) this.rows.add(moved);
    }
    return true;
  }

  private isNarrow(name: string, role: Weight['role']): boolean {
    const readers = this.readers.get(name) ?? [];
    const isMoved = (reader: Node) =>
      this.isMoveOf(name, reader) &&
      (reader.outputs.every((made) => made === null || this.isNarrow(made, role)) ||
        (role === 'parameter' && isLookup(reader)));
    return (
      !this.outputs.has(name) && readers.length > 0 && readers.every((reader) => this.isCast(reader) || isMoved(reader))
    );
  }

  private isCast(node: Node): boolean {
    const [made = null] = node.outputs;
    return (
      operatorRole(node) === 'cast' &&
      made !== null &&
      typeOf(this.graph, made).dtype === this.low &&
      !this.outputs.has(made)
    );
  }

  /** Whether an operator moves elements of this tensor and of no other. A scale of quantised rows is not moved. */
  private isMoveOf(name: string, node: Node): boolean {
    const [data, ...others] = node.inputs;
    const isInteger = (input: string | null) => input === null || !isFloating(typeOf(this.graph, input).dtype);
    return !node.body && isMove(node) && data === name && others.every(isInteger);
  }
}

function isLookup(node: Node): boolean {
  return entryOf(node.op, node.domain)?.indexInput !== undefined;
}

/** The cast of rows to float32, behind the lookup. */
function widening({ module, layer, phase, forward }: Node, from: string, to: string): Node {
  return plainNode({
    ...{ module, layer, phase, forward },
    ...{ name: `${to}/cast`, op: 'Cast', attributes: { to: onnxOfDtype('float32') }, inputs: [from], outputs: [to] },
  });
}
