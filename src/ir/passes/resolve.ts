/**
 * @file Resolves a source model at given dimensions: from the exporter's operators to operators of one opset, with
 * static types, constants folded and forms normalised.
 *
 * It is done in one walk in topological order, because each step needs the results of the steps before for its operands:
 *
 *     control flow and sequences away → convert to the internal opset → normalise → constant inputs become attributes
 *     → attributes in full → types → fold if nothing depends on the data → merge with an equal operator → emit
 *
 * A rewrite replaces a node by nodes, which go through the same steps again.
 */
import { isFloating } from '../dtype.js';
import { AutoparError } from '../error.js';
import { type Attributes, type ConstantTensor, elementCount, INTERNAL_OPSET, type TensorType } from '../graph.js';
import type { InputKind, SourceGraph, SourceNode } from '../onnx/model.js';
import { isDifferentiable, type Operator } from '../operator.js';
import { numbersOf } from '../ops/constants.js';
import { entryOf, isSizedByData } from '../ops/index.js';
import { readConstantInputs } from './constant-inputs.js';
import { DerivedNames } from './derived-names.js';
import { boundShape } from './dims.js';
import { type Constant, ConstantFolder, type Evaluate } from './fold.js';
import { FOLD_LIMIT } from './fold-limit.js';
import { attributesInFull, dataDependent, inferByEntry, inferUnknown } from './infer.js';
import { normalisationOf, viewNormalisations } from './normalise.js';
import { formOfResults, type ParameterForm, rearranges, turnsParameter } from './of-parameters.js';
import { convertOpset } from './opset.js';
import { PickedRows } from './picked-rows.js';
import { gatherNode, repeatedElements } from './repeated-elements.js';
import { ResolvedOperators } from './resolved-operators.js';
import type { Producer, RewriteContext } from './rewrite.js';
import { sequenceRewrites } from './sequences.js';
import { rewriteSubgraphs } from './subgraphs.js';
import { typedAttributes } from './typed-attributes.js';
import {
  constantsOf,
  inputsBehind,
  isTensor,
  type ResolvedValues,
  type TensorValue,
  typeOfValue,
  type Value,
} from './values.js';

interface ResolveInputs {
  readonly file: string;
  readonly dims: ReadonlyMap<string, number>;
  /** Values for graph inputs (`--const`). */
  readonly constants: Readonly<Record<string, ConstantTensor>>;
  readonly kinds: ReadonlyMap<string, InputKind>;
  /** Graph inputs that are weights without a value. */
  readonly absent: ReadonlySet<string>;
  /** Whether Dropout stays: in evaluation it does nothing. */
  readonly forTraining?: boolean;
  /** Whether operators on parameters stay: folded, no gradient would reach these. */
  readonly keepsParameters?: boolean;
  /** Whether the exporter states the kinds of initializers. */
  readonly statesKinds?: boolean;
  /** Whether the exporter has computed an initializer, perhaps from a parameter. */
  readonly isComputed?: (name: string) => boolean;
  /** Whether the exporter lists a parameter among what it computed an initializer from. */
  readonly isListed?: (name: string) => boolean;
  /** Whether the exporter has computed an initializer in place of a parameter that an operator of the program reads. */
  readonly standsForParameter?: (name: string) => boolean;
  readonly evaluate: Evaluate;
  /** Versions of the operator sets other than ONNX's own. */
  readonly domains?: ReadonlyMap<string, number>;
}

/** Resolves `nodes` (ordered, functions inlined) of `graph`. */
export async function resolveValues(
  graph: SourceGraph,
  nodes: readonly SourceNode[],
  options: ResolveInputs,
): Promise<ResolvedValues> {
  const walk = new ResolveWalk(graph, nodes, options);
  return walk.run();
}

