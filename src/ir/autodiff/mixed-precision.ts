/**
 * @file Training in 16 bit with float32 weights (Micikevicius et al. 2018), as PyTorch's autocast does it: before differentiation
 * every operator of float32 operands is given the type that its registry entry's `precision` states, and casts are inserted.
 *
 * - Weights stay float32, and so does all state. Each operator that reads one in 16 bit has a cast of its own, so that gradients
 *   that arrive in 16 bit are added up in float32. These casts depend on no batch, but run per micro-batch: readers do.
 * - An activation is cast once for all its readers.
 * - A tensor that is moved (viewed, looked up) only to be cast to 16 bit is cast first, where that casts no more elements: tokens
 *   are dispatched to their experts in 16 bit, as in software that normalises in 16 bit.
 * - BatchNormalization has the type of its image; its scale, bias and statistics stay float32.
 * - Outputs of the model keep their type.
 * - A fused region stays one: its casts are in its body, so that it computes the same as without regions. But for operands of
 *   which it reads nothing but a cast, such as an attention's queries and keys: they are cast in front of it, so that they move
 *   between devices and wait for backward in 16 bit.
 * - Operators that the file has in another type than float32 stay as they are.
 */
import { type DType, isFloating, onnxOfDtype } from '../dtype.js';
import { elementCount, type Graph, type Node, type TensorType, typeOf } from '../graph.js';
import type { HalfType } from '../half.js';
import { readersOf } from '../makers-and-readers.js';
import { operatorOf } from '../operator-of.js';
import { constant, numbersOf } from '../ops/constants.js';
import { operatorEntry } from '../ops/index.js';
import { unusedName } from '../unused-name.js';

/** The types that 16-bit recipes compute in. */
export type LowType = HalfType;

/** The graph computed in `low` where that is enough. */
export function inMixedPrecision(graph: Graph, low: LowType): Graph {
  const inside = graph.nodes.flatMap(({ body }) => [...(body?.tensors.keys() ?? [])]);
  const taken = new Set([...graph.tensors.keys(), ...inside]);
  const around = { outputs: new Set(graph.outputs), settled: new Set<string>(), taken };
  return new Lowering(graph, low, new Map(graph.tensors), around).run();
}

/** State that a graph and the bodies of its regions share. */
interface PrecisionScope {
  /** The graph's outputs. */
  readonly outputs: ReadonlySet<string>;
  /** Tensors that depend on no input and survive a cast: they take the type of the tensors that they are combined with. */
  readonly settled: Set<string>;
  /** Names of tensors, inside of bodies too. */
  readonly taken: Set<string>;
}

class Lowering {
  private readonly nodes: Node[] = [];
  /** New names of 16-bit tensors whose own name belongs to an output of the graph. */
  private readonly renamed = new Map<string, string>();
  /** Casts of activations, by tensor and type. */
  private readonly casts = new Map<string, string>();
  private readonly movedLow: ReadonlySet<Node>;

  /** `graph`: as the file has it, a region's body too; `tensors`: the types now. */
  constructor(
    private readonly graph: Graph,
    private readonly low: LowType,
    private readonly tensors: Map<string, TensorType>,
    private readonly around: PrecisionScope,
  ) {
    for (const name of graph.weights.keys()) if (this.yields(name)) around.settled.add(name);
    this.movedLow = movedForLow(graph);
  }

  run(): Graph {
    for (const node of this.graph.nodes) {
      if (node.body) this.open(node, node.body);
      else this.lower(node);
    }
    return { ...this.graph, nodes: this.nodes, tensors: this.tensors };
  }

