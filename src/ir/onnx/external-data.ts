/**
 * @file External data: the file beside a model that holds a weight's value, or why there is none. It never leaves the model's
 * folder.
 */
import { existsSync, realpathSync, type Stats, statSync } from 'node:fs';
import { dirname, isAbsolute, resolve, sep } from 'node:path';
import { AutoparError } from '../error.js';
import type { CodeOf } from '../error-codes.js';
import type { MissingData } from '../graph.js';

/** A data file that can be read. */
export interface ExternalFile {
  /** Absolute path. */
  readonly file: string;
  /** Bytes. */
  readonly size: number;
}

interface Problem {
  readonly code: CodeOf<'input'>;
  /** The problem of one file, and of several. */
  readonly says: string;
  readonly many: string;
  readonly remedy: (location: string) => string;
}

const PROBLEMS: Readonly<Record<MissingData['problem'], Problem>> = {
  missing: {
    code: 'external-data-missing',
    says: 'does not exist',
    many: 'do not exist',
    remedy: (location) => `put ${location} next to the model`,
  },
  folder: {
    code: 'external-data-missing',
    says: 'is a folder',
    many: 'are folders',
    remedy: () => 'replace it by the data file, or correct the name in the model',
  },
  outside: {
    code: 'external-data-outside',
    says: "is outside the model's folder",
    many: "are outside the model's folder",
    remedy: () => 'move the data file into the folder of the model or below it, and correct the name in the model',
  },
};

/** The file at `location` as seen from the model's file, or why it cannot be read. */
export function dataFile(location: string, modelFile: string): ExternalFile | MissingData {
  const folder = dirname(modelFile);
  const file = resolve(folder, location);
  const linked = existsSync(file) && !isInside(realpathSync(file), realpathSync(folder));
  if (location === '' || isAbsolute(location) || !isInside(file, folder) || linked)
    return { location, problem: 'outside' };
  const stats = statsOf(file);
  if (stats?.isFile()) return { file, size: stats.size };
  return { location, problem: stats?.isDirectory() ? 'folder' : 'missing' };
}

export function isMissing(data: ExternalFile | MissingData): data is MissingData {
  return 'problem' in data;
}

/** `is not there`. */
export function problemText({ problem }: MissingData): string {
  return PROBLEMS[problem].says;
}

/** `a.bin, b.bin are not there`, a part for each problem; the first three files of each are named. */
export function problemsText(missing: readonly MissingData[]): string {
  return Object.entries(PROBLEMS)
    .flatMap(([problem, { says, many }]) => {
      const names = missing.flatMap((data) => (data.problem === problem ? [data.location] : []));
      if (names.length === 0) return [];
      const rest = names.length > 3 ? ` and ${names.length - 3} more` : '';
      return [`${names.slice(0, 3).join(', ')}${rest} ${names.length === 1 ? says : many}`];
    })
    .join(', ');
}

/** The remedy, in the imperative. */
export function remedyText({ problem, location }: MissingData): string {
  return PROBLEMS[problem].remedy(location);
}

/**
 * The error where a weight's value is needed and its data file cannot be read: `external-data-missing`, `external-data-outside`.
 */
export function withoutData(tensor: string, data: MissingData, modelFile?: string): AutoparError {
  const { code, says } = PROBLEMS[data.problem];
  return new AutoparError(
    code,
    'input',
    `the value of tensor '${tensor}' is in '${data.location}', which ${says}`,
    { ...(modelFile === undefined ? {} : { file: modelFile }), tensor },
    remedyText(data),
  );
}

function isInside(file: string, folder: string): boolean {
  return file.startsWith(folder.endsWith(sep) ? folder : folder + sep);
}

/** Null where there is nothing, or the name is one that no file can have. */
function statsOf(file: string): Stats | null {
  try {
    return statSync(file);
  } catch {
    return null;
  }
}
