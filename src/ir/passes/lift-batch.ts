/**
 * @file From a graph that an exporter wrote for one sample to the graph for a batch.
 *
 * A batch of one is followed forward from the inputs as a place in the order of the elements (batch-digit.ts). Where a
 * Reshape leaves the place open, the walk tries the likeliest one and backtracks where that leads nowhere:
 *
 *     [12, 1, 64] → [12, 4, 16]    (12 b) | 4 | 16   or   12 | (b 4) | 16
 *
 * The first, in an attention layer, would soon pair each sample with all others. That is the guide: as long as no operator
 * joins samples, each sample of the batch meets exactly the operators that the single one met, so every choice that gets
 * through is right. Only where none does (losses, contrastive scores) operators may join samples, as few as possible.
 */
import { AutoparError } from '../error.js';
import {
  type Attributes,
  type BatchDimension,
  type ConstantTensor,
  type Graph,
  type Node,
  type TensorType,
  typeOf,
  type Weight,
} from '../graph.js';
import { constant, constantWeight } from '../ops/constants.js';
import { plainNode } from '../plain-node.js';
import { madeOnce } from '../remembered.js';
import { unusedName } from '../unused-name.js';
import type { Choose } from './batch-digit.js';
import { type BatchPlace, batchPlaces, type Digits, withBatch } from './batch-digit.js';
import type { MovedIndex } from './lift-lookup.js';
import { type LiftedNode, liftNode } from './lift-node.js';

/** How many operators may join samples at most, and how many times the walk may begin anew for each number. */
const MOST_JOINS = 24;
const MOST_ATTEMPTS = 96;

/**
 * The graph for `batch` samples, from the one for a single sample. Inputs whose first dimension is the batch in the file
 * hold it there; only if that leads nowhere, another dimension of size 1 does, or none.
 * Throws `batch-ambiguous`, naming where the batch is lost.
 */
export function liftBatch(graph: Graph, batch: number): Graph {
  let furthest: LiftFailure | null = null;
  for (const inputs of ['stated', 'open'] as const) {
    for (let joins = 0; joins <= MOST_JOINS; joins++) {
      const found = attempts(graph, { batch, inputs, joins });
      if (!('node' in found)) return new Lifted(graph, batch, found).graph();
      if (!furthest || (inputs === 'stated' && found.position > furthest.position)) furthest = found;
      if (!found.joined) break;
    }
  }
  throw ambiguous(furthest, batch);
}

/** The limits of all attempts of one kind. */
interface Terms {
  readonly batch: number;
  /** Whether inputs may hold the batch elsewhere than the file's first dimension. */
  readonly inputs: 'stated' | 'open';
  /** How many operators may join samples. */
  readonly joins: number;
}

interface LiftFailure {
  readonly node: Node;
  readonly position: number;
  readonly reason: string;
  /** Whether one of the attempts ended at an operator that joins samples. */
  readonly joined: boolean;
}

interface Solution {
  readonly nodes: readonly LiftedNode[];
  readonly digits: ReadonlyMap<string, Digits>;
  readonly batch: readonly BatchDimension[];
}

/** A choice that was made: which of how many. */
interface LiftDecision {
  readonly key: string;
  readonly index: number;
  readonly count: number;
}

/** Walks with one set of choices after the other; the latest choice with an alternative is changed first. */
function attempts(graph: Graph, terms: Terms): Solution | LiftFailure {
  let decisions: readonly LiftDecision[] = [];
  let furthest: LiftFailure | null = null;
  let joined = false;
  for (let attempt = 0; attempt < MOST_ATTEMPTS; attempt++) {
    const walk = new Attempt(graph, terms, decisions);
    const found = walk.run();
    if (!('node' in found)) return found;
    joined ||= found.joined;
    if (!furthest || found.position > furthest.position) furthest = found;
    const last = walk.decisions.findLastIndex(({ index, count }) => index + 1 < count);
    const changed = walk.decisions[last];
    if (!changed) break;
    decisions = [...walk.decisions.slice(0, last), { ...changed, index: changed.index + 1 }];
  }
  if (!furthest) throw new Error('no attempt was made');
  return { ...furthest, joined };
}

