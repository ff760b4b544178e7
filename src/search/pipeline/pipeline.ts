/**
 * @file A graph on the stages of a pipeline: the operators of each stage, and the schedule. Stages are cut so that the slowest is
 * as fast as possible, by the seconds of operators and of transfers between stages on one device; strategies are searched
 * afterwards, on the graph that is cut into stages.
 */

import { type Cluster, clusterSize } from '../../cost-model/cluster.js';
import { sendSeconds } from '../../cost-model/predict-stages.js';
import { NOTHING_RECOMPUTED, type RecomputedSet, withClones } from '../../ir/autodiff/recompute.js';
import { byteLength } from '../../ir/dtype.js';
import { AutoparError } from '../../ir/error.js';
import { elementCount, type Graph, isBackward, type Node, typeOf } from '../../ir/graph.js';
import { isAccumulator } from '../../ir/ops/accumulate.js';
import {
  accumulatedApart,
  cutStages,
  type StagePlace,
  sharedOperators,
  withStageClones,
} from '../../partition/cut-stages.js';
import type { PipelineLayout } from '../../partition/lower-stages.js';
import type { Interleave } from '../../partition/sharded-graph.js';
import { makeSchedule } from '../../schedule/make-schedule.js';
import { partAt, placeOfPart } from '../../schedule/parts.js';
import { type Schedule, type ScheduleKind, splitsBackward } from '../../schedule/schedule.js';
import { pinPlace } from '../../sharding-propagation/annotations/pin-error.js';
import type { StagePin } from '../../sharding-propagation/pin.js';
import { stageMeshes } from '../../sharding-propagation/stage-meshes.js';
import type { MeshDegrees } from '../degrees.js';
import { balancedCut } from './balance.js';
import { meshSizes } from './mesh-layout.js';
import { isInOperators, layoutOfStages, readStageLayout } from './stage-layout.js';
import { type StageUnit, stageUnits } from './units.js';
import { unshardedSeconds } from './unsharded-seconds.js';

/** The user's decisions about a pipeline. */
export interface PipelineRequest {
  readonly stages: number;
  readonly schedule?: ScheduleKind;
  /** Chunks per stage. */
  readonly virtualStages?: number;
  /** `E t*3 | t*2 | t*3 H` (stage-layout.ts); left out where stages are cut by their seconds. */
  readonly layout?: string;
  /** The degrees of each stage, where they differ. */
  readonly meshes?: readonly MeshDegrees[];
  /** Micro-batches that run at a time, as halves of one of the schedule's. */
  readonly interleave?: Interleave;
  /** Operators whose stage is given. */
  readonly pins?: readonly StagePin[];
}

/** A graph with its stages. */
export interface PipelinedGraph {
  /** Cut into stages: gradients of weights that several stages read have separate sums, and recomputed operators have clones. */
  readonly graph: Graph;
  readonly layout: PipelineLayout;
  readonly schedule: Schedule;
}

export interface Pipeline extends PipelinedGraph {
  /** The layout as text. */
  readonly text: string;
}

/**
 * @throws AutoparError (usage) `bad-schedule` for an impossible schedule; `bad-stages`, `stage-pins` for impossible stages;
 * `too-many-stages` for more stages than the model can be cut into
 */
export function pipelineOf(
  graph: Graph,
  cluster: Cluster,
  request: PipelineRequest,
  recompute: RecomputedSet = NOTHING_RECOMPUTED,
): Pipeline {
  const trains = graph.nodes.some(({ phase }) => isBackward(phase));
  const { stages, virtualStages: asked = 1 } = request;
  const kind = request.schedule ?? (asked > 1 ? 'interleaved-1f1b' : '1f1b');
  const microBatches = (graph.microBatches?.count ?? 1) / (request.interleave ?? 1);
  const given = request.virtualStages === undefined ? {} : { virtualStages: request.virtualStages };
  const schedule = makeSchedule({ kind, stages, microBatches, ...given, training: trains });
  const { virtualStages } = schedule;
  const parts = stages * virtualStages;
  const { bound, loose } = pinsByKind(graph, request.pins ?? []);
  const pinned = { ...request, pins: bound };
  const units = unitsFor(graph, parts, pinned);
  if (units.length < parts) throw tooManyStages(schedule, units.length, parts);
  const sizes =
    request.layout === undefined
      ? cut(withClones(graph, recompute), cluster, units, schedule, pinned)
      : stageSizes(units, parts, schedule, pinned);
  const placeOf = placesOf(units, sizes, schedule);
  checkParts(graph, placeOf, schedule);
  checkLoose(loose, graph, placeOf, stages);
  return {
    graph: withStageClones(accumulatedApart(graph, placeOf), recompute, placeOf),
    layout: {
      ...{ stages, chunks: virtualStages, splitsBackward: trains && splitsBackward(kind), placeOf },
      ...(request.meshes ? { meshes: stageMeshes(meshSizes(request.meshes)) } : {}),
    },
    schedule,
    text: layoutOfStages(units, sizes),
  };
}

