/**
 * @file `autopar verify`: the sharded program against the unsharded model, and which tolerance each tensor is within.
 */

import type { ExitKind, VerifyOptions, VerifyResult } from '../api/index.js';
import { verify } from '../api/verbs.js';
import type { Command, CommandContext, FlagsOf } from './command.js';
import { substitutesNote } from './devices.js';
import type { Output } from './output.js';
import { countText, errorText } from './quantity.js';
import { BACKEND, RANK_MEMORY } from './rank-options.js';
import { numberColumns, tableLines, textColumns } from './table.js';
import { integerParser, nonNegative } from './values.js';

type VerifyFlags = FlagsOf<VerifyOptions>;

export const verifyCommand: Command<VerifyFlags> = {
  name: 'verify',
  says: 'compare a compiled program with the unsharded model',
  arguments: [{ name: '<dir>', says: 'folder that compile wrote' }],
  options: [
    { flags: '--model <file>', says: 'the ONNX file, if it was moved since compile' },
    {
      flags: '--inputs <file>',
      says: '.npy, .npz, .pb, or folder of these or io.json (default: random)',
    },
    { flags: '--seed <n>', says: 'seed of random inputs (default: 0)', parse: integerParser(0) },
    { flags: '--tensors', says: 'compare all tensors between segments, not only the outputs' },
    {
      flags: '--rtol <r>',
      says: 'relative tolerance (default: 1e-3; fp16 2e-2, bf16 5e-2; training 1e-5)',
      parse: nonNegative,
    },
    {
      flags: '--atol <a>',
      says: 'absolute tolerance (default: 1e-4; fp16 2e-2, bf16 5e-2; training by tensor)',
      parse: nonNegative,
    },
    BACKEND,
    ...RANK_MEMORY,
  ],
  examples: [
    {
      line: 'autopar verify llama-tiny.autopar',
      says: 'compare outputs (training: loss, gradients and state of two steps)',
    },
    {
      line: 'autopar verify gpt.autopar --model models/gpt-tiny.onnx --tensors',
      says: 'compare every tensor between two segments as well',
    },
  ],
  run: runVerify,
};

async function runVerify(
  context: CommandContext,
  [directory = '']: readonly string[],
  flags: VerifyFlags,
): Promise<ExitKind> {
  const { output, signal } = context;
  const substituted = new Set<string>();
  const result = await verify({
    directory,
    ...flags,
    signal,
    onProgress: (text) => output.progress(text),
    onSubstitutes: (operators) => operators.forEach((operator) => void substituted.add(operator)),
  });
  if (substituted.size > 0) output.note(substitutesNote([...substituted]));
  for (const line of verificationLines(result, output)) output.print(line);
  output.data({ schema: 'autopar-verify-v1', directory, ...result });
  return result.passed ? 'done' : 'checkFailed';
}

/** The verdict and a line per output; of all else the worst of each kind, and those that failed. */
export function verificationLines(result: VerifyResult, output: Output): readonly string[] {
  const { bold, green, red } = output.colors;
  const verdict = result.passed ? green(bold('verified')) : red(bold('not equal'));
  const others = [result.gradients ?? [], result.state ?? [], result.tensors];
  const shown = [...worstSteps(result.outputs), ...others.flatMap(notable)];
  return [
    `${verdict}: ${checkedText(result)} against ${result.reference}`,
    ...comparisonLines(shown, result.passed),
    ...ownDifferenceLines(result),
  ];
}

/** For each output of a quantised model that differs: how much ONNX Runtime's own results of it differ. */
function ownDifferenceLines({ outputs, unoptimised = [] }: VerifyResult): readonly string[] {
  return unoptimised.map(({ name, worstAbsolute: own }) => {
    const ours = outputs.find((output) => output.name === name)?.worstAbsolute ?? 0;
    const says = `${name}: ONNX Runtime's own results, with and without its optimisations, differ by ${errorText(own)}`;
    return `${says}, ${own >= ours ? 'as much as' : 'less than'} the program's`;
  });
}

