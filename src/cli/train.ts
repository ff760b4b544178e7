/**
 * @file `autopar train`: trains a compiled program on data files.
 */
import type { ExitKind, TrainOptions, TrainReport } from '../api/index.js';
import { train } from '../api/verbs.js';
import { AutoparError, shellWord, TOKEN_TYPES, usageError } from '../api/words.js';
import type { Command, CommandContext, FlagsOf } from './command.js';
import { curveLines } from './curve.js';
import { substitutesNote } from './devices.js';
import type { Output } from './output.js';
import { bytesText, countText, secondsText, throughputText } from './quantity.js';
import { BACKEND, RANK_MEMORY, THREADS, TRACE } from './rank-options.js';
import { choiceAmong, integerParser, repeatedValues } from './values.js';

type TrainFlags = FlagsOf<Omit<TrainOptions, 'data'>> & Partial<Pick<TrainOptions, 'data'>>;

const ONE_EPOCH = 'leave it out to read every sample once; steps before a resume count';

export const trainCommand: Command<TrainFlags> = {
  name: 'train',
  says: 'train a compiled program on data files',
  arguments: [{ name: '<dir>', says: 'folder that compile --train wrote' }],
  options: [
    {
      flags: '--data <file>',
      says: 'samples: .npz by input, .npy, or raw tokens; repeatable',
      parse: repeatedValues,
      repeats: true,
    },
    {
      flags: '--epochs <n>',
      says: 'passes over the data (default: 1)',
      parse: integerParser(1, 1e6, ONE_EPOCH),
    },
    {
      flags: '--steps <n>',
      says: 'number of steps, instead of --epochs',
      parse: integerParser(1, 1e9, ONE_EPOCH),
    },
    {
      flags: '--token-type <type>',
      says: 'type of raw tokens: uint16 (default) or uint32',
      parse: choiceAmong(TOKEN_TYPES),
    },
    {
      flags: '--last-batch <what>',
      says: 'incomplete last batch: drop (default) or pad',
      parse: choiceAmong(['drop', 'pad']),
    },
    { flags: '--in-order', says: 'read samples in file order' },
    { flags: '--seed <n>', says: 'seed of the order of samples (default: 0)', parse: integerParser(0) },
    {
      flags: '--eval-data <file>',
      says: 'samples to evaluate, not trained on; repeatable',
      parse: repeatedValues,
      repeats: true,
    },
    {
      flags: '--eval-every <n>',
      says: 'steps between evaluations (default: at the end)',
      parse: integerParser(1, 1e9),
    },
    { flags: '--model <file>', says: 'model file, if it was moved' },
    {
      flags: '--checkpoint-every <n>',
      says: 'steps between checkpoints (default: only after the last)',
      parse: integerParser(1, 1e9),
    },
    {
      flags: '--keep <n>',
      says: 'number of newest checkpoints to keep (default: 3)',
      parse: integerParser(1, 1e6),
    },
    {
      flags: '--resume [dir]',
      says: 'resume the newest checkpoint, also of another plan (default: <dir>)',
    },
    BACKEND,
    THREADS,
    ...RANK_MEMORY,
    TRACE,
  ],
  examples: [
    {
      line: 'autopar train gpt-tiny.autopar --data tokens.bin --epochs 2',
      says: 'two passes over a file of uint16 tokens',
    },
    {
      line: 'autopar train gpt-tiny.autopar --data tokens.bin --resume --epochs 4 --checkpoint-every 10 --json',
      says: 'resume for two more epochs, with checkpoints, as JSON',
    },
  ],
  run: runTrain,
};

async function runTrain(
  { output, line, signal }: CommandContext,
  [directory = '']: readonly string[],
  { data, ...flags }: TrainFlags,
): Promise<ExitKind> {
  if (data === undefined)
    throw usageError('missing-argument', 'train needs --data', 'name a file of samples: --data F');
  const report = await train({
    directory,
    data,
    ...flags,
    signal,
    onProgress: (text) => output.progress(text),
    onNote: (text) => output.note(text),
    onSubstitutes: (operators) => output.note(substitutesNote(operators)),
  }).catch((error: unknown) => {
    throw withResumption(error, line, flags.resume);
  });
  for (const line of reportLines(report, output)) output.print(line);
  output.data(reportJson(directory, report));
  return 'done';
}

/** The error of an interrupted run with the line that resumes it; others as they are. */
function withResumption(error: unknown, line: readonly string[], resume: TrainFlags['resume']): unknown {
  const own = error instanceof AutoparError && error.cause instanceof AutoparError ? error.cause : error;
  if (!(own instanceof AutoparError) || own.code !== 'training-stopped' || own.hint === undefined) return error;
  const at = line.findIndex((word) => word === '--resume' || word.startsWith('--resume='));
  const given = at < 0 ? 0 : line[at + 1] === resume ? 2 : 1;
  const words = line.filter((_, index) => index < at || index >= at + given);
  return own.reworded(own.message, `go on with: autopar ${words.map(shellWord).join(' ')} --resume`);
}

function reportLines(report: TrainReport, output: Output): readonly string[] {
  const { bold } = output.colors;
  const { losses, seconds, last, samples, stepsPerEpoch, bytesRead, metricsFile, checkpoint } = report;
  const readers = bytesRead.filter((bytes) => bytes > 0);
  return [
    `${bold(countText(losses.length, 'step'))} in ${secondsText(seconds)}, ${throughputText(last)} in the last; ` +
      `${countText(samples, 'sample')}, ${countText(stepsPerEpoch, 'step')} per epoch`,
    `loss ${(losses[0] ?? Number.NaN).toPrecision(6)} at first, ${last.loss.toPrecision(6)} at last`,
    ...evaluationLines(report),
    ...(losses.length > 1 ? ['', ...curveLines(losses)] : []),
    '',
    `data: ${bytesText(readers.reduce((sum, bytes) => sum + bytes, 0))} read by ${countText(readers.length, 'rank')}`,
    `every step is in ${metricsFile}`,
    ...(checkpoint
      ? [
          `weights and optimizer are in ${checkpoint.folder} (${bytesText(checkpoint.bytes)} in ` +
            `${secondsText(checkpoint.seconds)})`,
        ]
      : []),
  ];
}

function evaluationLines({ evaluations }: TrainReport): readonly string[] {
  const [first, last] = [evaluations[0], evaluations.at(-1)];
  if (!first || !last) return [];
  const text = ({ step, loss }: typeof last) => `${loss.toPrecision(6)} after step ${step}`;
  return [`evaluation: loss ${first === last ? text(last) : `${text(first)}, ${text(last)}`}`];
}

function reportJson(directory: string, report: TrainReport): Readonly<Record<string, unknown>> {
  return {
    schema: 'autopar-train-v1',
    directory,
    steps: report.state.step,
    samples: report.samples,
    stepsPerEpoch: report.stepsPerEpoch,
    seconds: report.seconds,
    losses: report.losses,
    last: report.last,
    evaluations: report.evaluations,
    bytesReadByRank: report.bytesRead,
    metricsFile: report.metricsFile,
    checkpoint: report.checkpoint,
    resumedFrom: report.resumedFrom,
  };
}
