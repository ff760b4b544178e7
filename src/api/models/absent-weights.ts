/**
 * @file Weights whose values the model does not contain: the text that reports them, and the error where a value is needed.
 */
import path from 'node:path';
import { AutoparError } from '../../ir/error.js';
import type { CodeOf } from '../../ir/error-codes.js';
import type { MissingData } from '../../ir/graph.js';
import { problemText, remedyText, withoutData } from '../../ir/onnx/external-data.js';
import type { ImportedModel } from './import.js';

interface WeightedModel extends Pick<ImportedModel, 'graph' | 'file'> {
  /** The text of a family, where the file was made from one: users do not know that file. */
  readonly generated?: string | undefined;
}

interface AbsentWeight {
  readonly name: string;
  /** The data file that the model names for it, if it names one. */
  readonly data: MissingData | null;
}

function absentWeights({ graph }: WeightedModel): readonly AbsentWeight[] {
  // Those that a step changes are state of its graph.
  return [...graph.weights, ...(graph.initial ?? [])].flatMap(([name, { source }]) =>
    source.kind === 'absent' ? [{ name, data: source.data ?? null }] : [],
  );
}

/** `2 weights have no values, as 'w.bin' is not there`. */
export function absentText(model: WeightedModel): string {
  const absent = absentWeights(model);
  const located = absent.filter(({ data }) => data !== null);
  const [first] = located;
  if (!first?.data)
    return model.generated === undefined
      ? `${weightsText(absent.length)} no values in ${path.basename(model.file)}`
      : `${weightsText(absent.length)} no values, as --model ${model.generated} gives none`;
  return `${weightsText(located.length)} no values, as '${first.data.location}' ${problemText(first.data)}`;
}

/** Rejects a data file with an invalid path, where values are needed. A file that is merely missing still allows a plan. */
export function refuseWrongData(model: WeightedModel): void {
  const wrong = absentWeights(model).find(({ data }) => data !== null && data.problem !== 'missing');
  if (wrong?.data) throw withoutData(wrong.name, wrong.data, model.file);
}

/** The error for a `purpose` that needs the values; `code` replaces the default error code. */
export function weightsNeeded(
  model: WeightedModel,
  purpose: string,
  remedy: string,
  code?: CodeOf<'input'>,
): AutoparError {
  const [first] = absentWeights(model).toSorted((a, b) => Number(b.data !== null) - Number(a.data !== null));
  const put = first?.data ? `${remedyText(first.data)}, or ` : '';
  return new AutoparError(
    code ?? (first?.data ? withoutData(first.name, first.data).code : 'weight-absent'),
    'input',
    `${purpose}: ${absentText(model)}`,
    { file: model.file, ...(first ? { tensor: first.name } : {}) },
    `${put}${remedy}`,
  );
}

function weightsText(count: number): string {
  return count === 1 ? '1 weight has' : `${count} weights have`;
}
