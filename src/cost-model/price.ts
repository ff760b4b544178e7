/**
 * @file The price of one node of the sharded graph, in integer nanoseconds, and of one resharding step. The search adds up
 * only these prices, so that its sum and the price of the lowered graph are the same number.
 */
import { byteLength, type DType } from '../ir/dtype.js';
import { elementCount } from '../ir/graph.js';
import { arrayBytes } from '../partition/buckets.js';
import { Fragment, type FragmentComputeNode, type FragmentNode } from '../partition/fragment.js';
import type { AttentionKernel } from '../partition/kernels.js';
import { lowerReshardOp } from '../partition/lower-reshard.js';
import { type MoveNode, resultsOf, type ShardedTensor } from '../partition/sharded-graph.js';
import { localShape } from '../sharding-propagation/layout.js';
import { axesSize, type Mesh } from '../sharding-propagation/mesh.js';
import type { ReshardPrice } from '../sharding-propagation/resharding.js';
import { type Cluster, clusterSize } from './cluster.js';
import { collectiveSeconds, wireBytes } from './collective-price.js';
import { type DeviceSpec, fusesRegions, profileOf } from './device.js';
import { placeGroup } from './group-place.js';
import { attentionSeconds, formatOf, matmulSecondsByResult, memorySeconds, operatorSeconds } from './kernel-price.js';
import { hostSeconds, moveOf, moveSeconds } from './move-price.js';
import { STEP_CONSTANTS, USUAL_SOFTWARE } from './step/constants.js';

const NANOSECONDS = 1e9;

/** Where a node's tensors and mesh are found: a sharded graph, or a fragment of one. */
export interface PricingContext {
  readonly tensors: ReadonlyMap<string, ShardedTensor>;
  readonly mesh: Mesh;
}

/** A node of a sharded graph: a fragment's node with an origin, or a copy between memories. */
export type PricedNode = FragmentNode | Pick<MoveNode, 'kind' | 'input' | 'output'>;

/** Price of a node in integer nanoseconds. */
export function priceNode(node: PricedNode, graph: PricingContext, cluster: Cluster): number {
  return Math.round(nodeSeconds(node, graph, cluster) * NANOSECONDS);
}

/** Bytes that one rank receives for a collective; 0 for an operator. */
export function communicatedBytes(node: PricedNode, graph: PricingContext): number {
  if (node.kind !== 'communicate') return 0;
  return wireBytes(node.collective.kind, arrayBytes(node, graph), axesSize(graph.mesh, node.axes));
}

/** Price of all nodes of a fragment. */
export function priceFragment(fragment: Fragment, cluster: Cluster): number {
  return fragment.nodes.reduce((sum, node) => sum + priceNode(node, fragment, cluster), 0);
}

/**
 * Prices of resharding steps on a cluster: the cost of the nodes that a step is lowered to.
 * @throws Error where the mesh has more ranks than the cluster
 */
export function stepPrice(cluster: Cluster, mesh: Mesh): ReshardPrice {
  const ranks = mesh.axes.reduce((product, axis) => product * axis.size, 1);
  if (ranks > clusterSize(cluster)) throw new Error(`a mesh of ${ranks} ranks on ${clusterSize(cluster)} devices`);
  const known = new Map<string, number>();
  return (step, shape, elementBits) => {
    // How many elements a rank holds before and after is all that the lowered nodes' prices depend on.
    const held = [step.from, step.to].map((layout) => elementCount(localShape(shape, layout, mesh)));
    const key = `${step.kind}(${step.axes.join()}) ${held.join('>')}x${elementBits}`;
    const found = known.get(key);
    if (found !== undefined) return found;
    const dtype = OF_WIDTH[elementBits];
    if (!dtype) throw new Error(`no dtype of ${elementBits} bits`);
    const fragment = new Fragment(mesh);
    lowerReshardOp(fragment, fragment.tensor({ dtype, shape }, step.from, 'in0'), step);
    const price = priceFragment(fragment, cluster);
    known.set(key, price);
    return price;
  };
}

