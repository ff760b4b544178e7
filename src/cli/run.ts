/**
 * @file `autopar run`: runs a compiled program on ranks of this machine.
 */
import type { ExitKind, RunCompiledOptions, RunReport } from '../api/index.js';
import { runCompiled } from '../api/verbs.js';
import { type AutoparError, badOption, RUN_BACKENDS } from '../api/words.js';
import type { Command, CommandContext, FlagsOf } from './command.js';
import { substitutesNote } from './devices.js';
import { outsideLines } from './memory-report.js';
import type { Output } from './output.js';
import { reportLine } from './plan-page.js';
import { bytesText, countText, portionText, secondsText, shareText } from './quantity.js';
import { RANK_MEMORY, THREADS, TRACE } from './rank-options.js';
import { runPage } from './run-page.js';
import { numberColumns, tableLines, textColumns } from './table.js';
import { choiceAmong, integerParser } from './values.js';

interface RunFlags extends FlagsOf<RunCompiledOptions> {
  readonly outputs?: string;
  readonly report?: string;
}

export const runCommand: Command<RunFlags> = {
  name: 'run',
  says: 'run a compiled program on ranks of this machine',
  arguments: [{ name: '<dir>', says: 'folder that compile wrote' }],
  options: [
    {
      flags: '--inputs <file>',
      says: '.npy, .npz, .pb, or folder of these or io.json (default: random)',
    },
    { flags: '--seed <n>', says: 'seed of random inputs (default: 0)', parse: integerParser(0) },
    { flags: '--outputs <file.npz>', says: 'write the outputs' },
    { flags: '--steps <n>', says: 'number of runs (default: 1)', parse: integerParser(1, 1e6) },
    {
      flags: '--backend <name>',
      says: 'backend: cpu (default), webgpu, cuda, or emulated, which waits predicted times',
      parse: choiceAmong(RUN_BACKENDS),
    },
    {
      flags: '--link <bandwidth,latency>',
      says: "emulated links, such as 10GB/s,20us (default: the planned cluster's)",
    },
    THREADS,
    ...RANK_MEMORY,
    { flags: '--report <file>', says: "HTML page of the last step's timeline and memory" },
    TRACE,
  ],
  examples: [
    {
      line: 'autopar run llama-tiny.autopar --seed 1 --steps 10',
      says: 'ten steps on random inputs, with times per rank',
    },
    {
      line: 'autopar run llama-tiny.autopar --backend emulated --link 10GB/s,20us',
      says: 'step time on the planned cluster, with other links',
    },
  ],
  run: runRun,
};

async function runRun(
  context: CommandContext,
  [directory = '']: readonly string[],
  flags: RunFlags,
): Promise<ExitKind> {
  const { output, signal } = context;
  const { outputs, report: page, ...rest } = flags;
  if (outputs !== undefined && flags.backend === 'emulated') throw withoutOutputs();
  const { checkArchiveName, writeArrays } = await import('../api/index.js');
  if (outputs !== undefined) checkArchiveName(outputs);
  const report = await runCompiled({
    directory,
    ...rest,
    ...(page === undefined ? {} : { timed: true }),
    signal,
    onProgress: (text) => output.progress(text),
    onSubstitutes: (operators) => output.note(substitutesNote(operators)),
  });
  if (outputs !== undefined)
    for (const note of await writeArrays(outputs, report.outputs)) output.note(`note: ${note}`);
  for (const line of reportLines(report, output)) output.print(line);
  if (outputs !== undefined) output.print(`outputs are in ${outputs}`);
  const json = reportJson(directory, report);
  if (page !== undefined) {
    const { writePage } = await import('../api/index.js');
    await writePage(page, runPage(directory, report, json));
    output.print(reportLine(page));
  }
  output.data(json);
  return 'done';
}

function withoutOutputs(): AutoparError {
  return badOption('--outputs needs ranks that compute, and --backend emulated only waits', 'leave one of them out');
}

function reportLines(report: RunReport, output: Output): readonly string[] {
  const { bold } = output.colors;
  const shares = SHARES.filter(({ title }) => title !== 'copy' || report.ranks.some(({ copySeconds }) => copySeconds));
  const ranks = `${report.backend === 'cpu' ? '' : `${report.backend} `}${report.ranks.length === 1 ? 'rank' : 'ranks'}`;
  return [
    `${bold(countText(report.stepSeconds.length, 'step'))} on ${report.ranks.length} ${ranks}: ${stepText(report.stepSeconds)}`,
    ...plannedLines(report),
    ...emulationLines(report),
    '',
    ...tableLines(
      numberColumns('rank', ...shares.map(({ title }) => title), 'communicated', 'peak memory'),
      report.ranks.map((rank) => [
        String(rank.rank),
        ...shares.map(({ seconds }) => portionText(seconds(rank) / Math.max(totalSeconds(rank), Number.MIN_VALUE))),
        bytesText(rank.bytesCommunicated),
        bytesText(rank.peakBytes),
      ]),
    ),
    '',
    bold('time by instruction'),
    ...kindLines(report),
    '',
    ...offloadLines(report, bold),
    ...expertLines(report, bold),
    ...historyLines(report, bold),
    ...(report.backend === 'emulated' ? [] : [bold('outputs')]),
    ...Object.entries(report.outputs).map(([name, { dtype, shape }]) => `  ${name}  ${dtype} [${shape.join(', ')}]`),
    '',
    `memory of the process: ${bytesText(report.rssBytes)}`,
  ];
}

