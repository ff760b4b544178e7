/**
 * @file `autopar explain` of a whole step's plan: why it was taken (`--rejected`), what would change it (`--sensitivity`), what
 * its stages hold (`--memory`), and where its axes lie (`--mesh`).
 */
import type { ExplainedStep } from '../api/explain-step.js';
import type { DegreesVerdict, StepSearch } from '../api/search-step.js';
import { writePage } from '../api/write-page.js';
import type { ExitKind } from '../ir/error.js';
import { degreesText, sensitivityTable } from './choices-report.js';
import { meshLines } from './mesh-report.js';
import type { Output } from './output.js';
import { reportLine } from './plan-page.js';
import { bytesText, secondsText } from './quantity.js';
import { searchPage } from './simulate-page.js';
import { configurationText, fitLines, hostLines, memoryTable, stagesJson } from './simulate-report.js';
import { placedText, reasonText, timesJson } from './step-report.js';
import { tableLines } from './table.js';

interface ExplainStepFlags {
  readonly rejected?: boolean;
  readonly sensitivity?: boolean;
  readonly memory?: boolean;
  readonly mesh?: boolean;
  readonly model?: string;
  readonly report?: string;
}

export async function runExplainStep(output: Output, directory: string, flags: ExplainStepFlags): Promise<ExitKind> {
  const { explainStep } = await import('../api/explain-step.js');
  const explained = await explainStep(directory, {
    sensitivity: flags.sensitivity === true,
    ...(flags.model === undefined ? {} : { model: flags.model }),
  });
  const lines = [
    ...(flags.rejected ? rejectedLines(explained) : []),
    ...(flags.rejected && flags.sensitivity ? [''] : []),
    ...(flags.sensitivity ? sensitivityLines(explained) : []),
    ...(flags.memory ? memoryLines(explained) : []),
    ...(flags.mesh ? meshLines(explained.search.simulation.axes) : []),
  ];
  if (explained.plan.search.timeLimited)
    output.note('note: the plan was found under a time limit: what is explained is a search to the end');
  for (const line of lines) output.print(line);
  const { search, sensitivities } = explained;
  const json = {
    schema: 'autopar-explain-v1',
    stepSeconds: search.simulation.stepSeconds,
    precision: search.simulation.configuration.precision,
    ...(flags.rejected ? { objective: search.objective, verdicts: search.verdicts.map(verdictJson(search)) } : {}),
    ...(flags.sensitivity ? { sensitivities } : {}),
    ...(flags.memory ? { stages: stagesJson(search.simulation), host: search.simulation.host } : {}),
    ...(flags.mesh ? { mesh: search.simulation.axes } : {}),
  };
  if (flags.report !== undefined) {
    await writePage(
      flags.report,
      searchPage(search, [['predicted', `${secondsText(search.simulation.stepSeconds)} per step`]], json),
    );
    output.print(reportLine(flags.report));
  }
  output.data(json);
  return 'done';
}

function memoryLines({ search }: ExplainedStep): readonly string[] {
  const { simulation } = search;
  return [
    `${placedText(simulation.configuration)}, ${configurationText(simulation.configuration)}`,
    '',
    ...memoryTable(simulation),
    '',
    ...fitLines(simulation),
    ...hostLines(simulation),
  ];
}

function rejectedLines({ search }: ExplainedStep): readonly string[] {
  const { configuration } = search.simulation;
  const rows = search.verdicts
    .filter((verdict) => !(verdict.kind === 'priced' && verdict.best.configuration === configuration))
    .map((verdict) => [degreesText(verdict.degrees), reasonText(verdict, search)]);
  return [
    `${placedText(configuration)}: ${chosenText(search)}`,
    '',
    ...(rows.length === 0 ? [ALONE] : tableLines([{ title: 'instead' }, { title: 'because' }], rows, 100)),
  ];
}

/** plan.json describes the part of a cluster that was taken, not those that were not. */
const ALONE =
  'no other degrees are possible on this cluster; where it is the part that compile --objective cost or devices ' +
  'took, the other parts are in its report';

/** What of the chosen configuration rules the others out. */
function chosenText({ objective, best, simulation }: StepSearch): string {
  const step = `${secondsText(simulation.stepSeconds)} per step in ${simulation.configuration.precision}`;
  const [chosen] = best;
  return objective === 'time' || !chosen ? step : `${bytesText(chosen.bytes)} on stage ${chosen.stage}, ${step}`;
}

function verdictJson(search: StepSearch) {
  return (verdict: DegreesVerdict) =>
    verdict.kind === 'priced' ? { ...verdict, ...timesJson(verdict.best, search) } : verdict;
}

function sensitivityLines({ search, sensitivities }: ExplainedStep): readonly string[] {
  const { stepSeconds, configuration } = search.simulation;
  return [
    `${placedText(configuration)}, ${configurationText(configuration)}: ${secondsText(stepSeconds)} per step in ` +
      `${configuration.precision}`,
    '',
    ...sensitivityTable(
      ['degrees', 'and'],
      sensitivities.map(({ change, best, ratio }) => ({
        change,
        ratio,
        best: best && {
          seconds: best.seconds,
          bytes: best.bytes,
          texts: [placedText(best.configuration), configurationText(best.configuration)],
        },
      })),
    ),
  ];
}
