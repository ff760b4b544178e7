/**
 * @file Numbers as tables write them: with separators between thousands, units, and remarks. Text that is not a number is
 * reported and not guessed.
 */
import type { CsvRow } from '../../src/api/calibration/csv.js';

/** Words by which tables leave a value unstated. */
export const UNSTATED = /^\s*(n\/?a|none|null|nan|unknown|unstated|tbd|-+|–|—|\?|see\b.*)?\s*$/i;

/** Units that may follow a number in a column, and what one of them is. */
const UNITS: Readonly<Record<string, readonly (readonly [pattern: RegExp, size: number])[]>> = {
  iteration_time_s: [
    [/(µs|us|microseconds?)$/i, 1e-6],
    [/(ms|msecs?|milliseconds?)$/i, 1e-3],
    [/(s|secs?|seconds?)$/i, 1],
    [/(min|minutes?)$/i, 60],
  ],
  mem_gb: [
    [/MiB$/, 2 ** 20 / 1e9],
    [/GiB$/, 2 ** 30 / 1e9],
    [/TiB$/, 2 ** 40 / 1e9],
    [/MB$/i, 1e-3],
    [/GB$/i, 1],
    [/TB$/i, 1e3],
  ],
  internode_gbps_per_gpu: [
    [/(Gbps|Gb\/s|Gbit\/s)$/, 1],
    [/(GBps|GB\/s)$/, 8],
  ],
  tokens_per_s_per_gpu: [[/k$/i, 1e3]],
  params_b: [[/B$/i, 1]],
  seq: [
    [/k$/i, 1024],
    [/m$/i, 2 ** 20],
    [/tokens$/i, 1],
  ],
};

/** Commas, underscores, apostrophes or spaces between groups of three digits. */
const THOUSANDS = /(\d)[,_' \u00A0\u202F](?=\d{3}(?!\d))/g;

/** "2,566" seconds: two and a half, or two thousand. */
const EITHER = /^[1-9]\d{0,2},\d{3}\s*(s|secs?|seconds?)?$/i;

/** The number in a column; undefined if it is unstated or not a number. */
export function number(row: CsvRow, column: string): number | undefined {
  // "~3.4", "3.4 ± 0.1", "741*", "64 (8 nodes)": a remark is not part of the number.
  const stated = (row[column] ?? '')
    .trim()
    .replace(/^[~≈]\s*/, '')
    .replace(/\s*\([^\d)]*\)$/, '')
    .replace(/\s*(±|\+\/-).*$/, '')
    .replace(/[*†]+$/, '');
  if (UNSTATED.test(stated) || (column === 'iteration_time_s' && EITHER.test(stated))) return undefined;
  const [unit, size = 1] = UNITS[column]?.find(([pattern]) => pattern.test(stated)) ?? [];
  const plain = (unit ? stated.replace(unit, '') : stated).trim();
  const decimal = /^\d+,(\d{1,2}|\d{4,})$|^0,\d+$/.test(plain)
    ? plain.replace(',', '.')
    : plain.replace(THOUSANDS, '$1');
  // Number() would also read "0x8", "" and "Infinity".
  return /^[-+]?(\d+\.?\d*|\.\d+)(e[-+]?\d+)?$/i.test(decimal) ? Number(decimal) * size : undefined;
}

/** Columns of counts and sizes, with the largest that any run could have. */
const LARGEST: Readonly<Record<string, number>> = {
  ...{ gpus: 1e6, gpus_per_node: 1e6, tp: 1e6, pp: 1e6, cp: 1e6, dp: 1e6, ep: 1e6, vpp: 1e6 },
  ...{ layers: 1e5, hidden: 1e7, heads: 1e6, kv_heads: 1e6, ffn: 1e8, vocab: 1e9, seq: 1e9 },
  ...{ microbatch: 1e6, global_batch: 1e9 },
};

const WHOLE = [
  'layers',
  'hidden',
  'heads',
  'kv_heads',
  'ffn',
  'vocab',
  'seq',
  'gpus',
  'tp',
  'pp',
  'cp',
  'dp',
  'vpp',
  'ep',
];

const MEASURED = ['iteration_time_s', 'tokens_per_s_per_gpu', 'mem_gb', 'internode_gbps_per_gpu'];

/** The problem with a number that cannot be read, or that no run can have and that would spoil the totals; null if none. */
export function wrongNumber(row: CsvRow): string | null {
  for (const column of [...Object.keys(LARGEST), ...MEASURED]) {
    const text = (row[column] ?? '').trim();
    const value = number(row, column);
    if (value === undefined && EITHER.test(text))
      return `${column} is ${text}: write 2.566 or 2566 where 2,566 may be either`;
    if (value === undefined && !UNSTATED.test(text)) return `${column} is ${text}, which is no number`;
    if (value !== undefined && (value < 0 || value > (LARGEST[column] ?? Number.MAX_VALUE)))
      return `${column} is ${value}`;
  }
  for (const column of WHOLE) if (!Number.isInteger(number(row, column) ?? 1)) return `${column} is ${row[column]}`;
  for (const column of MEASURED) if (number(row, column) === 0 && column !== 'mem_gb') return `${column} is 0`;
  return null;
}
