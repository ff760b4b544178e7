/**
 * @file The unsharded model on plain ONNX Runtime: what a sharded program is compared with.
 */
import { AutoparError, type ConstantTensor } from '../program/values.js';
import { fromOrtTensor, toOrtTensor } from './cpu-backend.js';
import { loadOrt, sessionOptions } from './ort.js';

export interface ReferenceOptions {
  /** Threads of the one session; 1 by default. */
  readonly threads?: number;
  /** Whether ONNX Runtime may rewrite the graph; true by default. */
  readonly optimised?: boolean;
}

/**
 * Runs a whole ONNX model (a file, so that external data beside it is found, or its bytes) once on the CPU and gives
 * every output. Throws AutoparError (exit input) where ONNX Runtime refuses the model or the inputs.
 */
export async function runOnnx(
  model: string | Uint8Array,
  inputs: Readonly<Record<string, ConstantTensor>>,
  options: ReferenceOptions = {},
): Promise<Record<string, ConstantTensor>> {
  const ort = await loadOrt();
  const plain = options.optimised === false ? ({ graphOptimizationLevel: 'disabled' } as const) : {};
  const settings = { ...sessionOptions(options.threads ?? 1), ...plain };
  const where = typeof model === 'string' ? { file: model } : {};
  try {
    const session =
      typeof model === 'string'
        ? await ort.InferenceSession.create(model, settings)
        : await ort.InferenceSession.create(model, settings);
    try {
      const feeds = Object.entries(inputs).map(([name, value]) => [name, toOrtTensor(ort, value)] as const);
      const results = await session.run(Object.fromEntries(feeds));
      return Object.fromEntries(Object.entries(results).map(([name, tensor]) => [name, fromOrtTensor(tensor)]));
    } finally {
      await session.release();
    }
  } catch (error) {
    if (error instanceof AutoparError) throw error;
    const reason = error instanceof Error ? error.message : String(error);
    throw new AutoparError(
      'reference-failed',
      'input',
      `ONNX Runtime cannot run the unsharded model: ${reason}`,
      where,
      'check the model with onnx.checker and run it in ONNX Runtime alone',
    );
  }
}