/**
 * Pins of operators with one place (`bound`; a gradient's pin is one of its forward operator), and of operators that every stage
 * that reads their results runs itself (`loose`). Places of sums and updates follow from the tensors that they add up or change.
 */
function pinsByKind(
  graph: Graph,
  pins: readonly StagePin[],
): { readonly bound: readonly StagePin[]; readonly loose: readonly StagePin[] } {
  const nodes = new Map(graph.nodes.map((node) => [node.name, node]));
  const shared = new Set([...sharedOperators(graph)].map(({ name }) => name));
  const bound = new Map<string, StagePin>();
  const loose: StagePin[] = [];
  for (const pin of pins) {
    const own = nodes.get(pin.node);
    // Sums over micro-batches are on the stage of the tensors that they add up.
    if (!own || isAccumulator(own)) continue;
    const { phase, forward } = own;
    if (shared.has(pin.node)) loose.push(pin);
    const node = phase === 'forward' ? pin.node : isBackward(phase) ? forward : null;
    if (!node || shared.has(node)) continue;
    const before = bound.get(node);
    if (before && placeText(before) !== placeText(pin)) throw contradicted(before, pin, 'which run on one stage');
    if (!before) bound.set(node, { ...pin, node });
  }
  return { bound: [...bound.values()], loose };
}

/** Operators that run on the one part that they are placed on. */
function placedOperators(graph: Graph): readonly Node[] {
  const shared = sharedOperators(graph);
  return graph.nodes.filter((node) => !shared.has(node) && !isAccumulator(node));
}

/** @throws AutoparError `bad-stages` (usage) for a part without an operator of its own */
function checkParts(
  graph: Graph,
  placeOf: ReadonlyMap<string, StagePlace>,
  { kind, stages, virtualStages }: Schedule,
): void {
  const full = new Set<number>();
  for (const { name } of placedOperators(graph)) {
    const { stage, chunk } = placeOf.get(name) ?? {};
    if (stage !== undefined && chunk !== undefined) full.add(partAt(kind, stage, chunk, stages));
  }
  const empty = Array.from({ length: stages * virtualStages }, (_, part) => part).find((part) => !full.has(part));
  if (empty === undefined) return;
  throw new AutoparError(
    'bad-stages',
    'usage',
    `${placeText(placeOfPart(kind, empty, stages))} has only operators that depend on no parameter, and these run ` +
      'on each stage that reads them',
    {},
    'give it an operator that depends on a parameter, or use fewer stages',
  );
}

function checkLoose(
  pins: readonly StagePin[],
  graph: Graph,
  placeOf: ReadonlyMap<string, StagePlace>,
  stages: number,
): void {
  if (pins.length === 0) return;
  const cut = cutStages(accumulatedApart(graph, placeOf), placeOf, stages);
  const runs = cut.stages.map(({ chunks }) => chunks);
  const wrong = pins.find(({ node, stage }) => !runs[stage]?.has(node));
  if (!wrong) return;
  const there = runs.flatMap((own, stage) => (own.has(wrong.node) ? [stage] : []));
  throw new AutoparError(
    'stage-pins',
    'usage',
    `${wrong.source.text} places ${wrong.node} on ${placeText(wrong)}, and it runs on stage ${there.join(', ')}, which read it`,
    pinPlace(wrong.source),
    'it depends on no parameter, so that each stage that reads it runs it: leave its stage out',
  );
}

