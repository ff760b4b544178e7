/**
 * @file The exact cut for one bound on the pace: dynamic programming from the last layer to the first,
 *
 *     F(s, k, d) = least fill of layers k… in s stages on the devices from d on, each stage's pace within the bound
 *
 * (Zheng et al. 2022, section 5.2; s because 1F1B holds min(s, m) micro-batches in the first of s stages). Of the stages
 * counts of one (k, d) only those are kept that pay: more stages must take less time, as they hold more.
 */
import type { Cut, CutStage } from './cut.js';
import type { CutSpace } from './device-space.js';
import { type FillBound, FillBounds, type LeastSends } from './fill-bounds.js';
import { bytesAcross, type StageProblem } from './problem.js';
import type { ScheduleWeights } from './schedule-weights.js';
import type { StageCosts } from './stage-costs.js';

export interface CutRules {
  readonly weights: ScheduleWeights;
  /** Micro-batches in flight by stages from a stage to the last, from 1 on. */
  readonly inFlight: (remaining: number) => number;
}

/** Sums in another order differ in their last digits: bounds are lowered by more than that. */
const ROUNDING = 1 - 1e-12;
/** Share above the least fill that is looked at first, how it grows, and from where on all is. */
const FIRST_SHARE = 0.02;
const WIDER = 6;
const LAST_SHARE = 100;
const NO_BOUND: FillBound = { least: 0, before: new Float64Array(0), after: new Float64Array(0) };
/** Where no sub-mesh was before. */
const START = -1;

export class CutSearch {
  /** Table entries looked at so far. */
  work = 0;
  /** The largest slack of options that were asked for. */
  slack = 1;
  private readonly count: number;
  private readonly positions: number;
  /** Kinds of joint between stages: what the stage before is like to links, and the link taken. */
  private readonly joints: readonly { readonly like: number; readonly link: number }[];
  private readonly jointsAfter: readonly (readonly number[])[];
  private readonly mayFollow: readonly (readonly boolean[])[];
  private readonly heldAt: Float64Array;
  private readonly slots: number;
  /** Whether the number of stages is pinned; whether it is pinned or limited. */
  private readonly exactStages: boolean;
  private readonly counted: boolean;
  private readonly sends: Sends;
  private readonly fillBounds: FillBounds;
  private bounds: { readonly for: number; readonly fill: FillBound } = { for: Number.NaN, fill: NO_BOUND };
  // Entries by state: how many, and where they begin.
  private readonly counts: Int32Array;
  private readonly offsets: Int32Array;
  private pool = new Pool();
  private readonly scratch: Scratch;
  private readonly farthest: readonly Int32Array[];
  private readonly reachable: Uint8Array;

  constructor(
    problem: StageProblem,
    private readonly costs: StageCosts,
    private readonly space: CutSpace,
    rules: CutRules,
  ) {
    this.count = costs.layers;
    this.positions = space.moves.length;
    const linkOf = problem.linkOf ?? (() => 0);
    const meshes = problem.subMeshes.map((_, index) => index);
    const kind = meshes.map((from) => meshes.map((to) => linkOf(from, to)).join());
    const like = kind.map((row) => kind.indexOf(row));
    const joints = new Map<string, { readonly like: number; readonly link: number }>();
    for (const from of meshes)
      for (const to of meshes) {
        const joint = { like: like[from] as number, link: linkOf(from, to) };
        joints.set(`${joint.like} ${joint.link}`, joint);
      }
    this.joints = [...joints.values()];
    this.jointsAfter = meshes.map((from) =>
      this.joints.flatMap((joint, index) => (joint.like === like[from] ? [index] : [])),
    );
    this.mayFollow = this.joints.map((joint) => meshes.map((to) => linkOf(joint.like, to) === joint.link));
    this.sends = sendsOf(problem, rules.weights);

    const natural = Math.min(this.count, this.positions - 1);
    const most = Math.min(natural, space.stages ?? natural, space.mostStages ?? natural);
    this.counted = space.stages !== undefined || most < natural;
    this.heldAt = Float64Array.from({ length: most + 2 }, (_, remaining) =>
      rules.inFlight(Math.max(1, Math.min(remaining, most))),
    );
    this.exactStages = space.stages !== undefined;
    this.slots = this.counted ? most + 1 : this.countsMatter() ? this.usefulCounts() : 1;
    const states = (this.count + 1) * this.positions * this.joints.length;
    this.counts = new Int32Array(states);
    this.offsets = new Int32Array(states);
    this.scratch = new Scratch(most + 2);
    this.farthest = meshes.map(() => new Int32Array(this.count));
    this.reachable = new Uint8Array(this.positions);
    this.reachable[0] = 1;
    const fewest = Math.min(...this.heldAt);
    const all = space.counted ? this.positions - 1 : undefined;
    this.fillBounds = new FillBounds(
      problem,
      costs,
      leastSends(this.sends, this.count + 1),
      this.positions,
      fewest,
      all,
    );
    for (let position = 0; position < this.positions; position++) {
      if (this.reachable[position]) for (const { to } of space.moves[position] ?? []) this.reachable[to] = 1;
    }
  }

