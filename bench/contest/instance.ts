/**
 * @file Reads instances of the ASPLOS/EuroSys 2025 contest on intra-operator parallelism: JSON, or JSON in gzip.
 *
 *     {problem: {name, nodes: {costs: [[…]], usages: [[…]], intervals: [[from, to]]},
 *                edges: {nodes: [[i, j]], costs: [[…]]}, usage_limit}}
 *
 * costs and usages by node and strategy; edge costs row-major over the strategies of i and j; intervals half-open, empty
 * where their ends are equal; a cost of 10^18 or more is forbidden. Several edges may join two nodes, either way round, and an
 * edge a node with itself. Without usage_limit, memory does not matter; then usages and intervals may be missing as well.
 */
import { readFileSync } from 'node:fs';
import { gunzipSync } from 'node:zlib';
import { AutoparError } from '../../src/ir/error.js';
import type { CostFactor, CostTable, LimitedProblem, MemoryUse } from '../../src/solver/problem.js';

/** Costs from here on forbid. */
export const FORBIDDEN = 1e18;

/** An instance as its file states it. */
export interface ContestInstance {
  readonly name: string;
  readonly costs: readonly (readonly number[])[];
  readonly usages: readonly (readonly number[])[];
  readonly intervals: readonly (readonly [number, number])[];
  readonly edges: readonly (readonly [number, number])[];
  readonly edgeCosts: readonly (readonly number[])[];
  /** Infinity where there is none. */
  readonly limit: number;
}

/**
 * Reads a file and checks its form.
 * @throws AutoparError (input) `bad-contest-file` with the place, the expected form and a hint
 */
export function readInstance(file: string): ContestInstance {
  const { problem } = objectAt(parse(file), 'the file', file);
  const { name, nodes, edges, usage_limit: usageLimit } = objectAt(problem, 'problem', file);
  const { costs, ...memory } = objectAt(nodes, 'problem.nodes', file);
  const { nodes: pairs, costs: edgeCosts } = objectAt(edges, 'problem.edges', file);
  const at = (place: string) => `problem.${place}`;
  const nodeCosts = rows(costs, at('nodes.costs'), file);
  const count = nodeCosts.length;
  nodeCosts.forEach((row, node) => {
    if (row.length === 0) throw malformed(file, at(`nodes.costs[${node}]`), 'at least one strategy', 'an empty list');
  });
  const limit = limitOf(usageLimit, file);
  const { usages, intervals } =
    limit === Infinity && memory.usages === undefined && memory.intervals === undefined
      ? { usages: nodeCosts.map((row) => row.map(() => 0)), intervals: nodeCosts.map(() => [0, 0]) }
      : memory;
  const nodeUsages = rows(usages, at('nodes.usages'), file, (node) => nodeCosts[node]?.length, count);
  const spans = rows(intervals, at('nodes.intervals'), file, () => 2, count);
  spans.forEach(([from = 0, until = 0], node) => {
    if (until >= from) return;
    throw malformed(file, at(`nodes.intervals[${node}]`), `an end of ${from} or later`, String(until));
  });
  const ends = rows(pairs, at('edges.nodes'), file, () => 2);
  ends.forEach(([i = -1, j = -1], edge) => {
    const place = at(`edges.nodes[${edge}]`);
    for (const node of [i, j]) {
      if (!Number.isInteger(node) || node < 0 || node >= count) {
        throw malformed(file, place, `two nodes from 0 to ${count - 1}`, String(node));
      }
    }
  });
  const sizeOf = (edge: number) => {
    const [i = 0, j = 0] = ends[edge] ?? [];
    return (nodeCosts[i]?.length ?? 0) * (nodeCosts[j]?.length ?? 0);
  };
  const tables = rows(edgeCosts, at('edges.costs'), file, sizeOf, ends.length);
  return {
    name: typeof name === 'string' ? name : '',
    costs: nodeCosts,
    usages: nodeUsages,
    intervals: spans as unknown as ContestInstance['intervals'],
    edges: ends as unknown as ContestInstance['edges'],
    edgeCosts: tables,
    limit,
  };
}

/** The solver's form of an instance. Equal edge tables become one object. */
export function problemOf(instance: ContestInstance): LimitedProblem {
  const tables = new Map<string, CostTable>();
  const factors: CostFactor[] = instance.costs.map((costs, variable) => ({
    variables: [variable],
    table: { sizes: [costs.length], values: Float64Array.from(costs, finite) },
  }));
  instance.edges.forEach(([i, j], edge) => {
    const costs = instance.edgeCosts[edge] as readonly number[];
    const sizes = [instance.costs[i]?.length ?? 0, instance.costs[j]?.length ?? 0];
    if (i === j) {
      const own = Float64Array.from({ length: sizes[0] as number }, (_, s) =>
        finite(costs[s * (sizes[0] as number) + s] as number),
      );
      factors.push({ variables: [i], table: { sizes: sizes.slice(1), values: own } });
      return;
    }
    const key = `${sizes.join()}:${digest(costs)}`;
    const known = tables.get(key);
    const table = known && sameCosts(known.values, costs) ? known : { sizes, values: Float64Array.from(costs, finite) };
    if (!known) tables.set(key, table);
    factors.push({ variables: [i, j], table });
  });
  const uses: MemoryUse[] = instance.usages.map((usages, variable) => {
    const [start, end] = instance.intervals[variable] as readonly [number, number];
    return { variable, start, end, bytes: Float64Array.from(usages) };
  });
  return { sizes: instance.costs.map((costs) => costs.length), factors, uses, limit: instance.limit };
}

