/**
 * @file The plan of a rehearsal: the entries of a plan, for the operators that the smaller model has, over the smaller mesh.
 */
import { clonedOperators, NOTHING_RECOMPUTED, originalTensors, withClones } from '../../ir/autodiff/recompute.js';
import type { Graph } from '../../ir/graph.js';
import { operatorOf } from '../../ir/operator-of.js';
import { operatorEntry, ruleOf } from '../../ir/ops/index.js';
import type { Assignment, SharedReshard, TensorReader } from '../../partition/assignment.js';
import {
  accumulatedApart,
  type CutGraph,
  cutStages,
  type StagePlace,
  withStageClones,
} from '../../partition/cut-stages.js';
import { partAt, placeOfPart } from '../../schedule/parts.js';
import { tensorLayoutText } from '../../sharding-propagation/file-form.js';
import { isReplicated, type Layout, mergedLayout, normalise, sameShards } from '../../sharding-propagation/layout.js';
import { deviceCount, STAGE_AXIS } from '../../sharding-propagation/mesh.js';
import { axesTaking } from '../../sharding-propagation/roles.js';
import { type AxisSizes, axisSizes, rankAxes } from '../../sharding-propagation/stage-meshes.js';
import { operandLayouts, REPLICATED, type Strategy } from '../../sharding-propagation/strategy.js';
import type { Plan, PlanOperator, PlanReshard } from '../../strategy/plan.js';
import { producedLayouts } from '../../strategy/produced-layouts.js';
import { readersByTensor, readerText } from '../../strategy/readers.js';
import { asRun, recomputedIn } from '../../strategy/staged-graph.js';
import type { ImportedModel } from '../models/import.js';
import type { BigPlan } from './big-plan.js';
import type { Counterparts } from './counterparts.js';
import type { FewerParts } from './fewer-parts.js';
import { mappedEntry, mappedLayout, NoReducedForm, type SizePairs } from './mapped-layouts.js';
import type { ReducedMesh } from './reduced-mesh.js';

/** The model and mesh that a rehearsal's plan is made for. */
export interface SmallModel {
  readonly imported: ImportedModel;
  /** The graph that the stages are cut from. */
  readonly graph: Graph;
  readonly placeOf: ReadonlyMap<string, StagePlace> | null;
  readonly parts: FewerParts | null;
  readonly mesh: ReducedMesh;
  readonly same: Counterparts;
  readonly pairs: SizePairs;
}

/** The smaller graph that stages are cut from, with clones of recomputed operators, and the stages of forward operators. */
export function smallStages(
  big: BigPlan,
  small: Graph,
  parts: FewerParts | null,
): { readonly graph: Graph; readonly placeOf: ReadonlyMap<string, StagePlace> | null } {
  const { kind, interleave = 1 } = big.plan.schedule;
  const asked = recomputedIn(big.plan, big.graph);
  const isLastAlone = asked.exceptLast && (small.microBatches?.count ?? 1) === interleave;
  const recomputed = isLastAlone ? NOTHING_RECOMPUTED : asked;
  if (!parts || kind === 'single') return { graph: asRun(withClones(small, recomputed), big.plan), placeOf: null };
  const placeOf = new Map(
    small.nodes.flatMap(({ name, phase }) => {
      const part = phase === 'forward' ? partIn(big, name) : undefined;
      return part === undefined ? [] : [[name, placeOfPart(kind, parts.partOf[part] ?? 0, parts.stages)] as const];
    }),
  );
  const staged = withStageClones(accumulatedApart(small, placeOf), recomputed, placeOf);
  return { graph: asRun(staged, big.plan), placeOf };
}

/** The part of the plan's pipeline that a forward operator is on. */
export function partIn({ pipeline }: BigPlan, name: string): number | undefined {
  const place = pipeline?.placeOf.get(name);
  if (!place || !pipeline) return undefined;
  return partAt(pipeline.schedule.kind, place.stage, place.chunk, pipeline.schedule.stages);
}

