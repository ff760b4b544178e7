/**
 * @file What every stage could cost: for each run of layers on each sub-mesh the fastest combination of the layers' points,
 * how many micro-batches it can hold, and, where memory binds, the Pareto front of the combinations that fit.
 */
import type { CutStage } from './cut.js';
import { type Combination, compose, type Front, type FrontLimits, frontOf, pointsOf } from './front.js';
import { NOTHING_ONCE, type OnceSum, onceCosts } from './once-costs.js';
import type { LayerPoint, StageProblem } from './problem.js';
import type { ScheduleWeights } from './schedule-weights.js';

/** The ways to run one stage, by fill ascending and pace descending. */
export interface StageOptions {
  readonly fill: Float64Array;
  readonly pace: Float64Array;
  /** Every way left out takes at least 1 / slack of the time of one here. */
  readonly slack: number;
}

/** Costs of stages as the search over cuts reads them; tables by sub-mesh, then `first · (layers + 1) + end`. */
export interface StageCosts {
  readonly layers: number;
  readonly subMeshes: number;
  /** Fill and pace of the fastest combination; infinite where a layer cannot run there. */
  readonly fill: readonly Float64Array[];
  readonly pace: readonly Float64Array[];
  /** No more than the pace of the stage or of a longer one. */
  readonly leastPace: readonly Float64Array[];
  /** Most micro-batches in flight with which the fastest combination fits; −1 where it never does. */
  readonly freeUpTo: readonly Float64Array[];
  /** Beyond these none fits. */
  readonly fitsUpTo: readonly Float64Array[];
  /** The ways that fit with some micro-batches in flight; asked where the fastest does not. */
  readonly options: (subMesh: number, first: number, end: number, inFlight: number) => StageOptions;
}

/** Combinations kept in one front; beyond, the answer's bound says what that may cost. */
const MOST_POINTS = 512;

/** A way to run a stage, by what its layers add and what the stage adds once. */
export interface StageWay {
  readonly combination: Combination;
  readonly fill: number;
  readonly pace: number;
}

export class StageTables implements StageCosts {
  readonly layers: number;
  readonly subMeshes: number;
  readonly fill: readonly Float64Array[];
  readonly pace: readonly Float64Array[];
  readonly leastPace: readonly Float64Array[];
  readonly freeUpTo: readonly Float64Array[];
  readonly fitsUpTo: readonly Float64Array[];
  private readonly once: OnceSum;
  private readonly proportional: boolean;
  /** By sub-mesh and class: the number of the fastest point, where one is. */
  private readonly fastest: (readonly number[])[] = [];
  private readonly fronts = new Map<string, Front>();
  private readonly ways = new Map<string, readonly StageWay[]>();
  /** By micro-batches in flight, then by sub-mesh, first and end. */
  private readonly found = new Map<number, Map<number, StageOptions>>();

  /**
   * @param memoryBytes limit of one device of each sub-mesh
   */
  constructor(
    private readonly problem: StageProblem,
    private readonly weights: ScheduleWeights,
    private readonly memoryBytes: readonly number[] = problem.subMeshes.map((mesh) => mesh.memoryBytes),
  ) {
    this.layers = problem.layers.length;
    this.subMeshes = problem.subMeshes.length;
    this.once = onceCosts(problem);
    this.proportional = weights.proportional && problem.tables.every((meshes) => meshes.every(sameStep));
    const tables = problem.subMeshes.map((_, subMesh) => this.tableOf(subMesh));
    this.fill = tables.map((table) => table.fill);
    this.pace = tables.map((table) => table.pace);
    this.leastPace = tables.map((table) => table.leastPace);
    this.freeUpTo = tables.map((table) => table.freeUpTo);
    this.fitsUpTo = tables.map((table) => table.fitsUpTo);
  }

  options(subMesh: number, first: number, end: number, inFlight: number): StageOptions {
    const at = (subMesh * this.layers + first) * (this.layers + 1) + end;
    const asked = this.found.get(inFlight) ?? new Map<number, StageOptions>();
    this.found.set(inFlight, asked);
    const known = asked.get(at);
    if (known) return known;
    const ways = this.waysOf(subMesh, first, end, inFlight);
    const options = {
      fill: Float64Array.from(ways, ({ fill }) => fill),
      pace: Float64Array.from(ways, ({ pace }) => pace),
      slack: this.front(subMesh, first, end, inFlight).slack,
    };
    asked.set(at, options);
    return options;
  }

