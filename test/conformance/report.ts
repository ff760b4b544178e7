/**
 * @file What a case's runs amount to: messages of the child, the case's verdict, the lines that are printed.
 */
import { RESIZED_MODES, SHARDED_MODES } from './modes.js';

export interface ModeResult {
  readonly mode: string;
  readonly outcome: 'passed' | 'refused' | 'failed';
  /** Why it did not pass, or a remark. */
  readonly detail: string;
  /** FLOPs of one rank over those of the model, counted in the lowered program. */
  readonly flopsShare?: number;
  /** Whether any operator is sharded. */
  readonly sharded?: boolean;
  readonly degrees?: string;
  /** Operators that a pinned degree could not shard, and why. */
  readonly exceptions?: readonly string[];
}

export type CaseMessage =
  | { readonly kind: 'begin'; readonly mode: string }
  | { readonly kind: 'end'; readonly result: ModeResult };

export interface CaseResult {
  readonly name: string;
  readonly seconds: number;
  readonly modes: readonly ModeResult[];
}

export type Verdict = 'passed' | 'refused' | 'failed';

/** Refused: the model itself is. A sharded mode that is refused leaves the case passed, with a remark. */
export function verdictOf({ modes }: CaseResult): Verdict {
  if (modes.length === 0 || modes.some(({ outcome }) => outcome === 'failed')) return 'failed';
  return modes[0]?.outcome === 'refused' ? 'refused' : 'passed';
}

export function isSharded(result: CaseResult): boolean {
  return (
    verdictOf(result) === 'passed' &&
    result.modes.some(({ outcome, sharded, mode }) => outcome === 'passed' && sharded && mode !== 'unsharded')
  );
}

/** `ok  hf_gpt2  1.9 s  dp 2: 0.500  tp 2: 0.512`, and a line for everything that is not as it should be. */
export function caseLines(result: CaseResult): readonly string[] {
  const verdict = verdictOf(result);
  const shares = result.modes.flatMap(({ mode, flopsShare }) =>
    flopsShare !== undefined && limitOf(mode) !== undefined ? [`${mode}: ${flopsShare.toFixed(3)}`] : [],
  );
  return [
    `${verdict.padEnd(7)}  ${result.name}  ${result.seconds.toFixed(1)} s  ${shares.join('  ')}`.trimEnd(),
    ...result.modes.flatMap(remarks).map((line) => `           ${line}`),
  ];
}

/** `P passed (S sharded), R refused, F failed of N`. */
export function totalLine(results: readonly CaseResult[]): string {
  const count = (verdict: Verdict) => results.filter((result) => verdictOf(result) === verdict).length;
  const sharded = results.filter(isSharded).length;
  return `${count('passed')} passed (${sharded} sharded), ${count('refused')} refused, ${count('failed')} failed of ${results.length}`;
}

/** Modes in which a rank does more than its largest share, with the operators that prevent it. */
export function overLimit(results: readonly CaseResult[]): readonly string[] {
  return results.flatMap(({ name, modes }) =>
    modes.flatMap(({ mode, flopsShare, exceptions }) => {
      const limit = limitOf(mode);
      if (limit === undefined || flopsShare === undefined || flopsShare <= limit) return [];
      return [
        `${name}, ${mode}: ${flopsShare.toFixed(3)} of the FLOPs per rank, more than ${limit}: ${exceptions?.join('; ') || 'no operator is named'}`,
      ];
    }),
  );
}

function remarks({ mode, outcome, detail }: ModeResult): readonly string[] {
  if (outcome === 'passed') return detail === '' ? [] : [`${mode}: ${detail}`];
  return [`${mode} ${outcome}: ${detail}`];
}

function limitOf(mode: string): number | undefined {
  return [...SHARDED_MODES, ...RESIZED_MODES].find(({ name }) => name === mode)?.largestShare;
}
