/**
 * @file Cutting a model into pipeline stages: the cut, the sub-meshes and each layer's point of least time under memory, with
 * a proof; then the best few by event simulation.
 */
import { CutSearch } from './cut-search.js';
import { type CutSpace, deviceSpace, sequenceSpace } from './device-space.js';
import { interleavedCuts } from './interleaved.js';
import { noCutReason, nothingGoes } from './no-cut.js';
import { closedForm, type FoundCuts, type PricedCut, pricedCut, simulated } from './priced-cut.js';
import type { StageProblem } from './problem.js';
import { heldMicroBatches, scheduleWeights } from './schedule-weights.js';
import { shortageOf, type TooLarge } from './shortage.js';
import { StageTables } from './stage-costs.js';
import { type SweepOptions, sweep } from './sweep.js';

export interface CutOptions {
  /** Ends the search at the next bound on the pace; the best cut so far is answered, with what is proven. */
  readonly signal?: AbortSignal;
  /** Table entries to look at; as above. */
  readonly work?: number;
  /** Candidates to simulate, 8 if left out; with 0 the closed form decides. */
  readonly simulate?: number;
}

export interface FoundCut {
  readonly kind: 'cut';
  /** The fastest by simulation. */
  readonly best: PricedCut;
  /** What was simulated, fastest first; `best` is the first. */
  readonly candidates: readonly PricedCut[];
  /** No cut's closed form takes less. */
  readonly boundSeconds: number;
  /** Least closed form of the cuts found: the optimum where it equals the bound. */
  readonly closedFormSeconds: number;
  /** (closed form − bound) / closed form; 0: proven optimal. */
  readonly gap: number;
  /** Table entries looked at. */
  readonly work: number;
}

/** How often cuts nearly as good are looked for, to be simulated too. */
const OTHERS = 12;

/** No cut at all: what stands against it, in words. */
export interface NoCut {
  readonly kind: 'no-cut';
  readonly reason: string;
}

export type StageAnswer = FoundCut | TooLarge | NoCut;

/**
 * The cut of least Σ fill + max pace (src/search/stages/schedule-weights.ts) under the memory of every device.
 * Exact: `gap` is 0, unless the search was ended early, a stage's Pareto front passed its size (docs/search.md), or chunks of
 * interleaved 1F1B share a memory that binds.
 */
export function cutStages(problem: StageProblem, options: CutOptions = {}): StageAnswer {
  const fault = noCutReason(problem);
  if (fault) return { kind: 'no-cut', reason: fault };
  const count = options.simulate ?? 8;
  const others = count > 0 ? OTHERS : 0;
  const found =
    problem.schedule.kind === 'interleaved-1f1b'
      ? interleavedCuts(problem, { ...options, others })
      : plainCuts(problem, { ...options, others });
  const [first] = found.cuts;
  if (!first)
    return found.finished
      ? (shortageOf(problem) ?? { kind: 'no-cut', reason: nothingGoes(problem) })
      : { kind: 'no-cut', reason: 'the search ended before any cut was found' };
  const simulations = found.cuts.slice(0, Math.max(1, count)).map((cut) => (count > 0 ? simulated(problem, cut) : cut));
  const seconds = (cut: PricedCut) => cut.simulatedSeconds ?? cut.closedFormSeconds;
  const candidates = [...simulations].sort((a, b) => seconds(a) - seconds(b));
  const closedFormSeconds = first.closedFormSeconds;
  const boundSeconds = Math.min(closedFormSeconds, found.bound);
  return {
    kind: 'cut',
    best: candidates[0] as PricedCut,
    candidates,
    boundSeconds,
    closedFormSeconds,
    gap: closedFormSeconds === 0 ? 0 : (closedFormSeconds - boundSeconds) / closedFormSeconds,
    work: found.work,
  };
}

function spaceOf(problem: StageProblem): CutSpace {
  const { subMeshes } = problem.pins ?? {};
  return subMeshes ? sequenceSpace(problem, subMeshes) : deviceSpace(problem);
}

/** Schedules of one chunk per stage. */
function plainCuts(problem: StageProblem, options: SweepOptions): FoundCuts {
  const space = spaceOf(problem);
  if (problem.schedule.kind !== 'zero-bubble' || space.stages !== undefined) {
    return cutsOf(problem, space, space.stages ?? 1, options);
  }
  return zeroBubbleCuts(problem, space, options);
}

