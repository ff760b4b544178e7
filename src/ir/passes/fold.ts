/**
 * @file Pass `fold`: values that do not depend on the data.
 *
 * A constant is a value of the file or an operator applied to constants. Equal constants are one (value numbering), so
 * the shape arithmetic that an exporter repeats in every layer is done once. Nothing is computed until a value is needed;
 * then all operators that it depends on go to ONNX Runtime as one model, through the given `Evaluate` function.
 */
import { byteLength, type DType, dtypeBits, onnxOfDtype } from '../dtype.js';
import { AutoparError } from '../error.js';
import {
  type Attributes,
  type ConstantTensor,
  elementCount,
  type FileTensor,
  type Graph,
  type Node,
  type TensorType,
  type Weight,
  type WeightSource,
} from '../graph.js';
import { problemText } from '../onnx/external-data.js';
import type { InputKind } from '../onnx/model.js';
import { loadWeight } from '../onnx/tensors.js';
import { writeOnnx } from '../onnx/writer.js';
import { plainNode } from '../plain-node.js';
import { attributesKey, tensorKey } from './attributes-key.js';
import { fileTensor } from './file-tensors.js';
import { FOLD_LIMIT } from './fold-limit.js';

/** Runs an ONNX model on the inputs given and returns its outputs by name. */
export type Evaluate = (
  model: Uint8Array,
  inputs: Readonly<Record<string, ConstantTensor>>,
) => Promise<Readonly<Record<string, ConstantTensor>>>;

/** Bytes of the largest value that is computed, or read from a file, because a shape or condition follows from it. */
const LARGEST_CONSTANT = 2 ** 28;

/** Operators that are evaluated in one model. */
const TOGETHER = 1000;

/** An operator to apply: a node without its place in a graph. */
interface UnplacedOperator {
  readonly name: string;
  readonly op: string;
  readonly domain: string;
  readonly attributes: Attributes;
}

/** A value known before the run. Made by ConstantFolder only; identity means equality. */
export interface Constant {
  readonly id: number;
  /** The tensor's name in the file; made unique when it becomes a weight. */
  readonly name: string;
  /** Its kind in exporter metadata; derived constants inherit it from the constants that they are made of. */
  readonly kind: InputKind | null;
  /** Whether it is an initializer of the file, as against a Constant node or a computed value. */
  readonly stated: boolean;
  /** Whether its value is available: none of the constants that it is made of is absent. */
  readonly present: boolean;
  /** Whether it is an initializer whose bytes are in the model's file itself. */
  readonly inFile: boolean;
  /** The constant that its elements were moved from, where an operator did nothing else; null otherwise. */
  readonly origin: Constant | null;
  /** Whether it is made of quantised numbers, by DequantizeLinear. */
  readonly dequantised: boolean;
  /** The operator that makes it, and which of its results it is; null for a value of the file. */
  readonly application: FoldedOperator | null;
  readonly result: number;
}

interface FoldedOperator {
  readonly id: number;
  readonly operator: UnplacedOperator;
  readonly inputs: readonly (Constant | null)[];
  readonly results: number;
}

/** Interns constants and evaluates them in batches. */
export class ConstantFolder {
  private readonly literals = new Map<string, Constant>();
  private readonly applications = new Map<string, readonly Constant[]>();
  private readonly sources = new Map<Constant, WeightSource>();
  private readonly types = new Map<Constant, TensorType>();
  private readonly settledNames = new Set<string>();
  /** Results that are bfloat16. */
  private readonly narrowResults = new Set<string>();
  private count = 0;

  constructor(
    private readonly evaluate: Evaluate,
    private readonly file: string,
    /** Versions of the operator sets other than ONNX's own. */
    readonly domains: ReadonlyMap<string, number> = new Map(),
  ) {}

