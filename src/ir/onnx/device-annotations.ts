/**
 * @file ONNX's multi-device fields (IR 11 and later) as data: on which devices a file wants its nodes' tensors, and in which
 * pipeline stage its nodes.
 */

/** A set of devices that nodes refer to by name. */
export interface DeviceConfiguration {
  readonly name: string;
  readonly devices: number;
}

/** How one tensor of a node is sharded. */
export interface ShardingSpec {
  readonly tensor: string;
  /** Shards in row-major order over `dims`: the device that holds each; a negative number is a key of `groups`. */
  readonly devices: readonly number[];
  /** Devices that all hold one shard. */
  readonly groups: ReadonlyMap<number, readonly number[]>;
  readonly dims: readonly ShardedDimension[];
}

/** A sharded dimension: its pieces, major to minor (usually one), each split into equal parts. */
export interface ShardedDimension {
  readonly axis: number;
  readonly pieces: readonly { readonly size: number | null; readonly parts: number }[];
}

export interface NodePlacement {
  readonly node: string;
  readonly op: string;
  readonly outputs: readonly string[];
  readonly configuration: string;
  readonly stage: number | null;
  readonly tensors: readonly ShardingSpec[];
}

export interface MultiDevice {
  readonly configurations: readonly DeviceConfiguration[];
  /** In the file's order; a node has one for each configuration that it is placed in. */
  readonly placements: readonly NodePlacement[];
}