/**
 * Zero-bubble holds as many micro-batches everywhere as there are stages, and fills less of the bubble with fewer micro-batches
 * than stages. So numbers of stages are taken in ranges, each at the memory and fill of its smallest: a cut of more stages
 * that holds up by its own number is the best of the range; else the range is halved.
 */
function zeroBubbleCuts(problem: StageProblem, space: CutSpace, options: SweepOptions): FoundCuts {
  const cuts: PricedCut[] = [];
  let work = 0;
  let proven = Number.POSITIVE_INFINITY;
  const best = () => cuts.reduce((least, cut) => Math.min(least, cut.closedFormSeconds), Number.POSITIVE_INFINITY);
  let open = [{ fewest: 1, most: Math.min(problem.layers.length, space.moves.length - 1), bound: 0 }];
  while (open.length > 0) {
    const next = open.reduce((first, range) => (range.bound < first.bound ? range : first));
    const left = (options.work ?? Number.POSITIVE_INFINITY) - work;
    if (left <= 0 || options.signal?.aborted) break;
    open = open.filter((range) => range !== next);
    if (next.bound >= best()) continue;
    const { fewest, most } = next;
    const found = cutsOf(problem, { ...space, mostStages: most }, fewest, { ...options, below: best(), work: left });
    work += found.work;
    cuts.push(...found.cuts.flatMap((cut) => byOwnStages(problem, cut) ?? []));
    if (found.bound >= best() || fewest === most) {
      proven = Math.min(proven, found.bound);
      continue;
    }
    const middle = Math.floor((fewest + most) / 2);
    open.push({ fewest, most: middle, bound: found.bound }, { fewest: middle + 1, most, bound: found.bound });
  }
  const bound = Math.min(best(), proven, ...open.map((range) => range.bound));
  return { cuts: byClosedForm(cuts), bound, finished: open.length === 0, work };
}

/** A cut by the closed form of its own number of stages; undefined where it then holds too much. */
function byOwnStages(problem: StageProblem, cut: PricedCut): PricedCut | undefined {
  if (cut.stages.some(({ peakBytes, limitBytes }) => peakBytes > limitBytes)) return undefined;
  return { ...cut, closedFormSeconds: closedForm(problem, cut) };
}

function cutsOf(problem: StageProblem, space: CutSpace, stages: number, options: SweepOptions): FoundCuts {
  const weights = scheduleWeights(problem.schedule, stages);
  const tables = new StageTables(problem, weights);
  const inFlight = (remaining: number) => heldMicroBatches(problem.schedule, remaining, stages);
  const search = new CutSearch(problem, tables, space, { weights, inFlight });
  const { cuts, bound, finished } = sweep(search, leastPace(problem, tables, space), options);
  return {
    // Where nothing is simulated only the best counts.
    cuts: byClosedForm((options.others ? cuts : cuts.slice(0, 1)).map((cut) => pricedCut(problem, tables, cut))),
    bound: bound / search.slack,
    finished,
    work: search.work,
  };
}

function byClosedForm(cuts: readonly PricedCut[]): readonly PricedCut[] {
  return [...cuts].sort((a, b) => a.closedFormSeconds - b.closedFormSeconds);
}

/** No cut has a smaller pace: that of the slowest layer, and of all layers spread over all devices. */
function leastPace(problem: StageProblem, tables: StageTables, { counted, moves }: CutSpace): number {
  const width = tables.layers + 1;
  const least = (layer: number, of: (pace: number, subMesh: number) => number) =>
    Math.min(
      ...problem.subMeshes.map((_, subMesh) =>
        of(tables.leastPace[subMesh]?.[layer * width + layer + 1] as number, subMesh),
      ),
    );
  const layers = problem.layers.map((_, layer) => layer);
  const slowest = Math.max(...layers.map((layer) => least(layer, (pace) => pace)));
  const spread = layers.reduce(
    (sum, layer) =>
      sum + least(layer, (pace, subMesh) => pace * (counted ? (problem.subMeshes[subMesh]?.devices ?? 1) : 1)),
    0,
  );
  // A sum of rounded shares may lie above the truth by its last digits.
  return Math.max(slowest, (spread / (moves.length - 1)) * (1 - 1e-9));
}
