/**
 * @file The choice among plans that fit. A plan that leaves headroom is preferred to one that does not; headroom that the user
 * did not ask for may cost a twentieth of the time. Among plans within 2 % of the fastest of these, the criteria below decide one
 * after another: predictions are no more exact than that (docs/reference/accuracy.md).
 */
import type { Degrees } from '../cost-model/step/configuration.js';
import type { PlanRequest, Preference } from '../strategy/request.js';
import { shareWritten } from './figures.js';

/** The user's wishes for the plan. */
export type PlanPreference = Pick<PlanRequest, 'prefer' | 'headroom'>;

/** Share of the device's memory: the error of memory predictions (docs/reference/accuracy.md). */
const HEADROOM = 0.1;

/** Below the mean error of predicted seconds (docs/reference/accuracy.md). */
const HEADROOM_COST = 1.05;

/** Plans that take at most this many times as long as the fastest count as equally fast. */
export const NEAR = 1.02;

/** A wish with all defaults filled in. */
export interface Preferences {
  readonly prefer: Preference;
  readonly headroom: number;
  /** A plan with headroom may take this many times the seconds of the fastest without: any, where the user asks for headroom. */
  readonly headroomCost: number;
  /** A plan of at most this many times the seconds of the fastest may be taken. */
  readonly near: number;
}

/** No preference but speed. */
export const FASTEST: Preferences = { prefer: 'fastest', headroom: 0, headroomCost: 1, near: 1 };

/** @param isLimited whether the user gave a memory limit: it may be used whole, unless headroom is asked for */
export function preferencesOf({ prefer = 'simple', headroom }: PlanPreference, isLimited: boolean): Preferences {
  return {
    prefer,
    headroom: headroom ?? (isLimited ? 0 : HEADROOM),
    headroomCost: headroom === undefined ? HEADROOM_COST : Number.POSITIVE_INFINITY,
    near: prefer === 'simple' ? NEAR : 1,
  };
}

/** Whether headroom is worth the seconds of the fastest plan that leaves it. */
export function isWorthHeadroom(roomySeconds: number, fastestSeconds: number, { headroomCost }: Preferences): boolean {
  return roomySeconds <= fastestSeconds * headroomCost;
}

/** Bytes of a device that a plan with headroom may use. */
export function roomyBytes(limitBytes: number, { headroom }: Preferences): number {
  return Math.floor(limitBytes * (1 - headroom));
}

/** The figures by which plans are compared. */
export interface ComparedAlternative {
  readonly seconds: number;
  /** Bytes of the fullest device. */
  readonly bytes: number;
  readonly degrees: Partial<Degrees>;
  /** Whether some of its state is in the host's memory or on disk. */
  readonly isOffloaded: boolean;
  /** Whether axes shard factors that their roles do not offer. */
  readonly liftsRoles: boolean;
}

interface Criterion {
  /** Less is preferred. */
  readonly of: (alternative: ComparedAlternative, roomy: number) => number;
  /** The text about the one with less. */
  readonly says: (less: ComparedAlternative, more: ComparedAlternative) => string;
}

/** The criteria, in their order. */
const CRITERIA: readonly Criterion[] = [
  {
    of: kindsOf,
    says: (less, more) => `has ${countOf(kindsOf(less))} of parallelism instead of ${kindsOf(more)}`,
  },
  { of: spOf, says: (less, more) => `has sp ${spOf(less)} instead of ${spOf(more)}` },
  { of: ({ liftsRoles }) => Number(liftsRoles), says: () => 'respects the roles of axes' },
  { of: ({ bytes }, roomy) => Math.max(0, bytes - roomy), says: () => 'leaves more memory free' },
  { of: ({ isOffloaded }) => Number(isOffloaded), says: () => 'stores its state on the devices' },
];

/** Number of axes with several ranks. */
function kindsOf({ degrees }: ComparedAlternative): number {
  return Object.values(degrees).filter((degree) => (degree ?? 1) > 1).length;
}

function countOf(kinds: number): string {
  return kinds === 1 ? '1 kind' : `${kinds} kinds`;
}

function spOf({ degrees: { sp = 1 } }: ComparedAlternative): number {
  return sp;
}

/** The plan that is taken, and the fastest one that fits, where that is another. */
export interface PreferredPlan<Plan> {
  readonly taken: Plan;
  readonly passed: { readonly plan: Plan; readonly because: string } | null;
}

/**
 * Chooses among plans that fit.
 * @param plans at least one
 * @param limitBytes of each device; null for no limit
 * @param isSo whether a plan's seconds hold; called for those that would be taken, in the order of preference
 */
export function preferred<Plan>(
  plans: readonly Plan[],
  of: (plan: Plan) => ComparedAlternative,
  preferences: Preferences,
  limitBytes: number | null,
  isSo: (plan: Plan) => boolean = () => true,
): PreferredPlan<Plan> {
  const roomy = limitBytes === null ? Number.POSITIVE_INFINITY : roomyBytes(limitBytes, preferences);
  const all = plans.map((plan) => ({ plan, own: of(plan) })).sort((a, b) => a.own.seconds - b.own.seconds);
  const leaving = all.filter(({ own }) => own.bytes <= roomy);
  const [fastest] = all as [(typeof all)[number]];
  const isWorth = leaving[0] && isWorthHeadroom(leaving[0].own.seconds, fastest.own.seconds, preferences);
  const open = isWorth ? leaving : all;
  const [first] = open as [(typeof all)[number]];
  const near = open
    .filter(({ own }) => own.seconds <= first.own.seconds * preferences.near)
    .sort((a, b) => compared(a.own, b.own, roomy));
  const taken =
    preferences.prefer === 'fastest' ? first : (near.find((one) => one === first || isSo(one.plan)) ?? first);
  if (taken === fastest) return { taken: taken.plan, passed: null };
  const isTight = fastest.own.bytes > roomy && taken.own.bytes <= roomy;
  const because = isTight
    ? `leaves ${shareWritten(1 - fastest.own.bytes / (limitBytes as number))} of the memory free, less than ` +
      `${shareWritten(preferences.headroom)} (--headroom)`
    : `the plan ${differs(taken.own, fastest.own, roomy)} (--prefer fastest takes it)`;
  return { taken: taken.plan, passed: { plan: fastest.plan, because } };
}

/** Order by the criteria; where these are equal, the faster comes first. */
function compared(a: ComparedAlternative, b: ComparedAlternative, roomy: number): number {
  const [difference] = CRITERIA.map(({ of }) => of(a, roomy) - of(b, roomy)).filter((own) => own !== 0);
  return difference ?? a.seconds - b.seconds;
}

/** The advantage of the plan that is taken. */
function differs(taken: ComparedAlternative, fastest: ComparedAlternative, roomy: number): string {
  const criterion = CRITERIA.find(({ of }) => of(taken, roomy) < of(fastest, roomy));
  return criterion ? criterion.says(taken, fastest) : 'is as fast';
}