  /** No cut whose pace is within a bound has less fill than this. */
  leastFill(bound: number): number {
    return this.bounded(bound).least * ROUNDING;
  }

  /**
   * The cut of least fill whose pace is within a bound. Looked for a little above what is proven at first, and higher
   * where nothing is there: the less is allowed, the fewer states there are.
   * @param below only cuts of less fill than this are looked for
   */
  solve(bound: number, below: number): Cut | undefined {
    const least = this.leastFill(bound);
    if (least >= below) return undefined;
    if (!this.space.counted) return this.within(bound, below);
    for (let above = FIRST_SHARE; ; above *= WIDER) {
      const limit = above > LAST_SHARE ? below : Math.min(below, least * (1 + above));
      const cut = this.within(bound, limit);
      if (cut || limit === below) return cut;
    }
  }

  private bounded(bound: number): FillBound {
    if (this.bounds.for === bound) return this.bounds.fill;
    // Where devices do not count the bound on the pace tells little: one bound on fill serves all.
    const once = !this.space.counted;
    const known = once && !Number.isNaN(this.bounds.for);
    if (!known) this.reach(once ? Number.MAX_VALUE : bound);
    const fill = known ? this.bounds.fill : this.fillBounds.of(once ? Number.MAX_VALUE : bound, this.farthest);
    this.reach(bound);
    this.bounds = { for: bound, fill };
    return fill;
  }

  private within(bound: number, below: number): Cut | undefined {
    const { before, after } = this.bounded(bound);
    this.pool.clear();
    this.counts.fill(0);
    const { latest, earliest } = this.windows();
    for (let layer = this.count - 1; layer > 0; layer--) {
      for (let position = 1; position < this.positions - 1; position++) {
        if (!this.reachable[position]) continue;
        if (layer > (latest[position] as number) || layer < (earliest[position] as number)) continue;
        const at = layer * this.positions + position;
        const rest = (before[at] as number) * ROUNDING;
        if (rest + (after[at] as number) * ROUNDING >= below) continue;
        for (let joint = 0; joint < this.joints.length; joint++) {
          const state = at * this.joints.length + joint;
          this.offsets[state] = this.pool.size;
          this.counts[state] = this.enter(layer, position, joint, bound, below - rest);
        }
      }
    }
    const first = this.pool.size;
    const found = this.enter(0, 0, START, bound, below);
    return found === 0 ? undefined : this.cutFrom(first, found);
  }

  /** The last layer that a stage from each layer on may end before, by the bound on its pace. */
  private reach(bound: number): void {
    const width = this.count + 1;
    for (const [subMesh, far] of this.farthest.entries()) {
      const least = this.costs.leastPace[subMesh] as Float64Array;
      for (let first = 0; first < this.count; first++) {
        let end = first;
        while (end < this.count && (least[first * width + end + 1] as number) <= bound) end++;
        far[first] = end;
      }
    }
  }

