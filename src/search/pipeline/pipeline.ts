/**
 * @file A graph on the stages of a pipeline: which operators each stage has, and the schedule that it runs. Stages are cut so that the
 * slowest is as fast as it can be, by what operators and transfers between stages take on one device; strategies are searched
 * afterwards, on the graph that is cut so.
 */
import { type Cluster, clusterSize } from '../../cost-model/cluster.js';
import { sendSeconds } from '../../cost-model/predict-stages.js';
import { byteLength } from '../../ir/dtype.js';
import { AutoparError } from '../../ir/error.js';
import { elementCount, type Graph, isBackward, typeOf } from '../../ir/graph.js';
import { accumulatedApart, type StagePlace } from '../../partition/cut-stages.js';
import type { PipelineLayout } from '../../partition/lower-stages.js';
import { makeSchedule } from '../../schedule/make-schedule.js';
import { placeOfPart } from '../../schedule/parts.js';
import { type Schedule, type ScheduleKind, splitsBackward } from '../../schedule/schedule.js';
import type { StagePin } from '../../sharding-propagation/pin.js';
import { balancedCut } from './balance.js';
import { layoutOfStages, readStageLayout } from './stage-layout.js';
import { type Unit, unitsOf } from './units.js';
import { wholeSeconds } from './whole-seconds.js';

/** What was decided of a pipeline. */
export interface PipelineRequest {
  readonly stages: number;
  readonly schedule?: ScheduleKind;
  /** Chunks a stage. */
  readonly virtualStages?: number;
  /** `E t*3 | t*2 | t*3 H` (stage-layout.ts); left out where stages are cut by what they take. */
  readonly layout?: string;
  /** Operators whose stage is given. */
  readonly pins?: readonly StagePin[];
}

/** A graph with its stages. */
export interface CutGraph {
  /** As it is cut: sums of gradients of weights that several stages read stand apart. */
  readonly graph: Graph;
  readonly layout: PipelineLayout;
  readonly schedule: Schedule;
}

export interface Pipeline extends CutGraph {
  /** The layout as text. */
  readonly text: string;
}

/**
 * @throws AutoparError (usage) `bad-schedule` where the schedule cannot be; `bad-stages`, `stage-pins` where stages cannot;
 * `too-many-stages` for more stages than the model can be cut into
 */
export function pipelineOf(graph: Graph, cluster: Cluster, request: PipelineRequest): Pipeline {
  const trains = graph.nodes.some(({ phase }) => isBackward(phase));
  const { stages, virtualStages: asked = 1 } = request;
  const kind = request.schedule ?? (asked > 1 ? 'interleaved-1f1b' : '1f1b');
  const microBatches = graph.microBatches?.count ?? 1;
  const given = request.virtualStages === undefined ? {} : { virtualStages: request.virtualStages };
  const schedule = makeSchedule({ kind, stages, microBatches, ...given, training: trains });
  const { virtualStages } = schedule;
  const parts = stages * virtualStages;
  const units = unitsFor(graph, parts, request);
  if (units.length < parts) throw tooManyStages(schedule, units.length, parts);
  const sizes =
    request.layout === undefined
      ? cut(graph, cluster, units, schedule, request)
      : givenSizes(units, parts, schedule, request);
  const placeOf = placesOf(units, sizes, schedule);
  return {
    graph: accumulatedApart(graph, placeOf),
    layout: { stages, chunks: virtualStages, splitsBackward: trains && splitsBackward(kind), placeOf },
    schedule,
    text: layoutOfStages(units, sizes),
  };
}

/** Layers, unless pins or the number of parts ask for operators. */
function unitsFor(graph: Graph, parts: number, { pins = [], layout }: PipelineRequest): readonly Unit[] {
  if (layout !== undefined) return unitsOf(graph, /^[o*\d\s|]+$/.test(layout) ? Number.POSITIVE_INFINITY : 0);
  const byLayers = unitsOf(graph, parts);
  const stageOf = new Map(pins.map(({ node, stage }) => [node, stage]));
  const isTorn = byLayers.some(({ operators }) => {
    const pinned = new Set(operators.flatMap((name) => stageOf.get(name) ?? []));
    return pinned.size > 1;
  });
  return isTorn ? unitsOf(graph, Number.POSITIVE_INFINITY) : byLayers;
}