class ResolveWalk {
  private readonly folder: ConstantFolder;
  private readonly scope = new Map<string, Value>();
  private readonly operators: ResolvedOperators;
  /** Elements of initializers that repeat them. */
  private readonly gathered = new Set<Constant>();
  /** By initializer that repeats a parameter's elements, until it is read: the operator that reads these. */
  private readonly repeated = new Map<string, SourceNode>();
  /** Results of operators on parameters that stay, with their form. */
  private readonly ofParameters = new Map<string, ParameterForm>();
  private readonly unknown = new Map<string, number>();
  private readonly context: RewriteContext;
  private readonly picked: PickedRows;
  private readonly derived = new DerivedNames(() => [
    ...this.scope.keys(),
    ...this.nodes.flatMap((node) => node.outputs),
  ]);
  private unrolled = 0;
  private readonly parameterForm = (value: TensorValue): ParameterForm | null => {
    if (value.kind === 'tensor') return this.ofParameters.get(value.name) ?? null;
    const { constant } = value;
    // No mask beside the elements of a parameter makes them a formula.
    if (this.gathered.has(constant)) return 'parameter';
    const isKept =
      constant.stated && (!this.options.statesKinds || this.options.standsForParameter?.(constant.name) === true);
    return isKept ? 'initializer' : null;
  };

  constructor(
    private readonly graph: SourceGraph,
    private readonly nodes: readonly SourceNode[],
    private readonly options: ResolveInputs,
  ) {
    this.folder = new ConstantFolder(options.evaluate, options.file, options.domains);
    this.operators = new ResolvedOperators(nodes);
    this.context = this.rewriteContext();
    this.picked = new PickedRows(this.context);
  }

  async run(): Promise<ResolvedValues> {
    this.bindInitializers();
    const inputs = this.bindInputs();
    if (this.options.keepsParameters) await this.findRepeated();
    // Bodies of control flow read initializers too: what no operator of the graph itself reads comes first.
    const read = new Set(this.nodes.flatMap((node) => node.inputs));
    await this.gather([...this.repeated.keys()].filter((name) => !read.has(name)));
    for (const node of this.nodes) {
      await this.gather(node.inputs);
      await this.take([node]);
    }
    const outputs = this.graph.outputs.map(({ name }) => {
      this.picked.checkOutput(name);
      return { name, value: this.valueNamed(name) };
    });
    const notes = [...this.unknown].map(
      ([op, count]) =>
        `${op} is unknown to autopar: ${count === 1 ? 'its node is' : `its ${count} nodes are`} replicated on every rank`,
    );
    return { drafts: this.operators.drafts, inputs, outputs, folder: this.folder, notes };
  }

  private async take(nodes: readonly SourceNode[]): Promise<void> {
    // A stack of nodes in reverse: rewrites push the nodes that replace a node, so that these come next.
    const stack = [...nodes].reverse();
    for (let node = stack.pop(); node; node = stack.pop()) {
      const replacement = await this.step(node);
      for (let index = replacement.length - 1; index >= 0; index--) {
        const next = replacement[index];
        if (next) stack.push(next);
      }
    }
  }

  private bindInitializers(): void {
    for (const [name, item] of this.graph.initializers) {
      const kind = this.options.kinds.get(name) ?? null;
      const type = { dtype: item.dtype, shape: item.shape };
      this.bindConstant(name, this.folder.stated(name, type, item.source, kind), type);
    }
  }

  /** Initializers with a parameter's elements repeated become that parameter, read at fixed indices. */
  private async findRepeated(): Promise<void> {
    for (const [name, { dtype, shape, source }] of this.graph.initializers) {
      if (!this.options.isComputed?.(name)) continue;
      const isParameter = this.options.isListed?.(name) ?? false;
      const repeated = await repeatedElements({ dtype, shape }, source, isParameter);
      if (!repeated) continue;
      const { elements, indices } = repeated;
      const of = this.derived.prefix(name);
      const inline = { kind: 'inline', data: elements.data } as const;
      const origin = this.folder.stated(name, elements, inline, null);
      this.gathered.add(origin);
      this.bindConstant(`${of}/elements`, origin, elements);
      this.bindConstant(`${of}/indices`, this.folder.literal(`${of}/indices`, indices), indices);
      this.repeated.set(name, gatherNode(name, of));
    }
  }

  /** Before their first reader, so that a layer begins with what it computes. */
  private async gather(names: readonly (string | null)[]): Promise<void> {
    for (const name of names) {
      const node = name === null ? undefined : this.repeated.get(name);
      const [result] = node?.outputs ?? [];
      if (name === null || !node || !result) continue;
      this.repeated.delete(name);
      await this.take([node]);
      this.context.alias(name, result);
    }
  }