  /** Between which layers a stage at each position begins, where positions count stages: by what stages can reach at most. */
  private windows(): { readonly latest: Int32Array; readonly earliest: Int32Array } {
    const { count, positions } = this;
    const latest = new Int32Array(positions).fill(count);
    const earliest = new Int32Array(positions);
    if (this.space.counted) return { latest, earliest };
    latest[0] = 0;
    earliest[positions - 1] = count;
    for (let position = 0; position < positions - 1; position++) {
      const [move] = this.space.moves[position] ?? [];
      const far = move && (this.farthest[move.subMesh] as Int32Array);
      latest[position + 1] = Math.min(count, far?.[latest[position] as number] ?? count);
    }
    for (let position = positions - 2; position >= 0; position--) {
      const [move] = this.space.moves[position] ?? [];
      const far = move && (this.farthest[move.subMesh] as Int32Array);
      let first = earliest[position + 1] as number;
      while (far && first > 0 && (far[first - 1] as number) >= (earliest[position + 1] as number)) first--;
      earliest[position] = first;
    }
    return { latest, earliest };
  }

  /** Fills the entries of a state; how many there are. */
  private enter(first: number, position: number, joint: number, bound: number, below: number): number {
    const { scratch, sends, count, pool } = this;
    const width = count + 1;
    const link = joint === START ? 0 : (this.joints[joint]?.link as number);
    const inAt = link * width + first;
    const inFill = joint === START ? 0 : (sends.inFill[inAt] as number);
    const inPace = joint === START ? 0 : (sends.inPace[inAt] as number);
    if (joint !== START && (sends.wire[inAt] as number) > bound) return 0;
    const follows = joint === START ? undefined : this.mayFollow[joint];
    const pinnedEnd = this.space.endOf?.[first];
    if (this.space.endOf && pinnedEnd === undefined) return 0;
    scratch.clear();
    for (const { subMesh, to } of this.space.moves[position] ?? []) {
      if (follows && !follows[subMesh]) continue;
      const fill = this.costs.fill[subMesh] as Float64Array;
      const pace = this.costs.pace[subMesh] as Float64Array;
      const free = this.costs.freeUpTo[subMesh] as Float64Array;
      const fits = this.costs.fitsUpTo[subMesh] as Float64Array;
      const after = this.jointsAfter[subMesh] as readonly number[];
      const far = this.farthest[subMesh]?.[first] as number;
      const from = pinnedEnd ?? first + 1;
      const until = pinnedEnd === undefined ? far : Math.min(far, pinnedEnd);
      for (let end = from; end <= until; end++) {
        const last = end === count;
        if (last && !this.space.mayEnd[to]) continue;
        const at = first * width + end;
        for (let next = 0; next < (last ? 1 : after.length); next++) {
          const state = last ? 0 : (end * this.positions + to) * this.joints.length + (after[next] as number);
          const entries = last ? 1 : (this.counts[state] as number);
          if (entries === 0) continue;
          const outAt = last ? 0 : (this.joints[after[next] as number]?.link as number) * width + end;
          const addFill = inFill + (last ? 0 : (sends.outFill[outAt] as number));
          const addPace = inPace + (last ? 0 : (sends.outPace[outAt] as number));
          const offset = last ? 0 : (this.offsets[state] as number);
          for (let index = 0; index < entries; index++) {
            this.work++;
            const entry = last ? START : offset + index;
            const later = last ? 0 : (pool.stages[entry] as number);
            const slot = this.slots === 1 ? 0 : Math.min(later + 1, this.slots - 1);
            if (this.counted && later + 1 >= this.slots) continue;
            const held = this.heldAt[this.slots === 1 ? 1 : slot] as number;
            const rest = addFill + (last ? 0 : (pool.fill[entry] as number));
            let ownFill = fill[at] as number;
            let ownPace = pace[at] as number;
            // The fastest tells whether to ask for more.
            if (ownPace + addPace > bound || ownFill + rest >= below || scratch.beats(slot, ownFill + rest)) continue;
            let option = START;
            if (held > (free[at] as number)) {
              if (held > (fits[at] as number)) continue;
              const options = this.costs.options(subMesh, first, end, held);
              if (options.slack > this.slack) this.slack = options.slack;
              option = 0;
              while (option < options.pace.length && (options.pace[option] as number) + addPace > bound) option++;
              if (option === options.pace.length) continue;
              ownFill = options.fill[option] as number;
              ownPace = options.pace[option] as number;
            }
            if (ownPace + addPace > bound) continue;
            const total = ownFill + rest;
            if (total >= below) continue;
            const slowest = Math.max(
              ownPace + addPace,
              inAtWire(sends, joint, inAt),
              last ? 0 : (pool.pace[entry] as number),
            );
            scratch.offer(slot, total, slowest, subMesh, end, option, entry);
          }
        }
      }
    }
    const exact = this.exactStages;
    const only = exact && joint === START ? this.slots - 1 : undefined;
    return scratch.store(pool, first, exact, only);
  }

