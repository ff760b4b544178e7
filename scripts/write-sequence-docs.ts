/**
 * @file `npm run docs:sequences`: trains with every method of sequence parallelism against one rank, measures the memory of
 * ranks, prices the methods on clusters, and writes docs/reference/sequences.md. It takes half an hour.
 */
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import {
  activationBytes,
  METHODS,
  SEQUENCE_MODELS,
  type SequenceCase,
  type SequenceMethod,
  type SequenceResult,
  sequenceCases,
  trainedApart,
  trainedLong,
} from '../test/pipelines/sequence-methods.js';
import { PRICED, type PricedMethod, pricedMethods } from '../test/pipelines/sequence-prices.js';

const PAGE = 'docs/reference/sequences.md';

type Errors = Pick<SequenceResult, 'loss' | 'gradient'>;

/** Measurements: errors by case, bytes on 1, 2, 4, 8 ranks by method, and prices by row of PRICED. */
export interface Measured {
  readonly errors: ReadonlyMap<string, Errors>;
  readonly bytes: Readonly<Record<SequenceMethod, readonly number[]>>;
  readonly prices: readonly (readonly PricedMethod[])[];
}

export const RANKS = [1, 2, 4, 8] as const;

export function caseName({ model, method, degrees }: SequenceCase): string {
  return [model, method, degrees].join(' | ');
}

const NAMES: Readonly<Record<SequenceMethod, string>> = {
  megatron: "Megatron's over tp",
  ulysses: 'ulysses',
  ring: 'ring',
  gather: 'gather',
};

/** The page, with a line's end. */
export function sequenceDocs({ errors, bytes, prices }: Measured): string {
  const names = METHODS.map((method) => NAMES[method]);
  const header = (...columns: readonly string[]) => [row(columns), `|${'---|'.repeat(columns.length)}`];
  const rows = new Map<string, string[]>();
  for (const each of sequenceCases()) {
    const key = `\`${each.model}\`: ${SEQUENCE_MODELS[each.model].says} | ${each.degrees}`;
    const cells = rows.get(key) ?? METHODS.map(() => '–');
    const { loss, gradient } = errors.get(caseName(each)) as Errors;
    cells[METHODS.indexOf(each.method)] = `${loss.toExponential(1)}, ${gradient.toExponential(1)}`;
    rows.set(key, cells);
  }
  const one = bytes.ring[0] as number;
  return [
    '# Sequences over ranks',
    '',
    'Written by `npm run docs:sequences`; `test/pipelines/sequence-methods.slow.ts` holds the bounds of the first ' +
      'two tables. How the',
    'methods work: [parallelism](../parallelism.md#sequence-parallelism).',
    '',
    '## Errors against one rank',
    '',
    'Two steps of training on ranks of this machine: the largest difference of a loss, then of an element of any ' +
      'weight or momentum,',
    'relative to the largest element of its tensor. Momentum and weights are linear in the gradients. n is the ' +
      'degree of sp, or of tp',
    'with the sequence shared out between products. Counted bytes sent and counted peaks equal the predicted ones in every case.',
    '',
    ...header('model', 'degrees', ...names),
    ...[...rows].map(([key, cells]) => row([key, ...cells])),
    '',
    '## Activations of a rank',
    '',
    'A Llama of 2 layers × 32 and 8 heads, 16 samples of 128 positions: activations, what is computed beside them ' +
      "and the runtime's",
    `buffers at a rank's fullest moment in a training step, where one rank holds ${(one / 1e6).toFixed(1)} MB. ` +
      'Counted peaks are the predicted',
    'ones, to the byte. In brackets: the share of one rank.',
    '',
    ...header('method', ...RANKS.slice(1).map((ranks) => `${ranks} ranks`)),
    ...METHODS.map((method) =>
      row([
        NAMES[method],
        ...bytes[method].slice(1).map((held) => `${(held / 1e6).toFixed(2)} MB (1/${(one / held).toFixed(1)})`),
      ]),
    ),
    '',
    'Ulysses has whole rows of its own heads, a ring its rows of all heads, and two chunks of keys and values at most.',
    'Gathered keys and values, and operands of matmuls over tp, are replicated.',
    '',
    '## Prices',
    '',
    'Predicted for a training step of a Llama of one layer × 1,024 over sp 8 on A100: seconds of a step, memory of a ' +
      'rank. Bold: least.',
    '',
    ...header('positions', 'heads', 'key heads', 'nodes × GPUs', 'gather', 'ulysses', 'ring'),
    ...PRICED.map(({ positions, heads, keyHeads, nodes }, index) =>
      row([
        positions.toLocaleString('en-US'),
        String(heads),
        String(keyHeads),
        nodes.replace('x', ' × '),
        ...priceCells(prices[index] ?? []),
      ]),
    ),
    '',
    'Gathering sends little where few key heads make keys and values small, and wins on short sequences. On long ' +
      'ones the last rank sees',
    'nearly all keys then; with Ulysses every rank has as much of the causal mask as any other, and so it has in a ' +
      'ring, in zig-zag order,',
    'which needs least memory, and no heads that sp divides. With ulysses every rank has the causal mask of all ' +
      'positions, a byte for',
    'each pair.',
    '',
  ].join('\n');
}

function priceCells(methods: readonly PricedMethod[]): readonly string[] {
  const least = (of: 'seconds' | 'bytes') =>
    Math.min(...methods.map((method) => method[of] ?? Number.POSITIVE_INFINITY));
  const [seconds, bytes] = [least('seconds'), least('bytes')];
  const bold = (text: string, isLeast: boolean) => (isLeast ? `**${text}**` : text);
  return methods.map((method) =>
    method.seconds === null || method.bytes === null
      ? 'heads not divided'
      : [
          bold(`${(method.seconds * 1e3).toPrecision(3)} ms`, method.seconds === seconds),
          bold(`${(method.bytes / 1e6).toFixed(0)} MB`, method.bytes === bytes),
        ].join(', '),
  );
}

function row(cells: readonly string[]): string {
  return `| ${cells.join(' | ')} |`;
}

async function measured(): Promise<Measured> {
  const errors = new Map<string, Errors>();
  for (const each of sequenceCases()) errors.set(caseName(each), await trainedApart(each));
  const bytes = { megatron: [], ulysses: [], ring: [], gather: [] } as Record<SequenceMethod, number[]>;
  for (const method of METHODS)
    for (const ranks of RANKS) bytes[method].push(activationBytes(await trainedLong(method, ranks)));
  const folder = mkdtempSync(join(tmpdir(), 'autopar-docs-'));
  try {
    const prices: (readonly PricedMethod[])[] = [];
    for (const each of PRICED) prices.push(await pricedMethods(each, folder));
    return { errors, bytes, prices };
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
}

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  const root = join(dirname(fileURLToPath(import.meta.url)), '../..');
  writeFileSync(join(root, PAGE), sequenceDocs(await measured()));
}
