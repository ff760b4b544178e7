/**
 * @file The backend `cpu`: onnxruntime-node on the rank's own thread.
 *
 * Weights are handed over as external data when the session is made, so that ONNX Runtime treats them as constants
 * (folds, pre-packs). Results are written to memory that the rank hands in.
 */
import type * as Ort from 'onnxruntime-node';
import { bytesOf, typedView } from '../program/typed.js';
import { AutoparError, type ConstantTensor, type DType } from '../program/values.js';
import type { Backend, SegmentSource } from './backend.js';
import { type Complaint, complaintOf, meantBy, withoutKernel } from './no-kernel.js';
import { loadOrt, type OrtModule, sessionOptions } from './ort.js';

/** Loads onnxruntime-node. Throws AutoparError `backend-absent`. */
export async function makeCpuBackend(): Promise<Backend<Ort.Tensor>> {
  const ort = await loadOrt();
  return {
    name: 'cpu',
    hasValues: true,
    writesInPlace: true,
    tensor: (dtype, shape, data) => toOrtTensor(ort, { dtype, shape, data }),
    bytes: (tensor) => bytesOf(tensor.data as ArrayBufferView),
    load: async (source, threads) => {
      const session = await createSession(ort, source, threads);
      return {
        run: async (inputs, room) => {
          const feeds = named(source.inputs, inputs);
          const results = await session
            .run(feeds, room ? named(source.outputs, room) : source.outputs)
            .catch((error: unknown) => {
              throw runFailure(source, error instanceof Error ? error.message : String(error));
            });
          // What it returns are copies of what it wrote to the room.
          return room ?? source.outputs.map((name) => results[name] as Ort.Tensor);
        },
        release: () => session.release(),
      };
    },
  };
}

function named(names: readonly string[], tensors: readonly Ort.Tensor[]): Record<string, Ort.Tensor> {
  return Object.fromEntries(names.map((name, index) => [name, tensors[index] as Ort.Tensor]));
}

/** A tensor of ONNX Runtime over the same memory (a copy where that is shared between threads or not aligned). */
export function toOrtTensor(ort: OrtModule, value: ConstantTensor): Ort.Tensor {
  const owned = value.data.buffer instanceof SharedArrayBuffer ? value.data.slice() : value.data;
  const view = typedView(value.dtype, owned);
  const data = value.dtype === 'float16' ? halfArray(view as Uint16Array) : view;
  return new ort.Tensor(value.dtype as Ort.Tensor.Type, data as Ort.Tensor.DataType, value.shape);
}

/** The constant that a tensor of ONNX Runtime holds, over the same memory. Strings are refused. */
export function fromOrtTensor(tensor: Ort.Tensor): ConstantTensor {
  if (tensor.type === 'string') {
    throw new AutoparError(
      'unsupported-dtype',
      'input',
      'a string tensor cannot be read',
      {},
      'remove it from the outputs',
    );
  }
  return { dtype: tensor.type as DType, shape: [...tensor.dims], data: bytesOf(tensor.data as ArrayBufferView) };
}

/** From Node 24 on ONNX Runtime wants float16 as Float16Array, before that as Uint16Array. */
function halfArray(patterns: Uint16Array): ArrayBufferView {
  const half = (
    globalThis as { Float16Array?: new (buffer: ArrayBufferLike, offset: number, length: number) => ArrayBufferView }
  ).Float16Array;
  return half ? new half(patterns.buffer, patterns.byteOffset, patterns.length) : patterns;
}

/**
 * Every session has threads of its own, and a rank has many sessions: threads that spin after their work would take the
 * cores from those that have some.
 */
const SLEEPING_THREADS = { extra: { session: { intra_op: { allow_spinning: '0' } } } };

async function createSession(ort: OrtModule, source: SegmentSource, threads: number): Promise<Ort.InferenceSession> {
  // A shard without elements has no address, which ONNX Runtime refuses: it is handed a byte that nobody reads.
  const externalData = source.weights.map(({ name, data }) => ({
    path: name,
    data: data.length > 0 ? data : new Uint8Array(1),
  }));
  const options = {
    ...sessionOptions(threads),
    ...(threads > 1 ? SLEEPING_THREADS : {}),
    ...(externalData.length > 0 ? { externalData } : {}),
  };
  // ONNX Runtime's optimisations make some quantised models invalid that it runs as they are.
  const session = await ort.InferenceSession.create(source.model, options).catch((error: unknown) =>
    ort.InferenceSession.create(source.model, { ...options, graphOptimizationLevel: 'disabled' }).catch(() => {
      throw loadFailure(source, error instanceof Error ? error.message : String(error));
    }),
  );
  for (const name of source.inputs) {
    if (!session.inputNames.includes(name)) throw loadFailure(source, `it has no input ${name}`);
  }
  for (const name of source.outputs) {
    if (!session.outputNames.includes(name)) throw loadFailure(source, `it has no output ${name}`);
  }
  return session;
}

function loadFailure(source: SegmentSource, reason: string): AutoparError {
  const absent = complaintOf(reason);
  if (absent !== null) return backendWithoutKernel(source, absent, reason);
  return new AutoparError(
    'bad-segment',
    'input',
    `segment ${source.file} cannot be loaded: ${reason}`,
    { file: source.file },
    'compile the model again',
  );
}

/** An operator may find out only when it runs that there is no kernel. */
function runFailure(source: SegmentSource, reason: string): Error {
  const absent = complaintOf(reason);
  return absent === null ? new Error(namingNodes(source, reason)) : backendWithoutKernel(source, absent, reason);
}

function backendWithoutKernel(source: SegmentSource, complaint: Complaint, reason: string): AutoparError {
  const node = source.nodes[positionOf(complaint.node)] ?? meantBy(complaint, source.nodes);
  return withoutKernel(
    'backend cpu',
    node,
    namingNodes(source, reason),
    'autopar verify says whether ONNX Runtime runs the model itself; export this operator in another type, or as others',
  );
}

/** A segment's nodes are named by operator and position (`Add_3`). */
function positionOf(inside: string): number {
  return Number(/_(\d+)$/.exec(inside)?.[1] ?? Number.NaN);
}

/** ONNX Runtime's words with the model's names of nodes. */
function namingNodes({ nodes }: SegmentSource, reason: string): string {
  return reason.replace(/(?<=')\w+_\d+(?=')/g, (inside) => nodes[positionOf(inside)]?.name ?? inside);
}