  /** An initializer: always a constant of its own, since equal bytes do not make two parameters one. */
  stated(name: string, type: TensorType, source: WeightSource, kind: InputKind | null): Constant {
    const constant: Constant = {
      id: this.count++,
      name,
      kind,
      stated: true,
      present: source.kind !== 'absent',
      inFile: source.kind === 'inline' || (source.kind === 'external' && source.file === this.file),
      origin: null,
      dequantised: false,
      application: null,
      result: 0,
    };
    this.types.set(constant, type);
    this.sources.set(constant, source);
    return constant;
  }

  /** Another parameter with the value of `constant`, which is an initializer. */
  copy(constant: Constant, name: string): Constant {
    const { dtype, shape, source } = this.weightOf(constant, 'constant');
    return this.stated(name, { dtype, shape }, source, constant.kind);
  }

  /** A value without identity of its own: equal ones are one. */
  literal(name: string, value: ConstantTensor): Constant {
    const key = tensorKey(value);
    const found = this.literals.get(key);
    if (found) return found;
    const constant: Constant = {
      id: this.count++,
      name,
      kind: null,
      stated: false,
      present: true,
      inFile: false,
      origin: null,
      dequantised: false,
      application: null,
      result: 0,
    };
    this.types.set(constant, { dtype: value.dtype, shape: value.shape });
    this.sources.set(constant, { kind: 'inline', data: value.data });
    this.literals.set(key, constant);
    return constant;
  }

  /**
   * The results of an operator on constants, of the types given (null: not known yet, found by evaluation).
   * `rearranges`: it only moves elements, so that its result on a parameter is still a parameter.
   */
  apply(
    operator: UnplacedOperator,
    inputs: readonly (Constant | null)[],
    outputs: readonly (string | null)[],
    types: readonly (TensorType | null)[] | null,
    rearranges = false,
  ): readonly Constant[] {
    const ids = inputs.map((input) => input?.id ?? '_').join(',');
    const key = `apply ${operator.domain}:${operator.op}(${ids})${attributesKey(operator.attributes)}/${outputs.length}`;
    const kind = rearranges ? strongestKind(inputs) : null;
    const found = this.applications.get(key);
    if (found) return found;
    const application: FoldedOperator = { id: this.count++, operator, inputs, results: outputs.length };
    const [first] = inputs;
    const present = inputs.every((input) => input === null || input.present);
    const dequantised = operator.op === 'DequantizeLinear' || inputs.some((input) => input?.dequantised);
    const constants = outputs.map((name, result) => {
      const constant: Constant = {
        id: this.count++,
        name: name ?? `${operator.name}.${result}`,
        kind,
        stated: false,
        present,
        inFile: false,
        origin: rearranges ? (first?.origin ?? first ?? null) : null,
        dequantised,
        application,
        result,
      };
      const type = types?.[result];
      if (type) this.types.set(constant, type);
      if (type?.dtype === 'bfloat16') this.narrowResults.add(evaluationName(constant));
      return constant;
    });
    this.applications.set(key, constants);
    return constants;
  }

  /** The type; evaluates where no rule gave it. */
  async typeOf(constant: Constant): Promise<TensorType> {
    const known = this.types.get(constant);
    if (known) return known;
    await this.settle([constant]);
    const type = this.types.get(constant);
    if (!type) throw new Error(`constant ${constant.name} has no type after evaluation`);
    return type;
  }

  /** The value. Throws `absent-weight` where it depends on a weight whose bytes are absent. */
  async valueOf(constant: Constant): Promise<ConstantTensor> {
    await this.settle([constant]);
    const source = this.sources.get(constant);
    if (source?.kind === 'external' && source.length > LARGEST_CONSTANT) throw this.tooLarge(constant, source.length);
    const data = source ? await loadWeight(source) : null;
    if (!data) throw this.absent(constant);
    return { ...(await this.typeOf(constant)), data };
  }

