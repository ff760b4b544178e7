/**
 * @file Loading onnxruntime-node when it is first needed, with a clear error where its native part is absent.
 */
import type * as Ort from 'onnxruntime-node';
import { AutoparError } from '../program/values.js';

export type OrtModule = typeof Ort;

/**
 * ONNX Runtime sends usage data to its makers and writes files to the folder for temporary files, unless the environment forbids
 * it when the library is loaded. Threads of ranks have a copy of the environment: the thread that starts them must say it.
 */
export function withoutTelemetry(): void {
  process.env.ORT_DISABLE_TELEMETRY ??= '1';
}

/**
 * ONNX Runtime, logging errors only. Throws AutoparError `backend-absent` (exit backendAbsent).
 * `load` imports it (tests pass one that fails).
 */
export async function loadOrt(load: () => Promise<OrtModule> = () => import('onnxruntime-node')): Promise<OrtModule> {
  let ort: OrtModule;
  withoutTelemetry();
  try {
    ort = await load();
    // Listing the backends touches the native binding, which loads lazily.
    ort.listSupportedBackends();
  } catch (error) {
    const reason = error instanceof Error ? (error.message.split('\n')[0] ?? '') : String(error);
    throw new AutoparError(
      'backend-absent',
      'backendAbsent',
      `onnxruntime-node cannot be loaded: ${reason}`,
      {},
      'install it without its CUDA download: ONNXRUNTIME_NODE_INSTALL=skip npm install onnxruntime-node',
    );
  }
  ort.env.logLevel = 'error';
  return ort;
}

/**
 * Where both operands of a MatMul before an Add are transposed, GemmTransposeFusion drops a Transpose whose result is an output
 * of the model as well: the output is never written (ONNX Runtime 1.30).
 */
export const SOUND_OPTIMISATIONS = { optimization: { disable_specified_optimizers: 'GemmTransposeFusion' } };

/** How every CPU session is made: one thread pool of `threads`, operators in order, sound optimisations, errors logged only. */
export function sessionOptions(threads: number): Ort.InferenceSession.SessionOptions {
  return {
    executionProviders: ['cpu'],
    intraOpNumThreads: threads,
    interOpNumThreads: 1,
    executionMode: 'sequential',
    graphOptimizationLevel: 'all',
    extra: SOUND_OPTIMISATIONS,
    logSeverityLevel: 3,
  };
}
