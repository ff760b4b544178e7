/**
 * @file `autopar explain`: why a tensor or an operator of a compiled plan is sharded as it is, and what it costs.
 */

import type {
  AxisChain,
  ExitKind,
  ExplainedResharding,
  OperatorExplanation,
  PeakMemory,
  TensorExplanation,
} from '../api/index.js';
import { badOption } from '../api/words.js';
import type { Command, CommandContext } from './command.js';
import { type ExplainChoicesFlags, runExplainChoices } from './explain-choices.js';
import { runExplainPins } from './explain-pins.js';
import { runExplainProposals } from './explain-proposals.js';
import { runExplainSchedule } from './explain-schedule.js';
import { kindsText, liveTensorLines, serverText, stateText } from './memory-report.js';
import { meshLines } from './mesh-report.js';
import { bytesText, secondsText } from './quantity.js';
import { differenceText, type InWords, pinText, strategyText } from './reason-text.js';
import { numberColumns, tableLines, textColumns } from './table.js';
import { integerParser } from './values.js';

interface ExplainFlags extends ExplainChoicesFlags {
  readonly tensor?: string;
  readonly op?: string;
  readonly alternatives?: number;
  readonly memory?: boolean;
  readonly mesh?: boolean;
  readonly schedule?: boolean;
  readonly pins?: boolean;
  readonly report?: string;
}

/** Operators whose prices --pins shows by default. */
const SHOWN_PINS = 8;
/** Alternatives of an operator that are shown by default. */
const SHOWN = 6;

export const explainCommand: Command<ExplainFlags> = {
  name: 'explain',
  says: 'show the cost and the reasons of a compiled plan',
  arguments: [{ name: '<dir>', says: 'folder that compile wrote' }],
  options: [
    { flags: '--tensor <name>', says: 'layout, resharding and axis origins of a tensor' },
    { flags: '--op <name>', says: 'strategy of an operator, its cost, alternatives and axis origins' },
    { flags: '--report <file>', says: 'HTML page of the step and all operators with reasons' },
    { flags: '--model <file>', says: 'the ONNX file, if it was moved since compile' },
    {
      flags: '--alternatives <k>',
      says: `strategies of an operator to show (default: ${SHOWN})`,
      parse: integerParser(1),
    },
    {
      flags: '--rejected',
      says: 'other degree combinations, with the figure that rules out each',
    },
    { flags: '--sensitivity', says: 'gain from more memory, faster links or faster devices' },
    {
      flags: '--pins',
      says: 'cost of overriding each sharding, and of existing pins',
    },
    {
      flags: '--top <k>',
      says: `operators shown by --pins (default: ${SHOWN_PINS}), combinations by --rejected (default: all)`,
      parse: integerParser(1),
    },
    {
      flags: '--memory',
      says: 'tensors of a rank at peak memory, largest first',
    },
    { flags: '--mesh', says: 'levels and slowest link of each axis, and its cost' },
    { flags: '--schedule', says: "the pipeline drawn as text, with each stage's bubble" },
  ],
  examples: [
    { line: 'autopar explain gpt.autopar --op /h.0/mlp/c_fc/MatMul', says: 'costs of the other strategies' },
    { line: 'autopar explain gpt-tiny.autopar --schedule', says: 'when each stage of a pipeline computes' },
  ],
  idle: [
    {
      option: 'alternatives',
      when: ({ op }) => op === undefined,
      says: () => '--alternatives applies to --op only',
      hint: 'add --op NAME, or leave it out',
    },
    {
      option: 'top',
      when: ({ pins, rejected }) => !pins && !rejected,
      says: () => '--top applies to --pins and --rejected only',
      hint: 'add one of the two, or leave it out',
    },
    {
      option: 'report',
      when: (flags) => SUBJECTS.some((question) => flags[question]),
      says: () => '--report applies to the plan, and cannot be combined with the other views',
      hint: 'give --report alone, or leave it out',
    },
  ],
  run: runExplain,
};

