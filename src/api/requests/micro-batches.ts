/**
 * @file The number of micro-batches in a step, given as such or as the samples that a rank processes at once,
 *
 *     global batch = dp · micro-batch · micro-batches
 *
 * and the number of dp shards of each, where statistics are per shard or gradients of ranks are summed.
 */
import { type AutoparError, badOption, usageError } from '../../ir/error.js';
import type { Interleave } from '../../partition/sharded-graph.js';
import { batchSize } from '../../search/degrees.js';
import type { ImportedModel } from '../models/import.js';
import type { Training } from '../models/training.js';
import type { DecisionSources } from './decisions.js';

interface WantedMicroBatches extends Pick<DecisionSources, 'degrees' | 'mode' | 'devices'> {
  readonly microBatch?: number;
  /** Stages of the pipeline; 1 without one. */
  readonly stages: number;
  /** Micro-batches that a configuration gives its pipeline; 1 where it says nothing. */
  readonly configured: number;
  /** 2: each micro-batch runs as two halves, which are micro-batches of their own in the graph. */
  readonly interleave: Interleave;
}

/**
 * The training options with the number of micro-batches; if they run in halves, with the number of halves.
 * @throws AutoparError (usage) `micro-batch` where the samples of a micro-batch leave their number open, do not divide the batch,
 * or contradict the number that is given, and where they have no equal halves; `bad-option` where statistics are per shard or
 * gradients are summed, and dp is open
 */
export function inMicroBatches(given: Training, wanted: WantedMicroBatches, model: ImportedModel): Training {
  const training = inEqualMicroBatches(given, wanted, model);
  if (wanted.interleave === 1) return training;
  const { microBatches: count = 1 } = training;
  const batch = batchSize(model.graph);
  if (batch !== undefined && batch % (2 * count) !== 0)
    throw refusal(
      `--interleave 2 halves each micro-batch, and with ${batchText(given, wanted, count)} of a batch of ${batch} each has ` +
        samplesText(batch / count),
      `take another --micro-batches, or a --global-batch that ${2 * count} divides`,
    );
  const dp = dpOf(wanted);
  if (dp !== undefined && batch !== undefined && batch % (2 * count * dp) !== 0)
    throw refusal(
      `--interleave 2 halves each micro-batch, and with ${batchText(given, wanted, count)} of a batch of ${batch} on dp ` +
        `${dp} each has ${samplesText(batch / count / dp)} per rank`,
      `take another --micro-batches, or a --global-batch that ${2 * count * dp} divides`,
    );
  return { ...training, microBatches: 2 * count };
}

function inEqualMicroBatches(
  given: Training,
  { microBatch, ...wanted }: WantedMicroBatches,
  model: ImportedModel,
): Training {
  const dp = dpOf(wanted);
  const training = withShards(given, dp);
  if (microBatch === undefined) return inPipeline(training, wanted, model);
  if (dp === undefined)
    throw refusal(
      '--micro-batch counts the samples of a dp rank, and dp is not given',
      'give --dp, or the number of micro-batches: --micro-batches',
    );
  const batch = batchSize(model.graph);
  if (batch === undefined)
    throw refusal(
      'the model has no input with a batch dimension, so there are no micro-batches',
      'leave --micro-batch out',
    );
  const count = batch / (dp * microBatch);
  if (!Number.isInteger(count))
    throw refusal(
      `a batch of ${batch} is not a multiple of dp ${dp} · micro-batch ${microBatch}`,
      'take a divisor, or another --global-batch',
    );
  const { microBatches: stated } = training;
  if (stated !== undefined && stated !== count)
    throw refusal(
      `--micro-batch ${microBatch} contradicts --micro-batches ${stated}: a batch of ${batch} on dp ${dp} has ${count} of ` +
        'that size',
      'give one of the two',
    );
  return { ...training, microBatches: count };
}

function dpOf({
  degrees,
  mode,
  devices,
}: Pick<WantedMicroBatches, 'degrees' | 'mode' | 'devices'>): number | undefined {
  return degrees?.dp ?? (mode === 'data' ? devices : undefined);
}

/** The number or size of micro-batches as the user gave it, if it was given. */
function batchText({ microBatches }: Training, { microBatch }: WantedMicroBatches, count: number): string {
  if (microBatches === count) return `--micro-batches ${count}`;
  if (microBatch !== undefined) return `--micro-batch ${microBatch}`;
  return count === 1 ? '1 micro-batch' : `${count} micro-batches`;
}

/** Statistics per shard and sums of gradients depend on the number of ranks: another dp would compute another result. */
function withShards(training: Training, dp: number | undefined): Training {
  const asked =
    training.batchStatistics === 'shard'
      ? '--batch-statistics shard takes statistics per rank of dp'
      : training.gradientReduction === 'sum'
        ? '--gradient-reduction sum adds up the gradients of the ranks of dp'
        : null;
  if (asked === null) return training;
  if (dp !== undefined) return { ...training, shards: dp };
  throw badOption(`${asked}, and dp is not given`, 'give --dp');
}

/**
 * A pipeline without a given number of micro-batches has the fewest that keep all of its stages busy at once: as many as stages,
 * else the least divisor of the batch that is larger; else as many as there are samples.
 */
function inPipeline(
  training: Training,
  { stages, configured, interleave }: WantedMicroBatches,
  model: ImportedModel,
): Training {
  if (training.microBatches !== undefined) return training;
  if (configured > 1) return { ...training, microBatches: configured };
  if (stages === 1) return training;
  const batch = batchSize(model.graph) ?? 1;
  if (batch % interleave === 0) return { ...training, microBatches: divisorFrom(stages, batch / interleave) };
  return { ...training, microBatches: divisorFrom(stages, batch) };
}

/**
 * The least divisor of a batch that is not below `least`; the batch itself if it is smaller. Tries at most √batch numbers.
 */
function divisorFrom(least: number, batch: number): number {
  const root = Math.floor(Math.sqrt(batch));
  for (let divisor = least; divisor <= root; divisor++) if (batch % divisor === 0) return divisor;
  for (let other = Math.min(root, Math.floor(batch / least)); other > 1; other--)
    if (batch % other === 0) return batch / other;
  return batch;
}

function samplesText(count: number): string {
  return count === 1 ? '1 sample' : `${Number(count.toPrecision(3))} samples`;
}

function refusal(message: string, hint: string): AutoparError {
  return usageError('micro-batch', message, hint);
}
