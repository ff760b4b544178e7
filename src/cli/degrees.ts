/**
 * @file The degrees of parallelism as options of the command line, and as text; the stages of a pipeline as text.
 */
import type { DegreeOptions, ParallelAxis } from '../api/index.js';
import { listedDegrees, withoutUndefined } from '../api/words.js';
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
    parse: integerParser(1),
  }));
}

/** The degrees that were given, without the others. */
export function requestedDegrees({ dp, tp, pp, sp, ep }: DegreeOptions): Partial<Record<ParallelAxis, number>> {
  return withoutUndefined({ dp, tp, pp, sp, ep });
}

/** `dp 2 · tp 4`: those of several ranks. */
export function degreesText(degrees: Readonly<Partial<Record<ParallelAxis, number>>>): string {
  return listedDegrees(degrees, []) || 'one device';
}

/** Equal stages in a row that are counted and not repeated, at least. */
const MANY_STAGES = 8;

/** A stage layout with long rows of equal stages counted: `E t*2 | 78 times t | t H`. */
export function stageLayoutText(layout: string): string {
  const rows: { readonly stage: string; count: number }[] = [];
  for (const stage of layout.split(' | ')) {
    const last = rows.at(-1);
    if (last?.stage === stage) last.count++;
    else rows.push({ stage, count: 1 });
  }
  return rows
    .map(({ stage, count }) =>
      count < MANY_STAGES ? Array.from({ length: count }, () => stage).join(' | ') : `${count} times ${stage}`,
    )
    .join(' | ');
}
