/**
 * @file The sharded graph: the one lowered form. Local shapes, explicit communication. The search prices it, the
 * checker types it, memory is its liveness, codegen splits it into segments.
 */
import type { DType } from '../ir/dtype.js';
import type { Reduction } from '../ir/factor-rule.js';
import type {
  Attributes,
  ConstantTensor,
  MicroBatches,
  OuterMemory,
  Phase,
  TensorOrder,
  TensorType,
} from '../ir/graph.js';
import type { Border } from '../sharding-propagation/collective-rule.js';
import type { Layout } from '../sharding-propagation/layout.js';
import type { Mesh, SubAxis } from '../sharding-propagation/mesh.js';
import type { AttentionKernel, KernelKind } from './kernels.js';

export interface ShardedTensor {
  readonly dtype: DType;
  /** Shape of the whole tensor. */
  readonly shape: readonly number[];
  readonly layout: Layout;
  /** Shape of one rank's shard. */
  readonly localShape: readonly number[];
  /**
   * Axes along which ranks hold values that are neither shards nor summands of one tensor (a coordinate, and values computed from
   * it). Such a value may only end in a node whose `lowering` accounts for it.
   */
  readonly varying?: readonly SubAxis[];
  /** It varies over the border's axes: rows of the dimension beside or in a rank's shard (halo.ts). */
  readonly border?: Border;
  /** Axes along which only the first rank holds it, the others nothing (server.ts). Its operator runs on that rank alone. */
  readonly first?: readonly SubAxis[];
  /** Where its layout is padded, the padding holds zeros. */
  readonly zeroPadded?: true;
  /** Where a rank has it; the device's memory where it is left out. */
  readonly place?: OuterMemory;
  /** Made and read inside one kernel where the device runs fused regions as one: it takes no memory there. */
  readonly inside?: true;
}

/** Whether a rank holds a tensor that is not the first one on some axes (`behind`). */
export function holdsBehind(
  { tensors }: Pick<ShardedGraph, 'tensors'>,
  name: string,
  behind: ReadonlySet<SubAxis>,
): boolean {
  return !(tensors.get(name)?.first ?? []).some((axis) => behind.has(axis));
}

/**
 * A node whose result's layout does not follow from its rule, but from the lowering that made it: `slice` (a shard
 * chosen by a coordinate), `to-partial` (kept on the first rank), `mask` (out-of-shard indices contribute zero),
 * `indexed` (an operator that is given its offset), `halo` (an operator on shards with their borders).
 */
export type LoweringKind = 'slice' | 'to-partial' | 'mask' | 'indexed' | 'halo';

/**
 * An operator's part of a kernel, where the device's software runs several operators as one: the bytes that it reads from and
 * writes to memory (intermediates cost none), and whether the kernel's launch is counted for it.
 */
export interface FusedWork {
  readonly kind: KernelKind;
  readonly bytes: number;
  readonly launches: boolean;
  /** For the operator that an attention's cost counts for: one rank's share of the attention. */
  readonly attention?: AttentionKernel;
}

/** The origin that every node of the sharded graph states. */
interface Origin {
  readonly name: string;
  /** The node of the unsharded graph it was lowered from (for a reshard: the reader it serves). */
  readonly origin: string;
  readonly layer: string | null;
  readonly phase: Phase;
}

/** An operator on local shards. */
export interface ComputeNode extends Origin {
  readonly kind: 'compute';
  readonly op: string;
  readonly domain: string;
  readonly attributes: Attributes;
  readonly inputs: readonly (string | null)[];
  readonly outputs: readonly (string | null)[];
  /** Work of one rank. */
  readonly flops: number;
  readonly bytes: number;
  readonly lowering?: LoweringKind;
  readonly fused?: FusedWork;
  /** Its second operand is a weight that sessions are loaded with: they pack it for matmuls at load time, not at every run. */
  readonly stored?: true;
}

