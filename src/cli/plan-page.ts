/**
 * @file `--report` of a lowered plan (`compile`, `explain`): its predicted step, the use of time and memory, how every
 * operator is sharded, and the compared plans.
 */
import type { Page, PageSection, PlanDetails, PlanSummary, StepSpan } from '../api/index.js';
import { shellWord } from '../api/words.js';
import { comparedRows, settingsOf } from './compared-report.js';
import { summaryLines } from './compile-report.js';
import { degreesText } from './degrees.js';
import type { Output } from './output.js';
import { partText } from './part-text.js';
import { bytesText, secondsText, shareText } from './quantity.js';
import { type InWords, reasonText } from './reason-text.js';
import { numberColumns, textColumns } from './table.js';

/** Facts that a command's report states in lines of a name and its value: `  predicted  1.2 ms per step`. */
export function factsIn(lines: readonly string[]): Page['facts'] {
  const read = lines.map((line) => /^ {2}([a-z]+) {2,}(\S.*)$/.exec(line));
  const first = read.findIndex((found) => found !== null);
  const end = lines.findIndex((line, index) => index > first && line === '');
  return read.slice(0, end < 0 ? undefined : end).flatMap((found) => (found ? [[found[1] ?? '', found[2] ?? '']] : []));
}

/** Where a report went. */
export function reportLine(file: string): string {
  return `the report is in ${file}; a browser shows it`;
}

/**
 * Writes the report of a plan.
 * @param directory of the plan
 * @param json the output for programs
 * @returns the same with the operators of the page
 */
export async function reportPlan(
  file: string,
  directory: string,
  summary: PlanSummary,
  json: Readonly<Record<string, unknown>>,
  output: Output,
): Promise<Readonly<Record<string, unknown>>> {
  const { axesInWords, writePage } = await import('../api/index.js');
  const inWords = (text: string) => axesInWords(text, summary.plan);
  const details = await summary.details();
  const whole = { ...json, operators: details.operators };
  await writePage(file, planPage(summary, details, { directory, inWords }, whole));
  output.print(reportLine(file));
  return whole;
}

interface PageContext {
  /** Of the plan. */
  readonly directory: string;
  readonly inWords: InWords;
}

function planPage(
  summary: PlanSummary,
  { spans, memory, operators }: PlanDetails,
  context: PageContext,
  json: unknown,
): Page {
  const { plan } = summary;
  const stages = plan.stages.map((_, stage) => (plan.stages.length > 1 ? `stage ${stage}` : 'every rank'));
  return {
    title: `${plan.model.name}: plan`,
    facts: factsIn(summaryLines(summary)),
    sections: [
      timelineSection('A step, predicted', stages, spans),
      partsSection(plan.predicted.parts),
      overTimeSection(
        stages.map((name, stage) => ({
          name,
          points: memory[stage] ?? [],
          kinds: summary.memory[stage]?.kinds ?? {},
          operator: summary.memory[stage]?.operator ?? null,
        })),
      ),
      memorySection(summary),
      ...choicesSections(summary),
      operatorsSection(operators, plan.predicted.stepSeconds, context),
    ],
    json,
  };
}

function operatorsSection(
  operators: PlanDetails['operators'],
  stepSeconds: number,
  { directory, inWords }: PageContext,
): PageSection {
  return {
    heading: 'Operators',
    says:
      'Most expensive first; operators of equal layers in one row. Costs of other strategies change one operator only; where ' +
      `negative, its neighbours would have to change too. All of them: autopar explain ${shellWord(directory)} --op OPERATOR`,
    table: {
      columns: [
        ...textColumns('operator'),
        ...numberColumns('layers'),
        ...textColumns('type', 'strategy', 'layouts'),
        ...numberColumns('time', 'of the step'),
        ...textColumns('why'),
      ],
      rows: operators.map(({ operator, count, op, shown, seconds, why }) => [
        operator,
        count > 1 ? `×${count}` : '',
        op,
        shown.strategy,
        shown.layouts,
        secondsText(seconds),
        shareText(seconds / stepSeconds),
        why.map((reason) => reasonText(reason, count, explainLine(directory, operator), inWords)).join('; others: '),
      ]),
    },
  };
}

function explainLine(directory: string, operator: string): string {
  return `autopar explain ${shellWord(directory)} --op ${shellWord(operator)}`;
}

/** Tables with more bars than this are left out. */
const ROWS = 2000;

export function timelineSection(heading: string, own: readonly string[], spans: readonly StepSpan[]): PageSection {
  const sends = spans.some(({ line }) => line >= own.length) ? own.map((name) => `${name} sends`) : [];
  const lines = [...own, ...sends];
  return {
    heading,
    says: 'Wheel and slider zoom; a name in the legend hides its kind.',
    picture: { kind: 'timeline', lines, spans },
    height: 150 + 34 * Math.max(1, lines.length),
    ...(spans.length > ROWS
      ? {}
      : {
          table: {
            columns: [...textColumns('on', 'what'), ...numberColumns('from', 'until', 'takes')],
            rows: spans.map(({ line, label, from, until }) => [
              lines[line] ?? '',
              label,
              secondsText(from),
              secondsText(until),
              secondsText(until - from),
            ]),
          },
        }),
  };
}

/** Memory of a stage's rank over a step; `kinds` and `operator` are those of the peak. */
export interface StageOverTime {
  readonly name: string;
  readonly points: readonly (readonly [seconds: number, bytes: number])[];
  readonly kinds: Readonly<Record<string, number>>;
  readonly operator: string | null;
}