/** One walk through the graph with given choices; new ones are made in order of likelihood. */
class Attempt {
  readonly decisions: LiftDecision[];
  private readonly digits = new Map<string, Digits>();
  private readonly byKey: Map<string, number>;
  private joins: number;

  constructor(
    private readonly graph: Graph,
    private readonly terms: Terms,
    given: readonly LiftDecision[],
  ) {
    this.joins = terms.joins;
    this.decisions = [...given];
    this.byKey = new Map(given.map(({ key, index }) => [key, index]));
  }

  run(): Solution | LiftFailure {
    const batch = this.startInputs();
    const nodes: LiftedNode[] = [];
    const choose: Choose = (key, places) => places[this.decide(key, places.length)];
    for (const [position, node] of this.graph.nodes.entries()) {
      const lifted = liftNode(this.graph, node, (tensor) => this.digits.get(tensor) ?? null, this.terms.batch, choose);
      if ('lost' in lifted) return { node, position, reason: lifted.lost, joined: false };
      if (lifted.joins && this.joins-- <= 0) return { node, position, reason: 'it joins samples', joined: true };
      nodes.push(lifted);
      node.outputs.forEach((output, index) => {
        const digits = lifted.results[index];
        if (output !== null && digits) this.digits.set(output, digits);
      });
    }
    return this.hiddenInOutput() ?? { nodes, digits: this.digits, batch };
  }

  /** The failure where a batch is inside another dimension of an output that has one of size 1, which is meant for the sample. */
  private hiddenInOutput(): LiftFailure | null {
    for (const [position, node] of this.graph.nodes.entries()) {
      for (const output of node.outputs) {
        if (output === null || !this.graph.outputs.includes(output)) continue;
        const { shape } = typeOf(this.graph, output);
        const inside = batchPlaces(this.digits.get(output) ?? []).find(({ axis }) => shape[axis] !== 1);
        if (!inside || !shape.includes(1)) continue;
        const reason = `output '${output}' would hold the batch inside its dimension ${inside.axis}`;
        return { node, position, reason, joined: false };
      }
    }
    return null;
  }

  /** Marks the inputs' batch: where the file has it, else a dimension of size 1 or none, as decided. */
  private startInputs(): readonly BatchDimension[] {
    const { graph, terms } = this;
    return graph.inputs.flatMap((input): readonly BatchDimension[] => {
      const { shape } = typeOf(graph, input);
      const stated = graph.batch.find((item) => item.input === input);
      const ones = shape.flatMap((size, axis) => (size === 1 ? [axis] : []));
      const certain = stated !== undefined && (terms.inputs === 'stated' || stated === graph.batch[0]);
      const axis = certain ? stated.axis : ones[this.decide(`input ${input}`, ones.length + 1)];
      if (axis === undefined) return [];
      this.digits.set(
        input,
        shape.map((_, index) => (index === axis ? 1 : null)),
      );
      return [{ input, axis }];
    });
  }

  private decide(key: string, count: number): number {
    if (count < 2) return 0;
    return madeOnce(this.byKey, key, () => {
      this.decisions.push({ key, index: 0, count });
      return 0;
    });
  }
}

/** The graph of a solution. */
class Lifted {
  private readonly tensors: Map<string, TensorType>;
  private readonly nodes: Node[] = [];
  private readonly weights: Map<string, Weight>;
  private readonly repeated = new Map<string, string>();

  constructor(
    private readonly original: Graph,
    private readonly batch: number,
    private readonly solution: Solution,
  ) {
    this.tensors = new Map(original.tensors);
    this.weights = new Map(original.weights);
    for (const [name, digits] of solution.digits) {
      const { dtype, shape } = typeOf(original, name);
      this.tensors.set(name, { dtype, shape: withBatch(shape, digits, batch) });
    }
  }