  private lower(node: Node): void {
    const { settled } = this.around;
    const operands = node.inputs.filter((name) => name !== null);
    const isSettled = operands.length > 0 && operands.every((name) => settled.has(name));
    const type = isSettled ? 'float32' : this.typeFor(node);
    const inputs = node.inputs.map((name, operand) => {
      if (name === null || !this.isOurs(name)) return name;
      return this.as(name, operand > 0 && operatorEntry(node).precision === 'data' ? 'float32' : type, node);
    });
    if (isSettled) for (const name of node.outputs) if (name !== null) settled.add(name);
    const types = this.inferred({ ...node, inputs });
    const outputs = node.outputs.map((name, index) => (name === null ? null : this.place(name, types[index])));
    this.nodes.push({ ...node, inputs, outputs });
    outputs.forEach((made, index) => {
      const name = node.outputs[index];
      if (made !== null && name && made !== name) this.cast(made, name, 'float32', node);
    });
  }

  /** Lowers the body of a region: it reads operands in their present types, and results have the types that the body makes. */
  private open(region: Node, body: Graph): void {
    const tensors = new Map(body.tensors);
    for (const name of body.inputs) tensors.set(name, this.tensors.get(name) ?? typeOf(body, name));
    const operands = new Map<string, string>();
    for (const name of body.inputs) {
      if (this.typeNow(name) !== 'float32' || !readsLow(region, name, body)) continue;
      operands.set(name, this.as(name, this.low, region));
      tensors.set(name, { ...typeOf(body, name), dtype: this.low });
    }
    const lowered = new Lowering(body, this.low, tensors, this.around).run();
    for (const name of region.outputs) if (name !== null) this.tensors.set(name, typeOf(lowered, name));
    const inputs = region.inputs.map((name) => (name === null ? null : (operands.get(name) ?? name)));
    this.nodes.push({ ...region, inputs, body: reading(lowered, operands) });
  }

  /** The type that an operator's float32 operands are cast to. */
  private typeFor(node: Node): DType {
    const { precision } = operatorEntry(node);
    const floating = node.inputs.filter((name) => name !== null && isFloating(typeOf(this.graph, name).dtype));
    if (floating.some((name) => name !== null && !this.isOurs(name))) return 'float32';
    if (precision === 'data') return this.typeNow(node.inputs[0] ?? '');
    if (precision !== 'follow') return precision === 'low' ? this.low : 'float32';
    if (this.movedLow.has(node)) return this.low;
    const deciding = floating.filter((name) => name !== null && !this.around.settled.has(name));
    const isWide = deciding.length === 0 || deciding.some((name) => this.typeNow(name ?? '') === 'float32');
    return isWide ? 'float32' : this.low;
  }

  /** A tensor that the file has in float32, and that may be cast. */
  private isOurs(name: string): boolean {
    return typeOf(this.graph, name).dtype === 'float32';
  }

  private typeNow(name: string): DType {
    return this.tensors.get(this.renamed.get(name) ?? name)?.dtype ?? 'float32';
  }

  /** The tensor in a type. */
  private as(name: string, type: DType, reader: Node): string {
    const from = this.renamed.get(name) ?? name;
    if (this.typeNow(name) === type) return from;
    // An output that was made in 16 bit has a float32 form already.
    if (from !== name && type === 'float32') return name;
    const key = `${name}:${type}${this.graph.weights.get(name)?.role === 'parameter' ? `:${reader.name}` : ''}`;
    const known = this.casts.get(key);
    if (known !== undefined) return known;
    const to = this.unused(`${name}/${type}`);
    this.casts.set(key, to);
    this.cast(from, to, type, reader);
    return to;
  }

  private cast(from: string, to: string, type: DType, near: Node): void {
    const { shape } = this.tensors.get(from) ?? { shape: [] };
    this.tensors.set(to, { dtype: type, shape });
    const attributes = { to: onnxOfDtype(type) };
    const name = `${to}/cast`;
    const operation = { op: 'Cast', domain: '', attributes, body: null };
    this.nodes.push({ ...near, ...operation, name, group: name, inputs: [from], outputs: [to] });
  }

