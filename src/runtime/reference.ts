/**
 * @file The unsharded model on plain ONNX Runtime: what a sharded program is compared with.
 */
import type { ProgramNode } from '../program/program.js';
import { AutoparError, type ConstantTensor } from '../program/values.js';
import { fromOrtTensor, toOrtTensor } from './cpu-backend.js';
import { type Complaint, complaintOf, withoutKernel } from './no-kernel.js';
import { loadOrt, sessionOptions } from './ort.js';

export interface ReferenceOptions {
  /** Threads of the one session; 1 by default. */
  readonly threads?: number;
  /** The model's node that ONNX Runtime complains of. */
  readonly nodeOf?: (complaint: Complaint) => ProgramNode | null;
}

/**
 * Runs a whole ONNX model (a file, so that external data beside it is found, or its bytes) once on the CPU and gives
 * every output. Throws AutoparError `unsupported-operator` (exit backendAbsent) where it has no kernel for a node, `reference-failed`
 * (exit input) where it refuses the model or the inputs otherwise.
 */
export async function runOnnx(
  model: string | Uint8Array,
  inputs: Readonly<Record<string, ConstantTensor>>,
  options: ReferenceOptions = {},
): Promise<Record<string, ConstantTensor>> {
  const ort = await loadOrt();
  const settings = sessionOptions(options.threads ?? 1);
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
    const absent = complaintOf(reason);
    if (absent !== null)
      throw withoutKernel(
        'ONNX Runtime itself cannot run the unsharded model: it',
        options.nodeOf?.(absent) ?? (absent.node === '' ? null : { name: absent.node, op: absent.op, dtypes: [] }),
        reason,
        'export this operator in another type, or as others; planning needs no kernels',
      );
    throw new AutoparError(
      'reference-failed',
      'input',
      `ONNX Runtime cannot run the unsharded model: ${reason}`,
      where,
      'check the model with onnx.checker and run it in ONNX Runtime alone',
    );
  }
}
