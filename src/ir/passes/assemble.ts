/**
 * @file From resolved drafts to a Graph: operators that no output needs are dropped, constants become weights with a role,
 * results get the names that the file gives its outputs.
 */
import { isFloating } from '../dtype.js';
import { AutoparError } from '../error.js';
import { elementCount, type Graph, type Node, type TensorType, type Weight } from '../graph.js';
import { makersOf } from '../makers-and-readers.js';
import { parameterPlaces } from '../parameters/places.js';
import type { TracedConstant } from '../parameters/recorded.js';
import { DOTTED, neighbourLookups, parameterRole } from '../parameters/role.js';
import { valueEvidence } from '../parameters/value-evidence.js';
import { plainNode } from '../plain-node.js';
import type { Constant, ConstantFolder } from './fold.js';
import { FOLD_LIMIT } from './fold-limit.js';
import { type DraftOperator, isTensor, type ResolvedValues, type Value } from './values.js';

/**
 * A module's own name for a parameter (`h.0.attn.bias`, `alpha`): those that exporters make up have slashes, colons or a number.
 */
const MODULES = /^(?!(Constant|Identity)_\d+$)[A-Za-z_]\w*(\.\w+)*$/;

/** Facts about the file's initializers from the exporter. */
export interface InitializerFacts {
  readonly traced: ReadonlyMap<string, TracedConstant>;
  /** Whether literals have other names than parameters: PyTorch's TorchScript exporter keeps modules' names for these alone. */
  readonly namesParameters: boolean;
  /** Inputs that are weights: none of them is a literal. */
  readonly inputs: ReadonlySet<string>;
}

export interface Assembled {
  readonly graph: Graph;
  /** By weight: why it has its role. */
  readonly reasons: ReadonlyMap<string, string>;
}

/** The graph of `resolved`; evaluates the constants that it keeps, all in one go. */
export async function assemble(resolved: ResolvedValues, name: string, facts: InitializerFacts): Promise<Assembled> {
  const live = liveDrafts(resolved);
  const transposed = foldTransposedWeights(live);
  const constants = usedConstants(live, transposed, resolved.outputs);
  await resolved.folder.settle(constants.filter((constant) => constant.present));
  return new Assembly(resolved, live, transposed, constants, facts).assembled(name);
}

/** The drafts that outputs depend on, in their order. */
function liveDrafts(resolved: ResolvedValues): readonly DraftOperator[] {
  const maker = makersOf(resolved.drafts);
  const live = new Set<DraftOperator>();
  const stack: Value[] = resolved.outputs.map((output) => output.value);
  for (let value = stack.pop(); value; value = stack.pop()) {
    const draft = value.kind === 'tensor' ? maker.get(value.name) : undefined;
    if (!draft || live.has(draft)) continue;
    live.add(draft);
    for (const input of draft.inputs) if (input) stack.push(input);
  }
  return resolved.drafts.filter((draft) => live.has(draft));
}

/**
 * Weights that are only read transposed are transposed once, here, if they are small or their bytes are in the model's
 * file: result name → constant. Others, and those with other readers, keep the operator, so that they stay one weight.
 */
function foldTransposedWeights(live: readonly DraftOperator[]): ReadonlyMap<string, Constant> {
  const readers = new Map<Constant, number>();
  for (const draft of live)
    for (const input of draft.inputs)
      if (input?.kind === 'constant') readers.set(input.constant, (readers.get(input.constant) ?? 0) + 1);
  const transposed = new Map<string, Constant>();
  for (const draft of live) {
    const [source] = draft.inputs;
    const [output] = draft.outputs;
    const folded = draft.constants?.[0];
    if (draft.op !== 'Transpose' || source?.kind !== 'constant' || !output || !folded) continue;
    const cheap = source.constant.inFile || elementCount(source.type.shape) <= FOLD_LIMIT;
    if (source.constant.stated && source.constant.present && cheap && readers.get(source.constant) === 1)
      transposed.set(output, folded);
  }
  return transposed;
}

function usedConstants(
  live: readonly DraftOperator[],
  transposed: ReadonlyMap<string, Constant>,
  outputs: ResolvedValues['outputs'],
): readonly Constant[] {
  const used = new Set<Constant>(transposed.values());
  for (const draft of live) {
    if (draft.outputs.some((output) => output !== null && transposed.has(output))) continue;
    for (const input of draft.inputs) if (input?.kind === 'constant') used.add(input.constant);
  }
  for (const { value } of outputs) if (value.kind === 'constant') used.add(value.constant);
  return [...used];
}

class Assembly {
  private readonly taken: Set<string>;
  private readonly weightNames = new Map<Constant, string>();
  private readonly renamed = new Map<string, string>();
  private readonly tensors = new Map<string, TensorType>();
  private readonly folder: ConstantFolder;

  constructor(
    private readonly resolved: ResolvedValues,
    private readonly live: readonly DraftOperator[],
    private readonly transposed: ReadonlyMap<string, Constant>,
    private readonly constants: readonly Constant[],
    private readonly facts: InitializerFacts,
  ) {
    this.folder = resolved.folder;
    this.taken = new Set([
      ...resolved.inputs.map((input) => input.name),
      ...resolved.outputs.map((output) => output.name),
      ...live.flatMap((draft) => draft.outputs.filter((output) => output !== null)),
    ]);
  }

