/**
 * @file A piece of sharded graph under construction: nodes, tensors, coordinates and small constants, with names that
 * are unique inside the fragment. `in0`, `in1`, … are its operands and `out0`, … its results; everything else is `t0`, `t1`, ….
 */
import type { DType } from '../ir/dtype.js';
import { byteLength } from '../ir/dtype.js';
import type { Attributes, ConstantTensor, TensorType } from '../ir/graph.js';
import { elementCount } from '../ir/graph.js';
import type { Operator } from '../ir/operator.js';
import { operatorEntry } from '../ir/ops/index.js';
import type { Border } from '../sharding-propagation/collective-rule.js';
import type { Layout } from '../sharding-propagation/layout.js';
import { localShape, replicated } from '../sharding-propagation/layout.js';
import { axesSize, type Mesh, type SubAxis } from '../sharding-propagation/mesh.js';
import {
  type Collective,
  type CommunicationNode,
  type ComputeNode,
  type Coordinate,
  type FusedWork,
  type LoweringKind,
  readsOf,
  type ShardedTensor,
} from './sharded-graph.js';

/** A node of a fragment, which partition later completes with its origin. */
export type FragmentNode =
  | (Pick<ComputeNode, 'kind' | 'op' | 'domain' | 'attributes' | 'inputs' | 'outputs' | 'flops' | 'bytes'> & {
      readonly lowering?: LoweringKind;
      readonly fused?: FusedWork;
      readonly stored?: true;
    })
  | Pick<CommunicationNode, 'kind' | 'collective' | 'axes' | 'input' | 'output' | 'bucket'>;

export type FragmentComputeNode = Extract<FragmentNode, { kind: 'compute' }>;

/** An operator to add: local attributes; results with their whole types and layouts. */
export interface FragmentOperator {
  readonly op: string;
  readonly domain?: string;
  readonly attributes?: Attributes;
  readonly inputs: readonly (string | null)[];
  /** In the operator's order; null where one is not used. */
  readonly results: readonly (FragmentResult | null)[];
  readonly lowering?: LoweringKind;
}

/** A result may be given a name (`out0`); else one is made. */
export interface FragmentResult {
  readonly name?: string;
  readonly type: TensorType;
  readonly layout: Layout;
  readonly varying?: readonly SubAxis[];
  readonly border?: Border;
}

export class Fragment {
  nodes: FragmentNode[] = [];
  /** Its operands and its results, in the operator's order; null where one is not used. */
  inputs: readonly (string | null)[] = [];
  outputs: readonly (string | null)[] = [];
  readonly tensors = new Map<string, ShardedTensor>();
  readonly coordinates = new Map<string, Coordinate>();
  readonly constants = new Map<string, ConstantTensor>();
  private next = 0;

  constructor(readonly mesh: Mesh) {}

  /** Declares a tensor; `type` is the whole tensor's. Returns its name. */
  tensor(
    type: TensorType,
    layout: Layout,
    name = `t${this.next++}`,
    varying: readonly SubAxis[] = [],
    zeroPadded = false,
    border?: Border,
  ): string {
    this.tensors.set(name, {
      dtype: type.dtype,
      shape: type.shape,
      layout,
      localShape: localShape(type.shape, layout, this.mesh),
      ...(varying.length > 0 ? { varying } : {}),
      ...(zeroPadded ? { zeroPadded: true as const } : {}),
      ...(border ? { border } : {}),
    });
    return name;
  }

  get(name: string): ShardedTensor {
    const tensor = this.tensors.get(name);
    if (!tensor) throw new Error(`fragment has no tensor ${name}`);
    return tensor;
  }

  /** The rank's index on `axes`, times `shardSize`: an int64 tensor of shape [1]. */
  coordinate(axes: readonly SubAxis[], shardSize: number): string {
    const name = `coordinate(${axes.join(',')})*${shardSize}`;
    this.coordinates.set(name, { name, axes, block: shardSize, bias: 0 });
    if (!this.tensors.has(name)) this.tensor({ dtype: 'int64', shape: [1] }, replicated([1]), name, axes);
    return name;
  }

