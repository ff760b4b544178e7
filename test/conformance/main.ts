/**
 * @file `npm run conformance -- FOLDER…`: cases through import, export, sharding and running. docs/reference/conformance.md
 * describes layouts, modes, verdicts and options. Exit code 1 only where a case fails.
 */
import { existsSync, readFileSync, writeFileSync } from 'node:fs';
import { availableParallelism } from 'node:os';
import { fileURLToPath } from 'node:url';
import { parseArgs } from 'node:util';
import { type BackendName, COMPUTING_BACKENDS } from '../../src/api/execution/backends.js';
import { findCases } from './find-cases.js';
import { runCases } from './pool.js';
import {
  type CaseResult,
  caseLines,
  isSharded,
  lackingOperators,
  modeTable,
  overLimit,
  refusalOf,
  refusedLines,
  totalLine,
  verdictOf,
} from './report.js';

const USAGE = `usage: npm run conformance -- FOLDER… [options]

  --filter TEXT      only cases whose name contains TEXT
  --mask FILE.tsv    only cases that the file marks 'pass' count (name, tab, mark); the others are reported apart
  --modes A,B        only these modes besides the unsharded one
  --backend NAME     what computes on ranks: cpu, webgpu or cuda
  --train            train whole models as well, on one rank and over dp 2 and tp 2
  --jobs N           child processes at a time (default: one per core)
  --json FILE        write all results to FILE`;

interface Options {
  readonly folders: readonly string[];
  readonly filter: string;
  readonly mask: ReadonlySet<string> | null;
  readonly modes?: readonly string[];
  readonly train?: boolean;
  readonly backend?: BackendName;
  readonly jobs: number;
  readonly json: string | null;
}

/** Names of the cases to run. */
type Only = ReadonlySet<string>;

/** Results that are counted, and results that the mask sets apart. */
interface Results {
  readonly counted: readonly CaseResult[];
  readonly apart: readonly CaseResult[];
}

/** Names of the cases that a mask marks `pass`. */
export function readMask(file: string): ReadonlySet<string> {
  const rows = readFileSync(file, 'utf8').split('\n');
  return new Set(rows.flatMap((row) => (row.split('\t')[1]?.trim() === 'pass' ? [row.split('\t')[0] ?? ''] : [])));
}

/** Runs all cases and prints them as they end, totals last. `progress` is called with how far it is. */
export async function runFolders(
  { folders, filter, mask, modes, train, backend, jobs, only }: Omit<Options, 'json'> & { readonly only?: Only },
  print: (line: string) => void,
  progress: (text: string) => void = () => undefined,
): Promise<Results> {
  const cases = findCases(folders).filter(({ name }) => name.includes(filter) && (only?.has(name) ?? true));
  let done = 0;
  const results = await runCases(cases, {
    jobs,
    ...(modes ? { modes } : {}),
    ...(train ? { train } : {}),
    ...(backend ? { backend } : {}),
    onResult: (result) => {
      progress('');
      for (const line of caseLines(result)) print(line);
      progress(`${++done} of ${cases.length}`);
    },
  });
  progress('');
  const isCounted = ({ name }: CaseResult): boolean => mask?.has(name) ?? true;
  const counted = results.filter(isCounted);
  const apart = results.filter((result) => !isCounted(result));
  for (const line of summary({ counted, apart }, backend)) print(line);
  return { counted, apart };
}

function summary({ counted, apart }: Results, backend: BackendName | undefined): readonly string[] {
  const section = (title: string, lines: readonly string[]): readonly string[] =>
    lines.length === 0 ? [] : ['', title, ...lines.map((line) => `  ${line}`)];
  return [
    ...section('not sharded enough:', overLimit(counted)),
    ...section('refused:', refusedLines(counted)),
    ...section('outside the mask:', apart.length === 0 ? [] : [...refusedLines(apart), totalLine(apart)]),
    ...section('operators not or not always run:', backend === undefined ? [] : lackingOperators(counted)),
    ...section('by mode:', modeTable(counted)),
    '',
    totalLine(counted),
  ];
}

function readOptions(line: readonly string[]): Options | string {
  let parsed: ReturnType<typeof parseLine>;
  try {
    parsed = parseLine(line);
  } catch (error) {
    return `${error instanceof Error ? error.message : error}\n\n${USAGE}`;
  }
  const { values, positionals: folders } = parsed;
  if (folders.length === 0) return USAGE;
  const missing = [...folders, ...(values.mask === undefined ? [] : [values.mask])].filter((path) => !existsSync(path));
  if (missing.length > 0) return `there is no ${missing.join(', ')}`;
  const archive = folders.find((folder) => /\.(tar|tgz|xz|gz|zip)$/.test(folder));
  if (archive !== undefined) return `${archive} is an archive: unpack it first (tar -xf ${archive} -C FOLDER)`;
  const jobs = Number(values.jobs ?? availableParallelism());
  if (!Number.isInteger(jobs) || jobs < 1) return `--jobs wants a number of processes, not ${values.jobs}`;
  const backend = COMPUTING_BACKENDS.find((name) => name === values.backend);
  if (values.backend !== undefined && !backend) return `--backend is one of ${COMPUTING_BACKENDS.join(', ')}`;
  return {
    folders,
    filter: values.filter ?? '',
    mask: values.mask === undefined ? null : readMask(values.mask),
    ...(values.modes === undefined ? {} : { modes: values.modes.split(',').map((name) => name.trim()) }),
    train: values.train ?? false,
    ...(backend ? { backend } : {}),
    jobs,
    json: values.json ?? null,
  };
}

function parseLine(line: readonly string[]) {
  return parseArgs({
    args: [...line],
    allowPositionals: true,
    options: {
      filter: { type: 'string' },
      mask: { type: 'string' },
      modes: { type: 'string' },
      train: { type: 'boolean' },
      backend: { type: 'string' },
      jobs: { type: 'string' },
      json: { type: 'string' },
    },
  });
}

/** The JSON that --json writes: every case with its verdict, and the totals. */
function jsonOf({ counted, apart }: Results): object {
  const record = (result: CaseResult): object => ({
    ...result,
    verdict: verdictOf(result),
    sharded: isSharded(result),
    ...(verdictOf(result) === 'refused' ? { reason: refusalOf(result) } : {}),
  });
  return {
    schema: 'autopar-conformance-v1',
    total: totalLine(counted),
    cases: counted.map(record),
    outsideMask: apart.map(record),
  };
}

function terminalProgress(text: string): void {
  if (process.stderr.isTTY) process.stderr.write(`\r\u001b[K${text}`);
}

async function main(line: readonly string[]): Promise<number> {
  const options = readOptions(line);
  if (typeof options === 'string') {
    console.error(options);
    return 2;
  }
  for (const signal of ['SIGINT', 'SIGTERM'] as const) process.once(signal, () => process.exit(130));
  const results = await runFolders(options, (text) => console.log(text), terminalProgress);
  if (options.json !== null) writeFileSync(options.json, `${JSON.stringify(jsonOf(results), null, 2)}\n`);
  return results.counted.some((result) => verdictOf(result) === 'failed') ? 1 : 0;
}

if (process.argv[1] === fileURLToPath(import.meta.url)) process.exitCode = await main(process.argv.slice(2));