  assembled(name: string): Assembled {
    const weights = new Map<string, Weight>();
    const sources = new Set(this.constants.map((constant) => constant.name));
    for (const constant of this.constants) {
      const weightName = this.weightName(constant, sources);
      const file = this.folder.fileTensorOf(constant);
      const weight: Weight = { ...this.folder.weightOf(constant, 'constant'), ...(file ? { file } : {}) };
      weights.set(weightName, weight);
      this.tensors.set(weightName, { dtype: weight.dtype, shape: weight.shape });
    }
    for (const { name: input, type } of this.resolved.inputs) this.tensors.set(input, type);
    const carried = this.nameOutputs();
    const kept = this.live.filter(
      (draft) => !draft.outputs.some((output) => output !== null && this.transposed.has(output)),
    );
    const nodes = [...kept.map((draft) => this.node(draft)), ...carried];
    return this.placed({
      name,
      nodes,
      tensors: this.tensors,
      inputs: this.resolved.inputs.map((input) => input.name),
      outputs: this.resolved.outputs.map((output) => output.name),
      weights,
      state: [],
      batch: [],
      domains: this.folder.domains,
    });
  }

  /**
   * A result that is an output of the file takes the output's name; an output that is an input, a weight or another
   * output gets an Identity.
   */
  private nameOutputs(): readonly Node[] {
    const made = new Set(this.live.flatMap((draft) => draft.outputs));
    const outputs = new Set(this.resolved.outputs.map((output) => output.name));
    const identities: Node[] = [];
    for (const { name, value } of this.resolved.outputs) {
      if (value.kind === 'tensor' && value.name === name) continue;
      const free =
        value.kind === 'tensor' &&
        made.has(value.name) &&
        !outputs.has(value.name) &&
        !this.renamed.has(value.name) &&
        !this.transposed.has(value.name);
      if (value.kind === 'tensor' && free) this.renamed.set(value.name, name);
    }
    for (const { name, value } of this.resolved.outputs) {
      if (!isTensor(value)) throw noTensorOutput(name, value);
      const source = this.operandName(value);
      if (source === name) continue;
      this.tensors.set(name, value.type);
      identities.push(plainNode({ name: `${name}/identity`, op: 'Identity', inputs: [source], outputs: [name] }));
    }
    return identities;
  }

  private node(draft: DraftOperator): Node {
    const outputs = draft.outputs.map((output, index) => {
      const type = draft.types[index];
      if (output === null || !type) return null;
      const name = this.renamed.get(output) ?? output;
      this.tensors.set(name, type);
      return name;
    });
    const inputs = draft.inputs.map((input) => (input === null ? null : this.operandName(input)));
    const { op, domain, attributes, module } = draft;
    return plainNode({ name: draft.name, op, domain, attributes, inputs, outputs, module });
  }

  private operandName(value: Value): string {
    if (!isTensor(value)) throw new Error(`a value of kind ${value.kind} reached the graph`);
    const constant = value.kind === 'constant' ? value.constant : this.transposed.get(value.name);
    if (!constant) return value.kind === 'tensor' ? (this.renamed.get(value.name) ?? value.name) : '';
    const name = this.weightNames.get(constant);
    if (name === undefined) throw new Error(`constant ${constant.name} has no weight`);
    return name;
  }

  /** A name for a weight: if its elements were only moved, the name of its origin. */
  private weightName(constant: Constant, sources: ReadonlySet<string>): string {
    const isMoved =
      constant.application?.inputs.length === 1 && isFloating(this.folder.weightOf(constant, 'constant').dtype);
    const stated = isMoved && constant.origin?.stated ? constant.origin.name : null;
    const origin = this.folder.fileTensorOf(constant)?.name ?? stated;
    const base = origin !== null && !sources.has(origin) ? origin : constant.name;
    let name = base;
    for (let ordinal = 2; this.taken.has(name); ordinal++) name = `${base}.${ordinal}`;
    this.taken.add(name);
    this.weightNames.set(constant, name);
    return name;
  }

  /** The weights with the roles that their places in the finished graph give them. */
  private placed(graph: Graph): Assembled {
    const around = neighbourLookups(graph);
    const places = parameterPlaces(graph, graph.weights.keys());
    const weights = new Map(graph.weights);
    const reasons = new Map<string, string>();
    for (const [constant, name] of this.weightNames) {
      const weight = graph.weights.get(name);
      if (!weight) continue;
      const source = constant.origin ?? constant;
      const verdict = parameterRole({
        ...around,
        type: weight,
        kind: constant.kind,
        isInitializer: source.stated,
        named: this.facts.inputs.has(source.name) || (this.facts.namesParameters && MODULES.test(source.name)),
        dotted: DOTTED.test(source.name),
        traced: this.facts.traced.get(source.name) ?? null,
        places: places.get(name) ?? [],
        values: () => valueEvidence(weight, weight.source),
      });
      weights.set(name, { ...weight, role: verdict.role });
      reasons.set(name, verdict.why);
    }
    return { graph: { ...graph, weights }, reasons };
  }
}

function noTensorOutput(tensor: string, { kind }: Value): AutoparError {
  const what = kind === 'sequence' ? 'a sequence of tensors' : 'an optional without a value';
  return new AutoparError(
    'unsupported-sequence',
    'input',
    `output '${tensor}' is ${what}, which autopar does not handle`,
    { tensor },
    'return the tensors as separate outputs',
  );
}
