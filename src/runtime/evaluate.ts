/**
 * @file Evaluates small ONNX models with ONNX Runtime: import uses it to fold constants and to try unknown operators.
 */
import type { ConstantTensor } from '../program/values.js';
import { loadOrt, sessionOptions } from './ort.js';
import { fromOrtTensor, toOrtTensor } from './ort-backend.js';

/**
 * Runs `model` (bytes of an ONNX model without external data) on `inputs` and returns all its outputs. The graph runs as
 * it is: optimising a model that runs once costs more than it saves. Throws ONNX Runtime's own errors.
 */
export async function evaluate(
  model: Uint8Array,
  inputs: Readonly<Record<string, ConstantTensor>>,
): Promise<Readonly<Record<string, ConstantTensor>>> {
  const ort = await loadOrt();
  const session = await ort.InferenceSession.create(model, {
    ...sessionOptions(1),
    graphOptimizationLevel: 'disabled',
    logSeverityLevel: 4,
  });
  try {
    const feeds = Object.entries(inputs).map(([name, value]) => [name, toOrtTensor(ort, value)] as const);
    const results = await session.run(Object.fromEntries(feeds));
    return Object.fromEntries(Object.entries(results).map(([name, tensor]) => [name, fromOrtTensor(tensor)]));
  } finally {
    await session.release();
  }
}
