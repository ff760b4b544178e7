/**
 * @file The outcome of a case's runs: messages of the child, the case's verdict, the lines and totals that are printed.
 */
import { ORIGINAL, READING, UNSHARDED } from './modes.js';

export interface ModeResult {
  readonly mode: string;
  readonly outcome: 'passed' | 'refused' | 'failed';
  /** Why it did not pass, or a remark. */
  readonly detail: string;
  /** The class of a refusal (refusals.ts). */
  readonly reason?: string;
  /** The code of the AutoparError that refused. */
  readonly code?: string;
  /** FLOPs of one rank over those of the model, counted in the lowered program. */
  readonly flopsShare?: number;
  /** The largest share that the mode allows. */
  readonly largestShare?: number;
  /** Most bytes that a rank holds at a time. */
  readonly bytes?: number;
  /** Whether a rank does less than the whole model's FLOPs or holds less than one rank alone does, with some operator sharded. */
  readonly sharded?: boolean;
  readonly degrees?: string;
  /** Operators that a pinned degree could not shard, and why. */
  readonly exceptions?: readonly string[];
  /** Inputs that decide shapes and were bound to their values. */
  readonly bound?: readonly string[];
  /** Operators of the model, each once. */
  readonly operators?: readonly string[];
  /** Sequences and optionals that were taken as their elements. */
  readonly unpacked?: readonly string[];
}

export type CaseMessage =
  | { readonly kind: 'begin'; readonly mode: string }
  | { readonly kind: 'end'; readonly result: ModeResult }
  | { readonly kind: 'done' };

export interface CaseResult {
  readonly name: string;
  readonly seconds: number;
  readonly modes: readonly ModeResult[];
}

export type Verdict = 'passed' | 'refused' | 'failed';

/** Refused: the model itself is. A sharded mode that is refused leaves the case passed, with a remark. */
export function verdictOf({ modes }: CaseResult): Verdict {
  if (modes.length === 0 || modes.some(({ outcome }) => outcome === 'failed')) return 'failed';
  return modes.some((result) => result.outcome === 'refused' && isOfModel(result)) ? 'refused' : 'passed';
}

export function isSharded(result: CaseResult): boolean {
  return (
    verdictOf(result) === 'passed' &&
    result.modes.some((mode) => mode.outcome === 'passed' && mode.sharded && !isOfModel(mode))
  );
}

/** `passed  hf_gpt2  1.9 s  dp 2: 0.500  tp 2: 0.512`, and a line for everything that is not as it should be. */
export function caseLines(result: CaseResult): readonly string[] {
  const shares = result.modes.flatMap(({ mode, flopsShare, largestShare }) =>
    flopsShare !== undefined && largestShare !== undefined ? [`${mode}: ${flopsShare.toFixed(3)}`] : [],
  );
  const bound = result.modes.find((mode) => mode.bound)?.bound ?? [];
  const elements = result.modes.find((mode) => mode.unpacked)?.unpacked ?? [];
  const named = (what: string, names: readonly string[]) => (names.length > 0 ? [`${what}: ${names.join(', ')}`] : []);
  const notes = [...shares, ...named('bound', bound), ...named('elements of', elements)];
  return [
    `${verdictOf(result).padEnd(7)}  ${result.name}  ${result.seconds.toFixed(1)} s  ${notes.join('  ')}`.trimEnd(),
    ...result.modes.flatMap(remarks).map((line) => `           ${line}`),
  ];
}

/** `P passed (S sharded), R refused, F failed of N`. */
export function totalLine(results: readonly CaseResult[]): string {
  const count = (verdict: Verdict) => results.filter((result) => verdictOf(result) === verdict).length;
  const sharded = results.filter(isSharded).length;
  return (
    `${count('passed')} passed (${sharded} sharded), ${count('refused')} refused, ${count('failed')} failed ` +
    `of ${results.length}`
  );
}

