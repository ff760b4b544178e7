/**
 * @file Writing registry entries: a record with defaults filled in, so that a family file states only what is particular.
 */

import { byteLength } from '../dtype.js';
import { AutoparError } from '../error.js';
import type { FactorRule } from '../factor-rule.js';
import { type Attributes, elementCount, type TensorType } from '../graph.js';
import { FORM_WORDS, formOfAttribute, hasForm } from '../onnx/attribute-types.js';
import type { Operator, OperatorEntry, OperatorFamily, OperatorPrecision, Work } from '../operator.js';
import { remembered } from '../remembered.js';
import { bindRule } from '../rule-text.js';
import { axisOf, mismatch, operand } from './operands.js';

/** An entry's rule: text that fits every use, text made from the operator, or a rule bound already. */
type RuleSource = string | ((operator: Operator) => string | FactorRule);

type Required = 'op' | 'family' | 'infer';
type Defaulted = 'precision' | 'domain' | 'constantInputs' | 'linear' | 'work' | 'rule';

/** Matmuls, convolutions and attention are computed in 16 bit; statistics, sums and losses are not. */
const PRECISIONS: Readonly<Record<OperatorFamily, OperatorPrecision>> = {
  contraction: 'low',
  convolution: 'low',
  attention: 'low',
  elementwise: 'follow',
  pooling: 'follow',
  view: 'follow',
  indexing: 'follow',
  generator: 'follow',
  sort: 'follow',
  normalisation: 'full',
  reduction: 'full',
  recurrent: 'full',
  loss: 'full',
  other: 'full',
};

/** The precision of a family's operators if their entry states no other. */
export function familyPrecision(family: OperatorFamily): OperatorPrecision {
  return PRECISIONS[family];
}

/** The parts of an entry that a family file writes for one operator. */
type EntryParts = Pick<OperatorEntry, Required> &
  Partial<Omit<OperatorEntry, Required | 'rule'>> & { readonly rule: RuleSource };

/**
 * Fills in: ONNX's own domain, no constant inputs, not linear, its family's precision, one floating-point operation per result
 * element. `infer` and `complete` are made to refuse attributes of a wrong form, `infer` also tensors too large to be counted.
 */
export function entry(parts: EntryParts): OperatorEntry {
  const { rule, infer, complete, ...rest } = parts;
  // Every strategy reads an operator's rule again, and operators never change.
  const ruleOf = remembered((operator: Operator) => boundRule(operator, rule));
  const held = new Set(parts.constantInputs?.map(({ attribute }) => attribute));
  const checkAttributes = (operator: Operator) => {
    for (const name of Object.keys(operator.attributes)) if (!held.has(name)) checkAttribute(operator, name, parts);
  };
  const defaults: Pick<OperatorEntry, Defaulted> = {
    precision: familyPrecision(parts.family),
    domain: '',
    constantInputs: [],
    linear: () => [],
    work: perElement(1),
    rule: ruleOf,
  };
  return {
    ...defaults,
    ...rest,
    ...(complete && {
      complete: (operator: Operator) => {
        checkAttributes(operator);
        return complete(operator);
      },
    }),
    infer: (operator) => {
      checkAttributes(operator);
      for (const type of operator.inputs) if (type) checkSizes(operator, type);
      const types = infer(operator);
      for (const type of types) checkSizes(operator, type);
      return types;
    },
  };
}

/** Shapes that do not fit the rule are an error in the model: inference checks each alone, the rule relates them. */
function boundRule(operator: Operator, rule: RuleSource): FactorRule {
  try {
    const source = typeof rule === 'string' ? rule : rule(operator);
    return typeof source === 'string' ? bindRule(source, operator) : source;
  } catch (error) {
    if (error instanceof AutoparError || !(error instanceof Error)) throw error;
    throw mismatch(operator, `its shapes and attributes do not fit each other (${error.message})`);
  }
}

