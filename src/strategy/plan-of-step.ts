/**
 * @file From what a search over whole steps found to plan.json's record: forward operators of one layer of each run with their
 * strategies over tp, which layers each stage has, and what the step is made of. Backward operators lie as their forward ones,
 * dp lies on the batch, sp on the sequence.
 */
import { type Graph, typeOf } from '../ir/graph.js';
import type { LayerRun } from '../ir/passes/first-of-layers.js';
import type { Assignment } from '../partition/assignment.js';
import type { StagePlace } from '../partition/cut-stages.js';
import { isReplicated } from '../sharding-propagation/layout.js';
import { layoutText } from '../sharding-propagation/layout-text.js';
import { AXIS_ORDER } from '../sharding-propagation/mesh.js';
import { REPLICATED } from '../sharding-propagation/strategy.js';
import type { Plan, PlanOperator, PlanPrediction, PlanSchedule, PlanStep, PlanTraining } from './plan.js';
import { PLAN_VERSION } from './plan.js';
import { producedLayouts } from './produced-layouts.js';

/** What a search over whole steps chose. */
export interface StepChoice extends Omit<PlanStep, 'objective' | 'memoryBytes' | 'decided'> {
  readonly degrees: Plan['degrees'];
  readonly schedule?: Exclude<PlanSchedule['kind'], 'single'>;
  readonly virtualStages: number;
  /** Axes of the mesh, outermost first, where it is not the usual order. */
  readonly meshOrder?: readonly (typeof AXIS_ORDER)[number][];
  /** Samples of a rank of dp. */
  readonly microBatch: number;
}

/** What a search over whole steps hands over. */
export interface FoundStep {
  readonly configuration: StepChoice;
  readonly microBatches: number;
  /** One layer of each run. */
  readonly graph: Graph;
  readonly runs: readonly LayerRun[];
  readonly assignment: Assignment;
  /** Number of layers of each stage. */
  readonly stageLayers: readonly number[];
  readonly prediction: PlanPrediction;
  readonly costSeconds: number;
  readonly boundSeconds: number;
  readonly decided: PlanStep['decided'];
  readonly requested: Plan['requested'];
  readonly objective: PlanStep['objective'];
  readonly memoryBytes: number | null;
  /** Whether a time limit ended the search; and whether it did before any plan was compared with another. */
  readonly isTimeLimited: boolean;
  readonly isUncompared: boolean;
}

export interface StepModel {
  readonly name: string;
  readonly fingerprint: string;
  readonly dims: Readonly<Record<string, number>>;
  readonly training: PlanTraining | null;
}