  /** The ways behind `options`, in the same order; memory holds for each. */
  waysOf(subMesh: number, first: number, end: number, inFlight: number): readonly StageWay[] {
    const once = this.once.of(subMesh, first, end);
    const key = `${subMesh}|${inFlight}|${this.signature(first, end)}|${once.key}`;
    const known = this.ways.get(key);
    if (known) return known;
    const limit = this.memoryBytes[subMesh] as number;
    const onceFill = this.weights.fill(once.seconds);
    const oncePace = this.weights.pace(once.seconds);
    const held = once.residentBytes + inFlight * once.savedBytes;
    const ways: StageWay[] = [];
    for (const combination of this.front(subMesh, first, end, inFlight).points) {
      if (combination.held + held + Math.max(combination.transient, once.transientBytes) > limit) continue;
      const fill = combination.fill + onceFill;
      const pace = combination.pace + oncePace;
      const before = ways.at(-1);
      if (!before || pace < before.pace) ways.push({ combination, fill, pace });
    }
    this.ways.set(key, ways);
    return ways;
  }

  /** For each layer of a stage of a cut the number of its point. Of equal layers the first take the smaller numbers. */
  pointsOfPart({ first, end, subMesh, inFlight, option }: CutStage): readonly number[] {
    const classes = this.problem.layers.slice(first, end);
    if (option < 0) return classes.map((layerClass) => this.fastest[subMesh]?.[layerClass] ?? 0);
    const way = this.waysOf(subMesh, first, end, inFlight)[option] as StageWay;
    const chosen = pointsOf(way.combination);
    const taken = new Map<number, number>();
    return classes.map((layerClass) => {
      const next = taken.get(layerClass) ?? 0;
      taken.set(layerClass, next + 1);
      return chosen.get(layerClass)?.[next] as number;
    });
  }

  /** The classes of a run of layers and how many there are of each, in order of first appearance. */
  private counts(first: number, end: number): ReadonlyMap<number, number> {
    const counts = new Map<number, number>();
    for (let layer = first; layer < end; layer++) {
      const layerClass = this.problem.layers[layer] as number;
      counts.set(layerClass, (counts.get(layerClass) ?? 0) + 1);
    }
    return counts;
  }

  private signature(first: number, end: number): string {
    return [...this.counts(first, end)].map(([layerClass, count]) => `${layerClass}×${count}`).join(' ');
  }

  private front(subMesh: number, first: number, end: number, inFlight: number): Front {
    let key = `${subMesh}|${inFlight}`;
    let front: Front | undefined;
    const limits = this.limits(subMesh);
    for (const [layerClass, count] of this.counts(first, end)) {
      key += ` ${layerClass}×${count}`;
      const known = this.fronts.get(key);
      const power = known ?? this.power(layerClass, count, subMesh, inFlight);
      front = known ?? (front ? compose(front, power, limits) : power);
      this.fronts.set(key, front);
    }
    return front as Front;
  }

  /** The front of so many layers of a class: from one fewer where that is known, else by repeated squaring. */
  private power(layerClass: number, count: number, subMesh: number, inFlight: number): Front {
    const keyOf = (number: number) => `power ${subMesh}|${inFlight}|${layerClass}×${number}`;
    const known = this.fronts.get(keyOf(count));
    if (known) return known;
    const limits = this.limits(subMesh);
    const one = () => this.power(layerClass, 1, subMesh, inFlight);
    const below = this.fronts.get(keyOf(count - 1));
    const front = (): Front => {
      if (count === 1) return frontOf(this.leaves(layerClass, subMesh, inFlight), limits);
      if (below) return compose(below, one(), limits);
      const half = this.power(layerClass, count >> 1, subMesh, inFlight);
      const even = compose(half, half, limits);
      return count % 2 === 0 ? even : compose(even, one(), limits);
    };
    const made = front();
    this.fronts.set(keyOf(count), made);
    return made;
  }

  private limits(subMesh: number): FrontLimits {
    return { memoryBytes: this.memoryBytes[subMesh] as number, most: MOST_POINTS, proportional: this.proportional };
  }

  private leaves(layerClass: number, subMesh: number, inFlight: number): readonly Combination[] {
    return pointsAt(this.problem, layerClass, subMesh).map((point, index) => {
      const seconds = secondsOf(point);
      return {
        fill: this.weights.fill(seconds),
        pace: this.weights.pace(seconds),
        held: point.residentBytes + inFlight * point.savedBytes,
        transient: point.transientBytes,
        leaf: { layerClass, point: index },
      };
    });
  }