  /**
   * Evaluates all constants given that are not values yet, some thousand operators at a time: ONNX Runtime takes longer than
   * in proportion to load a model of many operators. Throws `constant-too-large` before anything large is computed.
   */
  async settle(constants: readonly Constant[]): Promise<void> {
    const wanted = new Set(constants.filter((constant) => !this.sources.has(constant) && !this.turn(constant)));
    if (wanted.size === 0) return;
    const open = this.closure([...wanted]).filter((constant) => !this.sources.has(constant));
    this.checkBytes(open);
    const places = new Map<FoldedOperator, number>();
    for (const { application } of open)
      if (application && !places.has(application)) places.set(application, places.size);
    const partOf = (application: FoldedOperator): number => Math.floor((places.get(application) ?? 0) / TOGETHER);
    const lastReader = new Map<Constant, number>();
    for (const application of places.keys())
      for (const input of application.inputs) if (input) lastReader.set(input, partOf(application));
    const parts: Constant[][] = Array.from({ length: Math.ceil(places.size / TOGETHER) }, () => []);
    for (const constant of open) {
      const part = constant.application ? partOf(constant.application) : 0;
      if (wanted.has(constant) || (lastReader.get(constant) ?? 0) > part) parts[part]?.push(constant);
    }
    for (const part of parts) await this.evaluateTogether(part);
  }

  private async evaluateTogether(wanted: readonly Constant[]): Promise<void> {
    const graph = await this.evaluationGraph(wanted);
    let results: Readonly<Record<string, ConstantTensor>>;
    try {
      results = await this.evaluate(writeOnnx(graph), {});
    } catch (error) {
      throw this.failed(wanted, error);
    }
    for (const constant of wanted) {
      const found = results[this.outputName(constant)];
      if (!found) throw new Error(`evaluation returned no ${constant.name}`);
      const value = this.isCast(constant) ? bfloatOf(found) : found;
      this.types.set(constant, { dtype: value.dtype, shape: value.shape });
      this.sources.set(constant, { kind: 'inline', data: value.data });
      this.settledNames.add(evaluationName(constant));
    }
  }

  private checkBytes(constants: readonly Constant[]): void {
    let total = 0;
    for (const constant of constants) {
      const type = this.types.get(constant);
      const bytes = type ? byteLength(type.dtype, elementCount(type.shape)) : 0;
      total += bytes;
      if (bytes > LARGEST_CONSTANT || total > 4 * LARGEST_CONSTANT) throw this.tooLarge(constant, bytes);
    }
  }

  /** Settles the transpose of a large weight that is in a file: it stays there, and is transposed whenever it is read. */
  private turn(constant: Constant): boolean {
    const { application } = constant;
    const [origin] = application?.inputs ?? [];
    if (!application || !origin || application.operator.op !== 'Transpose' || application.operator.domain !== '')
      return false;
    const source = this.sources.get(origin);
    const type = this.types.get(origin);
    const order = application.operator.attributes['perm'];
    if (source?.kind !== 'external' || source.transposition || !type || dtypeBits(type.dtype) < 8) return false;
    if (elementCount(type.shape) <= FOLD_LIMIT) return false;
    if (!Array.isArray(order) || typeof order[0] !== 'number') return false;
    const axes: readonly number[] = order;
    this.types.set(constant, { dtype: type.dtype, shape: axes.map((axis) => type.shape[axis] ?? 1) });
    this.sources.set(constant, { ...source, transposition: { shape: type.shape, order: axes } });
    return true;
  }

  /** The tensor of the file that a constant is after its dimensions were moved; null if none, or none was moved. */
  fileTensorOf(constant: Constant): FileTensor | null {
    return fileTensor(constant, (each) => this.types.get(each)?.shape ?? null);
  }

  /** The constant as a weight of a graph, once settled. */
  weightOf(constant: Constant, role: Weight['role']): Weight {
    const type = this.types.get(constant);
    const source = this.sources.get(constant);
    if (!type || !source) throw new Error(`constant ${constant.name} is not settled`);
    return { dtype: type.dtype, shape: type.shape, source, role };
  }

