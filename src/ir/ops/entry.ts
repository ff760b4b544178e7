/**
 * @file How entries are written: a record with defaults filled in, so that a family file states only what is particular.
 */

import { byteLength } from '../dtype.js';
import type { FactorRule } from '../factor-rule.js';
import { elementCount, type TensorType } from '../graph.js';
import type { OperatorEntry, OperatorView, Work } from '../operator.js';
import { bindRule } from '../rule-text.js';

/** An entry's rule: text that fits every use, text made from the operator, or a rule bound already. */
type RuleSource = string | ((view: OperatorView) => string | FactorRule);

type Required = 'op' | 'family' | 'infer';
type Defaulted = 'domain' | 'constantInputs' | 'linear' | 'work' | 'rule';

/** What a family file writes for one operator. */
type EntryParts = Pick<OperatorEntry, Required> &
  Partial<Omit<OperatorEntry, Required | 'rule'>> & { readonly rule: RuleSource };

/** Fills in: ONNX's own domain, no constant inputs, not linear, one floating-point operation per result element. */
export function entry(parts: EntryParts): OperatorEntry {
  const { rule, ...rest } = parts;
  const defaults: Pick<OperatorEntry, Defaulted> = {
    domain: '',
    constantInputs: [],
    linear: () => [],
    work: perElement(1),
    rule: (view) => {
      const source = typeof rule === 'string' ? rule : rule(view);
      return typeof source === 'string' ? bindRule(source, view) : source;
    },
  };
  return { ...defaults, ...rest };
}

/** Work of `flops` floating-point operations per element of the first result. */
export function perElement(flops: number): OperatorEntry['work'] {
  return (view) => ({ flops: flops * elementsOf(view.outputs) });
}

/** Work of `flops` floating-point operations per element of the first operand (reductions, normalisations). */
export function perInputElement(flops: number): OperatorEntry['work'] {
  return (view) => ({ flops: flops * elementsOf(view.inputs) });
}

/** Work of an operator that only moves what it writes: as many bytes read as written. */
export const moves: OperatorEntry['work'] = (view) => ({ flops: 0, bytes: 2 * bytesOf(view.outputs) });

/** Work of an operator that reads rows by index: the rows, the indices, and the result; not the whole table. */
export function readsRows(indexInput: number): OperatorEntry['work'] {
  return (view) => ({ flops: 0, bytes: 2 * bytesOf(view.outputs) + bytesOf([view.inputs[indexInput] ?? null]) });
}

/** Work of an operator that makes nothing but another view of its operand. */
export const isFree: OperatorEntry['work'] = (): Work => ({ flops: 0, bytes: 0 });

/** Linear in each of the operand sets given, whatever the types. */
export function linearIn(...sets: readonly (readonly number[])[]): OperatorEntry['linear'] {
  return () => sets;
}

/** Indices of the operands that are there. */
export function presentOperands(view: OperatorView): readonly number[] {
  return view.inputs.flatMap((type, index) => (type ? [index] : []));
}

function elementsOf(types: readonly (TensorType | null)[]): number {
  const first = types.find((type) => type !== null);
  return first ? elementCount(first.shape) : 0;
}

function bytesOf(types: readonly (TensorType | null)[]): number {
  return types.reduce((sum, type) => sum + (type ? byteLength(type.dtype, elementCount(type.shape)) : 0), 0);
}
