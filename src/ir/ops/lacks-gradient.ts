/**
 * @file Operators that could be differentiated and are not, each with the reason: what is trained behind one is an error that
 * says it (docs/reference/operators.md lists them), never a gradient that lacks a part.
 */
import type { OperatorEntry } from '../operator.js';

const TABLES = 'it is made for tables before training, with constants as attributes';

const REASONS: Readonly<Record<string, string>> = {
  'ai.onnx.ml:ArrayFeatureExtractor': TABLES,
  'ai.onnx.ml:Imputer': TABLES,
  'ai.onnx.ml:LinearRegressor': TABLES,
  'ai.onnx.ml:Normalizer': TABLES,
  'ai.onnx.ml:Scaler': TABLES,
};

/** The entry, with the reason why it has no gradient where it has none. */
export function withReason(entry: OperatorEntry): OperatorEntry {
  const reason = REASONS[`${entry.domain}:${entry.op}`];
  return reason === undefined || entry.gradient !== undefined ? entry : { ...entry, lacksGradient: reason };
}
