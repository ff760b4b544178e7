/**
 * @file Which attributes are floats. A Graph keeps attributes as plain numbers; ONNX tells INT from FLOAT, so the writer
 * must know. In ONNX's own domain and in those of ONNX Runtime a name has one type wherever it occurs.
 */

/** Attributes that are FLOAT or FLOATS whenever they are numbers. */
const FLOAT_NAMES: ReadonlySet<string> = new Set([
  'activation_alpha',
  'activation_beta',
  'alpha',
  'beta',
  'bias',
  'clip',
  'cubic_coeff_a',
  'decay_factor',
  'epsilon',
  'extrapolation_value',
  'gamma',
  'high',
  'lambd',
  'low',
  'mask_filter_value',
  'max',
  'mean',
  'min',
  'momentum',
  'norm_coefficient',
  'norm_coefficient_post',
  'ratio',
  'sample_size_ratio',
  'scale',
  'scales',
  'seed',
  'softcap',
  'spatial_scale',
  'threshold',
  'value_float',
  'value_floats',
]);

/** Whether a number (or list) under this attribute name is written as FLOAT(S). A number with a fraction always is. */
export function isFloatAttribute(name: string, values: readonly number[]): boolean {
  return FLOAT_NAMES.has(name) || values.some((value) => !Number.isInteger(value));
}