/**
 * A collective on one tensor. The shard is seen as rows: for a split at position p of the (piece-wise) shape, `outer` is
 * the product of local sizes before p and `inner` the product from p on.
 *
 * - all-reduce: shapes equal.
 * - all-gather: [outer, inner] per rank → [outer, n, inner].
 * - reduce-scatter: [outer, n, inner] → [outer, inner], rank k keeping slice k.
 * - all-to-all: [outer of split, n, inner of split] → one slice sent to each rank, then joined at the concat position.
 * - permute: rank k of the group sends its shard to rank `to[k]`.
 * - reduce: shapes equal; the first rank of the group alone holds the result.
 * - broadcast: the group's first rank alone holds the operand, and all hold the result.
 */
export type Collective =
  | { readonly kind: 'all-reduce'; readonly reduction: Reduction }
  | { readonly kind: 'reduce'; readonly reduction: Reduction }
  | { readonly kind: 'all-gather'; readonly outer: number; readonly inner: number }
  | { readonly kind: 'reduce-scatter'; readonly reduction: Reduction; readonly outer: number; readonly inner: number }
  | {
      readonly kind: 'all-to-all';
      /** Where the shard is split into n slices: [outer, n, inner]. */
      readonly split: { readonly outer: number; readonly inner: number };
      /** Where a received slice is joined: the slice is seen as [outer, inner], the result as [outer, n, inner]. */
      readonly concat: { readonly outer: number; readonly inner: number };
    }
  | { readonly kind: 'permute'; readonly to: readonly number[] }
  | { readonly kind: 'broadcast' };

export interface CommunicationNode extends Origin {
  readonly kind: 'communicate';
  readonly collective: Collective;
  /** The group: all ranks that differ only on these sub-axes; member k is the one with index k on them. */
  readonly axes: readonly SubAxis[];
  readonly input: string;
  readonly output: string;
  /**
   * Collectives of one bucket start together, as one message where the device can: the first of them has the bytes of all (as
   * `collectiveSeconds` counts them), the others 0.
   */
  readonly bucket?: { readonly id: number; readonly bytes: number };
}

/** A copy of a tensor between the device's memory and another one (offload.ts). */
export interface MoveNode extends Origin {
  readonly kind: 'move';
  readonly input: string;
  readonly output: string;
  /** The list of instructions that it belongs to. */
  readonly list: string;
}

export type ShardedNode = ComputeNode | CommunicationNode | MoveNode;

/** The edges of a node. */
export type Wiring =
  | Pick<ComputeNode, 'kind' | 'inputs' | 'outputs'>
  | Pick<CommunicationNode | MoveNode, 'kind' | 'input' | 'output'>;

/** Names of the tensors that a node reads. */
export function readsOf(node: Wiring): readonly string[] {
  return node.kind === 'compute' ? node.inputs.filter((name) => name !== null) : [node.input];
}

/** Names of the tensors that a node makes. */
export function resultsOf(node: Wiring): readonly string[] {
  return node.kind === 'compute' ? node.outputs.filter((name) => name !== null) : [node.output];
}

/** Copies in another memory, by their names: the tensors that they are copies of, which are no copies themselves. */
export function copiedTensors({ nodes }: Pick<ShardedGraph, 'nodes'>): ReadonlyMap<string, string> {
  const inputs = new Map(nodes.flatMap((node) => (node.kind === 'move' ? [[node.output, node.input]] : [])));
  const sourceOf = (name: string): string => {
    const input = inputs.get(name);
    return input === undefined ? name : sourceOf(input);
  };
  return new Map([...inputs.keys()].map((name) => [name, sourceOf(name)]));
}

/**
 * Values that depend on the rank enter as data: an int64 tensor of shape [1] with value
 * indexOn(axes) · block + bias, where `block` is the size of a shard.
 */
export interface Coordinate {
  readonly name: string;
  readonly axes: readonly SubAxis[];
  readonly block: number;
  readonly bias: number;
}

/** A weight's shard; where its layout is partial, the first rank of the partial axes holds it and the others hold zeros. */
export interface ShardedWeight {
  /** Name of the sharded tensor that receives the rank's shard. */
  readonly tensor: string;
  /** Name in the unsharded graph's `weights`. */
  readonly weight: string;
  /** For a constant of the graph that has no file: its whole value. */
  readonly constant?: Uint8Array;
}

