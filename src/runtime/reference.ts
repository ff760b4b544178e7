/**
 * @file The unsharded model on plain ONNX Runtime: the reference for a sharded program.
 */
import type * as Ort from 'onnxruntime-node';
import type { ProgramNode } from '../program/program.js';
import { AutoparError, type ConstantTensor, type DType, dtypeOfOnnx } from '../program/values.js';
import { BACKENDS } from './backend.js';
import { type Complaint, complaintOf, withoutKernel } from './no-kernel.js';
import { loadOrt, sessionOptions } from './ort.js';
import { fromOrtTensor, toOrtTensor } from './ort-backend.js';

export interface ReferenceOptions {
  /** Threads of the one session; 1 by default. */
  readonly threads?: number;
  /** Whether ONNX Runtime may rewrite the graph; true by default. */
  readonly optimised?: boolean;
  /** The model's node that ONNX Runtime complains of. */
  readonly nodeOf?: (complaint: Complaint) => ProgramNode | null;
}

/** A model that is loaded once and can run any number of times. */
export interface OpenedOnnx {
  /** Every output. @throws AutoparError `reference-failed` (exit input) where ONNX Runtime refuses the inputs. */
  readonly run: (inputs: Readonly<Record<string, ConstantTensor>>) => Promise<Record<string, ConstantTensor>>;
  readonly release: () => Promise<void>;
}

/**
 * Loads a whole ONNX model (a file, so that external data beside it is found, or its bytes) on the CPU. Throws AutoparError
 * `unsupported-operator` (exit backendAbsent) where it has no kernel for a node, `reference-failed` (exit input) where ONNX
 * Runtime refuses the model otherwise.
 */
export async function openOnnx(model: string | Uint8Array, options: ReferenceOptions = {}): Promise<OpenedOnnx> {
  const ort = await loadOrt();
  const plain = options.optimised === false ? ({ graphOptimizationLevel: 'disabled' } as const) : {};
  const settings = { ...sessionOptions(options.threads ?? 1), ...plain };
  const where = typeof model === 'string' ? { file: model } : {};
  const create = (more: Ort.InferenceSession.SessionOptions = {}) =>
    typeof model === 'string'
      ? ort.InferenceSession.create(model, { ...settings, ...more })
      : ort.InferenceSession.create(model, { ...settings, ...more });
  const session = await attempt(where, options, () =>
    create().catch((error: unknown) =>
      // ONNX Runtime's optimisations make some quantised models invalid that it runs as they are.
      create({ graphOptimizationLevel: 'disabled' }).catch(() => {
        throw error;
      }),
    ),
  );
  const untyped = [...session.inputMetadata, ...session.outputMetadata].find((value) => isUntyped(value));
  if (untyped) {
    await session.release();
    throw withoutArray(untyped.name, untyped.isTensor ? untyped.type : 'no tensor', where);
  }
  return {
    run: (inputs) =>
      attempt(where, options, async () => {
        const feeds = Object.entries(inputs).map(([name, value]) => [name, toOrtTensor(ort, value)] as const);
        const results = await session.run(Object.fromEntries(feeds));
        return Object.fromEntries(Object.entries(results).map(([name, tensor]) => [name, fromOrtTensor(tensor)]));
      }),
    release: () => session.release(),
  };
}

/** Runs a whole ONNX model once, as `openOnnx` loads it, and gives every output. */
export async function runOnnx(
  model: string | Uint8Array,
  inputs: Readonly<Record<string, ConstantTensor>>,
  options: ReferenceOptions = {},
): Promise<Record<string, ConstantTensor>> {
  const opened = await openOnnx(model, options);
  try {
    return await opened.run(inputs);
  } finally {
    await opened.release();
  }
}

/** Whether values of an input or output cannot be passed: 4-bit results abort the process of onnxruntime-node. */
function isUntyped(value: Ort.InferenceSession.ValueMetadata): boolean {
  return value.isTensor && value.type !== 'string' && !BACKENDS.cpu.dtypes.has(value.type as DType);
}

/** The message of onnxruntime-node for an input or output of a type that it does not pass: its number. */
const UNTYPED = /^Unsupported data type: (\d+)$/;

function withoutArray(name: string | null, type: string, where: { readonly file?: string }): AutoparError {
  const what = name === null ? `an input or output is ${type}` : `'${name}' is ${type}`;
  return new AutoparError(
    'unsupported-operator',
    'backendAbsent',
    `ONNX Runtime itself cannot run the unsharded model: ${what}, which onnxruntime-node does not pass in or out`,
    { ...where, ...(name === null ? {} : { tensor: name }) },
    'export the model with inputs and outputs of another type; planning needs none of it',
  );
}

async function attempt<T>(
  where: { readonly file?: string },
  options: ReferenceOptions,
  work: () => Promise<T>,
): Promise<T> {
  try {
    return await work();
  } catch (error) {
    if (error instanceof AutoparError) throw error;
    const reason = error instanceof Error ? error.message : String(error);
    const untyped = UNTYPED.exec(reason)?.[1];
    if (untyped) throw withoutArray(null, dtypeOfOnnx(Number(untyped)) ?? `of ONNX's type ${untyped}`, where);
    const absent = complaintOf(reason);
    if (absent !== null)
      throw withoutKernel(
        'ONNX Runtime itself cannot run the unsharded model: it',
        options.nodeOf?.(absent) ?? (absent.node === '' ? null : { name: absent.node, op: absent.op, dtypes: [] }),
        reason,
        'export this operator in another type or as other operators; planning needs no kernels',
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
