/**
 * @file The record of PyTorch's exporter on the values that it computed itself. It names a module's parameters and buffers,
 * writes with every operator which operator of the traced program it is part of, and stores folded values as initializers
 * without a module's name:
 *
 *     val_20        read by an operator of %group_norm(…, %p_g_weight, %p_g_bias): made of one of these, or a helper of the
 * expansion
 *     embedding_1   %add(%embedding, %embedding_1): a value of the program, computed from module state or from nothing
 *
 * onnxscript lists beside it what it was computed from: ['wpe.weight', 'arange', 'unsqueeze'].
 */
import { isFloating } from '../dtype.js';
import type { OnnxModel, SourceNode } from '../onnx/model.js';
import type { IdentityUse } from './identities.js';
import { isMadeUp } from './units.js';

/** The record on an initializer that the exporter does not name. */
export interface TracedConstant {
  /** Why it is made of no parameter; null where it may be. */
  readonly closed: string | null;
  /** `helper`: read by operators that one operator of the program became; `value`: a value of the program itself. */
  readonly form: 'helper' | 'value';
  /** The parameter that it is made of, where only one is left over. */
  readonly of: string | null;
  /** Whether the exporter lists a parameter among what it was computed from. */
  readonly isListed: boolean;
}

/** Values that the program makes of nothing, by the name that the exporter gives them. */
const GENERATED =
  /^(new_)?(zeros|ones|full|empty|arange|linspace|eye|scalar_tensor|lift_fresh_copy)(_like|_default)?(_\d+)*$/;

/** By initializer; empty for a file without the exporter's record. */
export function tracedConstants(model: OnnxModel, nodes: readonly SourceNode[]): ReadonlyMap<string, TracedConstant> {
  const { initializers } = model.graph;
  const parameters = model.recorded.filter(({ kind }) => kind === 'parameter');
  if (parameters.length === 0) return new Map();
  const lacking = parameters.filter(({ name }) => !initializers.has(name));
  const mentioned = new Set(nodes.flatMap(({ traced = '' }) => valuesIn(traced)));
  // A parameter that no operator mentions was read by operators that are folded.
  const folded = lacking.filter(({ placeholder }) => !mentioned.has(placeholder)).map(({ name }) => name);
  const known = new Set([
    ...model.graph.inputs.map(({ name }) => name),
    ...nodes.flatMap(({ outputs }) => outputs.filter((output) => output !== null)),
    ...[...initializers].flatMap(([name, { dtype }]) => (isFloating(dtype) ? [] : [name])),
  ]);
  const read = new Map<string, Set<string>>();
  for (const { inputs, traced = '' } of nodes)
    for (const input of inputs) if (input !== null) read.set(traced, (read.get(traced) ?? new Set()).add(input));
  const nameOf = new Map(model.recorded.map(({ name, placeholder }) => [placeholder, name]));
  const moved = movedParameters(model);
  const found = new Map<string, TracedConstant>();
  for (const { inputs, traced = '' } of nodes) {
    // Values that the operator of the program reads, but none of the operators that it became.
    const hidden = valuesIn(traced)
      .slice(1)
      .filter((value) => {
        const name = nameOf.get(value);
        return name === undefined ? !known.has(value) : !read.get(traced)?.has(name);
      });
    for (const name of inputs) {
      const type = name === null ? undefined : initializers.get(name);
      if (name === null || !type || !isFloating(type.dtype) || model.kinds.has(name)) continue;
      const listed = foldedParametersOf(model, name);
      const isListed = listed !== null && listed.length > 0;
      const told =
        listed?.length === 0
          ? { closed: 'computed from no parameter (exporter metadata)', form: 'value' as const, of: null, isListed }
          : {
              ...tracedUse(name, valuesIn(traced), hidden.length > 0, folded.length > 0),
              of: moved.get(name) ?? null,
              isListed,
            };
      if ((found.get(name)?.closed ?? '') !== null) found.set(name, told);
    }
  }
  const open = [...found].filter(([, { form, closed }]) => form === 'value' && closed === null);
  const [only] = open;
  if (folded.length === 1 && open.length === 1 && only) found.set(only[0], { ...only[1], of: folded[0] ?? null });
  return found;
}

/** The parameters that the exporter lists among what it computed an initializer from; null where it lists nothing. */
function foldedParametersOf({ foldedFrom, recorded }: OnnxModel, initializer: string): readonly string[] | null {
  const from = new Set(foldedFrom.get(initializer) ?? []);
  if (from.size === 0) return null;
  const found = recorded.filter(({ name, placeholder }) => from.has(name) || from.has(placeholder));
  return found.flatMap(({ kind, name }) => (kind === 'parameter' ? [name] : []));
}

/** Operators of the program that only move elements, and the exporter's own values. */
const MOVES =
  /^(t|numpy_T|permute|transpose|view|reshape|unsqueeze|squeeze|expand|slice|select|clone|alias|contiguous|val)(_\d+)*$/;

/** Initializers that have the elements of one parameter, or rows of it, and are the only ones computed from it. */
function movedParameters(model: OnnxModel): ReadonlyMap<string, string> {
  const { initializers } = model.graph;
  const made = new Map<string, string[]>();
  for (const [name, { dtype }] of initializers)
    for (const parameter of isFloating(dtype) ? (foldedParametersOf(model, name) ?? []) : [])
      made.set(parameter, [...(made.get(parameter) ?? []), name]);
  const found = new Map<string, string>();
  for (const [parameter, [name = '', ...others]] of made) {
    if (initializers.has(parameter) || others.length > 0 || name.startsWith('val_')) continue;
    if (isMoved(model, name)) found.set(name, parameter);
  }
  return found;
}