  private cutFrom(first: number, found: number): Cut {
    const { pool } = this;
    let best = first;
    for (let entry = first; entry < first + found; entry++) {
      const better =
        (pool.fill[entry] as number) < (pool.fill[best] as number) ||
        (pool.fill[entry] === pool.fill[best] && (pool.pace[entry] as number) < (pool.pace[best] as number));
      if (better) best = entry;
    }
    const stages: CutStage[] = [];
    for (let entry = best; entry !== START; entry = pool.next[entry] as number) {
      stages.push({
        first: pool.first[entry] as number,
        end: pool.end[entry] as number,
        subMesh: pool.subMesh[entry] as number,
        option: pool.option[entry] as number,
        inFlight: this.heldAt[this.slots === 1 ? 1 : (pool.stages[entry] as number)] as number,
      });
    }
    return { fill: pool.fill[best] as number, pace: pool.pace[best] as number, stages };
  }

  /** Whether some stage fits with few micro-batches in flight and not with more. */
  private countsMatter(): boolean {
    const most = Math.max(...this.heldAt);
    const least = Math.min(...this.heldAt);
    if (most === least) return false;
    return this.costs.freeUpTo.some((free, subMesh) =>
      free.some((upTo, at) => upTo < most && (this.costs.fitsUpTo[subMesh]?.[at] as number) >= least),
    );
  }

  /** One more than the number of stages from which on no more micro-batches are held. */
  private usefulCounts(): number {
    const most = this.heldAt.at(-1);
    return this.heldAt.indexOf(most as number, 1) + 1;
  }
}

function inAtWire(sends: Sends, joint: number, at: number): number {
  return joint === START ? 0 : (sends.wire[at] as number);
}

/** What sending over each link at each cut adds, at `link · (layers + 1) + cut`. */
interface Sends {
  /** To the stage behind the cut: travelling both ways, and its gradient's sending where that is exposed. */
  readonly inFill: Float64Array;
  readonly inPace: Float64Array;
  /** To the stage before the cut: its sending, where that is exposed. */
  readonly outFill: Float64Array;
  readonly outPace: Float64Array;
  /** Pace of the link itself, where stages compute meanwhile. */
  readonly wire: Float64Array;
}

/** Seconds that results take forward and back over each link at each cut. */
export function sendSeconds(
  problem: StageProblem,
): readonly { readonly forward: Float64Array; readonly backward: Float64Array }[] {
  const across = bytesAcross(problem);
  const training = problem.schedule.training ?? true;
  return problem.links.map((link) => ({
    forward: across.forward.map((bytes) => (bytes > 0 ? link(bytes) : 0)),
    backward: across.backward.map((bytes) => (training && bytes > 0 ? link(bytes) : 0)),
  }));
}

function sendsOf(problem: StageProblem, { sendFill, sendPace }: ScheduleWeights): Sends {
  const exposed = problem.transfers !== 'overlapped';
  const width = problem.layers.length + 1;
  const table = () => new Float64Array(problem.links.length * width);
  const sends = { inFill: table(), inPace: table(), outFill: table(), outPace: table(), wire: table() };
  for (const [link, { forward, backward }] of sendSeconds(problem).entries()) {
    for (let cut = 0; cut < width; cut++) {
      const at = link * width + cut;
      const there = forward[cut] as number;
      const back = backward[cut] as number;
      if (exposed) {
        sends.outFill[at] = sendFill * there;
        sends.outPace[at] = sendPace * there;
        sends.inFill[at] = sendFill * back;
        sends.inPace[at] = sendPace * back;
      } else {
        sends.inFill[at] = sendFill * (there + back);
        sends.wire[at] = sendPace * Math.max(there, back);
      }
    }
  }
  return sends;
}

