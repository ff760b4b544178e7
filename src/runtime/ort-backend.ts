/**
 * @file Backends of onnxruntime-node: the CPU on the rank's own thread, a GPU in a process of its own (`device-process.ts`).
 *
 * Weights are passed as external data when the session is made, so that ONNX Runtime treats them as constants
 * (folds, pre-packs). Results are written to memory that the caller provides. On a GPU operands go there and results come back
 * with every segment: onnxruntime-node binds no memory of a device.
 */
import type * as Ort from 'onnxruntime-node';
import { asBytes, typedView } from '../program/typed.js';
import { AutoparError, type ConstantTensor, type DType } from '../program/values.js';
import { BACKENDS, type Backend, type BackendTraits, type SegmentSource } from './backend.js';
import { type Complaint, complaintOf, meantBy, withoutKernel } from './no-kernel.js';
import { EQUAL_OPSETS, withOpset } from './opset.js';
import { loadOrt, type OrtModule, SOUND_OPTIMISATIONS, sessionOptions } from './ort.js';

/**
 * Loads onnxruntime-node.
 * @param device which of several, counted from 0
 * @param explain segments load wherever their nodes have kernels, and messages on standard error say where that is
 * @throws AutoparError `backend-absent`
 */
export async function makeOrtBackend(
  traits: BackendTraits = BACKENDS.cpu,
  device = 0,
  explain = false,
): Promise<Backend<Ort.Tensor>> {
  const ort = await loadOrt();
  if (explain) ort.env.logLevel = 'verbose';
  const owner: SessionOwner = { ort, traits, device, explain };
  return {
    name: traits.name,
    hasValues: true,
    writesInPlace: true,
    tensor: (dtype, shape, data) => toOrtTensor(ort, { dtype, shape, data }),
    bytes: (tensor) => asBytes(tensor.data as ArrayBufferView),
    load: async (source, threads) => {
      const session = await createSession(owner, source, threads);
      return {
        run: async (inputs, room) => {
          const feeds = named(source.inputs, inputs);
          const results = await session
            .run(feeds, room ? named(source.outputs, room) : source.outputs)
            .catch((error: unknown) => {
              throw runFailure(traits, source, error instanceof Error ? error.message : String(error));
            });
          // Its returned tensors are copies of the results that it wrote to `room`.
          return room ?? source.outputs.map((name) => results[name] as Ort.Tensor);
        },
        release: () => session.release(),
      };
    },
  };
}

