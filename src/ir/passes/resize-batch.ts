/**
 * @file Pass `resize-batch` (`--global-batch`): the graph at another batch. Sizes that the exporter baked into attributes
 * and constants follow the batch marks; where the batch cannot be followed, the error names the node.
 */

import { followBatch } from '../batch.js';
import { byteLength, type DType } from '../dtype.js';
import { AutoparError } from '../error.js';
import type { FactorRule } from '../factor-rule.js';
import type { DimensionMark, DimensionMarks } from '../follow-dimensions.js';
import { type ConstantTensor, elementCount, type Graph, type Node, type TensorType, type Weight } from '../graph.js';
import { readWeight } from '../onnx/tensors.js';
import { operatorOf } from '../operator-of.js';
import { constant, numbersOf } from '../ops/constants.js';
import { entryOf, operatorFamily, ruleOf } from '../ops/index.js';
import { liftBatch } from './lift-batch.js';

/** Types in which exporters number samples. */
const NUMBERING: ReadonlySet<DType> = new Set(['int32', 'int64']);

/**
 * The graph with `batch` samples per step. Constants that hold the batch must be equal for all samples, or number them.
 * Throws `no-batch`, `batch-ambiguous`, `batch-constant`.
 */
export function resizeBatch(graph: Graph, batch: number): Graph {
  if (!Number.isSafeInteger(batch) || batch < 1) {
    throw new AutoparError('bad-batch', 'usage', `--global-batch ${batch}: the batch must be a positive integer`);
  }
  const marks = followBatch(graph);
  if (marks.size === null)
    throw new AutoparError(
      'no-batch',
      'input',
      'the model has no input with a batch dimension, so its batch cannot be changed',
    );
  if (marks.size === batch) return graph;
  if (marks.size === 1) return liftBatch(graph, batch);
  return new Resizing(graph, marks, marks.size, batch).graph();
}

/**
 * Notes on a case that resizing cannot see: a graph that sums over samples in a contraction (a weight's gradient) may divide
 * by the old batch in a constant. A line per graph; [] where it does not happen.
 */
export function resizeNotes(graph: Graph): readonly string[] {
  const marks = followBatch(graph);
  const summing = graph.nodes.find((node) => {
    if (operatorFamily(node) !== 'contraction') return false;
    const { factors } = ruleOf(operatorOf(graph, node));
    return [...marks.factorMarks(node).keys()].some((factor) => factors.get(factor)?.kind === 'contracting');
  });
  if (!summing) return [];
  return [
    `node '${summing.name}' sums over the samples: a constant by which the exporter divides such sums (1 / batch) ` +
      'is not changed',
  ];
}

class Resizing {
  private readonly tensors = new Map<string, TensorType>();
  private readonly weights = new Map<string, Weight>();

  constructor(
    private readonly original: Graph,
    private readonly marks: DimensionMarks,
    private readonly before: number,
    private readonly after: number,
  ) {}

  graph(): Graph {
    const { original } = this;
    const reader = new Map(original.nodes.flatMap((node) => node.inputs.map((input) => [input, node] as const)));
    for (const [name, weight] of original.weights) {
      const resized = this.weight(name, weight, reader.get(name)?.name ?? name);
      this.weights.set(name, resized);
      this.tensors.set(name, { dtype: resized.dtype, shape: resized.shape });
    }
    for (const name of original.inputs) this.tensors.set(name, this.typeOf(name));
    const nodes = original.nodes.map((node) => this.node(node));
    return { ...original, nodes, tensors: this.tensors, weights: this.weights };
  }

  private node(node: Node): Node {
    const operator = operatorOf(this.original, node);
    const rule = ruleOf(operator);
    const factors = this.marks.factorMarks(node);
    const entry = entryOf(node.op, node.domain);
    if (factors.size > 0 && this.marks.conflicts.includes(node.name))
      throw this.ambiguous(node, 'two parts of its shapes follow the batch in different ways');
    const along = factors.size > 0 ? this.pickedAlong(node, rule, factors) : null;
    if (along !== null)
      throw this.ambiguous(
        node,
        `it picks or writes fixed positions along dimension ${along} of its operand, which holds the batch`,
      );
    const ranked = [...factors.keys()].some((name) => rule.factors.get(name)?.kind === 'whole');
    if (ranked && entry?.family === 'sort')
      throw this.ambiguous(
        node,
        'it ranks or counts over all samples, and sizes of the file (a capacity) may depend on them',
      );
    const attributes =
      factors.size > 0 && entry?.resize
        ? entry.resize(operator, rule, (factor) => this.factorSize(rule, factor, factors))
        : node.attributes;
    const expected = node.outputs.map((output) => (output === null ? null : this.typeOf(output)));
    if (entry) this.check(node, attributes, expected);
    else if (factors.size > 0) throw this.ambiguous(node, `${node.op} is unknown to autopar`);
    node.outputs.forEach((output, index) => {
      const type = expected[index];
      if (output !== null && type) this.tensors.set(output, type);
    });
    return { ...node, attributes };
  }

  /**
   * The dimension with the batch in it that the node takes fixed positions of, so that none of its results has it, or that a
   * scatter writes fixed positions of.
   */
  private pickedAlong(node: Node, rule: FactorRule, factors: ReadonlyMap<string, DimensionMark>): number | null {
    const family = operatorFamily(node);
    const held = (tensor: string | null) =>
      tensor !== null && this.marks.dimensionMarks(tensor).some((mark) => mark !== null);
    const picks = family === 'indexing' || (family === 'view' && !node.outputs.some(held));
    if (!picks || node.inputs.slice(1).some(held)) return null;
    const fixed = (name: string) =>
      factors.has(name) && ['whole', 'mask', 'indexed'].includes(rule.factors.get(name)?.kind ?? 'pass');
    const axis = rule.inputs[0]?.findIndex((names) => names.some(fixed)) ?? -1;
    return axis < 0 ? null : axis;
  }