function leastSends({ inFill, inPace, outFill, outPace }: Sends, cuts: number): LeastSends {
  const least = (...tables: readonly Float64Array[]) =>
    Float64Array.from({ length: cuts }, (_, cut) => {
      const links = Array.from({ length: inFill.length / cuts }, (_, link) => link * cuts + cut);
      return Math.min(...links.map((at) => tables.reduce((sum, table) => sum + (table[at] as number), 0)));
    });
  return { fill: least(inFill, outFill), paceBefore: least(outPace), paceBehind: least(inPace) };
}

/** The best ways found for one state, by number of stages. */
class Scratch {
  private readonly fill: Float64Array;
  private readonly pace: Float64Array;
  private readonly subMesh: Int32Array;
  private readonly end: Int32Array;
  private readonly option: Int32Array;
  private readonly next: Int32Array;
  private most = -1;

  constructor(private readonly slots: number) {
    this.fill = new Float64Array(slots).fill(Number.POSITIVE_INFINITY);
    this.pace = new Float64Array(slots);
    this.subMesh = new Int32Array(slots);
    this.end = new Int32Array(slots);
    this.option = new Int32Array(slots);
    this.next = new Int32Array(slots);
  }

  clear(): void {
    this.fill.fill(Number.POSITIVE_INFINITY, 0, Math.min(this.slots, this.most + 1));
    this.most = -1;
  }

  /** Whether a way of such fill could not be stored. */
  beats(slot: number, fill: number): boolean {
    return fill > (this.fill[slot] as number);
  }

  offer(slot: number, fill: number, pace: number, subMesh: number, end: number, option: number, next: number): void {
    const best = this.fill[slot] as number;
    if (fill > best || (fill === best && pace >= (this.pace[slot] as number))) return;
    this.fill[slot] = fill;
    this.pace[slot] = pace;
    this.subMesh[slot] = subMesh;
    this.end[slot] = end;
    this.option[slot] = option;
    this.next[slot] = next;
    if (slot > this.most) this.most = slot;
  }

  /** Stores what pays: every count where counts are pinned, else those that beat all smaller ones. */
  store(pool: Pool, first: number, all: boolean, only: number | undefined): number {
    let best = Number.POSITIVE_INFINITY;
    let stored = 0;
    for (let slot = only ?? 0; slot <= this.most; slot++) {
      const fill = this.fill[slot] as number;
      if (fill === Number.POSITIVE_INFINITY || (!all && fill >= best)) continue;
      best = Math.min(best, fill);
      pool.add(
        fill,
        this.pace[slot] as number,
        slot,
        first,
        this.end[slot] as number,
        this.subMesh[slot] as number,
        this.option[slot] as number,
        this.next[slot] as number,
      );
      stored++;
    }
    return stored;
  }
}

/** Entries of all states, in arrays that grow. */
class Pool {
  size = 0;
  fill = new Float64Array(1024);
  pace = new Float64Array(1024);
  stages = new Int32Array(1024);
  first = new Int32Array(1024);
  end = new Int32Array(1024);
  subMesh = new Int32Array(1024);
  option = new Int32Array(1024);
  next = new Int32Array(1024);

  clear(): void {
    this.size = 0;
  }

  add(
    fill: number,
    pace: number,
    stages: number,
    first: number,
    end: number,
    subMesh: number,
    option: number,
    next: number,
  ): void {
    if (this.size === this.fill.length) this.grow();
    const at = this.size++;
    this.fill[at] = fill;
    this.pace[at] = pace;
    this.stages[at] = stages;
    this.first[at] = first;
    this.end[at] = end;
    this.subMesh[at] = subMesh;
    this.option[at] = option;
    this.next[at] = next;
  }

  private grow(): void {
    const wider = <List extends Float64Array | Int32Array>(list: List, make: new (length: number) => List): List => {
      const copy = new make(list.length * 2);
      copy.set(list);
      return copy;
    };
    this.fill = wider(this.fill, Float64Array);
    this.pace = wider(this.pace, Float64Array);
    for (const name of ['stages', 'first', 'end', 'subMesh', 'option', 'next'] as const) {
      this[name] = wider(this[name], Int32Array);
    }
  }
}