  private bindInputs(): ResolvedValues['inputs'] {
    return this.graph.inputs.flatMap(({ name, dtype, shape, unhandled }) => {
      if (this.graph.initializers.has(name)) return [];
      const given = this.options.constants[name];
      if (given) {
        this.bindConstant(name, this.folder.literal(name, given), given);
        return [];
      }
      if (dtype === null)
        throw new AutoparError(
          'unsupported-input',
          'input',
          unhandled
            ? `input '${name}' has the element type ${unhandled}, which autopar does not handle`
            : `input '${name}' is not a tensor of numbers`,
          { file: this.options.file, tensor: name },
          unhandled ? 'numeric and boolean tensors are handled' : 'sequences and maps are not handled',
        );
      const type = { dtype, shape: boundShape(shape, this.options.dims) ?? [] };
      if (this.options.absent.has(name)) {
        this.bindConstant(
          name,
          this.folder.stated(name, type, { kind: 'absent' }, this.options.kinds.get(name) ?? null),
          type,
        );
        return [];
      }
      this.scope.set(name, { kind: 'tensor', name, type, constant: null });
      return [{ name, type }];
    });
  }

  /** Handles one node; returns the nodes that replace it ([]: it is done). */
  private async step(node: SourceNode): Promise<readonly SourceNode[]> {
    const own = node.domain === '';
    const rewritten =
      (await rewriteSubgraphs(node, this.context)) ??
      (own && Object.hasOwn(sequenceRewrites, node.op)
        ? await sequenceRewrites[node.op]?.(node, this.context)
        : null) ??
      null;
    if (rewritten) return rewritten;
    this.checkOperands(node);
    const dense = await this.picked.rewrite(node, () => this.sizeDepends(node));
    if (dense) return dense;
    const current = await convertOpset(node, this.context);
    if (current) return current;
    return (await normalisationOf(node)?.(node, this.context)) ?? this.type(node);
  }

  /** Handles the operator itself: attributes, types, folding, merging. */
  private async type(node: SourceNode): Promise<readonly SourceNode[]> {
    const name = node.name || node.op;
    const values = node.inputs.map((input) => (input === null ? null : this.valueNamed(input)));
    const constants = constantsOf(values);
    const entry = entryOf(node.op, node.domain);
    const constant =
      constants !== null && entry?.role !== 'random' && constants.every((item) => item === null || item.present);
    if (!constant && isSizedByData(node)) throw this.sizeDepends(node);
    const { attributes: given, inputs } = await readConstantInputs(
      node,
      entry?.constantInputs ?? [],
      this.context,
      (item, input) => this.dependsOnData(node, `its operand '${item.attribute}'`, [this.valueNamed(input)]),
    );
    const operands = trimmed(inputs);
    const kept = operands.map((operand) => (operand === null ? null : this.valueNamed(operand)));
    const operator: Operator = {
      name,
      op: node.op,
      domain: node.domain,
      attributes: given,
      inputs: kept.map(typeOfValue),
      outputs: [],
      outputCount: node.outputs.length,
    };
    const attributes = entry
      ? attributesInFull(entry, operator, this.options.file)
      : typedAttributes(given, node.numberTypes);
    const complete = { ...operator, attributes };
    const types = entry || !constant ? await this.resultTypes(complete, node, kept) : null;
    this.picked.follow(node, { ...complete, outputs: types ?? [] });
    const ready: SourceNode = { ...node, attributes, inputs: operands, opset: INTERNAL_OPSET };
    const first = types?.[0];
    const simpler =
      first && node.domain === '' && Object.hasOwn(viewNormalisations, node.op)
        ? viewNormalisations[node.op]?.(ready, first, this.context)
        : null;
    if (simpler) return simpler;
    if (constant) await this.fold(ready, attributes, kept, types);
    else this.emit(ready, attributes, kept, types ?? [], null);
    return [];
  }

  private sizeDepends(node: SourceNode): AutoparError {
    const values = node.inputs.map((input) => (input === null ? null : this.valueNamed(input)));
    return this.dependsOnData(node, 'the size of its result', values);
  }

  private dependsOnData(node: SourceNode, what: string, values: readonly (Value | null)[]): AutoparError {
    const inputs = inputsBehind(values, (tensor) => this.operators.makerOf(tensor));
    return dataDependent(node.name || node.op, node.op, what, inputs, this.options.file);
  }

