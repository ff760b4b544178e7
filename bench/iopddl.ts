/**
 * @file `npm run bench:iopddl -- FILES --seconds T [--solutions DIR] [--solver highs|glpk|none] [--json]`: instances of the
 * ASPLOS/EuroSys 2025 contest on intra-operator parallelism; cost, proven bound, gap, time and memory of each.
 *
 * bench/contest/evaluate.ts checks every solution and shares nothing with the solver. Exit 1 if a solution is not valid, 3 if a
 * file is refused (the others are solved); a missed aim is not a failure. Ctrl-C ends the current instance with its best solution
 * so far, and the run. T seconds cover the whole instance: start, reading, search, check and writing.
 */
import { mkdirSync, writeFileSync } from 'node:fs';
import { basename, join } from 'node:path';
import { parseArgs } from 'node:util';
import { AutoparError } from '../src/ir/error.js';
import { Deadline } from '../src/solver/deadline.js';
import { NoAssignment } from '../src/solver/problem.js';
import { solve } from '../src/solver/solve.js';
import { evaluate } from './contest/evaluate.js';
import { hasTooDear, problemOf, readInstance } from './contest/instance.js';

/** Costs of the best published solutions, by instance, for the comparison in the table's last column. */
const BEST_KNOWN: Readonly<Record<string, number>> = {
  'asplos-2025-iopddl-A': 6_548_641_531,
  'asplos-2025-iopddl-B': 532_843,
  'asplos-2025-iopddl-G': 217_039,
  'asplos-2025-iopddl-K': 2_274_276_676,
  'asplos-2025-iopddl-L': 1_970_993_742,
  'asplos-2025-iopddl-P': 651_833_115_436,
  'asplos-2025-iopddl-V': 1_632_051,
};

const WIDTHS = [22, 6, 15, 15, 10, 8, 10, 8, 11] as const;

const SOLVERS = ['highs', 'glpk', 'none'] as const;

interface Row {
  readonly name: string;
  readonly nodes: number;
  readonly cost: number | null;
  readonly bound: number;
  readonly gap: number | null;
  readonly seconds: number;
  /** Processor time of the instance: less than the seconds where the machine does other work. */
  readonly processorSeconds: number;
  readonly peakBytes: number;
  readonly overBestKnown: number | null;
  readonly fault: string | null;
}

const interrupted = new AbortController();
process.once('SIGINT', () => interrupted.abort());

/**
 * Time reserved for the work after the search: seconds, and shares of the time that reading took and of the limit. Checking and
 * writing take less than reading on any machine, and a busy machine may wake this thread late.
 */
const RESERVE = { seconds: 0.5, ofReading: 0.5, ofLimit: 0.02 };
/** Seconds between the search's own time limit and the abort. */
const GRACE = 0.3;

try {
  process.exitCode = await main(process.argv.slice(2));
} catch (error) {
  if (!(error instanceof AutoparError)) throw error;
  process.exitCode = told(error);
}

/** Prints an error; returns the exit status that it asks for. */
function told(error: AutoparError): number {
  console.error(`error[${error.code}]: ${error.message}`);
  if (error.where.file) console.error(`  in ${error.where.file}`);
  if (error.hint) console.error(`  hint: ${error.hint}`);
  return error.exit === 'usage' ? 2 : 3;
}