/** Constant inputs are tensors that the reader turned into numbers; all other attributes are as the file has them. */
function checkAttribute(operator: Operator, name: string, { attributes: own }: EntryParts): void {
  const value = operator.attributes[name];
  const form = formOfAttribute(name, own);
  if (value === undefined || form === undefined || hasForm(value, form)) return;
  const shown = typeof value === 'object' && 'data' in value ? 'a tensor' : JSON.stringify(value, plainNumbers);
  throw new AutoparError(
    'unsupported-attribute',
    'input',
    `${operator.op} ${operator.name}: its attribute '${name}' is ${shown}, where ${FORM_WORDS[form]} is expected`,
    { node: operator.name },
    'The file is damaged or was edited there; export the model again.',
  );
}

function plainNumbers(_: string, value: unknown): unknown {
  return typeof value === 'bigint' ? Number(value) : value;
}

/** Refuses invalid sizes, and tensors with more elements than can be counted exactly. */
function checkSizes(operator: Operator, { dtype, shape }: TensorType): void {
  const sound = shape.every((size) => Number.isSafeInteger(size) && size >= 0);
  if (sound && Number.isSafeInteger(elementCount(shape))) return;
  throw mismatch(operator, `${dtype}[${shape.join(', ')}] ${sound ? 'has more than 2^53 elements' : 'is not a shape'}`);
}

/** The rule of an operator that is replicated: every dimension of every operand and result is a whole factor of its own. */
export function unsharded({ inputs, outputs }: Operator): string {
  const side = (types: Operator['inputs'], prefix: string) =>
    types.map((type, index) => type?.shape.map((_, axis) => `${prefix}${index}_${axis}!`).join(' ') ?? '_').join(', ');
  return `${side(inputs, 'x')} -> ${side(outputs, 'y')}`;
}

/** Attributes whose `axis` counts from the front. */
export function axisFromFront(otherwise: number): (operator: Operator) => Attributes {
  return (operator) => ({
    ...operator.attributes,
    axis: axisOf(operator, 'axis', operand(operator, 0).shape.length, otherwise),
  });
}

/** Work of `flops` floating-point operations per element of the first result. */
export function perElement(flops: number): OperatorEntry['work'] {
  return (operator) => ({ flops: flops * elementsOf(operator.outputs) });
}

/** Work of `flops` floating-point operations per element of the first operand (reductions, normalisations). */
export function perInputElement(flops: number): OperatorEntry['work'] {
  return (operator) => ({ flops: flops * elementsOf(operator.inputs) });
}

/** Work of an operator that only moves what it writes: as many bytes read as written. */
export const moves: OperatorEntry['work'] = (operator) => ({ flops: 0, bytes: 2 * bytesOf(operator.outputs) });

/** Work of an operator that reads rows by index: the rows, the indices, and the result; not the whole table. */
export function readsRows(indexInput: number): OperatorEntry['work'] {
  return (operator) => ({
    flops: 0,
    bytes: 2 * bytesOf(operator.outputs) + bytesOf([operator.inputs[indexInput] ?? null]),
  });
}

/** Work of an operator that only returns another view of its operand. */
export const isFree: OperatorEntry['work'] = (): Work => ({ flops: 0, bytes: 0 });

/** Linear in each of the operand sets given, whatever the types. */
export function linearIn(...sets: readonly (readonly number[])[]): OperatorEntry['linear'] {
  return () => sets;
}

/** Indices of the operands that are present. */
export function presentOperands(operator: Operator): readonly number[] {
  return operator.inputs.flatMap((type, index) => (type ? [index] : []));
}

export function elementsOf(types: readonly (TensorType | null)[]): number {
  const first = types.find((type) => type !== null);
  return first ? elementCount(first.shape) : 0;
}

export function bytesOf(types: readonly (TensorType | null)[]): number {
  return types.reduce((sum, type) => sum + (type ? byteLength(type.dtype, elementCount(type.shape)) : 0), 0);
}