function placeText({ stage, chunk }: Pick<StagePin, 'stage' | 'chunk'>): string {
  return chunk === undefined ? `stage ${stage}` : `stage ${stage}, chunk ${chunk}`;
}

/** Whether an operator's place agrees with a pin. */
function keeps({ stage, chunk }: StagePin, place: StagePlace): boolean {
  return stage === place.stage && (chunk ?? place.chunk) === place.chunk;
}

/** Layers, unless pins or the number of parts require single operators. */
function unitsFor(graph: Graph, parts: number, { pins = [], layout }: PipelineRequest): readonly StageUnit[] {
  if (layout !== undefined) return stageUnits(graph, isInOperators(layout) ? Number.POSITIVE_INFINITY : 0);
  const byLayers = stageUnits(graph, parts);
  const pinOf = new Map(pins.map((pin) => [pin.node, placeText(pin)]));
  const isTorn = byLayers.some(({ operators }) => {
    const pinned = new Set(operators.flatMap((name) => pinOf.get(name) ?? []));
    return pinned.size > 1;
  });
  return isTorn ? stageUnits(graph, Number.POSITIVE_INFINITY) : byLayers;
}

function cut(
  graph: Graph,
  cluster: Cluster,
  units: readonly StageUnit[],
  { kind, stages, virtualStages }: Schedule,
  { pins = [] }: PipelineRequest,
): readonly number[] {
  const seconds = unshardedSeconds(graph, cluster);
  const unitOf = new Map(units.flatMap(({ operators }, index) => operators.map((name) => [name, index] as const)));
  const own = units.map(() => 0);
  for (const [node, time] of seconds) {
    const unit = unitOf.get(node.forward ?? node.name);
    if (unit !== undefined) own[unit] = (own[unit] as number) + time;
  }
  const pinOf = new Map(pins.map((pin) => [pin.node, pin]));
  const pinned = units.map(({ operators }) => operators.flatMap((name) => pinOf.get(name) ?? [])[0]);
  const placed = new Set(placedOperators(graph).map(({ name }) => name));
  const balance = {
    seconds: own,
    arrival: arrivals(graph, cluster, unitOf, units.length, stages),
    parts: stages * virtualStages,
    mayBe: (unit: number, part: number) =>
      pinned[unit] === undefined || keeps(pinned[unit], placeOfPart(kind, part, stages)),
  };
  const fills = units.map(({ operators }) => operators.some((name) => placed.has(name)));
  // Where no cut gives every part such a unit, the parts of the best one are checked, and the empty one is named.
  const sizes = balancedCut({ ...balance, fills }) ?? balancedCut({ ...balance, fills: units.map(() => true) });
  if (sizes) return sizes;
  refuseAbsentStages(pins, stages, virtualStages);
  throw pinsLeaveNoCut(
    pinned.flatMap((pin) => pin ?? []),
    { kind, stages, virtualStages },
  );
}

/** By unit: seconds in which a stage that begins with it waits for tensors of earlier units, and sends their gradients. */
function arrivals(
  graph: Graph,
  cluster: Cluster,
  unitOf: ReadonlyMap<string, number>,
  units: number,
  stages: number,
): readonly number[] {
  const bytes = Array<number>(units).fill(0);
  const madeBy = new Map<string, number>();
  const lastRead = new Map<string, number>();
  let times = 1;
  for (const { name, phase, inputs, outputs } of graph.nodes) {
    if (isBackward(phase)) times = 2;
    const unit = unitOf.get(name);
    if (unit === undefined) continue;
    for (const output of outputs) if (output !== null) madeBy.set(output, unit);
    for (const input of inputs) if (input !== null && madeBy.has(input)) lastRead.set(input, unit);
  }
  for (const [tensor, last] of lastRead) {
    const { dtype, shape } = typeOf(graph, tensor);
    for (let unit = (madeBy.get(tensor) ?? 0) + 1; unit <= last; unit++)
      bytes[unit] = (bytes[unit] as number) + byteLength(dtype, elementCount(shape));
  }
  const runs = (graph.microBatches?.count ?? 1) * times;
  return bytes.map((own) => runs * sendSeconds(own, stages, clusterSize(cluster) / stages, cluster));
}