function cut(
  graph: Graph,
  cluster: Cluster,
  units: readonly Unit[],
  { kind, stages, virtualStages }: Schedule,
  { pins = [] }: PipelineRequest,
): readonly number[] {
  const seconds = wholeSeconds(graph, cluster);
  const unitOf = new Map(units.flatMap(({ operators }, index) => operators.map((name) => [name, index] as const)));
  const own = units.map(() => 0);
  for (const [node, time] of seconds) {
    const unit = unitOf.get(node.forward ?? node.name);
    if (unit !== undefined) own[unit] = (own[unit] as number) + time;
  }
  const pinned = units.map(({ operators }) => pins.find(({ node }) => operators.includes(node)));
  const sizes = balancedCut({
    seconds: own,
    arrival: arrivals(graph, cluster, unitOf, units.length, stages),
    parts: stages * virtualStages,
    mayBe: (unit, part) => pinned[unit] === undefined || pinned[unit].stage === placeOfPart(kind, part, stages).stage,
  });
  if (sizes) return sizes;
  throw pinsLeaveNoCut(pins, units, stages, virtualStages);
}

/** Seconds that a stage beginning with each unit waits for what earlier ones make, and sends gradients of. */
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

function givenSizes(
  units: readonly Unit[],
  parts: number,
  schedule: Schedule,
  { layout = '', pins = [] }: PipelineRequest,
): readonly number[] {
  const sizes = readStageLayout(layout, units, parts);
  const placed = placesOf(units, sizes, schedule);
  const contradicted = pins.find(({ node, stage }) => (placed.get(node)?.stage ?? stage) !== stage);
  if (!contradicted) return sizes;
  const { node, stage, source } = contradicted;
  throw new AutoparError(
    'stage-pins',
    'usage',
    `${source.text} places ${node} on stage ${stage}, and --stages "${layout}" on stage ${placed.get(node)?.stage}`,
    where(contradicted),
    'leave out one of the two',
  );
}

function placesOf(
  units: readonly Unit[],
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

function pinsLeaveNoCut(
  pins: readonly StagePin[],
  units: readonly Unit[],
  stages: number,
  virtualStages: number,
): AutoparError {
  const outside = pins.find(({ stage }) => stage >= stages);
  if (outside)
    return new AutoparError(
      'stage-pins',
      'usage',
      `${outside.source.text} places ${outside.node} on stage ${outside.stage}, and there are ${stages} stages, counted from 0`,
      where(outside),
      `give --pp ${outside.stage + 1}, or a stage below ${stages}`,
    );
  const inOrder = units.flatMap(({ operators }, unit) =>
    operators.flatMap((name) => pins.filter(({ node }) => node === name).map((pin) => ({ unit, pin }))),
  );
  const [first] = inOrder;
  const last = inOrder.at(-1);
  const conflict =
    virtualStages > 1
      ? undefined
      : inOrder.find(({ unit, pin }, index) => {
          const before = inOrder[index - 1];
          return (
            before !== undefined && (pin.stage < before.pin.stage || pin.stage - before.pin.stage > unit - before.unit)
          );
        });
  const before = conflict && inOrder[inOrder.indexOf(conflict) - 1];
  const text = ({ pin: { node, stage } }: (typeof inOrder)[number]) => `${node} on stage ${stage}`;
  const why =
    conflict && before
      ? conflict.pin.stage < before.pin.stage
        ? `${text(before)} stands before ${text(conflict)}`
        : `${text(before)} and ${text(conflict)} leave too few operators for the stages between`
      : first && last && virtualStages === 1
        ? `${text(first)} and ${text(last)} leave too few operators for the other stages`
        : `with ${virtualStages} chunks a stage, ${pins
            .slice(0, 4)
            .map(({ node, stage }) => `${node} on stage ${stage}`)
            .join(', ')} have no order`;
  return new AutoparError(
    'stage-pins',
    'usage',
    `pins leave no cut into ${stages} stages: ${why}`,
    where((conflict ?? first)?.pin ?? (pins[0] as StagePin)),
    'stages follow the order of the model, and each has an operator',
  );
}

function where({ source }: StagePin): { readonly file?: string; readonly line?: number } {
  return {
    ...(source.file === null ? {} : { file: source.file }),
    ...(source.line === null ? {} : { line: source.line }),
  };
}