  /** One graph with everything that `wanted` depends on and that is not a value yet. */
  private async evaluationGraph(wanted: readonly Constant[]): Promise<Graph> {
    const nodes: Node[] = [];
    const weights = new Map<string, Weight>();
    const tensors = new Map<string, TensorType>();
    const applied = new Set<FoldedOperator>();
    for (const constant of this.closure(wanted)) {
      const source = this.sources.get(constant);
      const type = this.types.get(constant);
      if (type) tensors.set(evaluationName(constant), type);
      if (source && type) {
        const data = await loadWeight(source);
        if (!data) throw this.absent(constant);
        weights.set(evaluationName(constant), { ...type, source: { kind: 'inline', data }, role: 'constant' });
        continue;
      }
      const { application } = constant;
      if (!application) throw new Error(`constant ${constant.name} has no origin`);
      if (applied.has(application)) continue;
      applied.add(application);
      nodes.push(...this.evaluationNodes(application, nodes.length));
    }
    for (const constant of wanted) {
      if (!this.isCast(constant)) continue;
      nodes.push(castNode(evaluationName(constant), `${evaluationName(constant)}.cast`, 'float32', nodes.length));
    }
    return {
      name: 'constants',
      nodes,
      tensors,
      inputs: [],
      outputs: wanted.map((constant) => this.outputName(constant)),
      weights,
      state: [],
      batch: [],
      domains: this.domains,
    };
  }

  /**
   * The nodes of one application. ONNX Runtime computes few operators in bfloat16 on a CPU, so that they run in float32
   * between casts, as it does by itself for float16.
   */
  private evaluationNodes(application: FoldedOperator, ordinal: number): readonly Node[] {
    const { operator, inputs } = application;
    const results = this.openResults(application);
    const narrow = inputs.map((input) => input !== null && this.isCast(input));
    const names = inputs.map((input) => (input ? evaluationName(input) : null));
    if (isCast(operator) || !narrow.includes(true)) return [evaluationNode(operator, names, results, ordinal)];
    const prefix = `a${application.id}`;
    const widened = names.map((name, index) => (narrow[index] && name !== null ? `${prefix}.in${index}` : name));
    const into = names.flatMap((name, index) =>
      narrow[index] && name !== null
        ? [castNode(name, `${prefix}.in${index}`, 'float32', `${ordinal}.in${index}`)]
        : [],
    );
    const wide = results.map((_, index) =>
      this.narrowResults.has(`${prefix}.${index}`) ? `${prefix}.out${index}` : null,
    );
    const computed = results.map((name, index) => wide[index] ?? name);
    const out = results.flatMap((name, index) => {
      const source = wide[index];
      return source ? [castNode(source, name, 'bfloat16', `${ordinal}.out${index}`)] : [];
    });
    return [...into, evaluationNode(operator, widened, computed, ordinal), ...out];
  }

  /**
   * Names of an application's results. Those that are values already are weights of the model under that name, so they
   * get another; an empty name would crash some of ONNX Runtime's kernels (Split).
   */
  private openResults(application: FoldedOperator): readonly string[] {
    return Array.from({ length: application.results }, (_, result) => {
      const name = `a${application.id}.${result}`;
      return this.settledNames.has(name) ? `${name}.again` : name;
    });
  }

  private isCast(constant: Constant): boolean {
    return this.types.get(constant)?.dtype === 'bfloat16';
  }

  private outputName(constant: Constant): string {
    return this.isCast(constant) ? `${evaluationName(constant)}.cast` : evaluationName(constant);
  }