export function overTimeSection(stages: readonly StageOverTime[]): PageSection {
  const kindsOf = (kinds: StageOverTime['kinds']) =>
    Object.entries(kinds)
      .filter(([, bytes]) => bytes > 0)
      .map(([kind, bytes]) => `${kind} ${bytesText(bytes)}`)
      .join(', ');
  return {
    heading: 'Memory over a step',
    says: 'The mark of a line is its peak, with the tensors held then.',
    picture: {
      kind: 'memory',
      curves: stages.map(({ name, points, kinds }) => ({ name, points, atPeak: `${name}: ${kindsOf(kinds)}` })),
    },
    table: {
      columns: [...textColumns('of'), ...numberColumns('most', 'at'), ...textColumns('operator', 'held then')],
      rows: stages.map(({ name, points, kinds, operator }) => {
        const [at, most] = points.reduce((found, point) => (point[1] > found[1] ? point : found), points[0] ?? [0, 0]);
        return [name, bytesText(most), secondsText(at), operator ?? '', kindsOf(kinds)];
      }),
    },
  };
}

/** Seconds of a step by part. */
export function partsSection(parts: Readonly<Record<string, number>>): PageSection {
  const sorted = Object.entries(parts)
    .filter(([, seconds]) => seconds > 0)
    .map(([part, seconds]) => [partText(part), seconds] as const)
    .sort((a, b) => b[1] - a[1]);
  return {
    heading: 'Time by part',
    picture: {
      ...{ kind: 'bars', unit: 'ms', bars: ['a step'] },
      parts: sorted.map(([name, seconds]) => ({ name, amounts: [seconds * 1e3] })),
    },
    height: 180,
    table: {
      columns: [...textColumns('part'), ...numberColumns('time')],
      rows: sorted.map(([name, seconds]) => [name, secondsText(seconds)]),
    },
  };
}

/** Bytes of each stage's fullest moment by kind. */
export function memoryPicture(
  stages: readonly { readonly stage: number; readonly kinds: Readonly<Record<string, number>> }[],
): Pick<PageSection, 'picture' | 'height'> {
  const kinds = [...new Set(stages.flatMap(({ kinds: own }) => Object.keys(own)))];
  return {
    picture: {
      ...{
        kind: 'bars',
        unit: 'MB',
        bars: stages.map(({ stage }) => (stages.length > 1 ? `stage ${stage}` : 'every rank')),
      },
      parts: kinds.map((name) => ({ name, amounts: stages.map(({ kinds: own }) => (own[name] ?? 0) / 1e6) })),
    },
    height: 150 + 34 * stages.length,
  };
}

function memorySection({ memory }: PlanSummary): PageSection {
  return {
    heading: 'Memory of a rank at its peak',
    ...memoryPicture(memory),
    table: {
      columns: [...numberColumns('stage'), ...textColumns('tensor', 'kind', 'type'), ...numberColumns('bytes')],
      rows: memory.flatMap(({ stage, held, others }) => [
        ...held.map(({ tensor, kind, dtype, shape, bytes }) => [
          String(stage),
          tensor,
          kind,
          dtype === null ? '' : `${dtype} [${(shape ?? []).join(', ')}]`,
          bytesText(bytes),
        ]),
        ...(others.count > 0 ? [[String(stage), `and ${others.count} more`, '', '', bytesText(others.bytes)]] : []),
      ]),
    },
  };
}

/** Combinations of degrees whose seconds and bytes are known: as lowered, else as estimated. */
function choicesSections({ comparison, cluster, plan }: PlanSummary): readonly PageSection[] {
  if (!comparison) return [];
  const compared = comparedRows(comparison, plan.training !== null).flatMap((row): readonly ChoiceRow[] => {
    const stepSeconds = row.stepSeconds ?? row.estimateSeconds;
    if (stepSeconds === null || row.peakBytes === null) return [];
    const isEstimate = row.stepSeconds === null ? ', estimated' : '';
    const settings = settingsOf(row);
    const name = `${row.degrees}${settings === '' ? '' : `, ${settings}`}${isEstimate}`;
    return [{ name, stepSeconds, peakBytes: row.peakBytes, reason: row.reason }];
  });
  const ranked = comparison.top.map(({ degrees, stepSeconds, peakBytes, reason }) => ({
    ...{ name: degreesText(degrees), stepSeconds, peakBytes: Math.max(...peakBytes), reason },
  }));
  return choicesSection(compared.length > 0 ? compared : ranked, cluster.device.memoryBytes);
}

export interface ChoiceRow {
  readonly name: string;
  readonly stepSeconds: number;
  readonly peakBytes: number;
  /** Why it was not taken; null for the one that was. */
  readonly reason: string | null;
}

/** Nothing where nothing was compared. */
export function choicesSection(choices: readonly ChoiceRow[], memoryBytes: number | null): readonly PageSection[] {
  if (choices.length < 2) return [];
  return [
    {
      heading: 'Configurations compared',
      picture: {
        kind: 'choices',
        memoryBytes,
        choices: choices.map(({ reason, ...choice }) => ({ ...choice, isTaken: reason === null })),
      },
      table: {
        columns: [...textColumns('configuration'), ...numberColumns('step', 'memory'), ...textColumns('because')],
        rows: choices.map(({ name, stepSeconds, peakBytes, reason }) => [
          name,
          secondsText(stepSeconds),
          bytesText(peakBytes),
          reason ?? 'chosen',
        ]),
      },
    },
  ];
}