  private tableOf(subMesh: number) {
    const count = this.layers;
    const width = count + 1;
    const limit = this.memoryBytes[subMesh] as number;
    const classes = this.problem.tables.map((_, layerClass) => this.extremes(layerClass, subMesh));
    this.fastest.push(classes.map((layer) => layer?.number ?? 0));
    const fill = new Float64Array(count * width).fill(Number.POSITIVE_INFINITY);
    const pace = new Float64Array(count * width).fill(Number.POSITIVE_INFINITY);
    const leastPace = new Float64Array(count * width).fill(Number.POSITIVE_INFINITY);
    const freeUpTo = new Float64Array(count * width).fill(-1);
    const fitsUpTo = new Float64Array(count * width).fill(-1);
    for (let first = 0; first < count; first++) {
      const sum = {
        fill: 0,
        pace: 0,
        resident: 0,
        saved: 0,
        transient: 0,
        leastResident: 0,
        leastSaved: 0,
        leastTransient: 0,
      };
      let single = true;
      for (let end = first + 1; end <= count; end++) {
        const layer = classes[this.problem.layers[end - 1] as number];
        if (!layer) break;
        single &&= layer.fastest !== undefined;
        sum.fill += layer.fill;
        sum.pace += layer.pace;
        sum.resident += layer.fastest?.residentBytes ?? 0;
        sum.saved += layer.fastest?.savedBytes ?? 0;
        sum.transient = Math.max(sum.transient, layer.fastest?.transientBytes ?? 0);
        sum.leastResident += layer.resident;
        sum.leastSaved += layer.saved;
        sum.leastTransient = Math.max(sum.leastTransient, layer.transient);
        // What is too large by itself is so with more layers too.
        if (sum.leastResident + sum.leastTransient > limit) break;
        const once = this.once.of(subMesh, first, end);
        const at = first * width + end;
        leastPace[at] = sum.pace;
        fill[at] = sum.fill;
        pace[at] = sum.pace;
        if (once !== NOTHING_ONCE) {
          fill[at] = sum.fill + this.weights.fill(once.seconds);
          pace[at] = sum.pace + this.weights.pace(once.seconds);
        }
        fitsUpTo[at] = mostHeld(
          sum.leastResident + once.residentBytes + Math.max(sum.leastTransient, once.transientBytes),
          sum.leastSaved + once.savedBytes,
          limit,
        );
        if (!single) continue;
        freeUpTo[at] = mostHeld(
          sum.resident + once.residentBytes + Math.max(sum.transient, once.transientBytes),
          sum.saved + once.savedBytes,
          limit,
        );
      }
    }
    return { fill, pace, leastPace, freeUpTo, fitsUpTo };
  }

  /** The least of every figure over a class's points, and the point that is the fastest in both fill and pace, if one is. */
  private extremes(layerClass: number, subMesh: number) {
    const points = pointsAt(this.problem, layerClass, subMesh);
    if (points.length === 0) return undefined;
    const times = points.map((point) => {
      const seconds = secondsOf(point);
      return { point, fill: this.weights.fill(seconds), pace: this.weights.pace(seconds) };
    });
    const fill = Math.min(...times.map((time) => time.fill));
    const pace = Math.min(...times.map((time) => time.pace));
    const fastest = times.filter((time) => time.fill === fill && time.pace === pace).map(({ point }) => point);
    const single = fastest.find((point) => fastest.every((other) => noLarger(point, other)));
    return {
      fill,
      pace,
      // Of several the one that is smaller, if one is in every way; the front tells the rest.
      fastest: single,
      number: single ? points.indexOf(single) : undefined,
      resident: Math.min(...points.map(({ residentBytes }) => residentBytes)),
      saved: Math.min(...points.map(({ savedBytes }) => savedBytes)),
      transient: Math.min(...points.map(({ transientBytes }) => transientBytes)),
    };
  }
}

export function pointsAt({ tables }: StageProblem, layerClass: number, subMesh: number): readonly LayerPoint[] {
  return tables[layerClass]?.[subMesh] ?? [];
}

export function secondsOf({ forwardSeconds, backwardSeconds, weightGradientSeconds = 0, stepSeconds = 0 }: LayerPoint) {
  return {
    forward: forwardSeconds,
    backward: backwardSeconds,
    weightGradient: weightGradientSeconds,
    step: stepSeconds,
  };
}

function noLarger(a: LayerPoint, b: LayerPoint): boolean {
  return a.residentBytes <= b.residentBytes && a.savedBytes <= b.savedBytes && a.transientBytes <= b.transientBytes;
}

function sameStep(points: readonly LayerPoint[]): boolean {
  return points.every(({ stepSeconds = 0 }) => stepSeconds === (points[0]?.stepSeconds ?? 0));
}

/** The most micro-batches in flight for which `base + count · each` stays within the limit; −1 for none. */
function mostHeld(base: number, each: number, limit: number): number {
  if (base > limit) return -1;
  if (each === 0) return Number.POSITIVE_INFINITY;
  const guess = (limit - base) / each;
  const whole = Math.floor(guess);
  return base + (whole + 1) * each <= limit ? whole + 1 : base + whole * each <= limit ? whole : whole - 1;
}
