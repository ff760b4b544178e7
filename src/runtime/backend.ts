/**
 * @file What a device does for a rank: load a segment, run it on tensors. The rank loop knows nothing else of it.
 */
import type { ProgramNode } from '../program/program.js';
import type { DType, OuterMemory } from '../program/values.js';

/** A segment to load: an ONNX model and the bytes of the weights that it names. */
export interface SegmentSource {
  /** Its structure's hash, by which the program names it. */
  readonly id: string;
  /** For errors. */
  readonly file: string;
  readonly model: Uint8Array;
  /** Names inside the model, in the order in which values are handed over and returned. */
  readonly inputs: readonly string[];
  readonly outputs: readonly string[];
  /** The model's nodes behind its operators, in their order; for errors. */
  readonly nodes: readonly ProgramNode[];
  /** Initializers whose data the model leaves to its external-data location `name`. */
  readonly weights: readonly { readonly name: string; readonly data: Uint8Array }[];
}

/** A loaded segment; `Tensor` is the backend's own. */
export interface LoadedSegment<Tensor> {
  /**
   * Runs on inputs in the order of the source's `inputs`; gives tensors in the order of `outputs`: those of `room`, now
   * written, where it is given (see `writesInPlace`), else new ones.
   */
  readonly run: (inputs: readonly Tensor[], room: readonly Tensor[] | null) => Promise<readonly Tensor[]>;
  readonly release: () => Promise<void>;
}

/** A device as seen by one rank. */
export interface Backend<Tensor extends object> {
  readonly name: string;
  /** Whether tensors have values; where they have sizes alone, no weights are read and `bytes` gives none. */
  readonly hasValues: boolean;
  /** Whether segments write their results to tensors that the caller made; only then `room` is handed in. */
  readonly writesInPlace: boolean;
  /** Called when the ranks begin a step together, where it has to know. */
  readonly beginStep?: () => void;
  /** Called as bytes go to another memory or come from there, where that takes no time by itself. */
  readonly passMove?: (memory: OuterMemory, bytes: number) => void;
  /** Threads that one segment may use. */
  readonly load: (source: SegmentSource, threads: number) => Promise<LoadedSegment<Tensor>>;
  /** A tensor over `bytes`, which the tensor owns from here on. */
  readonly tensor: (dtype: DType, shape: readonly number[], bytes: Uint8Array) => Tensor;
  /** A tensor's bytes in host memory, to be read only, valid while the tensor is. */
  readonly bytes: (tensor: Tensor) => Uint8Array;
}

/** What can be said about a backend without starting it. */
export interface BackendTraits {
  readonly name: string;
  /** Dtypes that it has kernels for and can hand over. */
  readonly dtypes: ReadonlySet<DType>;
  /** Said where another is asked for. */
  readonly why: string;
}

/** onnxruntime-node on the CPU: 4-bit results abort its process, the rest has no kernels or no JavaScript arrays. */
export const CPU_TRAITS: BackendTraits = {
  name: 'cpu',
  dtypes: new Set<DType>([
    'float32',
    'float64',
    'float16',
    'int8',
    'uint8',
    'int16',
    'uint16',
    'int32',
    'uint32',
    'int64',
    'uint64',
    'bool',
  ]),
  why: 'ONNX Runtime has no CPU kernels for it',
};
