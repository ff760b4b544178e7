/**
 * @file The interface of a device for a rank: load a segment, run it on tensors. The rank loop knows nothing else of it.
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
  /** Reads an equal model in plainer operators, for a device that lacks some of its kernels; left out if none. */
  readonly plain?: () => Promise<Uint8Array>;
  /** Names inside the model, in the order in which values are passed and returned. */
  readonly inputs: readonly string[];
  readonly outputs: readonly string[];
  /** The model's nodes behind its operators, in their order; for errors. */
  readonly nodes: readonly ProgramNode[];
  /** Initializers whose data the model leaves to its external-data location `name`. */
  readonly weights: readonly { readonly name: string; readonly data: Uint8Array }[];
  /** Nodes for which the device has no kernel run on the CPU; else they are refused. */
  readonly mayUseHost?: boolean;
}

/** A loaded segment; `Tensor` is the backend's own. */
export interface LoadedSegment<Tensor> {
  /**
   * Runs on inputs in the order of the source's `inputs`; gives tensors in the order of `outputs`: those of `room`, now
   * written, where it is given (see `writesInPlace`), else new ones.
   */
  readonly run: (inputs: readonly Tensor[], room: readonly Tensor[] | null) => Promise<readonly Tensor[]>;
  readonly release: () => Promise<void>;
  /**
   * Operators that the device has no kernels for, with their substitute (the CPU, plainer operators), each once; left out
   * where there are none.
   */
  readonly substitutes?: readonly string[];
}

/** A device as seen by one rank. */
export interface Backend<Tensor extends object> {
  readonly name: string;
  /** Whether tensors have values; where they have sizes alone, no weights are read and `bytes` gives none. */
  readonly hasValues: boolean;
  /** Whether segments write their results to tensors that the caller made; only then `room` is passed. */
  readonly writesInPlace: boolean;
  /** Called when the ranks begin a step together, where it has to know. */
  readonly beginStep?: () => void;
  /** Seconds of the step so far, where the backend has a clock of its own; the machine's else. */
  readonly stepSeconds?: () => number;
  /** Called as bytes go to another memory or come from there, where that takes no time by itself. */
  readonly passMove?: (memory: OuterMemory, bytes: number) => void;
  /** Milliseconds so far in which segments' operands and results went between the rank and its device. */
  readonly copied?: () => number;
  /** Threads that one segment may use. */
  readonly load: (source: SegmentSource, threads: number) => Promise<LoadedSegment<Tensor>>;
  /** A tensor over `bytes`, which the tensor owns from here on. */
  readonly tensor: (dtype: DType, shape: readonly number[], bytes: Uint8Array) => Tensor;
  /** A tensor's bytes in host memory, to be read only, valid while the tensor is. */
  readonly bytes: (tensor: Tensor) => Uint8Array;
}

/** A backend that computes, as `--backend` names it. */
export type BackendName = 'cpu' | 'webgpu' | 'cuda';

/** Properties of a backend that are known without starting it. */
export interface BackendTraits {
  readonly name: BackendName;
  /** Its package, as `devices` names it. */
  readonly engine: string;
  /** ONNX Runtime's name of it, where that is not the CPU's: then each rank has a process of its own for it. */
  readonly provider?: 'webgpu' | 'cuda';
  /** Dtypes that it has kernels for and can transfer. */
  readonly dtypes: ReadonlySet<DType>;
  /** The reason why it lacks other dtypes, for errors. */
  readonly why: string;
  /** The hint for an operator without a kernel. */
  readonly otherwise: string;
  /** Errors of a machine that lacks what the backend needs; `remedy` is the hint for them. */
  readonly absent?: RegExp;
  readonly remedy?: string;
  /** Errors of a device whose memory is full. */
  readonly full?: RegExp;
}

const NUMBERS = [
  'float32',
  'float16',
  'int8',
  'uint8',
  'int16',
  'uint16',
  'int32',
  'uint32',
  'int64',
  'uint64',
] as const;

/** By name. 4-bit results abort the process of onnxruntime-node, bfloat16 has no JavaScript array. */
export const BACKENDS: Readonly<Record<BackendName, BackendTraits>> = {
  cpu: {
    name: 'cpu',
    engine: 'onnxruntime-node',
    dtypes: new Set<DType>([...NUMBERS, 'float64', 'bool']),
    why: 'ONNX Runtime has no CPU kernels for it',
    otherwise:
      'autopar verify checks whether ONNX Runtime runs the model; export this operator in another type or as other operators',
  },
  webgpu: {
    name: 'webgpu',
    engine: 'onnxruntime-node',
    provider: 'webgpu',
    dtypes: new Set<DType>(['float32', 'float16', 'int32', 'uint32', 'int64', 'bool', 'uint8', 'int8']),
    why: 'WebGPU has no type for it',
    otherwise: 'run it with --backend cpu, which has kernels for more operators',
    absent: /WebGPU adapter|WebGPU device|WebGPU execution provider|Dawn|wgpu/,
    remedy:
      'install the driver of a GPU: on Linux one of Vulkan (Debian: apt-get install libvulkan1 mesa-vulkan-drivers, or ' +
      "NVIDIA's), on Windows one of Direct3D 12; Metal is part of macOS",
    // Dawn makes an invalid buffer of one that it cannot allocate, and says so as the buffer is used.
    full: /\[Invalid Buffer|exceeds the max buffer size|Out of memory/i,
  },
  cuda: {
    name: 'cuda',
    engine: 'onnxruntime-node',
    provider: 'cuda',
    dtypes: new Set<DType>([...NUMBERS, 'float64', 'bool']),
    why: 'ONNX Runtime has no CUDA kernels for it',
    otherwise: 'run it with --backend cpu, which has kernels for more operators',
    absent: new RegExp(
      'Failed to load (?:shared )?library|CUDA (?:driver|failure)|no CUDA-capable|libcu|cuDNN|' +
        'not available in this build|ExecutionProvider_Cuda',
      'i',
    ),
    remedy:
      "with an NVIDIA GPU, install CUDA 12, cuDNN 9 and ONNX Runtime's CUDA files: ONNXRUNTIME_NODE_INSTALL=cuda12 npm " +
      'rebuild onnxruntime-node',
    full: /Failed to allocate memory|BFCArena|out of memory|_ALLOC_FAILED/i,
  },
};