  /** Checks that the registry infers the shapes that the marks imply. */
  private check(node: Node, attributes: Node['attributes'], expected: readonly (TensorType | null)[]): void {
    const operator = operatorOf({ tensors: this.tensors }, { ...node, attributes });
    let found: readonly TensorType[];
    try {
      found = entryOf(node.op, node.domain)?.infer({ ...operator, outputs: [] }) ?? [];
    } catch (error) {
      throw this.ambiguous(node, error instanceof Error ? error.message : String(error));
    }
    expected.forEach((type, index) => {
      const shape = found[index]?.shape ?? [];
      if (type && shape.join() !== type.shape.join()) {
        throw this.ambiguous(
          node,
          `its result would be [${shape.join(', ')}] where [${type.shape.join(', ')}] is needed`,
        );
      }
    });
  }

  private weight(name: string, weight: Weight, reader: string): Weight {
    const dims = this.marks.dimensionMarks(name);
    if (dims.every((mark) => mark === null)) return weight;
    const value = readWeight(weight.source);
    if (!value)
      throw new AutoparError(
        'batch-constant',
        'input',
        `constant '${name}' holds the batch, but its value is not in the file`,
        { node: reader, tensor: name },
      );
    let data = value;
    let shape = [...weight.shape];
    dims.forEach((mark, axis) => {
      if (!mark) return;
      const tiled =
        this.retile(data, shape, axis, mark, byteLength(weight.dtype, 1)) ??
        this.renumber({ dtype: weight.dtype, shape, data }, axis, mark);
      if (!tiled) {
        throw new AutoparError(
          'batch-constant',
          'input',
          `constant '${name}', which node '${reader}' reads, differs from sample to sample, and cannot be made ` +
            `for a batch of ${this.after}`,
          { node: reader, tensor: name },
          'export the model with a dynamic batch dimension and bind it with --dim',
        );
      }
      data = tiled;
      shape = shape.with(axis, this.resized(shape[axis] ?? 1, mark));
    });
    return { ...weight, shape, source: { kind: 'inline', data } };
  }

  /** Repeats the first sample's part; null where the samples' parts differ. */
  private retile(
    data: Uint8Array,
    shape: readonly number[],
    axis: number,
    mark: DimensionMark,
    width: number,
  ): Uint8Array | null {
    const part = mark.minor * elementCount(shape.slice(axis + 1)) * width;
    const outer = data.length / (part * mark.size);
    const tiled = new Uint8Array(outer * this.after * part);
    for (let row = 0; row < outer; row++) {
      const start = row * mark.size * part;
      const first = data.subarray(start, start + part);
      for (let sample = 1; sample < mark.size; sample++) {
        if (Buffer.compare(first, data.subarray(start + sample * part, start + (sample + 1) * part)) !== 0) return null;
      }
      for (let sample = 0; sample < this.after; sample++) tiled.set(first, (row * this.after + sample) * part);
    }
    return tiled;
  }

  /**
   * Continues a constant that numbers the samples, as exporters write to look something up in each: sample i holds
   * i · δ + r, with one δ for all and 0 ≤ r < δ. Null for any other constant.
   */
  private renumber(value: ConstantTensor, axis: number, mark: DimensionMark): Uint8Array | null {
    if (!NUMBERING.has(value.dtype)) return null;
    const numbers = numbersOf(value);
    const part = mark.minor * elementCount(value.shape.slice(axis + 1));
    const step = (numbers[part] ?? 0) - (numbers[0] ?? 0);
    // Sample and remainder of an element, and the value that both make of it.
    const sampleOf = (index: number, samples: number) => Math.floor(index / part) % samples;
    const rest = (index: number, samples: number) => {
      const row = Math.floor(index / (part * samples));
      return numbers[row * part * mark.size + (index % part)] ?? 0;
    };
    const valueAt = (index: number, samples: number) => sampleOf(index, samples) * step + rest(index, samples);
    const numbering = numbers.every(
      (number, index) =>
        number === valueAt(index, mark.size) && rest(index, mark.size) >= 0 && rest(index, mark.size) < step,
    );
    if (mark.size < 2 || !numbering) return null;
    const count = (numbers.length / mark.size) * this.after;
    const continued = Array.from({ length: count }, (_, index) => valueAt(index, this.after));
    return constant(value.dtype, continued, [count]).data;
  }

  private typeOf(name: string): TensorType {
    const type = this.original.tensors.get(name);
    if (!type) throw new Error(`tensor ${name} has no type`);
    const marks = this.marks.dimensionMarks(name);
    return {
      dtype: type.dtype,
      shape: type.shape.map((size, axis) => {
        const mark = marks[axis];
        return mark ? this.resized(size, mark) : size;
      }),
    };
  }

  private factorSize(rule: FactorRule, factor: string, factors: ReadonlyMap<string, DimensionMark>): number {
    const size = rule.factors.get(factor)?.size ?? 1;
    const mark = factors.get(factor);
    return mark ? this.resized(size, mark) : size;
  }

  private resized(size: number, mark: DimensionMark): number {
    return (size / mark.size) * this.after;
  }

  private ambiguous(node: Node, reason: string): AutoparError {
    return new AutoparError(
      'batch-ambiguous',
      'input',
      `the batch cannot be changed from ${this.before} to ${this.after}: it is lost at node '${node.name}' ` +
        `(${node.op}): ${reason}`,
      { node: node.name },
      'export the model with a dynamic batch dimension and bind it with --dim, or export it at the wanted batch',
    );
  }
}
