/**
 * @file What PyTorch's exporter tells of the values that it computed itself. It names a module's parameters and buffers, writes
 * with every operator which operator of the traced program it is part of, and keeps what it folded as initializers without a name
 * of a module:
 *
 *     val_20        read by an operator of %group_norm(…, %p_g_weight, %p_g_bias): made of one of these, or a helper of the expansion
 *     embedding_1   %add(%embedding, %embedding_1): a value of the program, computed from module state or from nothing
 */
import { isFloating } from '../dtype.js';
import type { OnnxModel, SourceNode } from '../onnx/model.js';
import type { IdentityUse } from './identities.js';

/** Of an initializer that the exporter does not name. */
export interface TracedConstant {
  /** Why it is made of no parameter; null where it may be. */
  readonly closed: string | null;
  /** `helper`: read inside of what one operator of the program became; `value`: a value of the program itself. */
  readonly form: 'helper' | 'value';
  /** The parameter that it is made of, where only one is left over. */
  readonly of: string | null;
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
  const found = new Map<string, TracedConstant>();
  for (const { inputs, traced = '' } of nodes) {
    // What the operator of the program reads, and no operator that it became.
    const hidden = valuesIn(traced)
      .slice(1)
      .filter((value) => {
        const name = nameOf.get(value);
        return name === undefined ? !known.has(value) : !read.get(traced)?.has(name);
      });
    for (const name of inputs) {
      const type = name === null ? undefined : initializers.get(name);
      if (name === null || !type || !isFloating(type.dtype) || model.kinds.has(name)) continue;
      const told = tracedUse(name, valuesIn(traced), hidden.length > 0, folded.length > 0);
      if ((found.get(name)?.closed ?? '') !== null) found.set(name, told);
    }
  }
  const open = [...found].filter(([, { form, closed }]) => form === 'value' && closed === null);
  const [only] = open;
  if (folded.length === 1 && open.length === 1 && only) found.set(only[0], { ...only[1], of: folded[0] ?? null });
  return found;
}

function tracedUse(name: string, values: readonly string[], anyHidden: boolean, anyFolded: boolean): TracedConstant {
  if (values.includes(name) || values.length === 0) {
    const generated = GENERATED.test(name) ? 'made by the model’s code of nothing (the exporter’s record)' : null;
    const closed = anyFolded ? generated : 'the exporter’s record has every parameter elsewhere';
    return { closed, form: 'value', of: null };
  }
  const closed = anyHidden ? null : 'a helper of what the exporter made of one operator (its record)';
  return { closed, form: 'helper', of: null };
}

/** The names in `%a : … (args = (%b, %c))`. */
export function valuesIn(traced: string): readonly string[] {
  return [...traced.matchAll(/%(\w+)/g)].map(([, name = '']) => name);
}

/** Uses of the constants that are made of one parameter, under that parameter's name. */
export function tracedNames(
  traced: ReadonlyMap<string, TracedConstant>,
  nodes: readonly SourceNode[],
): readonly IdentityUse[] {
  const named = [...traced].flatMap(([weight, { of }]) => (of === null ? [] : [{ weight, name: of }]));
  return named.flatMap((item) => [
    // An initializer whose elements are repeated is read by an operator of its own name.
    { ...item, node: item.weight },
    ...nodes.flatMap(({ name, inputs }) =>
      name !== '' && inputs.includes(item.weight) ? [{ ...item, node: name }] : [],
    ),
  ]);
}