/** The plan of what was found. */
export function planOfStep(found: FoundStep, model: StepModel, cluster: Plan['cluster']): Plan {
  const { configuration, graph, assignment, runs, costSeconds, boundSeconds } = found;
  const { degrees, globalBatch, microBatch, virtualStages, schedule } = configuration;
  const { pp, dp, sp, tp, ep } = degrees;
  const forward = graph.nodes.filter(({ phase }) => phase === 'forward');
  const { held, placeOf } = layersOf(found);
  const firstAt = forward.findIndex(({ layer }) => layer !== null);
  const operators = forward.map((node, index): readonly [string, PlanOperator] => {
    const { axes, pieces, carried, owed } = assignment.strategies.get(node.group) ?? REPLICATED;
    // What stands before the layers is with the first of them, everything behind on the last stage.
    const outside = index > firstAt ? { stage: pp - 1, chunk: virtualStages - 1 } : FIRST;
    const { stage, chunk } = node.layer === null ? outside : (placeOf.get(node.layer) ?? FIRST);
    if (node.layer === null) held[stage] = (held[stage] ?? 0) + 1;
    return [
      node.name,
      {
        stage,
        ...(chunk > 0 ? { chunk } : {}),
        strategy: axes,
        ...(pieces ? { pieces } : {}),
        ...(carried ? { partial: carried } : {}),
        ...(owed.kind === 'none' ? {} : { reduction: owed }),
        recompute: configuration.recompute === 'full' && !configuration.recomputedLayers && node.layer !== null,
      },
    ];
  });
  const made = new Set(forward.flatMap(({ outputs }) => outputs));
  const tensors = [...producedLayouts(graph, assignment)]
    .filter(([tensor, layout]) => made.has(tensor) && typeOf(graph, tensor) && !isReplicated(layout))
    .map(([tensor, layout]) => [tensor, layoutText(layout, assignment.mesh)] as const);
  return {
    format: 'autopar-plan',
    version: PLAN_VERSION,
    model: { name: model.name, fingerprint: model.fingerprint, dims: model.dims, globalBatch },
    passes: [],
    cluster,
    mesh: (configuration.meshOrder ?? AXIS_ORDER).map((axis) => ({ axis, size: degrees[axis] })),
    degrees: { dp, tp, pp, sp, ep },
    stages: held.map((count) => ({ operators: count, devices: dp * sp * tp })),
    layerClasses: runs
      .filter(({ instances }) => instances.length > 1)
      .map(({ name, instances }) => ({
        name,
        instances,
        operators: forward.filter(({ layer }) => layer === name).length,
        ...(pp > 1 ? { stages: instances.map((layer) => placeOf.get(layer)?.stage ?? 0) } : {}),
        ...(virtualStages > 1 ? { chunks: instances.map((layer) => placeOf.get(layer)?.chunk ?? 0) } : {}),
      })),
    operators: Object.fromEntries(operators),
    tensors: Object.fromEntries(tensors),
    redistributions: {},
    training: model.training,
    schedule: {
      kind: pp === 1 ? 'single' : (schedule ?? '1f1b'),
      microBatches: found.microBatches,
      microBatch,
      ...(virtualStages > 1 ? { virtualStages } : {}),
    },
    step: {
      globalBatch,
      zero: configuration.zero,
      recompute: configuration.recompute,
      ...(configuration.stageLayers ? { stageLayers: configuration.stageLayers } : {}),
      ...(configuration.recomputedLayers ? { recomputedLayers: configuration.recomputedLayers } : {}),
      ...(configuration.offload ? { offload: configuration.offload } : {}),
      tpSequence: configuration.tpSequence,
      precision: configuration.precision,
      software: configuration.software,
      ...(configuration.attention === 'fused' ? {} : { attention: configuration.attention }),
      objective: found.objective,
      memoryBytes: found.memoryBytes,
      decided: found.decided,
    },
    ...(Object.keys(found.requested ?? {}).length > 0 ? { requested: found.requested ?? {} } : {}),
    predicted: found.prediction,
    search: {
      mode: 'step',
      costSeconds,
      boundSeconds,
      gap: costSeconds === 0 ? 0 : 1 - boundSeconds / costSeconds,
      ...(found.isTimeLimited ? { timeLimited: true as const } : {}),
      ...(found.isUncompared ? { uncompared: true as const } : {}),
    },
    pins: Object.entries(found.decided).map(([name, value]) => `${name}=${value}`),
  };
}

const FIRST: StagePlace = { stage: 0, chunk: 0 };

/** Operators of layers that each stage holds, and where each layer is; with several chunks a stage has layers of each of them. */
function layersOf({ graph, runs, configuration, stageLayers }: FoundStep): {
  readonly held: number[];
  readonly placeOf: ReadonlyMap<string, StagePlace>;
} {
  const { pp } = configuration.degrees;
  const forward = graph.nodes.filter(({ phase }) => phase === 'forward');
  const perLayer = new Map<string, number>();
  for (const { layer } of forward) if (layer !== null) perLayer.set(layer, (perLayer.get(layer) ?? 0) + 1);
  const standsFor = new Map(runs.map(({ name, instances }) => [name, instances]));
  const names = [...perLayer].flatMap(([layer, operators]) =>
    (standsFor.get(layer) ?? [layer]).map((name) => ({ name, operators })),
  );
  let next = 0;
  const held = Array.from({ length: pp }, () => 0);
  const placeOf = new Map<string, StagePlace>();
  for (const [part, count] of stageLayers.entries()) {
    const place = { stage: part % pp, chunk: Math.floor(part / pp) };
    for (const { name, operators } of names.slice(next, next + count)) {
      held[place.stage] = (held[place.stage] ?? 0) + operators;
      placeOf.set(name, place);
    }
    next += count;
  }
  return { held, placeOf };
}