  private async resultTypes(
    operator: Operator,
    node: SourceNode,
    values: readonly (Value | null)[],
  ): Promise<readonly (TensorType | null)[]> {
    const entry = entryOf(operator.op, operator.domain);
    const inferred = entry && inferByEntry(entry, operator, this.options.file);
    if (inferred) return node.outputs.map((name, index) => (name === null ? null : (inferred[index] ?? null)));
    const key = operator.domain ? `${operator.domain}.${operator.op}` : operator.op;
    this.unknown.set(key, (this.unknown.get(key) ?? 0) + 1);
    const declared = node.outputs.map((name) => this.declaredType(name));
    const constants = await Promise.all(
      values.map((value) =>
        value && isTensor(value) && value.constant && elementCount(value.type.shape) <= FOLD_LIMIT
          ? this.folder.valueOf(value.constant)
          : null,
      ),
    );
    return inferUnknown({
      operator,
      declared,
      outputs: node.outputs,
      constants,
      evaluate: this.options.evaluate,
      file: this.options.file,
      domains: this.folder.domains,
    });
  }

  private declaredType(name: string | null): TensorType | null {
    const value =
      name === null
        ? undefined
        : (this.graph.valueInfo.get(name) ?? this.graph.outputs.find((output) => output.name === name));
    const shape = value ? boundShape(value.shape, this.options.dims) : null;
    return value?.dtype && shape ? { dtype: value.dtype, shape } : null;
  }

  /**
   * Keeps an operator on constants as a constant; a large result stays an operator as well, and so does a transposed parameter:
   * a copy would be another parameter where the parameter has other readers. So does DequantizeLinear of a quantised weight: the
   * weight stays integers, and ONNX Runtime, which computes in these, would quantise floats again.
   */
  private async fold(
    node: SourceNode,
    attributes: Attributes,
    values: readonly (Value | null)[],
    known: readonly (TensorType | null)[] | null,
  ): Promise<void> {
    const inputs = constantsOf(values) ?? [];
    const operator = { name: node.name || node.op, op: node.op, domain: node.domain, attributes };
    const constants = this.folder.apply(operator, inputs, node.outputs, known, rearranges(node, values, known));
    const types = await Promise.all(
      node.outputs.map((name, index) => {
        const constant = constants[index];
        return name === null || !constant ? null : this.folder.typeOf(constant);
      }),
    );
    const large = types.some((type) => type !== null && elementCount(type.shape) > FOLD_LIMIT);
    const kept = this.options.keepsParameters ? await this.formOf(node, values, types) : null;
    const quantised = !this.options.forTraining && constants.some(({ dequantised }) => dequantised);
    if (large || kept || quantised || turnsParameter(node, values)) {
      if (kept) for (const output of node.outputs) if (output !== null) this.ofParameters.set(output, kept);
      this.emit(node, attributes, values, types, constants);
      return;
    }
    node.outputs.forEach((name, index) => {
      const constant = constants[index];
      const type = types[index];
      if (name !== null && constant && type) this.bindConstant(name, constant, type);
    });
  }

  private async formOf(
    node: SourceNode,
    values: readonly (Value | null)[],
    types: readonly (TensorType | null)[],
  ): Promise<ParameterForm | null> {
    const numbers = new Set<Value | null>();
    const found = () => formOfResults(node, values, types, this.parameterForm, (value) => numbers.has(value));
    const form = found();
    const isBeside = values.some((value) => value !== null && isTensor(value) && this.parameterForm(value) !== null);
    if (form !== null || !isBeside || !isDifferentiable(entryOf(node.op, node.domain))) return form;
    const most = node.op === 'Add' && node.domain === '' ? 2 : 1;
    for (const value of values)
      if (value && isTensor(value) && (await this.numbersIn(value)) <= most) numbers.add(value);
    return numbers.size === 0 ? form : found();
  }

  /**
   * How many numbers a value that is no parameter has: one where it is the zeros that a decoder begins with, two where it is a
   * mask that is added to position biases; infinity where it is not looked at.
   */
  private async numbersIn(value: TensorValue): Promise<number> {
    const { constant, type } = value;
    const isLiteral = constant?.present && this.parameterForm(value) === null && isFloating(type.dtype);
    if (!isLiteral || elementCount(type.shape) > FOLD_LIMIT) return Number.POSITIVE_INFINITY;
    return new Set(numbersOf(await this.folder.valueOf(constant))).size;
  }

