/**
 * @file Pareto fronts of ways to run several layers on one sub-mesh with a fixed number of micro-batches in flight: seconds of
 * fill and pace, and bytes held (resident and saved) add up; of transient bytes the largest counts.
 */

/** One way to run some layers; a tree of the layers' own points, so that no list is copied. */
export interface Combination {
  readonly fill: number;
  readonly pace: number;
  readonly held: number;
  readonly transient: number;
  /** What it is composed of; undefined for one layer. */
  readonly parts?: readonly [Combination, Combination];
  /** For one layer: its class and the number of its point. */
  readonly leaf?: { readonly layerClass: number; readonly point: number };
}

export interface Front {
  /** By fill, ascending. */
  readonly points: readonly Combination[];
  /** Every combination that is left out has one here that is no larger and takes at most this many times its seconds. */
  readonly slack: number;
}

export interface FrontLimits {
  readonly memoryBytes: number;
  /** Points kept; beyond, points nearly as fast and no larger stand for others. */
  readonly most: number;
  /** Whether pace grows with fill, so that it need not be looked at. */
  readonly proportional: boolean;
}

/** Front of one class of layers. */
export function frontOf(points: readonly Combination[], limits: FrontLimits): Front {
  return reduced(points, 1, limits);
}

/** The front of the layers of both: every sum of a point here and a point there that fits (the min-plus product of tables). */
export function compose(left: Front, right: Front, limits: FrontLimits): Front {
  const sums: Combination[] = [];
  for (const a of left.points) {
    for (const b of right.points) {
      const held = a.held + b.held;
      const transient = Math.max(a.transient, b.transient);
      if (held + transient > limits.memoryBytes) continue;
      sums.push({ fill: a.fill + b.fill, pace: a.pace + b.pace, held, transient, parts: [a, b] });
    }
  }
  return reduced(sums, Math.max(left.slack, right.slack), limits);
}

/** The layers' points that a combination is composed of: by class, their numbers in ascending order. */
export function pointsOf(combination: Combination): ReadonlyMap<number, readonly number[]> {
  const found = new Map<number, number[]>();
  const open = [combination];
  for (let next = open.pop(); next; next = open.pop()) {
    if (next.parts) open.push(...next.parts);
    if (next.leaf) {
      const list = found.get(next.leaf.layerClass) ?? [];
      found.set(next.leaf.layerClass, list);
      list.push(next.leaf.point);
    }
  }
  for (const list of found.values()) list.sort((a, b) => a - b);
  return found;
}

function reduced(points: readonly Combination[], slack: number, limits: FrontLimits): Front {
  const fitting = points.filter(({ held, transient }) => held + transient <= limits.memoryBytes);
  const sorted = [...fitting].sort(
    (a, b) => a.fill - b.fill || a.pace - b.pace || a.held - b.held || a.transient - b.transient,
  );
  const kept = limits.proportional ? staircase(sorted) : undominated(sorted);
  return kept.length <= limits.most ? { points: kept, slack } : thinned(kept, slack, limits.most);
}

/** What no earlier point beats in both held and transient bytes. Transient bytes take few values: a step for each. */
function staircase(sorted: readonly Combination[]): readonly Combination[] {
  const levels = [...new Set(sorted.map(({ transient }) => transient))].sort((a, b) => a - b);
  const place = new Map(levels.map((bytes, index) => [bytes, index]));
  /** Least held bytes so far among points of at most such transient bytes. */
  const least = new Float64Array(levels.length).fill(Number.POSITIVE_INFINITY);
  return sorted.filter(({ held, transient }) => {
    const from = place.get(transient) as number;
    if ((least[from] as number) <= held) return false;
    for (let level = from; level < least.length && (least[level] as number) > held; level++) least[level] = held;
    return true;
  });
}

function undominated(sorted: readonly Combination[]): readonly Combination[] {
  const kept: Combination[] = [];
  for (const point of sorted) {
    const beaten = kept.some(
      ({ pace, held, transient }) => pace <= point.pace && held <= point.held && transient <= point.transient,
    );
    if (!beaten) kept.push(point);
  }
  return kept;
}

/**
 * Leaves out points for which another, no larger, takes at most 1 + ε times the seconds; ε doubles until few enough are left.
 * A front has points whose seconds differ little and whose bytes do: from slow and small to fast and large, each stands for
 * those before it that it replaces.
 */
function thinned(points: readonly Combination[], slack: number, most: number): Front {
  for (let epsilon = FIRST_EPSILON; ; epsilon *= 2) {
    const kept: Combination[] = [];
    for (let index = points.length - 1; index >= 0; index--) {
      const point = points[index] as Combination;
      const replaced = kept.some(
        (other) =>
          other.held <= point.held &&
          other.transient <= point.transient &&
          other.fill <= point.fill * (1 + epsilon) &&
          other.pace <= point.pace * (1 + epsilon),
      );
      if (!replaced) kept.push(point);
      if (kept.length > most && epsilon < LAST_EPSILON) break;
    }
    if (kept.length <= most || epsilon >= LAST_EPSILON) return { points: kept.reverse(), slack: slack * (1 + epsilon) };
  }
}

const FIRST_EPSILON = 1e-6;
/** Points that trade held for transient bytes stand for no others, however slow: so many are kept then. */
const LAST_EPSILON = 1;