async function main(words: readonly string[]): Promise<number> {
  const { files, seconds, solver, solutions, json } = optionsOf(words);
  if (solutions !== undefined) {
    unlike(files);
    prepare(solutions);
  }
  const rows: Row[] = [];
  const refused: { file: string; code: string; message: string }[] = [];
  if (!json)
    console.log(line(['instance', 'nodes', 'cost', 'bound', 'gap', 'seconds', 'processor', 'memory', 'best known']));
  for (const [index, file] of files.entries()) {
    try {
      // The time of the first instance starts with the program.
      const row = await run(file, index === 0 ? 0 : performance.now(), seconds, solver, solutions);
      rows.push(row);
      if (!json) console.log(printed(row));
    } catch (error) {
      if (!(error instanceof AutoparError)) throw error;
      told(error);
      refused.push({ file, code: error.code, message: error.message });
    }
    if (interrupted.signal.aborted) break;
  }
  const failed = rows.filter(({ fault }) => fault !== null).length;
  const optimal = rows.filter(({ gap }) => gap === 0).length;
  const total = rows.reduce((sum, row) => sum + row.seconds, 0);
  if (json) console.log(JSON.stringify({ schema: 'autopar-bench-iopddl-v1', instances: rows, refused }, null, 2));
  else {
    console.log(
      `iopddl: ${rows.length - failed} solved (${optimal} optimal), ${failed + refused.length} failed of ` +
        `${files.length} in ${total.toFixed(1)} s`,
    );
  }
  if (interrupted.signal.aborted) return 130;
  return refused.length > 0 ? 3 : failed > 0 ? 1 : 0;
}

async function run(
  file: string,
  started: number,
  seconds: number,
  solver: (typeof SOLVERS)[number],
  solutions: string | undefined,
): Promise<Row> {
  const name = nameOf(file);
  const read = performance.now();
  const used = process.cpuUsage();
  const instance = readInstance(file);
  if (instance.limit === Infinity) console.error(`note: ${file} has no usage_limit: memory does not matter`);
  let peakBytes = process.memoryUsage().rss;
  const sampling = setInterval(() => {
    peakBytes = Math.max(peakBytes, process.memoryUsage().rss);
  }, 100);
  try {
    const problem = problemOf(instance);
    const reserve =
      RESERVE.seconds + RESERVE.ofLimit * seconds + (RESERVE.ofReading * (performance.now() - read)) / 1000;
    const left = Math.max(0.1, seconds - reserve - (performance.now() - started) / 1000);
    // A timer of more milliseconds would fire at once.
    const isTimed = left * 1000 < 2 ** 31;
    const signal = isTimed
      ? AbortSignal.any([interrupted.signal, AbortSignal.timeout(Math.ceil(left * 1000))])
      : interrupted.signal;
    const answer = await solve(problem, {
      ...{ work: Infinity, seconds: Math.max(0.05, left - GRACE), tables: null, programs: solver, accompanied: true },
      deadline: new Deadline(undefined, signal),
    });
    const spent = (performance.now() - started) / 1000;
    const { user, system } = process.cpuUsage(used);
    const processorSeconds = (user + system) / 1e6;
    peakBytes = Math.max(peakBytes, process.memoryUsage().rss);
    const checked = answer.states ? evaluate(instance, answer.states) : null;
    const fault = checked ? (checked.fault ?? faultOf(checked.cost, answer.cost)) : 'no solution found';
    if (answer.states && fault === null && solutions !== undefined) {
      write(join(solutions, `${name}.json`), answer.states);
    }
    const known = BEST_KNOWN[name];
    return {
      name,
      nodes: instance.costs.length,
      cost: checked ? Number(checked.cost) : null,
      bound: answer.bound,
      gap: answer.states ? (answer.cost === 0 ? 0 : (answer.cost - answer.bound) / answer.cost) : null,
      seconds: spent,
      processorSeconds,
      peakBytes,
      overBestKnown: answer.states && known !== undefined ? answer.cost / known - 1 : null,
      fault,
    };
  } catch (error) {
    if (!(error instanceof NoAssignment)) throw error;
    throw new AutoparError(
      'bad-contest-file',
      'input',
      `${error.message}: usage_limit ${instance.limit === Infinity ? 'none' : instance.limit}`,
      { file },
      hasTooDear(instance)
        ? 'costs past 2^53 are not taken, since sums with them are not exact: state costs in a larger unit'
        : 'raise usage_limit, or allow more strategies and pairs',
    );
  } finally {
    clearInterval(sampling);
  }
}

