/**
 * @file A pipeline with fewer parts: it keeps the cuts whose transfers differ, and drops the others.
 */
import type { Graph } from '../../ir/graph.js';
import type { SharedReshard } from '../../partition/assignment.js';
import type { StagePlace } from '../../partition/cut-stages.js';
import { checkRequest } from '../../schedule/make-schedule.js';
import { partAt } from '../../schedule/parts.js';
import type { Schedule } from '../../schedule/schedule.js';
import { layoutKey } from '../../sharding-propagation/layout.js';
import type { CoverageNames } from './coverage.js';

/** The pipeline of a rehearsal. */
export interface FewerParts {
  readonly stages: number;
  readonly virtualStages: number;
  readonly microBatches: number;
  /** For each part of the plan's pipeline, the part of the rehearsal's. */
  readonly partOf: readonly number[];
}

/** The most stages and chunks of a rehearsal. */
const MOST_STAGES = 4;
const MOST_CHUNKS = 2;

/**
 * @param most the number of stages that the ranks suffice for; null where all parts stay because their meshes differ
 * @param placeOf of forward operators in the plan
 */
export function fewerParts(
  graph: Graph,
  schedule: Schedule,
  placeOf: ReadonlyMap<string, StagePlace>,
  reshards: readonly SharedReshard[],
  leader: CoverageNames['leader'],
  most: number | null,
): FewerParts {
  const { kind } = schedule;
  const stages = most === null ? schedule.stages : Math.min(schedule.stages, MOST_STAGES, most);
  const virtualStages = most === null ? schedule.virtualStages : Math.min(schedule.virtualStages, MOST_CHUNKS);
  const parts = schedule.stages * schedule.virtualStages;
  const cuts = chosenCuts(signatures(graph, schedule, placeOf, reshards, leader), stages * virtualStages - 1);
  const partOf = Array.from({ length: parts }, (_, part) => cuts.filter((cut) => cut < part).length);
  const isPossible = (microBatches: number) => {
    try {
      checkRequest({ kind, stages, microBatches, virtualStages, training: schedule.training });
      return true;
    } catch {
      return false;
    }
  };
  const counts = Array.from({ length: schedule.microBatches }, (_, index) => index + 1);
  const wanted = Math.min(schedule.microBatches, Math.max(2, stages));
  const microBatches = counts.find((count) => count >= wanted && isPossible(count)) ?? schedule.microBatches;
  return { stages, virtualStages, microBatches, partOf };
}

/** For each cut of the plan's pipeline (after part 0, 1, …), the transfers that cross it. */
function signatures(
  graph: Graph,
  { kind, stages, virtualStages }: Schedule,
  placeOf: ReadonlyMap<string, StagePlace>,
  reshards: readonly SharedReshard[],
  leader: CoverageNames['leader'],
): readonly ReadonlySet<string>[] {
  const partOf = (name: string) => {
    const place = placeOf.get(name);
    return place && partAt(kind, place.stage, place.chunk, stages);
  };
  const makers = new Map(graph.nodes.flatMap(({ name, outputs }) => outputs.map((output) => [output, name] as const)));
  const found = Array.from({ length: stages * virtualStages - 1 }, () => new Set<string>());
  for (const { tensor, readers, layout } of reshards) {
    const maker = makers.get(tensor);
    const from = maker === undefined ? undefined : partOf(maker);
    if (maker === undefined || from === undefined) continue;
    for (const { name } of readers) {
      const to = partOf(name);
      for (let cut = from; to !== undefined && cut < to; cut++)
        found[cut]?.add(`${leader(maker).operator} ${leader(name).operator} ${layoutKey(layout)}`);
    }
  }
  return found;
}

function chosenCuts(cuts: readonly ReadonlySet<string>[], count: number): readonly number[] {
  const chosen = new Set<number>();
  const seen = new Set<string>();
  while (chosen.size < Math.min(count, cuts.length)) {
    const fresh = (cut: number) => [...(cuts[cut] ?? [])].filter((one) => !seen.has(one)).length;
    const left = cuts.flatMap((_, cut) => (chosen.has(cut) ? [] : [cut]));
    const [best = 0] = left.sort((a, b) => fresh(b) - fresh(a) || a - b);
    chosen.add(best);
    for (const one of cuts[best] ?? []) seen.add(one);
  }
  return [...chosen].sort((a, b) => a - b);
}
