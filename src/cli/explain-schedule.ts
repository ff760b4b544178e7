/**
 * @file `autopar explain --schedule`: the pipeline of a plan drawn as text, with the idle share of each stage.
 */
import type { ExitKind, ExplainedSchedule, ScheduledPipeline } from '../api/index.js';
import type { Output } from './output.js';
import { countText, secondsText, shareText } from './quantity.js';

/** Columns of time: with the stage before and its share behind, a line has 120 at most. */
const COLUMNS = 92;

export async function runExplainSchedule(
  output: Output,
  directory: string,
  { model }: { readonly model?: string },
): Promise<ExitKind> {
  const { explainSchedule } = await import('../api/index.js');
  const explained = await explainSchedule(directory, model);
  for (const line of scheduleLines(explained)) output.print(line);
  const { stepSeconds, precision, pipeline } = explained;
  output.data({ schema: 'autopar-explain-v1', stepSeconds, precision, pipeline });
  return 'done';
}

function scheduleLines({ stepSeconds, pipeline, draw }: ExplainedSchedule): readonly string[] {
  if (!pipeline) return ['one stage: no pipeline'];
  const { kind, microBatches, virtualStages, seconds, bubble, stages } = pipeline;
  const chunks = virtualStages > 1 ? `, ${countText(virtualStages, 'chunk')} a stage` : '';
  return [
    `${kind}, ${countText(microBatches, 'micro-batch', 'micro-batches')}${chunks}: ${secondsText(seconds)} of a step of ` +
      `${secondsText(stepSeconds)}, bubble ${shareText(bubble)}`,
    '',
    ...draw(COLUMNS).map((line, stage) => `${line}  bubble ${shareText(stages[stage]?.bubble ?? 0)}`),
    '',
    ...legendLines(pipeline),
  ];
}

/** `n` stands for the first micro-batch, and for the first chunk where a stage has several. */
const NAMES = [
  { phase: 'forward', says: 'Fn forward of the first micro-batch' },
  { phase: 'backward', says: 'Bn backward' },
  { phase: 'input-gradient', says: 'bn input gradients' },
  { phase: 'weight-gradient', says: 'wn weight gradients' },
] as const;

function legendLines({ virtualStages, seconds, stages }: ScheduledPipeline): readonly string[] {
  const actions = stages.flatMap((stage) => stage.actions);
  const phases = new Set(actions.map(({ phase }) => phase));
  const first = virtualStages > 1 ? '1a' : '1';
  const column = seconds / COLUMNS;
  const shortest = actions.reduce(
    (least, { startSeconds, endSeconds }) => Math.min(least, endSeconds - startSeconds),
    column,
  );
  return [
    [
      ...NAMES.filter(({ phase }) => phases.has(phase)).map(({ says }) => says.replace('n', first)),
      ...(virtualStages > 1 ? ['a, b chunks'] : []),
      '- goes on',
      '. idle',
    ].join(' · '),
    `a column is ${secondsText(column)}; a letter alone has no room for its number` +
      (shortest < column ? '; actions of less than a column may be left out' : ''),
    "bubble: idle share of a stage's time until the last action ends",
  ];
}