  graph(): Graph {
    this.original.nodes.forEach((node, index) => {
      const lifted = this.solution.nodes[index];
      if (!lifted) throw new Error(`node ${node.name} was not lifted`);
      const inputs = node.inputs.map((input, operand) => {
        const missing = lifted.missing.find((item) => item.operand === operand);
        const given = input === null || !missing ? input : this.repeat(input, missing.digits, node);
        return given !== null && operand === 1 && lifted.index ? this.moveIndex(given, lifted.index, node) : given;
      });
      this.nodes.push({ ...node, attributes: lifted.attributes, inputs });
    });
    const { nodes, tensors, weights } = this;
    return { ...this.original, nodes, tensors, weights, batch: this.solution.batch };
  }

  /** The name of `tensor` repeated for all samples at `digits`, where it is not yet. */
  private repeat(tensor: string, digits: Digits, reader: Node): string {
    const has = this.solution.digits.get(tensor) ?? null;
    const places = batchPlaces(digits).filter(({ axis }) => (has?.[axis] ?? null) === null);
    return places.reduce((name, place) => this.repeatAt(name, place, reader), tensor);
  }

  private moveIndex(index: string, { size, times, plus }: MovedIndex, reader: Node): string {
    const { dtype, shape } = this.type(index);
    const literal = (value: ConstantTensor) => this.constant(`${index}/batch`, value);
    let name = index;
    if (size !== null) {
      const number = (value: number) => literal(constant(dtype, [value]));
      const negative = this.add('Less', [name, number(0)], { dtype: 'bool', shape }, reader);
      const counted = this.add('Add', [name, number(size)], { dtype, shape }, reader);
      name = this.add('Where', [negative, counted, name], { dtype, shape }, reader);
    }
    if (times) name = this.add('Mul', [name, literal(times)], { dtype, shape }, reader);
    return this.add('Add', [name, literal(plus)], { dtype, shape }, reader);
  }

  private constant(base: string, value: ConstantTensor): string {
    const name = unusedName(this.tensors, base);
    this.tensors.set(name, { dtype: value.dtype, shape: value.shape });
    this.weights.set(name, constantWeight(value));
    return name;
  }

  /** [major · minor] → [major, 1, minor] → [major, b, minor] → [major · b · minor]; just an Expand of a dimension of 1. */
  private repeatAt(tensor: string, { axis, minor }: BatchPlace, reader: Node): string {
    const key = `${tensor} ${axis} ${minor}`;
    const known = this.repeated.get(key);
    if (known !== undefined) return known;
    const { shape } = this.type(tensor);
    const [before, size, after] = [shape.slice(0, axis), shape[axis] ?? 1, shape.slice(axis + 1)];
    const major = size / minor;
    const end = [...before, size * this.batch, ...after];
    let name = tensor;
    if (size === 1) name = this.shaped('Expand', name, end, reader);
    else {
      name = this.shaped('Reshape', name, [...before, major, 1, minor, ...after], reader);
      name = this.shaped('Expand', name, [...before, major, this.batch, minor, ...after], reader);
      name = this.shaped('Reshape', name, end, reader);
    }
    this.repeated.set(key, name);
    return name;
  }

  private shaped(op: string, input: string, shape: readonly number[], reader: Node): string {
    return this.add(op, [input], { dtype: this.type(input).dtype, shape }, reader, { shape });
  }

  /** Adds an operator before `reader`; returns the name of its result. */
  private add(
    op: string,
    inputs: readonly string[],
    type: TensorType,
    reader: Node,
    attributes: Attributes = {},
  ): string {
    const name = unusedName(this.tensors, `${inputs[0]}/batch`);
    const { module, phase, forward } = reader;
    this.nodes.push(plainNode({ name, op, attributes, inputs, outputs: [name], module, phase, forward }));
    this.tensors.set(name, type);
    return name;
  }

  private type(tensor: string): TensorType {
    const type = this.tensors.get(tensor);
    if (!type) throw new Error(`tensor ${tensor} has no type`);
    return type;
  }
}

function ambiguous(failure: LiftFailure | null, batch: number): AutoparError {
  const { node, reason } = failure ?? {};
  return new AutoparError(
    'batch-ambiguous',
    'input',
    `the batch cannot be changed from 1 to ${batch}: it is lost at node '${node?.name}' (${node?.op}): ${reason}`,
    { node: node?.name ?? '' },
    'export the model with a dynamic batch dimension and bind it with --dim, or export it at a batch of 2 or more',
  );
}