function faultOf(cost: bigint, told: number): string | null {
  if (cost > Number.MAX_SAFE_INTEGER) return `costs ${cost}: sums above 2^53 are not exact`;
  return cost === BigInt(told) ? null : `costs ${cost}, not ${told}`;
}

function write(file: string, states: readonly number[]): void {
  try {
    writeFileSync(file, `${JSON.stringify(states)}\n`);
  } catch (error) {
    throw new AutoparError(
      'cannot-write',
      'cannotWrite',
      `cannot write the solution (${(error as NodeJS.ErrnoException).code ?? 'no reason given'})`,
      { file },
      'name a folder with room, in which no folder has the name of an instance',
    );
  }
}

function nameOf(file: string): string {
  return basename(file).replace(/\.json(\.gz)?$/, '');
}

/** Solutions are named after instances: two of one name would overwrite each other. */
function unlike(files: readonly string[]): void {
  const names = files.map(nameOf);
  const again = names.findIndex((name, index) => names.indexOf(name) < index);
  if (again < 0) return;
  throw new AutoparError(
    'bad-usage',
    'usage',
    `${files[names.indexOf(names[again] as string)]} and ${files[again]} would both have the solution ${names[again]}.json`,
    {},
    'solve them in two runs with --solutions of their own, or rename one',
  );
}

function prepare(folder: string): void {
  try {
    mkdirSync(folder, { recursive: true });
  } catch (error) {
    throw new AutoparError(
      'bad-option',
      'usage',
      `cannot write solutions to ${folder} (${(error as NodeJS.ErrnoException).code ?? 'no reason given'})`,
      {},
      'name a folder that exists or can be made',
    );
  }
}

function optionsOf(words: readonly string[]) {
  const usage = (message: string) =>
    new AutoparError(
      'bad-usage',
      'usage',
      message,
      {},
      'npm run bench:iopddl -- FILES --seconds T [--solutions DIR] [--solver highs|glpk|none] [--json]',
    );
  try {
    const { values, positionals } = parseArgs({
      args: [...words],
      allowPositionals: true,
      options: {
        seconds: { type: 'string', default: '60' },
        solutions: { type: 'string' },
        solver: { type: 'string', default: 'highs' },
        json: { type: 'boolean', default: false },
      },
    });
    const seconds = Number(values.seconds);
    const solver = SOLVERS.find((name) => name === values.solver);
    if (!(seconds > 0 && seconds < Infinity)) throw usage(`--seconds takes a number above 0, not ${values.seconds}`);
    if (!solver) throw usage(`--solver takes ${SOLVERS.join(', ')}, not ${values.solver}`);
    if (positionals.length === 0) throw usage('no instance is named');
    return { files: positionals, seconds, solver, solutions: values.solutions, json: values.json };
  } catch (error) {
    if (error instanceof AutoparError) throw error;
    throw usage((error as Error).message);
  }
}

function line(cells: readonly string[]): string {
  return cells
    .map((cell, index) => (index === 0 ? cell.padEnd(WIDTHS[0]) : cell.padStart(WIDTHS[index] as number)))
    .join(' ');
}

function printed(row: Row): string {
  const cells = line([
    row.name,
    String(row.nodes),
    row.cost === null ? '-' : String(row.cost),
    Number.isFinite(row.bound) ? String(row.bound) : '-',
    row.gap === null ? '-' : row.gap === 0 ? 'optimal' : `${(row.gap * 100).toFixed(3)} %`,
    row.seconds.toFixed(1),
    row.processorSeconds.toFixed(1),
    `${Math.round(row.peakBytes / 1e6)} MB`,
    row.overBestKnown === null
      ? ''
      : `${row.overBestKnown < 0 ? '−' : '+'}${Math.abs(row.overBestKnown * 100).toFixed(3)} %`,
  ]);
  return row.fault === null ? cells : `${cells}  FAILED: ${row.fault}`;
}
