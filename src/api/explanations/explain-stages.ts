/**
 * @file explain, of a pipeline: on which stages an operator runs and a tensor is, and what is sent from one stage to another.
 */
import type { StagePlace } from '../../partition/cut-stages.js';
import type { LoweredStage } from '../../partition/lower-stages.js';
import { localBytes } from '../../partition/partition.js';
import type { StageTransfer } from '../../partition/sharded-graph.js';

/** A tensor on its way from one stage to another. */
export interface ExplainedTransfer {
  readonly from: number;
  readonly to: number;
  /** That one rank sends each time. */
  readonly bytes: number;
  /** `micro`: in every micro-batch. `begin`: once a step, before the first of them. `update`: once a step, after the last. */
  readonly when: StageTransfer['when'];
}

/** Where an operator runs: on one stage, or, where it depends on no parameter, on each that reads it. */
export function placesOfOperator(stages: readonly LoweredStage[], operator: string): readonly StagePlace[] {
  return stages.flatMap(({ graph, sharded: { pipeline } }, stage) =>
    pipeline && graph.nodes.some(({ name }) => name === operator)
      ? [{ stage, chunk: pipeline.chunkOf.get(operator) ?? 0 }]
      : [],
  );
}

/** Where a tensor is made; of an input or a weight, where it is read. */
export function placesOfTensor(stages: readonly LoweredStage[], tensor: string): readonly StagePlace[] {
  const at = (isThere: (names: readonly (string | null)[]) => boolean, side: 'inputs' | 'outputs') =>
    stages.flatMap(({ graph, sharded: { pipeline } }, stage) => {
      const node = pipeline && graph.nodes.find((own) => isThere(own[side]));
      return node ? [{ stage, chunk: pipeline.chunkOf.get(node.name) ?? 0 }] : [];
    });
  const made = at((names) => names.includes(tensor), 'outputs');
  return made.length > 0 ? made : at((names) => names.includes(tensor), 'inputs');
}

/** What one stage sends of a tensor to others. */
export function transfersOf(stages: readonly LoweredStage[], name: string): readonly ExplainedTransfer[] {
  return stages.flatMap(({ sharded }, from) =>
    (sharded.pipeline?.sends ?? []).flatMap((sent) => {
      const tensor = sharded.tensors.get(sent.tensor);
      if (sent.name !== name || !tensor) return [];
      return [{ from, to: sent.stage, bytes: localBytes(tensor), when: sent.when }];
    }),
  );
}
