/**
 * @file Segments, runs of operators that one session executes, and their interface: the weights that are part of a segment,
 * the results that are read outside, and the bytes of its other results.
 */
import { elementCount } from '../ir/graph.js';
import { appendTo } from '../ir/group-by.js';
import { entryOf } from '../ir/ops/index.js';
import { structureOf } from '../ir/structure-key.js';
import { isReplicated } from '../sharding-propagation/layout.js';
import { changesWhileRunning, occupancy } from './occupancy.js';
import type { OrderedInstruction, OrderedList } from './ordered-list.js';
import { localBytes } from './partition.js';
import {
  type ComputeNode,
  resultsOf,
  type ShardedGraph,
  type ShardedTensor,
  type ShardedWeight,
} from './sharded-graph.js';

/** Constants up to this many elements, the same on all ranks, are part of a segment; larger ones are bound like weights. */
const INLINE_ELEMENTS = 1024;

/** Whether a weight's value is part of the segments that read it. */
function isInlined({ tensor, constant }: ShardedWeight, { tensors }: ShardedGraph): boolean {
  const type = tensors.get(tensor);
  return (
    constant !== undefined &&
    type !== undefined &&
    elementCount(type.shape) <= INLINE_ELEMENTS &&
    isReplicated(type.layout)
  );
}

/** Values that are part of segments: constants of the lowering, and small replicated constants of the graph. */
export function inlineValues(sharded: ShardedGraph): ReadonlyMap<string, Uint8Array> {
  const values = new Map<string, Uint8Array>();
  for (const [name, value] of sharded.constants) values.set(name, value.data);
  for (const weight of sharded.weights)
    if (weight.constant && isInlined(weight, sharded)) values.set(weight.tensor, weight.constant);
  return values;
}

/**
 * A text that is the same for two runs of operators where one session can execute both: they have the same structure, and read
 * the same weights.
 */
export function sessionKey(
  nodes: readonly ComputeNode[],
  { tensors }: Pick<ShardedGraph, 'tensors'>,
  inline: ReadonlyMap<string, Uint8Array>,
  isWeight: (tensor: string) => boolean,
  results: readonly string[],
): string {
  const describe = (name: string) => {
    const { dtype, localShape } = tensors.get(name) ?? {};
    const value = inline.get(name);
    return [dtype, localShape, value ? textOf(value) : isWeight(name) ? name : null];
  };
  return structureOf(nodes, describe, { outputs: results }).key;
}

/** A text that equal values share, those of attributes and constants among them. */
export function canonicalText(value: unknown): string {
  return JSON.stringify(value, (_, own: unknown) =>
    typeof own === 'bigint' ? `${own}n` : own instanceof Uint8Array ? textOf(own) : own,
  );
}

/** A text that equal bytes share. */
export function textOf(bytes: Uint8Array): string {
  return Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength).toString('base64');
}

/** Whether a tensor is read outside of these operators. */
export type ReadOutside = (tensor: string, inside: ReadonlySet<ComputeNode>) => boolean;

/**
 * By list: a function that returns whether a tensor is read outside of a segment. The last micro-batch may read other tensors
 * than the others.
 */
export function readersOutside(
  sharded: ShardedGraph,
  lists: readonly OrderedList[],
): (list: OrderedList['list']) => ReadOutside {
  const of = (isLast: boolean) => {
    const own = lists.filter(({ list }) => list.runs === 'step' || (list.isLast ?? false) === isLast);
    return readersIn(
      sharded,
      own.flatMap(({ instructions }) => instructions),
    );
  };
  const [others, last] = [of(false), of(true)];
  return ({ isLast }) => (isLast ? last : others);
}

/** Returns whether a tensor is read by a node outside of a segment, by a collective, or by the user. */
function readersIn(sharded: ShardedGraph, instructions: readonly OrderedInstruction[]): ReadOutside {
  const always = new Set(sharded.outputs.map((output) => output.tensor));
  const readers = new Map<string, ComputeNode[]>();
  for (const instruction of instructions) {
    if (instruction.kind === 'start' || instruction.kind === 'move') always.add(instruction.node.input);
    if (instruction.kind === 'send') always.add(instruction.transfer.tensor);
    if (instruction.kind === 'accumulate')
      for (const input of instruction.node.inputs) if (input !== null) always.add(input);
    for (const node of instruction.kind === 'segment' ? instruction.nodes : []) {
      for (const name of overwriting(node)) always.add(name);
      for (const input of node.inputs) {
        if (input === null) continue;
        appendTo(readers, input, node);
      }
    }
  }
  return (tensor, inside) => always.has(tensor) || (readers.get(tensor) ?? []).some((node) => !inside.has(node));
}

/**
 * Results that ONNX Runtime writes over an operand where they stay inside a session: running statistics. The operand is state,
 * which others read too.
 */
function overwriting({ op, domain, outputs }: ComputeNode): readonly string[] {
  const form = entryOf(op, domain)?.training;
  return form?.kind === 'batch-statistics' ? form.running.flatMap(({ result }) => outputs[result] ?? []) : [];
}

/** Results of a segment. */
export interface SegmentResults {
  /** Results that are read outside of it. */
  readonly outputs: readonly string[];
  /** Tensors that only the segment reads and that it holds at its operator of peak memory. */
  readonly inside: readonly string[];
  /** Their bytes. */
  readonly insideBytes: number;
}

/** Results read outside of a segment, and tensors held inside it: results until their last reader. */
export function segmentResults(
  nodes: readonly ComputeNode[],
  { tensors }: Pick<ShardedGraph, 'tensors'>,
  readOutside: ReadOutside,
): SegmentResults {
  const members = new Set(nodes);
  const outputs = nodes.flatMap(resultsOf).filter((name) => readOutside(name, members));
  const leaves = new Set(outputs);
  const bytes = (name: string) => (leaves.has(name) ? 0 : localBytes(tensors.get(name) as ShardedTensor));
  const { peakBytes, bytesByTensor: held } = occupancy(changesWhileRunning(nodes, bytes));
  return { outputs, inside: [...held().keys()], insideBytes: peakBytes };
}