  private emit(
    node: SourceNode,
    attributes: Attributes,
    values: readonly (Value | null)[],
    types: readonly (TensorType | null)[],
    constants: readonly Constant[] | null,
  ): void {
    const equal = this.operators.keep(node, { attributes, inputs: values, types, constants });
    if (equal) {
      node.outputs.forEach((name, index) => {
        const other = equal.outputs[index];
        if (name !== null && other) this.scope.set(name, this.valueNamed(other));
      });
      return;
    }
    node.outputs.forEach((name, index) => {
      const type = types[index];
      if (name !== null && type)
        this.scope.set(name, { kind: 'tensor', name, type, constant: constants?.[index] ?? null });
    });
  }

  private checkOperands(node: SourceNode): void {
    for (const input of node.inputs) {
      const value = input === null ? null : this.valueNamed(input);
      if (value === null || isTensor(value)) continue;
      const what = value.kind === 'sequence' ? 'a sequence of tensors' : 'an optional without a value';
      throw new AutoparError(
        'unsupported-sequence',
        'input',
        `node '${node.name || node.op}' (${node.op}) works on ${what}, which autopar does not handle`,
        { file: this.options.file, node: node.name },
        'only sequences that are indexed by constants are handled',
      );
    }
  }

  private bindConstant(name: string, constant: Constant, type: TensorType): void {
    this.scope.set(name, { kind: 'constant', type: { dtype: type.dtype, shape: type.shape }, constant });
  }

  private valueNamed(name: string): Value {
    const value = this.scope.get(name);
    if (!value)
      throw new AutoparError('undefined-tensor', 'input', `'${name}' is used before anything defines it`, {
        file: this.options.file,
        tensor: name,
      });
    return value;
  }

  private rewriteContext(): RewriteContext {
    return {
      file: this.options.file,
      forTraining: this.options.forTraining ?? false,
      typeOf: (name) => {
        const type = typeOfValue(this.valueNamed(name));
        if (!type)
          throw new AutoparError('unsupported-sequence', 'input', `'${name}' is a sequence where a tensor is needed`, {
            file: this.options.file,
            tensor: name,
          });
        return type;
      },
      valueOf: async (name) => {
        const value = this.valueNamed(name);
        if (!isTensor(value) || !value.constant) return null;
        return this.folder.valueOf(value.constant);
      },
      heldValueOf: async (name) => {
        const value = this.valueNamed(name);
        return isTensor(value) && value.constant?.present ? this.folder.valueOf(value.constant) : null;
      },
      literal: (base, value) => {
        let name = base;
        for (let ordinal = 2; this.scope.has(name); ordinal++) name = `${base}.${ordinal}`;
        this.bindConstant(name, this.folder.literal(name, value), value);
        return name;
      },
      alias: (name, of) => {
        if (name === of) return;
        this.scope.set(name, this.valueNamed(of));
        this.picked.alias(name, of);
      },
      copyParameter: (name, of) => {
        const value = this.valueNamed(of);
        if (value.kind !== 'constant' || !value.constant.stated || !isFloating(value.type.dtype)) return false;
        this.bindConstant(name, this.folder.copy(value.constant, name), value.type);
        return true;
      },
      sequence: (name, elements) => {
        this.scope.set(name, { kind: 'sequence', elements });
      },
      elementsOf: (name) => {
        const value = this.valueNamed(name);
        return value.kind === 'sequence' ? value.elements : null;
      },
      absent: (name) => {
        this.scope.set(name, { kind: 'absent' });
      },
      isAbsent: (name) => this.valueNamed(name).kind === 'absent',
      resolve: (nodes) => this.take(nodes),
      prefix: (base) => this.derived.prefix(base),
      countUnrolled: (nodes) => (this.unrolled += nodes),
      producerOf: (name): Producer | null => {
        const value = this.valueNamed(name);
        const draft = value.kind === 'tensor' ? this.operators.makerOf(value.name) : undefined;
        return draft
          ? { op: draft.op, domain: draft.domain, attributes: draft.attributes, inputs: draft.operands }
          : null;
      },
    };
  }
}

function trimmed(inputs: readonly (string | null)[]): readonly (string | null)[] {
  const last = inputs.findLastIndex((input) => input !== null);
  return inputs.slice(0, last + 1);
}