/** The plan record. @throws Unmapped for an entry that has no form at these sizes */
export function reducedPlan(big: BigPlan, small: SmallModel): Plan {
  const { plan } = big;
  const { graph, imported, mesh, parts, same, pairs } = small;
  const cut = cutOf(small);
  const places = placesIn(cut);
  const operators: Record<string, PlanOperator> = {};
  const cloned = clonedOperators(graph);
  for (const node of graph.nodes) {
    if (node.phase === 'recompute') continue;
    const entry = big.entryOf(same.nodeOf.get(node.name) ?? '');
    if (!entry) throw new NoReducedForm(`the plan has no entry for operator ${node.name}`);
    const { stage, chunk } = places(node.name);
    const { stage: _stage, chunk: _chunk, ...rest } = mappedEntry(entry, ruleOf(operatorOf(graph, node)), mesh, pairs);
    const recompute = cloned.has(node.name);
    operators[node.name] = { stage, ...(chunk > 0 ? { chunk } : {}), ...rest, recompute };
  }
  const assigned = assignedTo(big, small, operators);
  const produced = producedLayouts(graph, assigned);
  const stages = parts?.stages ?? 1;
  const devices = deviceCount(mesh.mesh);
  const clones = originalTensors(graph);
  const tensors = [...produced].filter(([tensor, layout]) => !isReplicated(layout) && !clones.has(tensor));
  const counts = Array.from({ length: stages }, () => 0);
  for (const { stage } of Object.values(operators)) counts[stage] = (counts[stage] ?? 0) + 1;
  return {
    ...plan,
    model: {
      name: imported.name,
      fingerprint: imported.fingerprint,
      dims: imported.dims,
      globalBatch: imported.globalBatch,
    },
    cluster: { nodes: 1, perNode: devices * stages, device: plan.cluster.device },
    mesh: [
      ...(stages > 1 ? [{ axis: STAGE_AXIS, size: stages }] : []),
      ...axesOf(rankAxes(axisSizes(mesh.stages?.stages[0] ?? mesh.mesh))),
    ],
    ...(mesh.stages ? { meshes: mesh.stages.stages.map((stage) => axesOf(axisSizes(stage))) } : {}),
    degrees: reducedDegrees(plan, mesh, stages),
    stages: counts.map((count) => ({ operators: count, devices })),
    layerClasses: [],
    operators,
    tensors: Object.fromEntries(
      tensors.map(([tensor, layout]) => [tensor, tensorLayoutText(graph, tensor, layout, mesh.mesh)]),
    ),
    redistributions: reshardsOf(big, small, cut, assigned, produced),
    training: imported.training ?? null,
    schedule: scheduleOf(plan, small),
    predicted: { ...plan.predicted, peakBytes: counts.map(() => 0) },
    pins: [],
  };
}

function axesOf(sizes: AxisSizes): Plan['mesh'] {
  return sizes.map(([axis, size]) => ({ axis, size }));
}

/** The degrees of a rehearsal with this number of stages. */
export function reducedDegrees(plan: Plan, { mesh, stages: own }: ReducedMesh, stages: number): Plan['degrees'] {
  const sizes = new Map((own?.stages[0] ?? mesh).axes.map(({ name, size }) => [name, size]));
  const degree = (axis: string) => sizes.get(axis) ?? 1;
  return { dp: degree('dp'), tp: degree('tp'), sp: degree('sp'), pp: stages, ep: Math.min(plan.degrees.ep, 2) };
}

function scheduleOf({ schedule }: Plan, { graph, parts, mesh, imported }: SmallModel): Plan['schedule'] {
  const { kind } = schedule;
  const count = graph.microBatches?.count ?? 1;
  const [first] = graph.batch;
  const samples = first ? (graph.tensors.get(first.input)?.shape[first.axis] ?? 0) : 0;
  const parted = axesTaking(mesh.mesh, 'batch').reduce((product, { size }) => product * size, 1);
  const isWritten = count > 1 && samples > 0 && samples % parted === 0 && imported.training !== undefined;
  return {
    kind: parts ? kind : 'single',
    microBatches: count,
    ...(schedule.interleave ? { interleave: schedule.interleave } : {}),
    ...(isWritten ? { microBatch: samples / parted, batch: samples * count } : {}),
    ...(parts && parts.virtualStages > 1 ? { virtualStages: parts.virtualStages } : {}),
    ...(schedule.recompute ? { recompute: schedule.recompute } : {}),
  };
}

/** Stage and chunk of every operator: those of forward operators are given, the others follow. */
function placesIn(cut: CutGraph | null): (name: string) => StagePlace {
  const places = new Map<string, StagePlace>();
  for (const [stage, { chunks }] of (cut?.stages ?? []).entries())
    for (const [name, chunk] of chunks) if (!places.has(name)) places.set(name, { stage, chunk });
  return (name) => places.get(name) ?? { stage: 0, chunk: 0 };
}

type AssignedStrategies = Pick<Assignment, 'mesh' | 'strategies' | 'inputs'>;