async function runExplain(
  context: CommandContext,
  [directory = '']: readonly string[],
  flags: ExplainFlags,
): Promise<ExitKind> {
  const { output } = context;
  if (SUBJECTS.every((question) => !flags[question])) return runExplainPlan(context, directory, flags);
  checkSubject(flags);
  if (flags.rejected || flags.sensitivity) return runExplainChosen(context, directory, flags);
  if (flags.pins) return runExplainPins(context, directory, { ...flags, top: flags.top ?? SHOWN_PINS });
  if (flags.schedule) return runExplainSchedule(output, directory, flags);
  const { tensor, op, mesh } = flags;
  if (flags.memory) {
    const { explainMemory } = await import('../api/index.js');
    const { stages, memoryBytes, kept, server } = await explainMemory(directory, flags.model);
    if (kept) output.print(`ZeRO ${stateText(kept)}`);
    if (server) output.print(`server: ${serverText(server)}`);
    const whose = (stage: number) => {
      const place = stages.length > 1 ? `${server ? ' in' : ' of'} stage ${stage}` : '';
      return `${server ? `the first rank of ${server.axes.join(' · ')}` : 'each rank'}${place}`;
    };
    for (const stage of stages) {
      if (stage.stage > 0) output.print('');
      for (const line of memoryLines(stage, memoryBytes, whose(stage.stage))) output.print(line);
    }
    output.data({
      ...{ schema: 'autopar-explain-v1', memoryBytes, memory: stages },
      ...(kept ? { zero: kept } : {}),
      ...(server ? { server } : {}),
    });
    return 'done';
  }
  const { axesInWords, openExplainable } = await import('../api/index.js');
  const { explainable, plan, precision, notes } = await openExplainable(directory, flags.model);
  for (const note of notes) output.note(`note: ${note}`);
  if (tensor !== undefined) {
    const { explainTensor } = await import('../api/index.js');
    const found = explainTensor(explainable, tensor);
    for (const line of tensorLines(found, (text) => axesInWords(text, plan))) output.print(line);
    output.data({ schema: 'autopar-explain-v1', precision, ...found });
  } else if (mesh) {
    const { explainMesh } = await import('../api/index.js');
    const axes = explainMesh(explainable);
    for (const line of meshLines(axes)) output.print(line);
    output.data({ schema: 'autopar-explain-v1', precision, mesh: axes });
  } else {
    const { explainOperator } = await import('../api/index.js');
    const found = explainOperator(explainable, op ?? '');
    const inWords = (text: string) => axesInWords(text, plan);
    for (const line of operatorLines(found, precision, flags.alternatives ?? SHOWN, inWords)) output.print(line);
    output.data({ schema: 'autopar-explain-v1', precision, ...found });
  }
  return 'done';
}

/** Without a question: the plan, and its time and memory. */
async function runExplainPlan({ output }: CommandContext, directory: string, flags: ExplainFlags): Promise<ExitKind> {
  const { explainPlan } = await import('../api/index.js');
  const summary = await explainPlan(directory, flags.model);
  const { planJson, planLines } = await import('./compile-report.js');
  for (const line of planLines(summary, output)) output.print(line);
  const json = { schema: 'autopar-explain-v1', ...planJson(summary) };
  const { reportPlan } = await import('./plan-page.js');
  output.data(flags.report === undefined ? json : await reportPlan(flags.report, directory, summary, json, output));
  return 'done';
}

/** Explains the proposals that a search over training steps compared, or else meshes of the plan's operators. */
async function runExplainChosen(context: CommandContext, directory: string, flags: ExplainFlags): Promise<ExitKind> {
  const { explainProposals } = await import('../api/index.js');
  const explained = await explainProposals(directory, {
    sensitivity: flags.sensitivity === true,
    signal: context.signal,
    ...(flags.model === undefined ? {} : { model: flags.model }),
  });
  return explained
    ? runExplainProposals(context.output, explained, flags)
    : runExplainChoices(context, directory, flags);
}

const SUBJECTS = ['tensor', 'op', 'memory', 'mesh', 'schedule', 'pins', 'rejected', 'sensitivity'] as const;

/** One question is answered at a time, but for --rejected and --sensitivity, which go together. */
function checkSubject(flags: ExplainFlags): void {
  const asked = SUBJECTS.filter((question) => flags[question] !== undefined);
  if (asked.length === 1 || asked.join() === 'rejected,sensitivity') return;
  throw badOption(
    'explain takes one of --tensor, --op, --memory, --mesh, --schedule, --pins, --rejected and --sensitivity, ' +
      `not ${asked.map((question) => `--${question}`).join(' and ')} together`,
    'give them one after another; autopar explain DIR prints the summary',
  );
}

const ROLE_TEXT: Readonly<Record<Exclude<TensorExplanation['role'], 'computed'>, string>> = {
  input: 'an input',
  weight: 'a weight',
  state: 'state of the training',
};

function tensorLines(found: TensorExplanation, inWords: InWords): readonly string[] {
  const { tensor, role, dtype, shape, layouts, maker, views, shards } = found;
  const layoutLine = layouts.length === 0 ? 'nothing reads it' : inWords(layouts.join(' and '));
  return [
    `${tensor}  ${dtype} [${shape.join(', ')}], ${role === 'computed' ? `made by ${maker}` : ROLE_TEXT[role]}`,
    '',
    `  layout  ${layoutLine}`,
    ...placeLines(found.places, '  stage   '),
    ...found.transfers.map((sent) => `  sent    ${transferText(sent)}`),
    ...pinLines(found.pins),
    ...section('readers', [
      ...views.flatMap((view) => [
        ...view.readers.map(({ reader, own }) => `${reader}: ${inWords(wayText(own ?? view))}`),
      ]),
      ...shards.map(({ reader, layout }) => `${reader}: its shard ${inWords(layout)}`),
    ]),
    ...chainLines(found.chains, inWords),
  ];
}

