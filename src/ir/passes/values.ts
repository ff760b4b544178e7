/**
 * @file Values as the walk of `resolveValues` knows them, and the operators that it keeps.
 */
import type { Attributes, TensorType } from '../graph.js';
import type { Constant, ConstantFolder } from './fold.js';

/** A value during the walk. A large constant is a tensor that an operator makes and a constant as well. */
export type Value =
  | { readonly kind: 'tensor'; readonly name: string; readonly type: TensorType; readonly constant: Constant | null }
  | { readonly kind: 'constant'; readonly type: TensorType; readonly constant: Constant }
  | { readonly kind: 'sequence'; readonly elements: readonly string[] }
  /** An optional without a value; one with a value is that value. */
  | { readonly kind: 'absent' };

/** A value that is one tensor. */
export type TensorValue = Exclude<Value, { readonly kind: 'sequence' | 'absent' }>;

export function isTensor(value: Value): value is TensorValue {
  return value.kind === 'tensor' || value.kind === 'constant';
}

/** An operator that stays. Operands are values: constants get their names when the walk is over. */
export interface DraftOperator {
  readonly name: string;
  readonly op: string;
  readonly domain: string;
  readonly attributes: Attributes;
  readonly inputs: readonly (Value | null)[];
  /** Names of the operands while the walk goes on. */
  readonly operands: readonly (string | null)[];
  readonly outputs: readonly (string | null)[];
  readonly types: readonly (TensorType | null)[];
  /** The results as constants, for an operator that could be folded (they are large, or a parameter transposed). */
  readonly constants: readonly Constant[] | null;
  readonly module: readonly string[];
}

export interface ResolvedValues {
  readonly drafts: readonly DraftOperator[];
  readonly inputs: readonly { readonly name: string; readonly type: TensorType }[];
  readonly outputs: readonly { readonly name: string; readonly value: Value }[];
  readonly folder: ConstantFolder;
  readonly notes: readonly string[];
}

/** The operands as constants; null where one of them depends on the data. */
export function constantsOf(values: readonly (Value | null)[]): readonly (Constant | null)[] | null {
  const constants = values.map((value) => (value !== null && isTensor(value) ? value.constant : null));
  return values.every((value, index) => value === null || constants[index]) ? constants : null;
}

/** The type of a tensor; null for a sequence, an optional without a value, or an operand left out. */
export function typeOfValue(value: Value | null): TensorType | null {
  return value !== null && isTensor(value) ? value.type : null;
}

/** A short text that is equal exactly for the same value. */
export function valueKey(value: Value | null): string {
  if (value === null) return '_';
  if (value.kind === 'constant') return `c${value.constant.id}`;
  return value.kind === 'tensor' ? `t${value.name}` : '_';
}

/** The graph inputs that the values are computed from; `makerOf` gives the operator that makes a tensor, if there is one. */
export function inputsBehind(
  values: readonly (Value | null)[],
  makerOf: (tensor: string) => DraftOperator | undefined,
): readonly string[] {
  const inputs = new Set<string>();
  const seen = new Set<DraftOperator>();
  const stack = [...values];
  while (stack.length > 0) {
    const value = stack.pop();
    if (value?.kind !== 'tensor') continue;
    const maker = makerOf(value.name);
    if (!maker) inputs.add(value.name);
    else if (!seen.has(maker)) {
      seen.add(maker);
      stack.push(...maker.inputs);
    }
  }
  return [...inputs].sort();
}
