/**
 * @file The choices of a plan, in the few options that trainers of language models have for them (megatron.ts, torchtitan.ts).
 */
import { type CompleteOptimizer, completeOptimizer } from '../../ir/autodiff/optimizer-options.js';
import { type AutoparError, usageError } from '../../ir/error.js';
import { partAt } from '../../schedule/parts.js';
import type { ScheduleKind } from '../../schedule/schedule.js';
import { rolesOf, type SpMethod } from '../../sharding-propagation/roles.js';
import type { PlacedPlan } from '../placed-operators.js';
import type { Plan } from '../plan.js';
import { samplesOf } from '../plan-of.js';

export interface TrainerChoices {
  readonly degrees: Plan['degrees'];
  /** Axes that have several ranks, from neighbouring devices outwards. */
  readonly order: readonly string[];
  /** The model's repeated layers on each part of the pipeline, in the order of the model. */
  readonly parts: readonly (readonly string[])[];
  readonly schedule: 'single' | ScheduleKind;
  readonly virtualStages: number;
  readonly microBatches: number;
  /** Samples of a rank of dp; null where the plan does not state them. */
  readonly microBatch: number | null;
  /** 0: nothing, 1 optimizer state, 2 gradients too, 3 parameters too. */
  readonly zero: number;
  readonly recompute: { readonly kind: string; readonly isOfAllLayers: boolean };
  /** Norms are sharded along the sequence over tp. */
  readonly tpSequence: boolean;
  /** How sp shards attention, `auto` where that differs; null without sp. */
  readonly spMethod: SpMethod | null;
  readonly precision: string;
  /** Words of `--offload`. */
  readonly offload: string;
  readonly bucketBytes: number | null;
  readonly optimizer: CompleteOptimizer;
  /** Features of the plan that no trainer has options for. */
  readonly own: readonly string[];
}

/** Options of training that a plan does not hold, which source.json has. */
export interface TrainerRequest {
  readonly decayed?: readonly string[];
  readonly undecayed?: readonly string[];
}

/**
 * @param placed the plan on its model
 * @throws AutoparError `cannot-convert` (usage) for a plan of inference, or of stages with meshes of their own
 */
export function trainerChoices(
  plan: Plan,
  placed: PlacedPlan,
  { decayed, undecayed }: TrainerRequest = {},
): TrainerChoices {
  const { degrees, training, schedule, requested = {} } = plan;
  if (!training)
    throw refused('the plan is for inference, and trainers need a plan of training', 'compile with --train');
  if (plan.meshes)
    throw refused('stages have different meshes, which trainers cannot express', 'compile without --meshes');
  const { kind, virtualStages = 1, microBatches, interleave } = schedule;
  const layers = placedLayers(plan, placed);
  const parts = Array.from({ length: degrees.pp * virtualStages }, (_, part) =>
    layers.filter((layer) => layer.part === part).map(({ name }) => name),
  );
  const samples = samplesOf(placed.graph) * microBatches;
  const batch = schedule.batch ?? plan.model.globalBatch ?? (samples || null);
  const updates = placed.operators.filter(({ node }) => node.phase === 'update');
  const cutsState = updates.some(({ strategy }) => Object.values(strategy.axes).flat().some(isDataAxis));
  const [word = 'none'] = (requested.recompute ?? 'none').split(':');
  return {
    degrees,
    order: plan.mesh.flatMap(({ axis, size }) => (size > 1 ? [axis] : [])).reverse(),
    parts,
    ...{ schedule: kind, virtualStages, microBatches },
    microBatch: schedule.microBatch ?? (batch === null ? null : batch / (degrees.dp * microBatches)),
    zero: requested.zero ?? Number(cutsState),
    recompute: { kind: word, isOfAllLayers: layers.every(({ recomputes }) => recomputes) },
    tpSequence: (plan.predicted.parts['reduce-scatter(tp)'] ?? 0) > 0,
    spMethod: degrees.sp > 1 ? spMethodOf(plan) : null,
    precision: training.precision ?? 'fp32',
    offload: requested.offload ?? 'none',
    bucketBytes: schedule.bucketBytes ?? null,
    optimizer: completeOptimizer(training.optimizer),
    own: [
      'strategies of single operators: the trainer chooses them',
      ...(interleave ? ['micro-batches in halves (--interleave 2)'] : []),
      ...(plan.server ? ['the parameter server'] : []),
      ...(schedule.recompute?.exceptLast ? ['no recompute in the last micro-batch'] : []),
      ...(training.gradientReduction === 'sum' ? ['summed gradients of dp ranks: a trainer averages them'] : []),
      ...(training.loss.kind === 'cross_entropy' ? [] : [`the loss ${training.loss.kind}`]),
      ...(training.loss.labelSmoothing ? ['label smoothing'] : []),
      ...(training.loss.moeBalance ? ['the load-balancing loss of experts'] : []),
      ...(decayed || undecayed ? ['which weights decay (--decayed, --undecayed)'] : []),
    ],
  };
}

/** How sp shards attention; `auto` where that is not the same in all of it. */
export function spMethodOf({ sequence, requested = {} }: Pick<Plan, 'sequence' | 'requested'>): SpMethod {
  return sequence?.method ?? requested.spMethod ?? 'auto';
}

interface TrainerLayer {
  readonly name: string;
  readonly part: number;
  readonly recomputes: boolean;
}

/** The layers of the model, in its order. */
function placedLayers(plan: Plan, { operators }: PlacedPlan): readonly TrainerLayer[] {
  const layers = new Map<string, TrainerLayer>();
  for (const { node, stage, chunk, recompute } of operators) {
    if (node.phase !== 'forward' || node.layer === null) continue;
    const { recomputes = false } = layers.get(node.layer) ?? {};
    const part = partOf(plan, stage, chunk);
    layers.set(node.layer, { name: node.layer, part, recomputes: recomputes || recompute });
  }
  return [...layers.values()];
}

function partOf({ schedule: { kind }, degrees }: Plan, stage: number, chunk: number): number {
  return kind === 'single' ? 0 : partAt(kind, stage, chunk, degrees.pp);
}

function isDataAxis(axis: string): boolean {
  return rolesOf()[axis.split('.')[0] ?? '']?.isData === true;
}

function refused(why: string, hint: string): AutoparError {
  return usageError('cannot-convert', `the plan cannot be exported: ${why}`, hint);
}