  /** `wanted` and the constants that they are made of, operands first; iterative because shape arithmetic can be long. */
  private closure(wanted: readonly Constant[]): readonly Constant[] {
    const ordered: Constant[] = [];
    const seen = new Set<Constant>();
    const stack: { constant: Constant; expanded: boolean }[] = [...wanted]
      .reverse()
      .map((constant) => ({ constant, expanded: false }));
    for (let top = stack.pop(); top; top = stack.pop()) {
      const { constant, expanded } = top;
      if (expanded) ordered.push(constant);
      if (expanded || seen.has(constant)) continue;
      seen.add(constant);
      stack.push({ constant, expanded: true });
      if (this.sources.has(constant)) continue;
      for (const input of constant.application?.inputs ?? [])
        if (input) stack.push({ constant: input, expanded: false });
    }
    return ordered;
  }

  private absent(constant: Constant): AutoparError {
    const source = this.sources.get(constant);
    const data = source?.kind === 'absent' ? source.data : undefined;
    return new AutoparError(
      'absent-weight',
      'input',
      `planning needs the value of '${constant.name}', but ` +
        `${data ? `'${data.location}', which holds it, ${problemText(data)}` : 'the file does not hold it'}`,
      { file: this.file, tensor: constant.name },
      'give the value with --const NAME=F.npy, or put the model’s data files next to it',
    );
  }

  private tooLarge(constant: Constant, bytes: number): AutoparError {
    const operator = constant.application?.operator.name;
    return new AutoparError(
      'constant-too-large',
      'input',
      `planning needs the value of '${constant.name}', which takes ${bytes} bytes; autopar computes constants ` +
        `of up to ${LARGEST_CONSTANT} bytes, ${4 * LARGEST_CONSTANT} in total`,
      { file: this.file, tensor: constant.name, ...(operator === undefined ? {} : { node: operator }) },
      'shapes, axes and conditions from so large a value are mostly a mistake of the exporter; make ' +
        'it an input of the model',
    );
  }

  private failed(wanted: readonly Constant[], error: unknown): AutoparError {
    const reason = error instanceof Error ? error.message.split('\n')[0] : String(error);
    const operators = [...new Set(wanted.map((constant) => constant.application?.operator.name ?? constant.name))];
    return new AutoparError(
      'fold-failed',
      'input',
      `ONNX Runtime could not compute constants of the model: ${reason}`,
      { file: this.file, node: operators[0] ?? '' },
      'check that the model runs in ONNX Runtime as it is',
    );
  }
}

function strongestKind(inputs: readonly (Constant | null)[]): InputKind | null {
  const kinds = new Set(inputs.map((input) => input?.kind));
  return kinds.has('parameter') ? 'parameter' : kinds.has('buffer') ? 'buffer' : null;
}

/** Names in evaluation models are numbers: exporters' names could collide with those that are made here. */
function evaluationName(constant: Constant): string {
  return constant.application ? `a${constant.application.id}.${constant.result}` : `c${constant.id}`;
}

function isCast(operator: UnplacedOperator): boolean {
  return operator.op === 'Cast' && operator.domain === '';
}

function castNode(input: string, output: string, to: DType, ordinal: number | string): Node {
  const operator = { name: '', op: 'Cast', domain: '', attributes: { to: onnxOfDtype(to) } };
  return evaluationNode(operator, [input], [output], ordinal);
}

function evaluationNode(
  operator: UnplacedOperator,
  inputs: readonly (string | null)[],
  outputs: readonly string[],
  ordinal: number | string,
): Node {
  const { op, domain, attributes } = operator;
  return plainNode({ name: `n${ordinal}`, op, domain, attributes, inputs, outputs });
}

/** bfloat16 is returned as float32, which ONNX Runtime's JavaScript API can hold; the conversion back drops only zeros. */
function bfloatOf(value: ConstantTensor): ConstantTensor {
  const count = elementCount(value.shape);
  const data = new Uint8Array(byteLength('bfloat16', count));
  for (let index = 0; index < count; index++) data.set(value.data.subarray(index * 4 + 2, index * 4 + 4), index * 2);
  return { dtype: 'bfloat16', shape: value.shape, data };
}
