/**
 * @file The notation of sample operators: operands with the range of their random values, and the operator itself.
 */
import type { DType } from '../../../src/ir/dtype.js';
import type { Attributes } from '../../../src/ir/graph.js';

/** An operand: shape, dtype, and the range its random values are drawn from. */
export interface Sample {
  readonly shape: readonly number[];
  readonly dtype: DType;
  readonly low: number;
  readonly high: number;
  /** Added to the values of each slice along the first dimension: the number of the slice times this. */
  readonly step?: number;
}

export interface Case {
  readonly op: string;
  /** '' for ONNX's own. */
  readonly domain: string;
  readonly inputs: readonly (Sample | null)[];
  readonly attributes: Attributes;
  readonly outputs: number;
  /** Relative tolerance; 1e-4 by default. */
  readonly tolerance?: number;
}

/** float32 in [-1, 1). */
export const f = (...shape: number[]): Sample => ({ shape, dtype: 'float32', low: -1, high: 1 });
/** float16 in [-1, 1). */
export const h = (...shape: number[]): Sample => ({ shape, dtype: 'float16', low: -1, high: 1 });
/** float32 in [0.5, 2). */
export const positive = (...shape: number[]): Sample => ({ shape, dtype: 'float32', low: 0.5, high: 2 });
/** float32 in [-8, 8). */
export const wide = (...shape: number[]): Sample => ({ shape, dtype: 'float32', low: -8, high: 8 });
/** int64 in [0, high). */
export const i = (high: number, ...shape: number[]): Sample => ({ shape, dtype: 'int64', low: 0, high });
/** int64 in [-size, size). */
export const signed = (size: number, ...shape: number[]): Sample => ({ shape, dtype: 'int64', low: -size, high: size });
/** bool. */
export const b = (...shape: number[]): Sample => ({ shape, dtype: 'bool', low: 0, high: 2 });
/** any dtype in [0, high). */
export const of = (dtype: DType, high: number, ...shape: number[]): Sample => ({ shape, dtype, low: 0, high });
/** An operator of ONNX's own domain. */
export const c = (
  op: string,
  inputs: readonly (Sample | null)[],
  attributes: Attributes = {},
  outputs = 1,
  tolerance = 1e-4,
): Case => ({
  op,
  domain: '',
  inputs,
  attributes,
  outputs,
  tolerance,
});

/** An operator of ONNX Runtime's domain. */
export const ms = (...parts: Parameters<typeof c>): Case => ({ ...c(...parts), domain: 'com.microsoft' });

/** An operator of ONNX's classical machine learning. */
export const ml = (...parts: Parameters<typeof c>): Case => ({ ...c(...parts), domain: 'ai.onnx.ml' });

/** Two quantised operands with a scale and zero point each, those of the result, and what follows. */
export const quantised = (left: number[], right: number[], ...more: Sample[]): readonly Sample[] => {
  const scaled = (shape: number[]) => [of('uint8', 9, ...shape), positive(), of('uint8', 3)];
  return [...scaled(left), ...scaled(right), positive(), of('uint8', 3), ...more];
};
