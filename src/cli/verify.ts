/**
 * @file `autopar verify`: the sharded program against the unsharded model.
 */
import type { VerifyResult } from '../api/verify.js';
import type { ExitKind } from '../ir/error.js';
import type { Command, Context } from './command.js';
import type { Output } from './output.js';
import { countText, errorText } from './quantity.js';
import { tableLines } from './table.js';
import { nonNegative, wholeNumber } from './values.js';

interface VerifyFlags {
  readonly model?: string;
  readonly inputs?: string;
  readonly seed?: number;
  readonly tensors?: boolean;
  readonly rtol?: number;
  readonly atol?: number;
}

export const verifyCommand: Command<VerifyFlags> = {
  name: 'verify',
  says: 'compare a compiled program with the unsharded model',
  arguments: [{ name: '<dir>', says: 'folder that compile wrote' }],
  options: [
    { flags: '--model <file>', says: 'the ONNX file, where it is no longer where compile read it' },
    {
      flags: '--inputs <file>',
      says: 'inputs: .npy, .npz, .pb, or a folder of them or with io.json (default: random)',
    },
    { flags: '--seed <n>', says: 'seed of random inputs (default: 0)', parse: wholeNumber('--seed', 0) },
    { flags: '--tensors', says: 'compare everything that crosses a segment, not only the outputs' },
    {
      flags: '--rtol <r>',
      says: 'relative tolerance (default: 1e-3; 2e-2 for 16-bit types)',
      parse: nonNegative('--rtol'),
    },
    {
      flags: '--atol <a>',
      says: 'absolute tolerance (default: 1e-4; 2e-2 for 16-bit types)',
      parse: nonNegative('--atol'),
    },
  ],
  examples: [
    { line: 'autopar verify llama-tiny.autopar', says: 'every output, on random inputs' },
    {
      line: 'autopar verify gpt.autopar --model models/gpt-tiny.onnx --tensors',
      says: 'and every tensor between two segments',
    },
  ],
  run: runVerify,
};

async function runVerify(context: Context, [directory = '']: readonly string[], flags: VerifyFlags): Promise<ExitKind> {
  const { output, signal } = context;
  const { verify } = await import('../api/verify.js');
  const result = await verify({ directory, ...flags, signal, onProgress: (text) => output.progress(text) });
  for (const line of verificationLines(result, output)) output.print(line);
  output.data({ schema: 'autopar-verify-v1', directory, ...result });
  return result.passed ? 'done' : 'checkFailed';
}

/** The verdict and a line per output; of the inner tensors only the worst and those that failed. */
export function verificationLines(result: VerifyResult, output: Output): readonly string[] {
  const { bold, green, red } = output.colors;
  const checked = [countText(result.outputs.length, 'output')];
  if (result.tensors.length > 0) checked.push(countText(result.tensors.length, 'inner tensor'));
  const verdict = result.passed ? green(bold('verified')) : red(bold('not equal'));
  return [
    `${verdict}: ${checked.join(' and ')} against ${result.reference}`,
    ...comparisonLines([...result.outputs, ...notableTensors(result.tensors)]),
    ...ownDifferenceLines(result),
  ];
}

/** Of each output of a quantised model that differs: how much ONNX Runtime's own results of it do. */
function ownDifferenceLines({ outputs, unoptimised = [] }: VerifyResult): readonly string[] {
  return unoptimised.map(({ name, worstAbsolute: own }) => {
    const ours = outputs.find((output) => output.name === name)?.worstAbsolute ?? 0;
    const says = `${name}: ONNX Runtime's own results, with and without its optimisations, differ by ${errorText(own)}`;
    return `${says}, ${own >= ours ? 'as much as' : 'less than'} the program's`;
  });
}

type Comparison = VerifyResult['outputs'][number];

function comparisonLines(comparisons: readonly Comparison[]): readonly string[] {
  const columns = [
    { title: 'tensor' },
    { title: 'type' },
    { title: 'worst absolute', right: true },
    { title: 'worst relative', right: true },
    { title: 'at' },
    { title: '' },
  ];
  const rows = comparisons.map((comparison) => [
    comparison.name,
    comparison.dtype,
    errorText(comparison.worstAbsolute),
    errorText(comparison.worstRelative),
    comparison.worstAbsolute === 0 ? '–' : `[${comparison.where.join(', ')}]`,
    remark(comparison),
  ]);
  return tableLines(columns, rows);
}

function remark({ passed, ties }: Comparison): string {
  const tied = ties ? `${countText(ties, 'tie')} resolved another way` : '';
  return [passed ? '' : 'FAILED', tied].filter((part) => part !== '').join(', ');
}

function notableTensors(tensors: readonly Comparison[]): readonly Comparison[] {
  const failed = tensors.filter(({ passed }) => !passed);
  if (failed.length > 0) return failed.slice(0, 10);
  return [...tensors].sort((left, right) => right.worstAbsolute - left.worstAbsolute).slice(0, 3);
}
