/**
 * @file `autopar explain --rejected` and `--sensitivity` of a plan of operators.
 */
import type { ExitKind, ExplainedChoices } from '../api/index.js';
import { sensitivityTable } from './choices-report.js';
import type { CommandContext } from './command.js';
import { degreesText } from './degrees.js';
import { bytesText, secondsText } from './quantity.js';
import { numberColumns, tableLines, textColumns } from './table.js';

/** Further settings of a question about other degrees. */
export interface ExplainChoicesFlags {
  readonly rejected?: boolean;
  readonly sensitivity?: boolean;
  readonly top?: number;
  readonly model?: string;
}

export async function runExplainChoices(
  { output, signal }: CommandContext,
  directory: string,
  { rejected, sensitivity, top, model }: ExplainChoicesFlags,
): Promise<ExitKind> {
  const { explainChoices } = await import('../api/index.js');
  const explained = await explainChoices(directory, {
    sensitivity: sensitivity === true,
    signal,
    top: top ?? Infinity,
    ...(model === undefined ? {} : { model }),
    onProgress: (text) => output.progress(text),
  });
  const { stepSeconds, precision, degrees } = explained;
  output.print(`${degreesText(degrees)}: ${secondsText(stepSeconds)} per step in ${precision}`);
  const lines = [...(rejected ? rejectedLines(explained) : []), ...(sensitivity ? sensitivityLines(explained) : [])];
  for (const line of lines) output.print(line);
  const seconds = (nanoseconds: number) => nanoseconds / 1e9;
  output.data({
    schema: 'autopar-explain-v1',
    stepSeconds,
    precision,
    degrees,
    ...(rejected
      ? {
          verdicts: explained.rejected.map((ruling) => {
            if (ruling.kind !== 'slower') return ruling;
            const { stepNanoseconds, boundNanoseconds, ...rest } = ruling;
            return { ...rest, stepSeconds: seconds(stepNanoseconds), boundSeconds: seconds(boundNanoseconds) };
          }),
        }
      : {}),
    ...(sensitivity ? { sensitivities: explained.sensitivities } : {}),
  });
  return 'done';
}

function rejectedLines({ rejected }: ExplainedChoices): readonly string[] {
  if (rejected.length === 0) return ['', 'no other combination of degrees is left open'];
  const rows = rejected.map((ruling) => [
    degreesText(ruling.degrees),
    ruling.kind === 'slower' && ruling.peakBytes ? bytesText(Math.max(...ruling.peakBytes)) : '',
    ruling.reason,
  ]);
  const columns = [...textColumns('instead'), ...numberColumns('memory'), ...textColumns('because')];
  return ['', ...tableLines(columns, rows, Number.POSITIVE_INFINITY)];
}

function sensitivityLines({ sensitivities }: ExplainedChoices): readonly string[] {
  return [
    '',
    ...sensitivityTable(
      ['degrees'],
      sensitivities.map(({ change, best, ratio }) => ({
        change,
        ratio,
        best: best && { seconds: best.stepSeconds, bytes: best.peakBytes, texts: [degreesText(best.degrees)] },
      })),
    ),
  ];
}