/** Whose sessions are made. */
interface SessionOwner {
  readonly ort: OrtModule;
  readonly traits: BackendTraits;
  readonly device: number;
  readonly explain: boolean;
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
  return { dtype: tensor.type as DType, shape: [...tensor.dims], data: asBytes(tensor.data as ArrayBufferView) };
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
const SLEEPING_THREADS = { extra: { ...SOUND_OPTIMISATIONS, session: { intra_op: { allow_spinning: '0' } } } };

async function createSession(
  owner: SessionOwner,
  source: SegmentSource,
  threads: number,
): Promise<Ort.InferenceSession> {
  const { ort, traits } = owner;
  // A shard without elements has no address, which ONNX Runtime refuses: it gets a byte that is never read.
  const externalData = source.weights.map(({ name, data }) => ({
    path: name,
    data: data.length > 0 ? data : new Uint8Array(1),
  }));
  const options = {
    ...sessionOptions(threads),
    ...(traits.provider ? onProvider(traits.provider, owner, source) : threads > 1 ? SLEEPING_THREADS : {}),
    ...(externalData.length > 0 ? { externalData } : {}),
  };
  const create = (model: Uint8Array, more: Ort.InferenceSession.SessionOptions = {}) =>
    ort.InferenceSession.create(model, { ...options, ...more });
  const versions = traits.provider ? EQUAL_OPSETS.flatMap((version) => withOpset(source.model, version) ?? []) : [];
  const isLenient = owner.explain || source.mayUseHost === true;
  // Where the CPU steps in, the oldest has most kernels on the device.
  const [first = source.model, ...others] = isLenient
    ? [...versions.reverse(), source.model]
    : [source.model, ...versions];
  const session = await create(first).catch(async (error: unknown) => {
    for (const model of others) {
      const found = await create(model).catch(() => null);
      if (found) return found;
    }
    // ONNX Runtime's optimisations make some quantised models invalid that it runs as they are.
    return create(source.model, { graphOptimizationLevel: 'disabled' }).catch(() => {
      throw loadFailure(owner, source, error instanceof Error ? error.message : String(error));
    });
  });
  for (const name of source.inputs) {
    if (!session.inputNames.includes(name)) throw loadFailure(owner, source, `it has no input ${name}`);
  }
  for (const name of source.outputs) {
    if (!session.outputNames.includes(name)) throw loadFailure(owner, source, `it has no output ${name}`);
  }
  return session;
}

/** Nodes that ONNX Runtime would silently run on the CPU are refused, unless the source allows it. */
function onProvider(
  name: 'webgpu' | 'cuda',
  { device: deviceId, explain }: SessionOwner,
  { mayUseHost = false }: SegmentSource,
): Partial<Ort.InferenceSession.SessionOptions> {
  const executionProviders = [name === 'cuda' ? { name, deviceId } : { name }];
  const extra = { ...SOUND_OPTIMISATIONS, session: { disable_cpu_ep_fallback: explain || mayUseHost ? '0' : '1' } };
  return { executionProviders, extra, logSeverityLevel: explain ? 0 : 4 };
}

function loadFailure(
  { traits, device }: Pick<SessionOwner, 'traits' | 'device'>,
  source: SegmentSource,
  reason: string,
): AutoparError {
  const absent = complaintOf(reason);
  if (absent !== null) return backendWithoutKernel(traits, source, absent, reason);
  if (traits.full?.test(reason)) return deviceFull(traits, source, firstLine(namingNodes(source, reason)));
  if (/invalid device ordinal/i.test(reason))
    return new AutoparError(
      'backend-absent',
      'backendAbsent',
      `backend ${traits.name} has no device ${device}: each rank needs its own, counted from 0`,
      {},
      'autopar devices lists the available devices; compile for their number, or run with --backend cpu',
    );
  if (traits.absent?.test(reason))
    return new AutoparError(
      'backend-absent',
      'backendAbsent',
      `backend ${traits.name} cannot be used here: ${firstLine(reason)}`,
      {},
      traits.remedy,
    );
  return new AutoparError(
    'bad-segment',
    'input',
    `segment ${source.file} cannot be loaded: ${reason}`,
    { file: source.file },
    'compile the model again',
  );
}

/** Without the place in ONNX Runtime's sources. */
function firstLine(reason: string): string {
  return (reason.split('\n')[0] ?? '').split(' was false. ').at(-1) ?? '';
}

/** A missing kernel may show only when the operator runs. */
function runFailure(traits: BackendTraits, source: SegmentSource, reason: string): Error {
  const absent = complaintOf(reason);
  if (absent !== null) return backendWithoutKernel(traits, source, absent, reason);
  const message = namingNodes(source, reason);
  return traits.full?.test(reason) ? deviceFull(traits, source, firstLine(message)) : new Error(message);
}

/** The memory of the device is used up; the rank says in which tensor's place. */
function deviceFull({ name }: BackendTraits, { file }: SegmentSource, reason: string): AutoparError {
  return new AutoparError('over-memory', 'noPlan', `the memory of backend ${name} is full: ${reason}`, { file });
}

function backendWithoutKernel(
  traits: BackendTraits,
  source: SegmentSource,
  complaint: Complaint,
  reason: string,
): AutoparError {
  const named = source.nodes[nodePosition(complaint.node)];
  const node = complaint.isElsewhere ? null : (named ?? meantBy(complaint, source.nodes));
  return withoutKernel(`backend ${traits.name}`, node, namingNodes(source, reason), traits.otherwise);
}

/** A segment's nodes are named by operator and position (`Add_3`; ONNX Runtime may add `_token_1`). */
export function nodePosition(inside: string): number {
  return Number(/_(\d+)(?:_token_\d+)?$/.exec(inside)?.[1] ?? Number.NaN);
}

/** ONNX Runtime's words with the model's names of nodes. */
function namingNodes({ nodes }: SegmentSource, reason: string): string {
  return reason.replace(/(?<=')\w+_\d+(?=')/g, (inside) => nodes[nodePosition(inside)]?.name ?? inside);
}