  /** The name of a result of this type: another one where an output of the graph, in its own type, has it. */
  private place(name: string, type: TensorType | undefined): string {
    const isOutput = this.around.outputs.has(name) && this.isOurs(name) && type?.dtype !== 'float32';
    const own = isOutput ? this.unused(`${name}/${this.low}`) : name;
    if (isOutput) this.renamed.set(name, own);
    if (type) this.tensors.set(own, { dtype: type.dtype, shape: type.shape });
    return own;
  }

  private unused(wanted: string): string {
    const name = unusedName(this.around.taken, wanted);
    this.around.taken.add(name);
    return name;
  }

  private inferred(node: Node): readonly TensorType[] {
    const operator = { ...operatorOf({ tensors: this.tensors }, node), outputs: [] };
    return operatorEntry(node).infer(operator);
  }

  /** Whether it is a parameter, or a single number that neither overflows nor underflows in 16 bit. */
  private yields(name: string): boolean {
    const weight = this.graph.weights.get(name);
    if (weight?.dtype !== 'float32') return false;
    if (weight.role === 'parameter') return true;
    if (elementCount(weight.shape) !== 1 || weight.source.kind !== 'inline') return false;
    const [value = 0] = numbersOf({ ...weight, data: weight.source.data });
    const [rounded = 0] = numbersOf(constant(this.low, [value]));
    return Number.isFinite(rounded) === Number.isFinite(value) && (rounded === 0) === (value === 0);
  }
}

/** Operators that only move elements which others read in 16 bit, and that make no fewer elements than they read. */
function movedForLow(graph: Graph): ReadonlySet<Node> {
  const readers = readersOf(graph.nodes);
  const outputs = new Set(graph.outputs);
  const elements = (name: string | null) =>
    name !== null && isFloating(typeOf(graph, name).dtype) ? elementCount(typeOf(graph, name).shape) : 0;
  const moved = new Set<Node>();
  for (const node of graph.nodes.toReversed()) {
    if (node.body || !isMove(node)) continue;
    const made = node.outputs.filter((name) => name !== null);
    const isRead = (name: string) =>
      !outputs.has(name) &&
      (readers.get(name) ?? []).every((reader) => moved.has(reader) || readsLow(reader, name, graph));
    const total = made.reduce((sum, name) => sum + elements(name), 0);
    if (total > 0 && made.every(isRead) && node.inputs.every((name) => elements(name) <= total)) moved.add(node);
  }
  return moved;
}

/** Whether an operator of the graph, in float32 as the file has it, reads the tensor in 16 bit and in no other way. */
function readsLow(node: Node, name: string, { tensors }: Pick<Graph, 'tensors'>): boolean {
  const { body } = node;
  if (!body) {
    const isWide = (operand: string | null) => {
      const dtype = tensors.get(operand ?? '')?.dtype;
      return dtype === undefined || dtype === 'float32' || !isFloating(dtype);
    };
    return operatorEntry(node).precision === 'low' && node.inputs.every(isWide);
  }
  const readers = readersOf(body.nodes).get(name) ?? [];
  const moved = movedForLow(body);
  const isLow = (reader: Node) => moved.has(reader) || readsLow(reader, name, body);
  return readers.length > 0 && !body.outputs.includes(name) && readers.every(isLow);
}

/** A region's body with other names for some of its operands. */
function reading(body: Graph, names: ReadonlyMap<string, string>): Graph {
  if (names.size === 0) return body;
  const renamed = (name: string) => names.get(name) ?? name;
  const nodes = body.nodes.map((node) => ({
    ...node,
    inputs: node.inputs.map((name) => (name === null ? null : renamed(name))),
  }));
  const tensors = new Map([...body.tensors].map(([name, type]) => [renamed(name), type] as const));
  return { ...body, nodes, tensors, inputs: body.inputs.map(renamed) };
}

/** Whether results are elements of operands, and nothing else. */
export function isMove(node: Node): boolean {
  const { family, precision } = operatorEntry(node);
  const { reduction = 'none' } = node.attributes;
  return precision === 'follow' && (family === 'view' || family === 'indexing') && reduction === 'none';
}