function assignedTo(
  { assignment }: BigPlan,
  { graph, mesh, pairs, same }: SmallModel,
  operators: Readonly<Record<string, PlanOperator>>,
): AssignedStrategies {
  const strategies = new Map(
    graph.nodes.flatMap(({ name, group, phase }): readonly (readonly [string, Strategy])[] => {
      // Clones follow their originals.
      if (phase === 'recompute') return [];
      const { strategy, pieces, partial, reduction } = operators[name] as PlanOperator;
      const pending = reduction ?? { kind: 'none' };
      return [[group, { axes: strategy, ...(pieces ? { pieces } : {}), partialOperands: partial ?? null, pending }]];
    }),
  );
  const inputs = new Map(
    graph.inputs.map((input) => {
      const { shape } = graph.tensors.get(input) ?? { shape: [] };
      const layout = assignment.inputs.get(same.tensorOf.get(input) ?? input);
      return [
        input,
        layout ? mappedLayout(layout, shape, mesh, pairs) : normalise(shape.map((size) => [{ size, axes: [] }])),
      ] as const;
    }),
  );
  return { mesh: mesh.mesh, strategies, inputs };
}

/** Every reader reads a tensor in the layout in which its counterpart reads it; a stage sends it as its counterpart is sent. */
function reshardsOf(
  { assignment, graph: whole }: BigPlan,
  small: SmallModel,
  cut: CutGraph | null,
  assigned: AssignedStrategies,
  produced: ReadonlyMap<string, Layout>,
): Plan['redistributions'] {
  const { graph, mesh, pairs, same } = small;
  const reshardOfReader = new Map<string, SharedReshard>();
  for (const reshard of assignment.sharedReshards)
    for (const reader of reshard.readers) reshardOfReader.set(readerKey(reader, reader.name), reshard);
  const before = producedLayouts(whole, assignment);
  const operandsBefore = operandsIn(whole, assignment);
  const operandsAfter = operandsIn(graph, assigned);
  const result: Record<string, readonly PlanReshard[]> = {};
  const sent = new Set(cut?.transfers.map(({ tensor }) => tensor));
  for (const [tensor, readers] of readersByTensor(graph)) {
    const leaving: TensorReader = { kind: 'output', name: tensor, operand: 0 };
    const counterpart = readerKey(leaving, same.tensorOf.get(tensor) ?? tensor);
    const isSent = sent.has(tensor) && !graph.outputs.includes(tensor) && reshardOfReader.has(counterpart);
    const own = produced.get(tensor);
    if (!own) throw new Error(`tensor ${tensor} is neither an input nor a result`);
    const reshards = new Map<SharedReshard | null, TensorReader[]>();
    for (const reader of isSent ? [leaving, ...readers] : readers) {
      const name =
        reader.kind === 'operator' ? same.nodeOf.get(reader.name) : (same.tensorOf.get(reader.name) ?? reader.name);
      const reshard = reshardOfReader.get(readerKey(reader, name ?? '')) ?? null;
      const list = reshards.get(reshard);
      if (list) list.push(reader);
      else reshards.set(reshard, [reader]);
    }
    result[tensor] = [...reshards].map(([reshard, served]) => ({
      readers: served.map(readerText),
      layout: tensorLayoutText(graph, tensor, reshard ? layoutAt(reshard, served) : own, mesh.mesh),
      steps: [],
    }));

    /** The produced layout, or the one that a reader needs, if that is what the plan has; else mapped piece by piece. */
    function layoutAt(reshard: SharedReshard, served: readonly TensorReader[]): Layout {
      const made = before.get(reshard.tensor);
      if (own && made && sameShards(made, reshard.layout, assignment.mesh)) return own;
      for (const { kind, name, operand } of served) {
        if (kind === 'output') continue;
        const asked = operandsBefore(same.nodeOf.get(name) ?? '')[operand];
        const asks = operandsAfter(name)[operand];
        if (asked && asks && sameShards(asked, reshard.layout, assignment.mesh)) return mergedLayout(asks, mesh.mesh);
      }
      return mappedLayout(reshard.layout, graph.tensors.get(tensor)?.shape ?? [], mesh, pairs);
    }
  }
  return result;
}

/** The smaller graph in stages; null for one. */
function cutOf({ graph, placeOf, parts }: SmallModel): CutGraph | null {
  return placeOf && parts ? cutStages(graph, placeOf, parts.stages) : null;
}

function readerKey({ kind, operand }: TensorReader, name: string): string {
  return `${kind} ${name} ${operand}`;
}

/** Layouts of an operator's operands under its strategy. */
function operandsIn(
  graph: Graph,
  { strategies, mesh }: Pick<Assignment, 'strategies' | 'mesh'>,
): (name: string) => readonly (Layout | null)[] {
  const nodes = new Map(graph.nodes.map((node) => [node.name, node]));
  return (name) => {
    const node = nodes.get(name);
    if (!node) return [];
    const operator = operatorOf(graph, node);
    const entry = operatorEntry(node);
    return operandLayouts(entry.rule(operator), strategies.get(node.group) ?? REPLICATED, entry.linear(operator), mesh);
  };
}