/** Steps move bytes and, at most, add them on arrival: any dtype of a width has the price of all. */
const OF_WIDTH: Readonly<Record<number, DType>> = {
  4: 'uint4',
  8: 'uint8',
  16: 'float16',
  32: 'float32',
  64: 'int64',
  128: 'complex128',
};

function nodeSeconds(node: PricedNode, graph: PricingContext, cluster: Cluster): number {
  if (node.kind === 'communicate') {
    // Ranks of this machine do the collectives of a bucket one by one.
    const bytes = node.bucket && !cluster.local ? node.bucket.bytes : arrayBytes(node, graph);
    if (node.bucket && bytes === 0) return 0;
    return collectiveSeconds(node.collective.kind, bytes, placeGroup(graph.mesh, node.axes, cluster), cluster);
  }
  const moved = moveOf(node, graph, 1);
  const movedSeconds = moved ? moveSeconds(moved.memory, moved.storedBytes + moved.loadedBytes, cluster) : 0;
  if (node.kind === 'move') return movedSeconds;
  return (
    movedSeconds + (runsOnHost(node, graph) ? hostSeconds(node.bytes, cluster) : computedSeconds(node, graph, cluster))
  );
}

function runsOnHost(node: FragmentComputeNode, { tensors }: PricingContext): boolean {
  const [result] = resultsOf(node);
  return tensors.get(result ?? '')?.place === 'host';
}

function computedSeconds(node: FragmentComputeNode, graph: PricingContext, { device }: Cluster): number {
  const { dtype = 'float32', localShape: result = [] } = largestResult(node, graph) ?? {};
  // Nodes that a lowering adds for a slice or a mask only move data; their dtype, which a price by width cannot know, is moot.
  const flops = node.lowering === 'slice' || node.lowering === 'to-partial' ? 0 : node.flops;
  if (!fusesRegions(device))
    return operatorSeconds(
      { flops, bytes: node.bytes, dtype, result, packed: packedBytes(node, graph, device) },
      device,
    );
  const { fused } = node;
  switch (fused?.kind) {
    case 'free':
      return 0;
    case 'attention': {
      return attentionKernelSeconds(fused.attention as NonNullable<typeof fused.attention>, device);
    }
    case 'matmul': {
      if (flops === 0) return memorySeconds(fused.bytes, device);
      const depth = flops / (2 * Math.max(1, elementCount(result)));
      return matmulSecondsByResult({ result, depth, bytes: fused.bytes, format: formatOf(dtype) }, device);
    }
    case 'memory':
      return memorySeconds(fused.bytes * STEP_CONSTANTS.software[USUAL_SOFTWARE].passes, device);
    // An update, and the copies of a resharding, go through memory once.
    default:
      return memorySeconds(fused?.bytes ?? node.bytes, device);
  }
}

/** Seconds of the one kernel of an attention, as a rank has it. */
function attentionKernelSeconds(work: AttentionKernel, device: DeviceSpec): number {
  const precision = work.dtype === 'float32' ? 'fp32' : 'bf16';
  return attentionSeconds(work, device, { attention: device.attention ?? 'fused', precision }, STEP_CONSTANTS);
}

function largestResult({ outputs }: FragmentComputeNode, graph: PricingContext): ShardedTensor | undefined {
  let largest: ShardedTensor | undefined;
  for (const name of outputs) {
    const tensor = name === null ? undefined : tensorOf(graph, name);
    if (!tensor || (largest && elementCount(largest.localShape) >= elementCount(tensor.localShape))) continue;
    largest = tensor;
  }
  return largest;
}

/** Bytes of a second operand that is not a stored weight, where the device has to pack it. */
function packedBytes({ inputs, stored }: FragmentComputeNode, graph: PricingContext, device: DeviceSpec): number {
  const second = inputs[1];
  if (stored || second == null || profileOf(device).packingBandwidth === undefined) return 0;
  const { dtype, localShape } = tensorOf(graph, second);
  return byteLength(dtype, elementCount(localShape));
}

function tensorOf(graph: PricingContext, name: string): ShardedTensor {
  const tensor = graph.tensors.get(name);
  if (!tensor) throw new Error(`node reads or writes ${name}, which is not declared`);
  return tensor;
}
