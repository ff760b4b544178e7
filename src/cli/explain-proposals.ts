/**
 * @file `autopar explain --rejected` and `--sensitivity` for a plan that was chosen among steps: the verdict of the search
 * on every other combination of degrees, and its proposal on another cluster.
 */
import type { ExitKind, ExplainedProposals } from '../api/index.js';
import { sensitivityTable } from './choices-report.js';
import { degreesText } from './degrees.js';
import type { Output } from './output.js';
import { proposalsJson, verdictText } from './proposals-report.js';
import { secondsText } from './quantity.js';
import { configurationText } from './simulate-report.js';
import { tableLines } from './table.js';

interface ExplainProposalsFlags {
  readonly rejected?: boolean;
  readonly sensitivity?: boolean;
  readonly top?: number;
}

export function runExplainProposals(
  output: Output,
  explained: ExplainedProposals,
  { rejected, sensitivity, top = Number.POSITIVE_INFINITY }: ExplainProposalsFlags,
): ExitKind {
  const { plan, search, sensitivities } = explained;
  if (plan.search.timeLimited)
    output.note('note: a time limit ended the search of the plan; explain repeats it without a limit');
  const { stepSeconds, precision } = plan.predicted;
  output.print(`${degreesText(plan.degrees)}: ${secondsText(stepSeconds)} per step in ${precision}`);
  const lines = [
    ...(rejected ? rejectedLines(explained, top) : []),
    ...(sensitivity ? sensitivityLines(explained) : []),
  ];
  for (const line of lines) output.print(line);
  output.data({
    schema: 'autopar-explain-v1',
    stepSeconds,
    precision,
    degrees: plan.degrees,
    estimateSeconds: search.simulation.stepSeconds,
    ...(rejected ? proposalsJson(search) : {}),
    ...(sensitivity ? { sensitivities } : {}),
  });
  return 'done';
}

/** The first proposal, which figures are compared with. */
function proposedText({ search }: ExplainedProposals): string {
  const { configuration, stepSeconds } = search.simulation;
  return `${degreesText(configuration.degrees)}, ${configurationText(configuration)}, estimated at ${secondsText(stepSeconds)}`;
}

function rejectedLines(explained: ExplainedProposals, top: number): readonly string[] {
  const { search, plan } = explained;
  const rows = search.verdicts
    .filter(({ degrees }) => degreesText(degrees) !== degreesText(plan.degrees))
    .slice(0, top)
    .map((verdict) => [degreesText(verdict.degrees), verdictText(verdict, search)]);
  const columns = [{ title: 'instead' }, { title: 'because' }];
  return [
    `by layer cost, compared with ${proposedText(explained)}:`,
    '',
    ...(rows.length === 0 ? [ALONE] : tableLines(columns, rows, 100)),
  ];
}

/** plan.json describes the part of a cluster that was taken, not those that were not. */
const ALONE =
  'no other degrees are possible on this cluster; if compile --objective cost or devices chose this subset, ' +
  'its report lists the others';

function sensitivityLines(explained: ExplainedProposals): readonly string[] {
  return [
    '',
    `proposals under other hardware, instead of ${proposedText(explained)}:`,
    '',
    ...sensitivityTable(
      ['degrees', 'and'],
      explained.sensitivities.map(({ change, best, ratio }) => ({
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