  /** A small constant, the same on all ranks. */
  constant(value: ConstantTensor): string {
    const name = `t${this.next++}`;
    this.constants.set(name, value);
    return this.tensor(value, replicated(value.shape), name);
  }

  /** Adds an operator; its work is that of its local shapes. Returns the names of the results that are used. */
  add(operator: FragmentOperator): readonly string[] {
    const outputs = operator.results.map((result) =>
      result ? this.tensor(result.type, result.layout, result.name, result.varying ?? [], false, result.border) : null,
    );
    const domain = operator.domain ?? '';
    const typed: Operator = {
      name: operator.op,
      op: operator.op,
      domain,
      attributes: operator.attributes ?? {},
      inputs: operator.inputs.map((name) => (name === null ? null : this.localType(name))),
      outputs: outputs.map((name) => (name === null ? null : this.localType(name))),
      outputCount: outputs.length,
    };
    const entry = operatorEntry({ op: operator.op, domain });
    const work = entry.work(typed);
    this.nodes.push({
      kind: 'compute',
      op: operator.op,
      domain,
      attributes: typed.attributes,
      inputs: operator.inputs,
      outputs,
      flops: work.flops,
      bytes: entry.isView ? 0 : (work.bytes ?? trafficOf(typed)),
      ...(operator.lowering ? { lowering: operator.lowering } : {}),
    });
    return outputs.filter((name) => name !== null);
  }

  /** Adds a collective from `input` to a new tensor of the same whole type under `layout`. */
  communicate(collective: Collective, axes: readonly SubAxis[], input: string, layout: Layout, name?: string): string {
    const { dtype, shape, varying } = this.get(input);
    const output = this.tensor({ dtype, shape }, layout, name, varying);
    this.nodes.push({ kind: 'communicate', collective, axes, input, output });
    return output;
  }

  /** Sends border rows of each rank's shard on by so many ranks; the rows of the last ranks wrap around to the first. */
  passOn(input: string, border: Border, ranks: number): string {
    const { dtype, shape, layout, varying } = this.get(input);
    const count = axesSize(this.mesh, border.axes);
    const to = Array.from({ length: count }, (_, rank) => (rank + ranks + count) % count);
    const moved = { ...border, from: border.from - ranks * border.block };
    const output = this.tensor({ dtype, shape }, layout, undefined, varying, false, moved);
    this.nodes.push({ kind: 'communicate', collective: { kind: 'permute', to }, axes: border.axes, input, output });
    return output;
  }

  /** Leaves out all nodes but these, and tensors that only the others read. */
  keep(nodes: readonly FragmentNode[]): void {
    if (nodes.length === this.nodes.length) return;
    this.nodes = [...nodes];
    const read = new Set(nodes.flatMap(readsOf));
    for (const values of [this.coordinates, this.constants])
      for (const name of values.keys()) if (!read.has(name)) values.delete(name);
  }

  private localType(name: string): TensorType {
    const tensor = this.get(name);
    return { dtype: tensor.dtype, shape: tensor.localShape };
  }
}

/** An int64 vector constant. */
export function int64Constant(values: readonly number[]): ConstantTensor {
  const data = new Uint8Array(new BigInt64Array(values.map(BigInt)).buffer);
  return { dtype: 'int64', shape: [values.length], data };
}

/** The zero scalar of a dtype. */
export function zeroConstant(dtype: DType): ConstantTensor {
  return { dtype, shape: [], data: new Uint8Array(byteLength(dtype, 1)) };
}

/** Bytes that an operator reads and writes: its operands and results once each. */
function trafficOf(operator: Operator): number {
  return [...operator.inputs, ...operator.outputs].reduce(
    (sum, type) => sum + (type ? byteLength(type.dtype, elementCount(type.shape)) : 0),
    0,
  );
}