/**
 * A cost that is not forbidden but dearer than any sum that doubles hold exactly is treated as forbidden: solutions that cost
 * 2^53 or more are refused in any case, and no other solution contains it.
 */
function finite(cost: number): number {
  return cost > Number.MAX_SAFE_INTEGER ? Infinity : cost;
}

/** Whether some cost is neither forbidden nor one that the solver takes. */
export function hasTooDear({ costs, edgeCosts }: ContestInstance): boolean {
  const isTooDear = (cost: number) => cost < FORBIDDEN && finite(cost) === Infinity;
  return [costs, edgeCosts].some((tables) => tables.some((row) => row.some(isTooDear)));
}

function limitOf(limit: unknown, file: string): number {
  if (limit === undefined || limit === null) return Infinity;
  if (typeof limit !== 'number' || !(limit >= 0)) {
    throw malformed(file, 'problem.usage_limit', 'a number of bytes', shown(limit));
  }
  // Bytes are whole.
  return Math.floor(limit);
}

function sameCosts(values: Float64Array, costs: readonly number[]): boolean {
  return values.length === costs.length && values.every((value, index) => value === finite(costs[index] as number));
}

/** A number that equal lists share (Fowler, Noll and Vo's hash over halves of doubles' integers). */
function digest(costs: readonly number[]): number {
  let hash = 0x811c9dc5;
  for (const cost of costs) {
    hash = Math.imul(hash ^ (cost % 0x7fffffff), 0x01000193);
    hash = Math.imul(hash ^ (cost / 0x7fffffff), 0x01000193);
  }
  return hash >>> 0;
}

/** Bytes of JSON that a file may have or inflate to: a text can be no longer. */
const LONGEST = 2 ** 29 - 2 ** 20;

function parse(file: string): unknown {
  let bytes: Buffer;
  try {
    bytes = readFileSync(file);
  } catch (error) {
    throw new AutoparError(
      'unreadable-contest-file',
      'input',
      `cannot read the contest file (${(error as NodeJS.ErrnoException).code ?? 'no reason given'})`,
      { file },
      'name a .json or .json.gz file that exists',
    );
  }
  let text = '';
  try {
    text = (bytes[0] === 0x1f && bytes[1] === 0x8b ? gunzipSync(bytes, { maxOutputLength: LONGEST }) : bytes).toString(
      'utf8',
    );
    // Some editors begin a file with a mark of byte order.
    return JSON.parse(text.replace(/^\uFEFF/, ''));
  } catch (error) {
    const { message } = error as Error;
    throw malformed(file, `the file${lineOf(text, message)}`, 'JSON, or JSON in gzip', printable(message));
  }
}

/** A parser repeats the text that it could not read, which may be anything. */
function printable(message: string): string {
  return message.replace(/[^\x20-\x7e]/g, '?');
}

/** The line of a parser's message, where it states a position. */
function lineOf(text: string, message: string): string {
  const position = /at position (\d+)/.exec(message)?.[1];
  return position === undefined ? '' : `, line ${text.slice(0, Number(position)).split('\n').length}`;
}

function objectAt(value: unknown, place: string, file: string): Readonly<Record<string, unknown>> {
  if (typeof value === 'object' && value !== null && !Array.isArray(value)) return value as Record<string, unknown>;
  throw malformed(file, place, 'an object', kindOf(value));
}

/** A list of lists of numbers, of given lengths. */
function rows(
  value: unknown,
  place: string,
  file: string,
  length?: (index: number) => number | undefined,
  count?: number,
): readonly (readonly number[])[] {
  if (!Array.isArray(value)) throw malformed(file, place, 'a list of lists', kindOf(value));
  if (count !== undefined && value.length !== count) {
    throw malformed(file, place, `${count} lists`, String(value.length));
  }
  value.forEach((row: unknown, index) => {
    const here = `${place}[${index}]`;
    if (!Array.isArray(row)) throw malformed(file, here, 'a list', kindOf(row));
    const expected = length?.(index);
    if (expected !== undefined && row.length !== expected) {
      throw malformed(file, here, `${expected} numbers`, String(row.length));
    }
    const wrong = row.findIndex((entry: unknown) => !Number.isInteger(entry) || (entry as number) < 0);
    if (wrong >= 0) {
      throw malformed(file, `${here}[${wrong}]`, 'a whole number from 0', shown(row[wrong]));
    }
  });
  return value as number[][];
}

/** A value where it is short, its kind where it may be anything. */
function shown(value: unknown): string {
  if (typeof value === 'number' || typeof value === 'boolean') return String(value);
  if (typeof value !== 'string') return kindOf(value);
  return value.length <= MOST_SHOWN ? JSON.stringify(value) : `a string of ${value.length} characters`;
}

/** Characters of a string that an error repeats. */
const MOST_SHOWN = 60;

function kindOf(value: unknown): string {
  return value === undefined
    ? 'nothing'
    : value === null
      ? 'null'
      : Array.isArray(value)
        ? 'a list'
        : typeof value === 'object'
          ? 'an object'
          : `a ${typeof value}`;
}

function malformed(file: string, place: string, expected: string, found: string): AutoparError {
  return new AutoparError(
    'bad-contest-file',
    'input',
    `${place}: expected ${expected}, found ${found}`,
    { file },
    'the form is described in docs/planner.md, "The contest"; fetch the instance again if it was truncated',
  );
}