/** A tensor that a stage sends to another one, or receives from it. */
export interface StageTransfer {
  /** The tensor of the unsharded graph, by which both ends know it. */
  readonly name: string;
  /** The sharded tensor of this stage. */
  readonly tensor: string;
  /** The other stage. */
  readonly stage: number;
  /** `micro`: in every micro-batch. `begin`: once, before the first of them. `update`: once, after the last. */
  readonly when: 'micro' | 'begin' | 'update';
  /** The sending stage's list of instructions that computes the tensor; transfers once a step are part of that list. */
  readonly list: string;
  /** Its place among all transfers of the pipeline, in the order in which the whole graph computes the sent tensors. */
  readonly order: number;
}

/** The fields that make a sharded graph one stage of a pipeline. */
export interface PipelineStage {
  /** Stages of the pipeline. */
  readonly stages: number;
  /** Chunks of the model that the stage holds. */
  readonly chunks: number;
  /** By chunk: the number of this part of the model, counted from its inputs. */
  readonly parts: readonly number[];
  /** By operator of the unsharded graph (and by output): the chunk that it belongs to. */
  readonly chunkOf: ReadonlyMap<string, number>;
  /** Gradients of weights run apart from those that the stage before waits for (zero-bubble). */
  readonly splitsBackward: boolean;
  /** In the order in which the whole graph computes the sent tensors. */
  readonly sends: readonly StageTransfer[];
  readonly receives: readonly StageTransfer[];
}

/** Micro-batches that run at a time. */
export type Interleave = 1 | 2;

/** An operator on one rank's shards, and its gradients. */
export interface LocalGradient {
  readonly op: string;
  readonly domain: string;
  readonly attributes: Attributes;
  /** The one result. */
  readonly result: TensorType;
  readonly operands: readonly GradientOperand[];
  /** The tensor that holds the gradient of the result. */
  readonly resultGradient: string;
  /** Names of the nodes that make the gradients. */
  readonly nodes: ReadonlySet<string>;
}

/** An operator that runtimes lack, or a region, on one rank's shards: the nodes that it is written out in make its result. */
export interface WrittenOut extends Pick<ComputeNode, 'op' | 'domain' | 'attributes'> {
  readonly inputs: readonly string[];
  readonly output: string;
  /** Tensors that its nodes make for its gradient alone. */
  readonly saved: readonly string[];
  readonly nodes: ReadonlySet<string>;
}

/** `type` is null for an operand that is left out. */
export interface GradientOperand {
  readonly type: TensorType | null;
  /** null where no gradient depends on its value. */
  readonly tensor: string | null;
  /** The tensor that holds its gradient; null where none is wanted. */
  readonly gradient: string | null;
}

export interface ShardedGraph {
  readonly mesh: Mesh;
  readonly nodes: readonly ShardedNode[];
  readonly tensors: ReadonlyMap<string, ShardedTensor>;
  readonly coordinates: readonly Coordinate[];
  readonly weights: readonly ShardedWeight[];
  /** Small tensors that lowering made (identical on all ranks). */
  readonly constants: ReadonlyMap<string, ConstantTensor>;
  readonly inputs: readonly { readonly tensor: string; readonly input: string }[];
  readonly outputs: readonly { readonly tensor: string; readonly output: string }[];
  /** State: the value of `from` at the end of a step is the value of `to` at the beginning of the next. */
  readonly state: readonly { readonly from: string; readonly to: string }[];
  /** As in the graph. Nodes of the phase `update` stand behind all others. */
  readonly microBatches?: MicroBatches;
  /** By tensor of the graph that is in another order than the model's, how. Left out where none is. */
  readonly ordered?: ReadonlyMap<string, TensorOrder>;
  /** Micro-batches that run at a time, their instructions interleaved (interleave.ts); one where it is left out. */
  readonly interleave?: Interleave;
  /** Left out where the graph is the whole model. Received tensors are none of `inputs`, sent ones none of `outputs`. */
  readonly pipeline?: PipelineStage;
  /** As in the graph. */
  readonly domains?: ReadonlyMap<string, number>;
  /** By gradient region of the graph: the operator's gradient on a rank's shards that it equals. Left out if none. */
  readonly gradients?: ReadonlyMap<string, LocalGradient>;
  /** By operator of the graph, where its nodes alone make its result on a rank's shards. Left out if none. */
  readonly writtenOut?: ReadonlyMap<string, WrittenOut>;
}