/** Whether the exporter computed an initializer by moving or looking up elements of one parameter. */
function isMoved(model: OnnxModel, name: string): boolean {
  const from = model.foldedFrom.get(name) ?? [];
  const recorded = new Set(model.recorded.map((tensor) => tensor.name));
  // What else a lookup was computed from is its indices.
  const steps = name.startsWith('embedding') ? [] : [name, ...from];
  return steps.every((step) => MOVES.test(step) || recorded.has(step)) && foldedParametersOf(model, name)?.length === 1;
}

/** Parameters that the file has only as values that the exporter computed from them, such as exp(p) and 1 + p. */
export function computedParameters(model: OnnxModel): readonly string[] {
  const { initializers } = model.graph;
  const computed = [...initializers].flatMap(([name, { dtype }]) =>
    isFloating(dtype) && !isMoved(model, name) ? (foldedParametersOf(model, name) ?? []) : [],
  );
  return [...new Set(computed)].filter((name) => !initializers.has(name));
}

function tracedUse(
  name: string,
  values: readonly string[],
  anyHidden: boolean,
  anyFolded: boolean,
): Pick<TracedConstant, 'closed' | 'form'> {
  if (values.includes(name) || values.length === 0) {
    const generated = GENERATED.test(name) ? 'generated by the model’s code without inputs (exporter metadata)' : null;
    const closed = anyFolded ? generated : 'not among the parameters in the exporter metadata';
    return { closed, form: 'value' };
  }
  const closed = anyHidden ? null : 'a helper constant of an operator’s decomposition (exporter metadata)';
  return { closed, form: 'helper' };
}

/** The names in `%a : … (args = (%b, %c))`. */
export function valuesIn(traced: string): readonly string[] {
  return [...traced.matchAll(/%(\w+)/g)].map(([, name = '']) => name);
}

/** Uses of initializers under the names of the parameters that they are there. */
export function recordedUses(
  model: OnnxModel,
  nodes: readonly SourceNode[],
  traced: ReadonlyMap<string, TracedConstant>,
): readonly IdentityUse[] {
  const reads = recordedReads(model, nodes);
  return nodes.flatMap(({ name, inputs, traced: text = '' }) => {
    const held = new Set(inputs.filter((input) => input !== null));
    return [...held].flatMap((weight): readonly IdentityUse[] => {
      const of = reads.get(text)?.names.get(weight) ?? traced.get(weight)?.of ?? null;
      if (name === '' || of === null) return [];
      // An initializer whose elements are repeated is read by an operator of its own name.
      return [
        { weight, name: of, node: name },
        ...(traced.get(weight)?.of === of ? [{ weight, name: of, node: weight }] : []),
      ];
    });
  });
}

/** The parameters of one operator of the program, as read by the operators that it became. */
export interface RecordedReads {
  /** By initializer with another name in the file: the parameter that it is here. */
  readonly names: ReadonlyMap<string, string>;
  /** Parameters that the operator of the program reads, but none of the operators that it became. */
  readonly lacking: readonly string[];
}

/**
 * By operator of the program. The exporter stores parameters with equal values once, under the name of the first, and transposed
 * matrices under a name of its own: those that an operator reads are the parameters that its record mentions and the file does
 * not name there, where the end of the name (`.bias`) or a single remaining one identifies them.
 */
export function recordedReads(model: OnnxModel, nodes: readonly SourceNode[]): ReadonlyMap<string, RecordedReads> {
  const { initializers } = model.graph;
  const nameOf = new Map(model.recorded.map(({ name, placeholder }) => [placeholder, name]));
  const parameters = new Set(model.recorded.flatMap(({ kind, name }) => (kind === 'parameter' ? [name] : [])));
  const read = new Map<string, Set<string>>();
  for (const { inputs, traced = '' } of nodes)
    for (const input of inputs)
      if (input !== null && isFloating(initializers.get(input)?.dtype ?? 'int64'))
        read.set(traced, (read.get(traced) ?? new Set()).add(input));
  const mentionedIn = (traced: string) => valuesIn(traced).flatMap((value) => nameOf.get(value) ?? []);
  // A parameter that no operator reads as itself is no merged one: its operator was fused with another one, as Conv with
  // BatchNormalization, and the file has the fused value under its name.
  const own = new Set([...read].flatMap(([traced, held]) => mentionedIn(traced).filter((name) => held.has(name))));
  return new Map(
    [...read].map(([traced, held]) => {
      const mentioned = mentionedIn(traced);
      let lacking = [...new Set(mentioned)].filter((name) => parameters.has(name) && !held.has(name));
      const names = new Map<string, string>();
      const give = (weight: string, name: string | undefined): void => {
        if (name === undefined) return;
        names.set(weight, name);
        lacking = lacking.filter((other) => other !== name);
      };
      const strange = [...held].filter((name) => !mentioned.includes(name));
      const merged = strange.filter((name) => own.has(name) && parameters.has(name));
      for (const weight of merged) {
        const alike = lacking.filter((name) => endOf(name) === endOf(weight));
        if (alike.length === 1 && merged.filter((other) => endOf(other) === endOf(weight)).length === 1)
          give(weight, alike[0]);
      }
      const open = strange.filter(
        (name) =>
          !names.has(name) &&
          (merged.includes(name) || (isMadeUp(name) && (initializers.get(name)?.shape.length ?? 0) > 1)),
      );
      const [only] = open;
      if (only !== undefined && open.length === 1 && lacking.length === 1) give(only, lacking[0]);
      return [traced, { names, lacking }] as const;
    }),
  );
}

function endOf(name: string): string | undefined {
  return name.split('.').at(-1);
}
