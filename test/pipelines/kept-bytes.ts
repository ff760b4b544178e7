/**
 * @file Bytes of parameters, optimizer state and accumulated gradients on ranks, and bytes of whole parameters at a time
 * while a step runs: read off the lowered stages by names and lifetimes, not taken from the planner.
 */
import { isAccumulator } from '../../src/ir/ops/accumulate.js';
import type { LoweredStage } from '../../src/partition/lower-stages.js';
import { localBytes } from '../../src/partition/partition.js';
import { orderedLists } from '../../src/partition/place-moves.js';
import { readsOf } from '../../src/partition/sharded-graph.js';

/** Bytes of a rank between two steps (accumulators: between two micro-batches), all stages together. */
export function keptBytes(
  stages: readonly LoweredStage[],
): Readonly<Record<'parameter' | 'state' | 'accumulator', number>> {
  const sums = { parameter: 0, state: 0, accumulator: 0 };
  for (const { graph, sharded } of stages) {
    const bytes = (name: string) => {
      const tensor = sharded.tensors.get(name);
      return tensor ? localBytes(tensor) : 0;
    };
    for (const { input } of graph.state)
      sums[graph.initial?.get(input)?.role === 'parameter' ? 'parameter' : 'state'] += bytes(input);
    for (const node of graph.nodes) if (isAccumulator(node)) sums.accumulator += bytes(node.outputs[0] as string);
  }
  return sums;
}

/** The most bytes of gathered parameters that are there at a time, or on their way, and those of the largest layer. */
export function gatheredBytes(stages: readonly LoweredStage[]): { readonly most: number; readonly layer: number } {
  let most = 0;
  let layer = 0;
  for (const { graph, sharded } of stages) {
    const kept = new Set([...graph.state.map(({ input }) => input), ...sharded.weights.map(({ tensor }) => tensor)]);
    const gathered = new Map<string, number>();
    const layers = new Map<string, number>();
    for (const node of sharded.nodes) {
      if (node.kind !== 'communicate' || node.collective.kind !== 'all-gather' || node.phase === 'update') continue;
      const tensor = sharded.tensors.get(node.output);
      if (!tensor || !isOfParameters(node.input, kept, sharded)) continue;
      gathered.set(node.output, localBytes(tensor));
      const key = `${node.layer ?? node.origin} ${node.phase}`;
      layers.set(key, (layers.get(key) ?? 0) + localBytes(tensor));
    }
    layer = Math.max(layer, ...layers.values());
    for (const { instructions } of orderedLists(sharded).filter(({ list }) => list.phase !== 'update')) {
      const last = new Map<string, number>();
      const reads = (index: number) => {
        const step = instructions[index];
        if (step?.kind === 'segment') return step.nodes.flatMap(readsOf);
        return step?.kind === 'wait' || step?.kind === 'accumulate' ? readsOf(step.node) : [];
      };
      for (const index of instructions.keys()) for (const name of reads(index)) last.set(name, index);
      const held = new Set<string>();
      for (const [index, step] of instructions.entries()) {
        if (step.kind === 'start' && gathered.has(step.node.output)) held.add(step.node.output);
        most = Math.max(
          most,
          [...held].reduce((sum, name) => sum + (gathered.get(name) ?? 0), 0),
        );
        for (const name of held) if (last.get(name) === index) held.delete(name);
      }
    }
  }
  return { most, layer };
}

/** Whether a tensor is a parameter at rest, or computed of parameters alone. */
function isOfParameters(name: string, kept: ReadonlySet<string>, sharded: LoweredStage['sharded']): boolean {
  if (kept.has(name)) return true;
  const maker = sharded.nodes.find((node) => node.kind === 'compute' && node.outputs.includes(name));
  return (
    maker !== undefined &&
    readsOf(maker).length > 0 &&
    readsOf(maker).every((read) => isOfParameters(read, kept, sharded))
  );
}
