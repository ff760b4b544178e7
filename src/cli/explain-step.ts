/**
 * @file `autopar explain --rejected` and `--sensitivity`: why a whole step's plan was taken, and what would change it.
 */
import type { ExplainedStep } from '../api/explain-step.js';
import type { ExitKind } from '../ir/error.js';
import type { Output } from './output.js';
import { bytesText, secondsText, shareText } from './quantity.js';
import { configurationText, hostLines, memoryTable } from './simulate-report.js';
import { degreesText, placedText, reasonText } from './step-report.js';
import { tableLines } from './table.js';

interface ExplainStepFlags {
  readonly rejected?: boolean;
  readonly sensitivity?: boolean;
  readonly memory?: boolean;
  readonly model?: string;
}

export async function runExplainStep(output: Output, directory: string, flags: ExplainStepFlags): Promise<ExitKind> {
  const { explainStep } = await import('../api/explain-step.js');
  const explained = await explainStep(directory, {
    sensitivity: flags.sensitivity === true,
    ...(flags.model === undefined ? {} : { model: flags.model }),
  });
  const lines = [
    ...(flags.memory ? [...memoryTable(explained.search.simulation), ...hostLines(explained.search.simulation)] : []),
    ...(flags.memory && (flags.rejected || flags.sensitivity) ? [''] : []),
    ...(flags.rejected ? rejectedLines(explained) : []),
    ...(flags.rejected && flags.sensitivity ? [''] : []),
    ...(flags.sensitivity ? sensitivityLines(explained) : []),
  ];
  for (const line of lines) output.print(line);
  const { search, sensitivities } = explained;
  output.data({
    schema: 'autopar-explain-v1',
    stepSeconds: search.simulation.stepSeconds,
    ...(flags.rejected ? { verdicts: search.verdicts } : {}),
    ...(flags.sensitivity ? { sensitivities } : {}),
    ...(flags.memory ? { memory: search.simulation.stages, host: search.simulation.host } : {}),
  });
  return 'done';
}

function rejectedLines({ search }: ExplainedStep): readonly string[] {
  const { stepSeconds, configuration } = search.simulation;
  const rows = search.verdicts
    .filter((verdict) => !(verdict.kind === 'priced' && verdict.best.configuration === configuration))
    .map((verdict) => [degreesText(verdict.degrees), reasonText(verdict, stepSeconds)]);
  return [
    `${placedText(configuration)}: ${secondsText(stepSeconds)} per step`,
    '',
    ...tableLines([{ title: 'instead' }, { title: 'because' }], rows, 100),
  ];
}

function sensitivityLines({ search, sensitivities }: ExplainedStep): readonly string[] {
  const { stepSeconds, configuration } = search.simulation;
  return [
    `${placedText(configuration)}, ${configurationText(configuration)}: ${secondsText(stepSeconds)} per step`,
    '',
    ...tableLines(
      [
        { title: 'with' },
        { title: 'step', right: true },
        { title: 'faster', right: true },
        { title: 'memory', right: true },
        { title: 'degrees' },
        { title: 'and' },
      ],
      sensitivities.map(({ change, best, ratio }) =>
        best === null || ratio === null
          ? [change, 'nothing fits', '', '', '', '']
          : [
              change,
              secondsText(best.seconds),
              shareText(1 - ratio),
              bytesText(best.bytes),
              placedText(best.configuration),
              configurationText(best.configuration),
            ],
      ),
      80,
    ),
  ];
}
