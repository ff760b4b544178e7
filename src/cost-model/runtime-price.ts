/**
 * @file Seconds that the bundled runtime spends around operators and collectives on a rank of this machine:
 *
 *     segments   a call of a session for each run of operators, except for those whose beginning a collective's price includes,
 *                and the tensors that it gets and passes on
 *     copies     ONNX Runtime gives results as copies of its buffers: each is read once and written once
 *
 * Both follow from the joining of nodes to segments, which the search does not know, as it prices node by node.
 */
import { elementCount } from '../ir/graph.js';
import { halvesIn } from '../partition/interleave.js';
import { localBytes } from '../partition/partition.js';
import { orderedLists } from '../partition/place-moves.js';
import { runsOfList } from '../partition/program-phases.js';
import type { ComputeNode, ShardedGraph } from '../partition/sharded-graph.js';
import { type DeviceSpec, profileOf } from './device.js';
import { memorySeconds } from './kernel-price.js';

/** Seconds per step, by part. */
export function runtimeSeconds(
  graph: ShardedGraph,
  device: DeviceSpec,
): { readonly segments: number; readonly copies: number } {
  const phases = orderedLists(graph);
  const { resultBandwidth } = profileOf(device);
  const copy = (name: string) => {
    const tensor = graph.tensors.get(name);
    if (!tensor || elementCount(tensor.localShape) === 0) return 0;
    const bytes = localBytes(tensor);
    if (resultBandwidth !== undefined) return bytes / resultBandwidth;
    return memorySeconds(2 * bytes, device);
  };
  const { segmentSeconds, tensorSeconds = 0 } = profileOf(device);
  const bound = new Set([...graph.weights.map(({ tensor }) => tensor), ...graph.constants.keys()]);
  let around = 0;
  let copies = 0;
  for (const { list, instructions } of phases) {
    const times = runsOfList(list, graph) * halvesIn(list.runs, graph).length;
    const collectives = instructions.filter(({ kind }) => kind === 'wait').length;
    const segments = instructions.flatMap((instruction) => (instruction.kind === 'segment' ? [instruction] : []));
    around += times * Math.max(0, segments.length - collectives) * segmentSeconds;
    for (const { nodes, results } of segments) {
      const { outputs } = results;
      const inputs = inputsOf(nodes, bound);
      around += times * tensorSeconds * (Math.max(0, inputs - 1) + Math.max(0, outputs.length - 1));
      for (const name of outputs) copies += times * copy(name);
    }
  }
  return { segments: around, copies };
}

/** Number of tensors that a segment gets at every run. */
function inputsOf(nodes: readonly ComputeNode[], bound: ReadonlySet<string>): number {
  const made = new Set(nodes.flatMap(({ outputs }) => outputs));
  const read = nodes.flatMap(({ inputs }) => inputs).filter((name) => name !== null && !made.has(name));
  return new Set(read.filter((name) => !bound.has(name as string))).size;
}