function checkedText({ outputs, gradients, state, tensors, steps }: VerifyResult): string {
  const count = (comparisons: readonly VerifiedTensor[]) => new Set(comparisons.map(({ name }) => name)).size;
  const parts = [
    countText(count(outputs), 'output'),
    ...(gradients ? [countText(count(gradients), 'gradient')] : []),
    ...(state ? [countText(count(state), 'tensor of state', 'tensors of state')] : []),
    ...(tensors.length > 0 ? [countText(count(tensors), 'inner tensor')] : []),
  ];
  const last = parts.pop() ?? '';
  const checked = parts.length === 0 ? last : `${parts.join(', ')} and ${last}`;
  if (!steps) return checked;
  const idle = steps.taken === steps.updates ? '' : ` (${steps.updates} of them change weights)`;
  return `${checked} of ${countText(steps.taken, 'step')}${idle}`;
}

type VerifiedTensor = VerifyResult['outputs'][number] | NonNullable<VerifyResult['state']>[number];

function comparisonLines(comparisons: readonly VerifiedTensor[], passed: boolean): readonly string[] {
  const ofSteps = comparisons.some((comparison) => 'step' in comparison);
  const columns = [
    ...textColumns('tensor'),
    ...(ofSteps ? textColumns('of') : []),
    ...textColumns('type'),
    ...numberColumns('largest', 'worst absolute', 'worst relative', 'atol', 'rtol'),
    { title: passed ? 'passes by' : 'result' },
    ...textColumns('worst at', ''),
  ];
  const rows = comparisons.map((comparison) => [
    comparison.name,
    ...(ofSteps ? [placeText(comparison)] : []),
    comparison.dtype,
    errorText(comparison.largest),
    errorText(comparison.worstAbsolute),
    errorText(comparison.worstRelative),
    errorText(comparison.tolerance.absolute),
    errorText(comparison.tolerance.relative),
    comparison.passedBy ?? 'FAILED',
    comparison.worstAbsolute === 0 ? '–' : `[${comparison.where.join(', ')}]`,
    comparison.ties ? `${countText(comparison.ties, 'tie')} resolved another way` : '',
  ]);
  return tableLines(columns, rows);
}

/** `gradient, step 2`. */
function placeText(comparison: VerifiedTensor): string {
  if (!('step' in comparison)) return '';
  return comparison.step === 0 ? comparison.part : `${comparison.part}, step ${comparison.step}`;
}

/** A line per name: the step in which it is worst. */
function worstSteps(comparisons: readonly VerifiedTensor[]): readonly VerifiedTensor[] {
  const worst = new Map<string, VerifiedTensor>();
  for (const one of comparisons) {
    const known = worst.get(one.name);
    if (!known || share(one) > share(known) || (known.passed && !one.passed)) worst.set(one.name, one);
  }
  return [...worst.values()];
}

/** Several local tensors of one tensor are one line: that of the worst. */
function notable(comparisons: readonly VerifiedTensor[]): readonly VerifiedTensor[] {
  const worstFirst = [...comparisons].sort((left, right) => share(right) - share(left));
  const failed = worstFirst.filter(({ passed }) => !passed);
  const inexact = worstFirst.filter(({ worstAbsolute }) => worstAbsolute > 0);
  const [chosen, count] =
    failed.length > 0 ? [failed, 10] : inexact.length > 0 ? [inexact, 3] : [comparisons.slice(-1), 1];
  return [...new Map(chosen.map((one) => [`${one.name} ${placeText(one)}`, one] as const).reverse()).values()]
    .reverse()
    .slice(0, count);
}

/** How much of its tolerance a tensor takes, by the part of it that is larger. */
function share({ worstAbsolute, tolerance: { absolute, relative }, largest }: VerifiedTensor): number {
  return worstAbsolute === 0 ? 0 : worstAbsolute / (absolute + relative * largest);
}
