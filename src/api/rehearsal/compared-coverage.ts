/**
 * @file Compares a plan with its rehearsal: the sets of distinct kinds of both, and the reason for each missing kind.
 */
import type { BigPlan } from './big-plan.js';
import { type Covered, type CoveredKind, coverageOf, leadersIn } from './coverage.js';
import type { SmallPlan } from './small-plan.js';

export interface Coverage {
  /** Distinct kinds of the plan. */
  readonly kinds: number;
  /** Kinds that the rehearsal has as well. */
  readonly covered: number;
  /** Kinds that the rehearsal lacks, with the reason. */
  readonly lost: readonly LostKind[];
  /** Kinds that only one of the two has, without a reason: an internal error. */
  readonly unexplained: readonly UnexplainedKind[];
  readonly isEqual: boolean;
}

export interface LostKind extends CoveredKind {
  readonly reason: string;
}

export interface UnexplainedKind extends CoveredKind {
  readonly only: 'plan' | 'rehearsal';
  readonly at: string;
}

export function comparedCoverage(big: BigPlan, small: SmallPlan): Coverage {
  const { axes, lost: lostAxes } = small.mesh;
  const leader = leadersIn(big.graph, big.kindOf);
  const whole = coverageOf(big.lowered, big.assignment, { axes, leader, operator: (name) => name });
  const own = coverageOf(small.lowered, small.assignment, {
    axes: (names) => names,
    leader,
    operator: (name) => small.same.nodeOf.get(name) ?? name,
  });
  const reasonOf = ({ kind, used }: Covered, key: string): string | null => {
    const gone = [...used].filter((axis) => lostAxes.has(axis));
    if (gone.length > 0) return `axis ${gone.join(', ')} is reduced to 1`;
    if (own.has(key)) return null;
    return kind.kind === 'send' && small.parts ? 'the rehearsal has no such stage boundary' : null;
  };
  const lost: LostKind[] = [];
  const unexplained: UnexplainedKind[] = [];
  let covered = 0;
  for (const [key, found] of whole) {
    const reason = reasonOf(found, key);
    if (reason !== null) lost.push({ ...found.kind, reason });
    else if (own.has(key)) covered++;
    else unexplained.push({ ...found.kind, only: 'plan', at: found.at });
  }
  for (const [key, found] of own)
    if (!whole.has(key)) unexplained.push({ ...found.kind, only: 'rehearsal', at: found.at });
  return { kinds: whole.size, covered, lost, unexplained, isEqual: unexplained.length === 0 };
}