/** Bytes that the fullest rank stores outside of its device. */
function offloadLines({ ranks }: RunReport, bold: (text: string) => string): readonly string[] {
  const lines = outsideLines(ranks.flatMap(({ outside }) => outside ?? []));
  return lines.length === 0 ? [] : [bold('offloaded'), ...lines, ''];
}

/** Tokens of experts, and work for none. */
function expertLines({ experts = [] }: RunReport, bold: (text: string) => string): readonly string[] {
  if (experts.length === 0) return [];
  return [
    bold('experts, of the last step'),
    ...tableLines(
      [
        ...textColumns('layer'),
        ...numberColumns('tokens taken', 'dropped', 'padded work', 'fullest rank', 'even share'),
      ],
      experts.map(({ layer, taken, dropped, padded, fullest, even }) => [
        layer,
        ...[String(taken), String(dropped), shareText(padded), String(fullest), String(Number(even.toPrecision(3)))],
      ]),
    ),
    '',
  ];
}

/** Times of this machine say nothing of the cluster that a plan is for. */
function plannedLines({ planned, backend }: RunReport): readonly string[] {
  if (!planned || backend === 'emulated') return [];
  const { nodes, perNode, device, stepSeconds } = planned;
  const devices = [...(nodes > 1 ? [nodes] : []), perNode, device].join(' × ');
  const here = backend === 'cpu' ? 'threads' : 'devices';
  return [`on ${here} of this machine; planned for ${devices}: ${secondsText(stepSeconds)} per step`];
}

function emulationLines({ link }: RunReport): readonly string[] {
  if (!link) return [];
  return [
    'emulated: ranks waited for the predicted times, over links of ' +
      `${bytesText(link.bytesPerSecond)}/s and ${secondsText(link.latency)};`,
    'nothing was computed, and outputs have no values',
  ];
}

/** Outputs that are one number, over the steps: evenly spaced steps from the first on, and the last. */
function historyLines({ history, stepSeconds }: RunReport, bold: (text: string) => string): readonly string[] {
  if (stepSeconds.length < 2) return [];
  return Object.entries(history).flatMap(([name, values]) => {
    const every = Math.max(1, Math.ceil(values.length / 10));
    const shown = values.flatMap((value, step) =>
      step % every === 0 || step === values.length - 1 ? [[String(step + 1), value.toPrecision(6)]] : [],
    );
    return [bold(name), ...tableLines(numberColumns('step', 'value'), shown), ''];
  });
}

type Rank = RunReport['ranks'][number];

/** Shares of a rank's time, in the order of the columns. */
const SHARES: readonly { readonly title: string; readonly seconds: (rank: Rank) => number }[] = [
  { title: 'compute', seconds: (rank) => rank.computeSeconds },
  { title: 'copy', seconds: (rank) => rank.copySeconds ?? 0 },
  { title: 'communicate', seconds: (rank) => rank.communicateSeconds },
  { title: 'wait', seconds: (rank) => rank.waitSeconds },
  { title: 'feed', seconds: (rank) => rank.feedSeconds },
];

function totalSeconds(rank: Rank): number {
  return SHARES.reduce((sum, { seconds }) => sum + seconds(rank), 0);
}

/** A line per kind of instruction, the costliest first; the sum over ranks, per step. */
function kindLines({ ranks }: RunReport): readonly string[] {
  const sums = new Map<string, { readonly seconds: number; readonly count: number }>();
  for (const { byKind } of ranks) {
    for (const [kind, { seconds, count }] of Object.entries(byKind)) {
      const before = sums.get(kind) ?? { seconds: 0, count: 0 };
      sums.set(kind, { seconds: before.seconds + seconds, count: before.count + count });
    }
  }
  const total = [...sums.values()].reduce((sum, { seconds }) => sum + seconds, 0);
  const rows = [...sums]
    .sort(([, left], [, right]) => right.seconds - left.seconds)
    .map(([kind, { seconds, count }]) => [
      kind,
      portionText(total > 0 ? seconds / total : 0),
      String(count / ranks.length),
    ]);
  return tableLines([...textColumns('kind'), ...numberColumns('share', 'per rank and step')], rows);
}

function stepText(seconds: readonly number[]): string {
  const sorted = [...seconds].sort((left, right) => left - right);
  const median = sorted[Math.floor(sorted.length / 2)] ?? 0;
  if (sorted.length === 1) return secondsText(median);
  return `${secondsText(median)} per step (fastest ${secondsText(sorted[0] ?? 0)}, slowest ${secondsText(sorted.at(-1) ?? 0)})`;
}

function reportJson(directory: string, report: RunReport): Readonly<Record<string, unknown>> {
  return {
    schema: 'autopar-run-v1',
    directory,
    backend: report.backend,
    ...(report.link ? { link: report.link } : {}),
    stepSeconds: report.stepSeconds,
    ...(report.planned ? { planned: report.planned } : {}),
    ranks: report.ranks,
    rssBytes: report.rssBytes,
    history: report.history,
    ...(report.experts ? { experts: report.experts } : {}),
    outputs: Object.fromEntries(
      Object.entries(report.outputs).map(([name, { dtype, shape }]) => [name, { dtype, shape }]),
    ),
  };
}
