/**
 * @file `autopar rehearse`: a plan for any cluster at reduced sizes on ranks of this machine, compared with one rank.
 */
import type { ExitKind, Rehearsal, RehearseOptions } from '../api/index.js';
import { rehearse } from '../api/verbs.js';
import type { Command, CommandContext, FlagsOf } from './command.js';
import type { Output } from './output.js';
import { bytesText, countText, secondsText } from './quantity.js';
import { numberColumns, tableLines, textColumns } from './table.js';
import { byteSize, integerParser, nonNegative } from './values.js';
import { verificationLines } from './verify.js';

type RehearseFlags = FlagsOf<RehearseOptions>;

/** The default, in seconds. */
const TIME_LIMIT = 600;

export const rehearseCommand: Command<RehearseFlags> = {
  name: 'rehearse',
  says: 'run a plan at reduced sizes and verify it',
  arguments: [{ name: '<dir>', says: 'folder that compile wrote, also with --plan-only' }],
  options: [
    { flags: '--model <file>', says: 'the ONNX file, if it was moved since compile' },
    {
      flags: '--ranks <n>',
      says: 'maximum number of ranks on this machine (default: 16)',
      parse: integerParser(2, 64),
    },
    {
      flags: '--time-limit <seconds>',
      says: `time limit; exit 4 beyond (default: ${TIME_LIMIT})`,
      parse: nonNegative,
    },
    {
      flags: '--memory <size>',
      says: 'limit of all ranks; exit 4 beyond (default: free memory)',
      parse: byteSize,
    },
    { flags: '--seed <n>', says: 'seed of random weights and inputs (default: 0)', parse: integerParser(0) },
  ],
  examples: [
    {
      line: 'autopar rehearse llama-tiny.autopar',
      says: 'compare outputs and show the coverage of the plan',
    },
    {
      line: 'autopar rehearse gpt.autopar --ranks 4 --time-limit 120 --json',
      says: 'on 4 ranks at most, as JSON',
    },
  ],
  run: runRehearse,
};

async function runRehearse(
  context: CommandContext,
  [directory = '']: readonly string[],
  flags: RehearseFlags,
): Promise<ExitKind> {
  const { output, signal } = context;
  const { timeLimit = TIME_LIMIT, ranks = 16, ...others } = flags;
  output.print(`rehearsing ${directory} on at most ${ranks} ranks, for at most ${timeLimit} s`);
  const result = await rehearse({
    directory,
    ...others,
    ranks,
    timeLimit,
    signal,
    onProgress: (text) => output.progress(text),
  });
  for (const line of rehearsalLines(result, output)) output.print(line);
  output.data({ schema: 'autopar-rehearse-v1', directory, ...result });
  return result.passed ? 'done' : 'checkFailed';
}

function rehearsalLines(result: Rehearsal, output: Output): readonly string[] {
  const { need, ranks, reduced, notes, coverage, problems, verification } = result;
  const { bold, green, red } = output.colors;
  const { kinds, covered, lost, unexplained } = coverage;
  const verdict = coverage.isEqual ? green(bold('covered')) : red(bold('not covered'));
  return [
    `${countText(ranks, 'rank')}: expected to take ${bytesText(need.bytes)} and ${secondsText(need.seconds)}`,
    '',
    ...tableLines(
      [...textColumns('reduced'), ...numberColumns('plan', 'rehearsal')],
      reduced.map(({ name, from, to }) => [name, `${from}`, `${to}`]),
    ),
    ...notes.map((note) => `note: ${note}`),
    '',
    ...(verification
      ? verificationLines(verification, output)
      : problems.slice(0, SHOWN).map((one) => `${red(bold('not valid'))}: ${one}`)),
    '',
    `${verdict}: ${covered} of ${kinds} distinct (layer class, operator, strategy, phase, collective, axes, layouts)`,
    ...(lost.length > 0 ? ['', ...lostLines(lost)] : []),
    ...(unexplained.length > 0 ? ['', ...unexplainedLines(unexplained)] : []),
  ];
}

type LostCoverage = Pick<Rehearsal['coverage']['lost'][number], 'operator' | 'phase' | 'kind' | 'axes' | 'layouts'>;

const COLUMNS = textColumns('phase', 'kind', 'axes', 'layouts');

function kindCells({ operator, phase, kind, axes, layouts }: LostCoverage): readonly string[] {
  return [operator, phase, kind, axes.join(',') || '–', layouts.join(' → ') || '–'];
}

/** How many of each table are shown; `--json` has all. */
const SHOWN = 12;

function lostLines(lost: Rehearsal['coverage']['lost']): readonly string[] {
  return [
    `not covered by the rehearsal: ${lost.length}`,
    ...tableLines(
      [...textColumns('operator'), ...COLUMNS, ...textColumns('why')],
      lost.slice(0, SHOWN).map((one) => [...kindCells(one), one.reason]),
    ),
    ...moreLines(lost.length),
  ];
}

function unexplainedLines(unexplained: Rehearsal['coverage']['unexplained']): readonly string[] {
  return [
    `in the plan or the rehearsal only: ${unexplained.length}`,
    ...tableLines(
      [...textColumns('operator'), ...COLUMNS, ...textColumns('only in')],
      unexplained.slice(0, SHOWN).map((one) => [...kindCells(one), one.only]),
    ),
    ...moreLines(unexplained.length),
  ];
}

function moreLines(count: number): readonly string[] {
  return count > SHOWN ? [`and ${count - SHOWN} more (--json lists them)`] : [];
}
