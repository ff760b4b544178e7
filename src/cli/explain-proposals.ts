/**
 * @file `autopar explain --rejected` and `--sensitivity` for a plan that was chosen among steps: the verdict of the search
 * on every other combination of degrees, and its proposal on another cluster.
 */
import type { ExitKind, ExplainedProposals } from '../api/index.js';
import { sensitivityTable } from './choices-report.js';
import { firstText, referenceText, rejectedReasons } from './compared-report.js';
import { degreesText } from './degrees.js';
import type { ExplainChoicesFlags } from './explain-choices.js';
import type { Output } from './output.js';
import { secondsText } from './quantity.js';
import { configurationText } from './simulate-report.js';
import { tableLines, textColumns } from './table.js';

export function runExplainProposals(
  output: Output,
  explained: ExplainedProposals,
  { rejected, sensitivity, top = Number.POSITIVE_INFINITY }: ExplainChoicesFlags,
): ExitKind {
  const { plan, comparison, sensitivity: changed } = explained;
  if (plan.search.timeLimited)
    output.note('note: a time limit ended the search of the plan; explain repeats it without a limit');
  const { stepSeconds, precision } = plan.predicted;
  output.print(`${degreesText(plan.degrees)}: ${secondsText(stepSeconds)} per step in ${precision}`);
  const lines = [...(rejected ? rejectedLines(explained, top) : []), ...(changed ? sensitivityLines(changed) : [])];
  for (const line of lines) output.print(line);
  const { proposals, compared } = comparison;
  output.data({
    schema: 'autopar-explain-v1',
    stepSeconds,
    precision,
    degrees: plan.degrees,
    estimateSeconds: (changed?.search ?? proposals)?.first.stepSeconds,
    ...(rejected ? { ...proposals, ...(compared ? { compared } : {}) } : {}),
    ...(sensitivity && changed ? { sensitivities: changed.changes } : {}),
  });
  return 'done';
}

function rejectedLines({ comparison, plan }: ExplainedProposals, top: number): readonly string[] {
  const isTraining = plan.training !== null;
  const rows = [...rejectedReasons(comparison, isTraining)]
    .filter(([degrees]) => degrees !== degreesText(plan.degrees))
    .slice(0, top);
  const columns = textColumns('instead', 'because');
  return [
    `by layer cost, compared with ${referenceText(comparison, isTraining)}:`,
    '',
    ...(rows.length === 0 ? [ALONE] : tableLines(columns, rows, Number.POSITIVE_INFINITY)),
  ];
}

/** plan.json describes the part of a cluster that was taken, not those that were not. */
const ALONE =
  'no other degrees are possible on this cluster; if compile --objective cost or devices chose this subset, ' +
  'its report lists the others';

function sensitivityLines({ search, changes }: NonNullable<ExplainedProposals['sensitivity']>): readonly string[] {
  return [
    '',
    `proposals under other hardware, instead of ${firstText(search)}:`,
    '',
    ...sensitivityTable(
      ['degrees', 'and'],
      changes.map(({ change, best, ratio }) => ({
        change,
        ratio,
        best: best && {
          seconds: best.seconds,
          bytes: best.bytes,
          texts: [degreesText(best.configuration.degrees), configurationText(best.configuration)],
        },
      })),
    ),
  ];
}
