/**
 * @file explain for pipelines: the stages on which an operator runs and a tensor is, and the sends between stages.
 */
import type { StagePlace } from '../../partition/cut-stages.js';
import type { LoweredStage } from '../../partition/lower-stages.js';
import { localBytes } from '../../partition/partition.js';
import type { StageTransfer } from '../../partition/sharded-graph.js';

/** A send of a tensor from one stage to another. */
export interface ExplainedTransfer {
  readonly from: number;
  readonly to: number;
  /** Bytes that one rank sends each time. */
  readonly bytes: number;
  /** `micro`: in every micro-batch. `begin`: once a step, before the first of them. `update`: once a step, after the last. */
  readonly when: StageTransfer['when'];
}

/** The stages on which an operator runs: one stage, or, if it depends on no parameter, every stage that reads its results. */
export function placesOfOperator(stages: readonly LoweredStage[], operator: string): readonly StagePlace[] {
  return stages.flatMap(({ graph, sharded: { pipeline } }, stage) =>
    pipeline && graph.nodes.some(({ name }) => name === operator)
      ? [{ stage, chunk: pipeline.chunkOf.get(operator) ?? 0 }]
      : [],
  );
}

/** The stages that compute a tensor; for an input or a weight, those that read it. */
export function placesOfTensor(stages: readonly LoweredStage[], tensor: string): readonly StagePlace[] {
  const at = (isThere: (names: readonly (string | null)[]) => boolean, side: 'inputs' | 'outputs') =>
    stages.flatMap(({ graph, sharded: { pipeline } }, stage) => {
      const node = pipeline && graph.nodes.find((own) => isThere(own[side]));
      return node ? [{ stage, chunk: pipeline.chunkOf.get(node.name) ?? 0 }] : [];
    });
  const made = at((names) => names.includes(tensor), 'outputs');
  return made.length > 0 ? made : at((names) => names.includes(tensor), 'inputs');
}

/** The sends of a tensor between stages. */
export function transfersOf(stages: readonly LoweredStage[], name: string): readonly ExplainedTransfer[] {
  return stages.flatMap(({ sharded }, from) =>
    (sharded.pipeline?.sends ?? []).flatMap((sent) => {
      const tensor = sharded.tensors.get(sent.tensor);
      if (sent.name !== name || !tensor) return [];
      return [{ from, to: sent.stage, bytes: localBytes(tensor), when: sent.when }];
    }),
  );
}
