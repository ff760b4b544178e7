/**
 * @file The data of a training run: matches a program's inputs with data files, and feeds ranks from them.
 */
import type { DataInput } from '../../data/convert.js';
import type { TokenType } from '../../data/data-file.js';
import { type Dataset, openDataset } from '../../data/dataset.js';
import { batchRows, type LastBatch, type SampleOrder, type SamplerPosition } from '../../data/sampler.js';
import { AutoparError, badOption } from '../../ir/error.js';
import { tableRows } from '../../ir/table-rows.js';
import type { Program } from '../../program/program.js';
import type { Feeds, Session } from '../../runtime/session.js';
import type { PlanTraining } from '../../strategy/plan.js';
import { labelRange, rowRange } from '../execution/labels.js';
import type { ImportedModel } from '../models/import.js';

/** Options for data files. */
export interface DataOptions {
  readonly files: readonly string[];
  readonly tokenType: TokenType;
  readonly lastBatch: LastBatch;
}

/** @throws AutoparError as `openDataset`; `data-too-short` for less than a batch, `bad-option` for padding that would count */
export function openTrainingData(
  { files, tokenType, lastBatch }: DataOptions,
  inputs: Program['inputs'],
  { graph }: ImportedModel,
  training: PlanTraining,
): Dataset {
  const labels = labelsOf(inputs, training);
  const ignored = training.loss.labels?.ignoreIndex ?? null;
  if (lastBatch === 'pad' && ignored === null)
    throw badOption(
      `--last-batch pad needs labels that the loss ignores, and ${training.loss.kind} ignores none`,
      'leave it out: an epoch then omits the incomplete last batch',
    );
  const batchAxes = new Map(graph.batch.map(({ input, axis }) => [input, axis]));
  const seen = new Map(inputs.map((input) => [input.name, input]));
  const wanted = [...seen.values()].map(({ name, dtype, shape }): DataInput => {
    const isLabel = training.loss.labels?.input === name;
    const range = labelRange(name, training) ?? rowRange(tableRows(graph, name), false);
    return {
      ...{ name, dtype, shape },
      batchAxis: batchAxes.get(name) ?? null,
      ...(range === null ? {} : { range }),
      ...(isLabel && ignored !== null ? { padding: ignored } : {}),
    };
  });
  const dataset = openDataset({ files, inputs: wanted, labels, tokenType });
  if (lastBatch === 'pad' || dataset.samples >= dataset.batch) return dataset;
  dataset.close();
  throw new AutoparError(
    'data-too-short',
    'input',
    `a step takes ${dataset.batch} samples, and there are ${dataset.samples} in ${files.join(', ')}`,
    { file: files[0] ?? '' },
    'give more data, compile for a smaller --global-batch, or add --last-batch pad',
  );
}

function labelsOf(inputs: Program['inputs'], { loss }: PlanTraining): string | null {
  const added = { cross_entropy: 'labels', mse: 'target', 'model-output': null }[loss.kind as string] ?? null;
  const known = loss.labels?.input ?? added;
  return inputs.some(({ name }) => name === known) ? known : null;
}

/** A batch in the form in which ranks are fed. */
export interface FedBatch {
  readonly feeds: Feeds;
  /** Bytes read from files, by the rank that read them for all ranks that hold the same data. */
  readonly bytesRead: ReadonlyMap<number, number>;
}

export function feedBatch(session: Session, dataset: Dataset, order: SampleOrder, at: SamplerPosition): FedBatch {
  const rows = batchRows(order, at, dataset.batch);
  const bytesRead = new Map<number, number>();
  const feeds = session.feeds((name, offset, length, rank) => {
    const { bytes, bytesRead: some } = dataset.read(name, rows, offset, length);
    bytesRead.set(rank, (bytesRead.get(rank) ?? 0) + some);
    return bytes;
  });
  return { feeds, bytesRead };
}