/** A table with a line per mode: passed sharded, passed replicated, refused, failed. */
export function modeTable(results: readonly CaseResult[]): readonly string[] {
  const modes = results.flatMap((result) => result.modes);
  const rows = [...new Set(modes.map(({ mode }) => mode))].map((name) => {
    const own = modes.filter(({ mode }) => mode === name);
    const count = (test: (mode: ModeResult) => boolean): string => String(own.filter(test).length);
    return [
      name,
      count(({ outcome, sharded }) => outcome === 'passed' && sharded === true),
      count(({ outcome, sharded }) => outcome === 'passed' && sharded !== true),
      count(({ outcome }) => outcome === 'refused'),
      count(({ outcome }) => outcome === 'failed'),
    ];
  });
  const table = [['mode', 'sharded', 'replicated', 'refused', 'failed'], ...rows];
  const width = Math.max(...table.map(([name = '']) => name.length));
  return table.map(([name = '', ...cells]) => [name.padEnd(width), ...cells.map((cell) => cell.padStart(11))].join(''));
}

/** Refused cases by class, most first: `13  string: test_equal_string, …`. */
export function refusedLines(results: readonly CaseResult[]): readonly string[] {
  const classes = new Map<string, string[]>();
  for (const result of results) {
    if (verdictOf(result) !== 'refused') continue;
    const reason = refusalOf(result);
    classes.set(reason, [...(classes.get(reason) ?? []), result.name]);
  }
  return [...classes]
    .sort(([, a], [, b]) => b.length - a.length)
    .map(([reason, names]) => `${String(names.length).padStart(5)}  ${reason}: ${names.join(', ')}`);
}

/** The class of a refused case. */
export function refusalOf({ modes }: CaseResult): string {
  return modes.find((mode) => mode.outcome === 'refused' && isOfModel(mode))?.reason ?? 'other';
}

/** Modes in which a rank does more than its largest share, with the operators that prevent it. */
export function overLimit(results: readonly CaseResult[]): readonly string[] {
  return results.flatMap(({ name, modes }) =>
    modes.flatMap(({ mode, flopsShare, largestShare, exceptions }) => {
      if (largestShare === undefined || flopsShare === undefined || flopsShare <= largestShare) return [];
      return [
        `${name}, ${mode}: ${flopsShare.toFixed(3)} of the FLOPs per rank, more than ${largestShare}: ` +
          `${exceptions?.join('; ') || 'no operator is named'}`,
      ];
    }),
  );
}

/** Modes before there are ranks to divide the work among: a refusal in them is one of the model. */
function isOfModel({ mode }: ModeResult): boolean {
  return mode === READING || mode === ORIGINAL || mode === UNSHARDED.name;
}

function remarks({ mode, outcome, detail, code }: ModeResult): readonly string[] {
  if (outcome === 'passed') return detail === '' ? [] : [`${mode}: ${detail}`];
  // An operator's case has a batch of 1 or 3 more often than not; the table of modes counts them.
  return code === 'dp-does-not-divide-batch' ? [] : [`${mode} ${outcome}: ${shortened(detail)}`];
}

/** ONNX Runtime's reasons may be pages long; --json has them whole. */
function shortened(detail: string): string {
  const line = detail.replaceAll(/\s+/g, ' ');
  return line.length > 240 ? `${line.slice(0, 239)}…` : line;
}

/**
 * Cases of a single operator: how many there are and how many a backend ran. Cases that ONNX Runtime itself does not run are
 * not counted.
 */
export function operatorCounts(
  results: readonly CaseResult[],
): ReadonlyMap<string, { readonly all: number; readonly ran: number }> {
  const counts = new Map<string, { all: number; ran: number }>();
  for (const { modes } of results) {
    const [original, unsharded] = [ORIGINAL, UNSHARDED.name].map((name) => modes.find(({ mode }) => mode === name));
    const [operator, ...others] = original?.operators ?? [];
    if (operator === undefined || others.length > 0 || !unsharded) continue;
    const count = counts.get(operator) ?? { all: 0, ran: 0 };
    counts.set(operator, { all: count.all + 1, ran: count.ran + Number(unsharded.outcome === 'passed') });
  }
  return new Map([...counts].sort(([left], [right]) => (left < right ? -1 : 1)));
}

/**
 * Operators of which a backend ran some cases of a single operator and not others, or none: each with how many of how many ran.
 */
export function lackingOperators(results: readonly CaseResult[]): readonly string[] {
  return [...operatorCounts(results)]
    .filter(([, { all, ran }]) => ran < all)
    .map(([operator, { all, ran }]) => `${operator} ${ran} of ${all}`);
}