function stageSizes(
  units: readonly StageUnit[],
  parts: number,
  schedule: Schedule,
  { layout = '', pins = [] }: PipelineRequest,
): readonly number[] {
  const sizes = readStageLayout(layout, units, parts);
  const placed = placesOf(units, sizes, schedule);
  const other = pins.find((pin) => {
    const place = placed.get(pin.node);
    return place !== undefined && !keeps(pin, place);
  });
  if (!other) return sizes;
  const { stage = 0, chunk = 0 } = placed.get(other.node) ?? {};
  throw new AutoparError(
    'stage-pins',
    'usage',
    `${other.source.text} places ${other.node} on ${placeText(other)}, and --stages "${layout}" on ` +
      placeText(other.chunk === undefined ? { stage } : { stage, chunk }),
    pinPlace(other.source),
    'leave out one of the two',
  );
}

function placesOf(
  units: readonly StageUnit[],
  sizes: readonly number[],
  { kind, stages }: Schedule,
): ReadonlyMap<string, StagePlace> {
  const placed = new Map<string, StagePlace>();
  let next = 0;
  for (const [part, size] of sizes.entries()) {
    const place = placeOfPart(kind, part, stages);
    for (const { operators } of units.slice(next, next + size)) for (const name of operators) placed.set(name, place);
    next += size;
  }
  return placed;
}

function tooManyStages({ stages, virtualStages }: Schedule, units: number, parts: number): AutoparError {
  const asked =
    virtualStages > 1 ? `${stages} stages of ${virtualStages} chunks are ${parts} parts` : `${stages} stages`;
  return new AutoparError(
    'too-many-stages',
    'usage',
    `${asked}, and the model has ${units === 1 ? '1 operator' : `${units} operators`} to place`,
    {},
    `take --pp ${Math.max(1, Math.floor(units / virtualStages))} at most`,
  );
}

/** @throws AutoparError `stage-pins` (usage) for a pin to a stage or a chunk that does not exist */
export function refuseAbsentStages(pins: readonly StagePin[], stages: number, chunks: number): void {
  const outside = pins.find(({ stage, chunk = 0 }) => stage >= stages || chunk >= chunks);
  if (!outside) return;
  const { stage, chunk = 0, node, source } = outside;
  const isStage = stage >= stages;
  const [there, what] = isStage ? [stages, 'stage'] : [chunks, 'chunk'];
  throw new AutoparError(
    'stage-pins',
    'usage',
    `${source.text} places ${node} on ${placeText(outside)}, and ` +
      `${there === 1 ? `the plan has one ${what}` : `the plan has ${there} ${what}s`}, counted from 0`,
    pinPlace(outside.source),
    isStage ? `give --pp ${stage + 1}, or a stage below ${stages}` : `give --virtual-stages ${chunk + 1}`,
  );
}

/** @param pins in the order of the model */
function pinsLeaveNoCut(
  pins: readonly StagePin[],
  { kind, stages, virtualStages }: Pick<Schedule, 'kind' | 'stages' | 'virtualStages'>,
): AutoparError {
  const partOf = ({ stage, chunk }: StagePin) =>
    chunk === undefined && virtualStages > 1 ? null : partAt(kind, stage, chunk ?? 0, stages);
  for (const [index, second] of pins.entries()) {
    const own = partOf(second);
    const first = pins.slice(0, index).find((pin) => own !== null && (partOf(pin) ?? own) > own);
    if (first) return contradicted(first, second, 'the second of which comes after the first in the model');
  }
  const first = pins[0] as StagePin;
  return new AutoparError(
    'stage-pins',
    'usage',
    `pinned stages leave no cut into ${stages} stages: ${pins
      .slice(0, 4)
      .map((pin) => `${pin.node} on ${placeText(pin)}`)
      .join('; ')}`,
    pinPlace(first.source),
    'no stage may be empty, and an operator may not be on an earlier stage than its operands',
  );
}

function contradicted(first: StagePin, second: StagePin, why: string): AutoparError {
  const says = (pin: StagePin) => `${pin.source.text} places ${pin.node} on ${placeText(pin)}`;
  return new AutoparError(
    'stage-pins',
    'usage',
    `${says(first)}, and ${says(second)}, ${why}`,
    pinPlace(second.source),
    'stages follow the order of the model: change one of the two pins',
  );
}