function placeLines(places: TensorExplanation['places'], title: string): readonly string[] {
  if (places.length === 0) return [];
  return [
    `${title}${places.map(({ stage, chunk }) => (chunk > 0 ? `${stage}, chunk ${chunk}` : `${stage}`)).join(' and ')}`,
  ];
}

const WHEN = {
  micro: 'in each micro-batch',
  begin: 'once a step, before its first micro-batch',
  update: 'once a step, after its last micro-batch',
} as const;

function transferText({ from, to, bytes, when }: TensorExplanation['transfers'][number]): string {
  return `from stage ${from} to stage ${to}, ${bytesText(bytes)} a rank ${WHEN[when]}`;
}

/** Tensors that a stage's memory is shown by. */
const SHOWN_TENSORS = 12;

function memoryLines(stage: PeakMemory, limit: number | null, whose: string): readonly string[] {
  const { peakBytes, operator } = stage;
  const most = limit === null ? '' : ` of ${bytesText(limit)}`;
  return [
    `${bytesText(peakBytes)}${most} on ${whose}${operator === null ? '' : `, at ${operator}`}`,
    `  ${kindsText(stage)}`,
    '',
    ...liveTensorLines(stage, SHOWN_TENSORS),
  ];
}

function operatorLines(
  found: OperatorExplanation,
  precision: string | null,
  top: number,
  inWords: InWords,
): readonly string[] {
  const { operator, op, rule, strategy, operands, results, computeSeconds, collectives, redistributions } = found;
  const cost = [
    ['computing', secondsText(computeSeconds)],
    ...collectives.map(({ kind, axes, seconds }) => [inWords(`${kind}(${axes.join(',')})`), secondsText(seconds)]),
    ...redistributions.map((way) => [`${way.side} ${way.tensor}: ${inWords(wayText(way))}`, secondsText(way.seconds)]),
  ];
  const alternatives = found.alternatives
    .slice(0, top)
    .map((other) => [
      strategyText(other.strategy, inWords),
      secondsText(other.seconds),
      secondsText(other.redistributionSeconds),
      differenceText(other),
      other.ruledOut === null ? '' : RULED_OUT[other.ruledOut],
    ]);
  return [
    `${operator}  ${op}`,
    '',
    `  rule      ${rule}`,
    `  strategy  ${strategyText(strategy, inWords)}`,
    ...placeLines(found.places, '  stage     '),
    `  layouts   ${inWords(`${textOf(operands, ' · ')} → ${textOf(results, ', ')}`)}`,
    ...found.transfers.map((sent) => `  sent      ${sent.tensor} ${transferText(sent)}`),
    ...pinLines(found.pins),
    '',
    `cost${precision === null ? '' : ` in ${precision}`}`,
    ...tableLines([...textColumns('part'), ...numberColumns('time')], cost, 80),
    '',
    'strategies, other operators unchanged',
    ...tableLines(
      [
        ...textColumns('strategy'),
        ...numberColumns('alone', 'resharding', 'difference'),
        ...(alternatives.some((row) => row.at(-1) !== '') ? textColumns('ruled out by') : []),
      ],
      alternatives,
      60,
    ),
    ...(found.alternatives.length > top ? [`  and ${found.alternatives.length - top} more expensive`] : []),
    ...chainLines(found.chains, inWords),
  ];
}

const RULED_OUT = { roles: 'roles (--axes free lifts them)', degrees: 'given degrees', pins: 'pins' } as const;

function textOf(sides: readonly { readonly layout: string }[], between: string): string {
  return sides.map(({ layout }) => layout).join(between);
}

function wayText({ from, to, steps }: ExplainedResharding): string {
  return steps.length === 0 ? `unchanged, ${from}` : `${from} → ${to} by ${steps.join(', ')}`;
}

function pinLines(pins: TensorExplanation['pins']): readonly string[] {
  return pins.map((pin) => `  pinned    ${pinText(pin)}`);
}

/** Each chain from the place back to the pin, or to the batch. */
function chainLines(chains: readonly AxisChain[], inWords: InWords): readonly string[] {
  return chains.flatMap(({ axes, place, steps }) => [
    '',
    `${place} is on ${inWords(axes.join(','))} because`,
    ...steps.map(({ says }) => `  ${says}`),
  ]);
}

function section(title: string, lines: readonly string[]): readonly string[] {
  return lines.length === 0 ? [] : ['', title, ...lines.map((line) => `  ${line}`)];
}
