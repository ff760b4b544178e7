/**
 * @file The degrees of parallelism as options of the command line, and as text.
 */
import type { DegreeOptions, ParallelAxis } from '../api/index.js';
import { listedDegrees } from '../api/words.js';
import type { CommandOption } from './command.js';
import { integerParser } from './values.js';

const AXES: readonly { readonly axis: ParallelAxis; readonly says: string }[] = [
  { axis: 'dp', says: 'data-parallel degree: shards the batch' },
  { axis: 'tp', says: 'tensor-parallel degree: shards features, heads and vocabulary' },
  { axis: 'pp', says: 'pipeline-parallel degree' },
  { axis: 'sp', says: 'sequence-parallel degree: shards the sequence' },
  { axis: 'ep', says: 'expert-parallel degree: shards experts; divides dp · sp' },
];

/** `--dp N` … for the axes given. */
export function degreeOptions(axes: readonly ParallelAxis[] = AXES.map(({ axis }) => axis)): readonly CommandOption[] {
  return AXES.filter(({ axis }) => axes.includes(axis)).map(({ axis, says }) => ({
    flags: `--${axis} <n>`,
    says,
    parse: integerParser(`--${axis}`, 1),
  }));
}

/** The degrees that were given, without the others. */
export function requestedDegrees(options: DegreeOptions): Partial<Record<ParallelAxis, number>> {
  const given = AXES.flatMap(({ axis }) => {
    const degree = options[axis];
    return degree === undefined ? [] : [[axis, degree] as const];
  });
  return Object.fromEntries(given);
}

/** `dp 2 · tp 4`: those of several ranks. */
export function degreesText(degrees: Readonly<Partial<Record<ParallelAxis, number>>>): string {
  return listedDegrees(degrees, []) || 'one device';
}
