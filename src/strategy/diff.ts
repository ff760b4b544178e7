/**
 * @file Differences between two checkpoints: settings, operators, tensors, reshardings, and cost.
 */
import { AutoparError, usageError } from '../ir/error.js';
import type { Graph, Node } from '../ir/graph.js';
import { leadersOf } from '../ir/layers.js';
import { rankNames, shownAxes, shownStrategy } from '../sharding-propagation/layout-text.js';
import { type Mesh, makeMesh, STAGE_AXIS } from '../sharding-propagation/mesh.js';
import { namesOn, sizesText } from '../sharding-propagation/stage-meshes.js';
import { meshesOf } from './assignment-of.js';
import type { MindSporeStrategy } from './mindspore/document.js';
import type { Plan, PlanOperator, PlanReshard } from './plan.js';
import { placesIn, stageChunkText } from './staged-graph.js';

/** A difference between the first checkpoint and the second; null where one of them lacks it. */
export interface Difference {
  readonly name: string;
  readonly before: string | null;
  readonly after: string | null;
}

export interface NumberDifference {
  readonly before: number;
  readonly after: number;
}

export interface CostDifference {
  readonly stepSeconds: NumberDifference;
  /** Per stage. */
  readonly peakBytes: readonly NumberDifference[];
  /** Bytes that one rank receives. */
  readonly bytesCommunicated: NumberDifference;
  readonly flopsPerRank: NumberDifference;
  /** Seconds by part: compute, and each collective and its axes; 0 where a checkpoint has no such part. */
  readonly parts: Readonly<Record<string, NumberDifference>>;
}

export interface StrategyDifference {
  readonly same: boolean;
  /** Degrees, mesh, cluster, stages, schedule and the like. */
  readonly settings: readonly Difference[];
  /** Stages (and chunks) of layers that are in one place, and of other forward operators; without the model of any operator. */
  readonly places: readonly Difference[];
  readonly operators: readonly Difference[];
  /** Layouts of tensors as they are produced; for MindSpore's checkpoints, those of parameters. */
  readonly tensors: readonly Difference[];
  readonly redistributions: readonly Difference[];
  /**
   * Where training or micro-batches make two graphs of the model: operators, as the plans state them, that one graph alone has.
   * Other lists then have what is in both.
   */
  readonly unshared?: NumberDifference;
  /** Null where the checkpoints hold no prediction. */
  readonly cost: CostDifference | null;
}

/**
 * Compares two plans of one model, trained in one way or in two.
 * @param graph their model, if their graphs are equal; needed only where they group the layers differently, and to name the
 * operators of a layer
 * @throws AutoparError `strategy-mismatch` (input) for plans of two models, listing what differs; `model-needed` (usage)
 */
export function diffPlans(before: Plan, after: Plan, graph?: Graph): StrategyDifference {
  const isOneGraph = before.model.fingerprint === after.model.fingerprint;
  if (!isOneGraph) checkOneModel(before, after);
  if (isOneGraph && !graph && !sameLayers(before, after))
    throw usageError(
      'model-needed',
      'the two plans group the layers differently, and comparing their operators needs the model',
      'name the model: --model FILE',
    );
  const [a, b] = [spelledOut(before, graph), spelledOut(after, graph)];
  const of = isOneGraph ? differences : sharedDifferences;
  const parts = {
    settings: differences(settingsOf(before), settingsOf(after)),
    places: of(...placeTexts(before, after, graph)),
    operators: of(a.operators, b.operators),
    tensors: of(a.tensors, b.tensors),
    redistributions: of(a.redistributions, b.redistributions),
  };
  const alone = (one: Texts, other: Texts) => [...one.keys()].filter((name) => !other.has(name)).length;
  return {
    same: isOneGraph && Object.values(parts).every((list) => list.length === 0),
    ...parts,
    ...(isOneGraph
      ? {}
      : { unshared: { before: alone(a.operators, b.operators), after: alone(b.operators, a.operators) } }),
    cost: costOf(before, after),
  };
}

/** Compares two MindSpore checkpoints: split counts by key, layouts by parameter. */
export function diffDocuments(before: MindSporeStrategy, after: MindSporeStrategy): StrategyDifference {
  const operators = ({ operators: all }: MindSporeStrategy) =>
    new Map([...all].map(([key, { stage, splits }]) => [key, `${splits.map(tuple).join(' ')}; stage ${stage}`]));
  const parameters = ({ parameters: all }: MindSporeStrategy) =>
    new Map(
      [...all].map(([name, layout]) => {
        const map = layout.tensorMap.map((axes) => (axes.length === 1 ? `${axes[0]}` : tuple(axes))).join(', ');
        const shards =
          layout.optimizerShardSize > 0
            ? `; optimizer shards ${layout.optimizerShardSize} at step ${layout.optimizerShardStep}`
            : '';
        return [name, `${tuple(layout.deviceMatrix)} by (${map})${shards}`];
      }),
    );
  const parts = {
    settings: [],
    places: [],
    operators: differences(operators(before), operators(after)),
    tensors: differences(parameters(before), parameters(after)),
    redistributions: [],
  };
  return { same: parts.operators.length + parts.tensors.length === 0, ...parts, cost: null };
}

/** An operator on a plan's mesh for people: `b0: dp, n: tp 2 of 8; all-reduce; stage 1`. */
export function operatorText(operator: PlanOperator, plan: PlanMeshes): string {
  const hasStages = plan.mesh.some(({ axis }) => axis === STAGE_AXIS);
  return [strategyText(operator, plan, SHOWN), ...(hasStages ? [stageChunkText(operator)] : [])].join('; ');
}

/** A layout or the steps of a resharding for people. Stages with meshes of their own have no common names of axes. */
export function axesInPlan(text: string, { mesh, meshes }: PlanMeshes): string {
  return meshes ? text : shownAxes(text, wholeMesh(mesh));
}

function wholeMesh(mesh: Plan['mesh']): Mesh {
  return makeMesh(mesh.map(({ axis, size }) => [axis, size] as const));
}

/** How a strategy's factors and lists of its axes are written. */
interface AxesWriter {
  readonly factors: (operator: PlanOperator, mesh: Mesh) => string;
  readonly names: (mesh: Mesh, axes: readonly string[]) => readonly string[];
}

/** With all sub-axes, so that unlike strategies have unlike texts. */
const EXACT: AxesWriter = {
  factors: ({ strategy, pieces }, mesh) => {
    const factors = Object.entries(strategy)
      .filter(([, axes]) => axes.length > 0)
      .sort(([a], [b]) => (a < b ? -1 : 1))
      .map(([factor, axes]) => `${factor}: ${axesText(namesOn(mesh, axes))}`);
    const seen = Object.entries(pieces ?? {}).map(([factor, sizes]) => `${factor} as ${sizes.join(' · ')}`);
    return [factors.length === 0 ? 'replicated' : factors.join(', '), ...seen].join('; ');
  },
  names: namesOn,
};

/** As reports show it. */
const SHOWN: AxesWriter = {
  factors: ({ strategy, pieces }, mesh) => shownStrategy({ axes: strategy, ...(pieces ? { pieces } : {}) }, mesh),
  names: (mesh, axes) => rankNames(axes, mesh),
};

function axesText(names: readonly string[]): string {
  return names.length === 1 ? (names[0] ?? '') : `(${names.join(',')})`;
}

/** The fields of a plan that name its axes. */
export type PlanMeshes = Pick<Plan, 'mesh' | 'meshes'>;

/** A strategy without its place. */
function strategyText(operator: PlanOperator, plan: PlanMeshes, { factors, names }: AxesWriter = EXACT): string {
  const { stage, partial: partialOperands, reduction: pending, recompute, place } = operator;
  const mesh = meshesOf(plan)?.stages[stage] ?? wholeMesh(plan.mesh);
  return [
    factors(operator, mesh),
    ...(partialOperands ? [`partial operands over ${axesText(names(mesh, partialOperands.axes))}`] : []),
    ...(pending && pending.kind !== 'none'
      ? [pending.kind === 'scatter' ? `scatter onto ${pending.factor}` : pending.kind]
      : []),
    ...(recompute ? ['recomputed'] : []),
    ...(place === 'host' ? ['on the host'] : []),
  ].join('; ');
}

/** Refuses plans of two models: what differs is neither training, micro-batches nor passes over the graph. */
function checkOneModel(before: Plan, after: Plan): void {
  const named = differences(
    new Map([['name', before.model.name], ...dimsOf(before)]),
    new Map([['name', after.model.name], ...dimsOf(after)]),
  ).map(({ name, before: one, after: other }) => `${name} ${one ?? 'not bound'} and ${other ?? 'not bound'}`);
  const made = ({ training, schedule, passes }: Plan) => JSON.stringify([training, schedule.microBatches, passes]);
  if (named.length === 0 && made(before) !== made(after)) return;
  throw new AutoparError(
    'strategy-mismatch',
    'input',
    `the two plans are of two models: ${named.length > 0 ? named.join('; ') : 'their operators, shapes or constants differ'}`,
    {},
    'give two plans of one model',
  );
}

function dimsOf({ model }: Plan): readonly (readonly [string, string])[] {
  return [
    ...Object.entries(model.dims).map(([name, size]) => [`dimension ${name}`, String(size)] as const),
    ...(model.globalBatch === null ? [] : [['global batch', String(model.globalBatch)] as const]),
  ];
}

type Texts = ReadonlyMap<string, string>;

/** `tp 2 | dp 2`, stage by stage. */
function meshesText(meshes: NonNullable<Plan['meshes']>): string {
  return meshes.map((axes) => sizesText(axes.map(({ axis, size }) => [axis, size] as const))).join(' | ');
}

function settingsOf(plan: Plan): Texts {
  const { cluster, degrees, mesh, schedule, stages, pins, passes, requested, training } = plan;
  return new Map([
    ['graph', training ? 'training step' : 'inference'],
    ...Object.entries(training ?? {}).map(([name, value]) => [name, wordOf(value)] as const),
    ...Object.entries(degrees).map(([axis, degree]) => [axis, String(degree)] as const),
    ['mesh', mesh.map(({ axis, size }) => `${axis} ${size}`).join(' · ')],
    ...(plan.meshes ? [['meshes', meshesText(plan.meshes)] as const] : []),
    [
      'cluster',
      `${cluster.nodes}x${cluster.perNode}:${cluster.device}${cluster.description ? JSON.stringify(cluster.description) : ''}`,
    ],
    ['stages', stages.map(({ operators, devices }) => `${operators} operators on ${devices} devices`).join(', ')],
    ['schedule', JSON.stringify(schedule)],
    ['server', plan.server ? `the first rank of ${plan.server.join(' · ')}` : 'none: all ranks update'],
    ['all-to-all', plan.allToAll === false ? 'not planned' : 'allowed'],
    ['pins', pins.join(', ')],
    [
      'requested',
      Object.entries(requested ?? {})
        .map(([name, word]) => `${name} ${word}`)
        .join(', '),
    ],
    ['passes', passes.map(({ name, options }) => `${name}${options ? JSON.stringify(options) : ''}`).join(', ')],
  ]);
}

function wordOf(value: unknown): string {
  return typeof value === 'string' ? value : JSON.stringify(value);
}

/** Texts of a plan's parts: per layer class as it stands, or with the model per operator. */
function spelledOut(
  plan: Plan,
  graph: Graph | undefined,
): { readonly operators: Texts; readonly tensors: Texts; readonly redistributions: Texts } {
  const operators = new Map(Object.entries(plan.operators).map(([name, entry]) => [name, strategyText(entry, plan)]));
  const tensors = new Map(Object.entries(plan.tensors));
  const redistributions = new Map(
    Object.entries(plan.redistributions).map(([name, reshards]) => [name, reshardsText(reshards)]),
  );
  for (const { instances, recompute } of plan.layerClasses)
    for (const [index, layer] of instances.entries())
      if (recompute) operators.set(layer, recompute[index] ? 'recomputes' : 'stores its activations');
  if (!graph) return { operators, tensors, redistributions };
  const leaders = leadersOf(graph, plan.layerClasses);
  const follow = (map: Map<string, string>, names: ReadonlyMap<string, string>) => {
    for (const [name, leader] of names) {
      const stated = map.get(leader);
      if (stated !== undefined && !map.has(name)) map.set(name, stated);
    }
  };
  follow(operators, leaders.operators);
  // In a class whose instances differ, operators state what the recomputing instances do.
  const kept = new Set(
    plan.layerClasses.flatMap(({ instances, recompute }) =>
      instances.filter((_, index) => recompute?.[index] === false),
    ),
  );
  for (const { name, layer } of graph.nodes) {
    const entry = plan.operators[leaders.operators.get(name) ?? name];
    if (entry && kept.has(layer ?? '')) operators.set(name, strategyText({ ...entry, recompute: false }, plan));
  }
  follow(tensors, leaders.tensors);
  follow(redistributions, leaders.tensors);
  return { operators, tensors, redistributions };
}

/** Whether two plans group the layers alike, whichever stages those are on, and whichever recompute. */
export function sameLayers(before: Plan, after: Plan): boolean {
  const classes = (plan: Plan) =>
    plan.layerClasses.map(({ stages: _stages, chunks: _chunks, recompute: _recompute, ...own }) => own);
  return JSON.stringify(classes(before)) === JSON.stringify(classes(after));
}

/** Whether the operators of two plans are on other stages or chunks, as far as plans show it without their model. */
export function hasMoves(before: Plan, after: Plan): boolean {
  const places = ({ layerClasses, operators }: Plan) =>
    JSON.stringify([
      layerClasses.map(({ stages, chunks }) => [stages, chunks]),
      Object.entries(operators).map(([name, { stage, chunk }]) => [name, stage, chunk]),
    ]);
  return places(before) !== places(after);
}

/** Per plan: places of layers, and of forward operators outside of them or of layers that are in several places. */
function placeTexts(before: Plan, after: Plan, graph: Graph | undefined): readonly [Texts, Texts] {
  if (before.degrees.pp === 1 && after.degrees.pp === 1) return [new Map(), new Map()];
  if (!graph) {
    const texts = ({ layerClasses, operators }: Plan) =>
      new Map([
        ...Object.entries(operators).map(([name, own]) => [name, stageChunkText(own)] as const),
        ...layerClasses.flatMap(({ instances, stages = [], chunks = [] }) =>
          instances.map((layer, index) => {
            const [stage = 0, chunk = 0] = [stages[index], chunks[index]];
            return [layer, stageChunkText({ stage, chunk })] as const;
          }),
        ),
      ]);
    return [texts(before), texts(after)];
  }
  const forward = graph.nodes.filter(({ phase }) => phase === 'forward');
  const placed = (plan: Plan) => {
    const placeOf = placesIn(plan);
    return new Map(forward.map((node) => [node, stageChunkText(placeOf(node))]));
  };
  const [a, b] = [placed(before), placed(after)];
  const placesOf = new Map<string, Set<string>>();
  for (const node of forward)
    if (node.layer !== null)
      placesOf.set(node.layer, (placesOf.get(node.layer) ?? new Set()).add(`${a.get(node)} ${b.get(node)}`));
  const nameOf = ({ name, layer }: Node) => (layer !== null && placesOf.get(layer)?.size === 1 ? layer : name);
  const named = (texts: ReadonlyMap<Node, string>) => new Map([...texts].map(([node, text]) => [nameOf(node), text]));
  return [named(a), named(b)];
}

function reshardsText(reshards: readonly PlanReshard[]): string {
  const texts = reshards.map(({ layout, steps }) => (steps.length === 0 ? layout : `${layout} by ${steps.join(', ')}`));
  return [...new Set(texts)].sort().join(' and ');
}

function differences(before: Texts, after: Texts): readonly Difference[] {
  return [...new Set([...before.keys(), ...after.keys()])].flatMap((name) => {
    const [one, other] = [before.get(name) ?? null, after.get(name) ?? null];
    return one === other ? [] : [{ name, before: one, after: other }];
  });
}

/** Those of names that both have. */
function sharedDifferences(before: Texts, after: Texts): readonly Difference[] {
  return differences(before, after).filter(({ name }) => before.has(name) && after.has(name));
}

function costOf({ predicted: before }: Plan, { predicted: after }: Plan): CostDifference {
  const names = [...new Set([...Object.keys(before.parts), ...Object.keys(after.parts)])].sort();
  const stages = Math.max(before.peakBytes.length, after.peakBytes.length);
  return {
    stepSeconds: { before: before.stepSeconds, after: after.stepSeconds },
    peakBytes: Array.from({ length: stages }, (_, stage) => ({
      before: before.peakBytes[stage] ?? 0,
      after: after.peakBytes[stage] ?? 0,
    })),
    bytesCommunicated: { before: before.bytesCommunicated, after: after.bytesCommunicated },
    flopsPerRank: { before: before.flopsPerRank, after: after.flopsPerRank },
    parts: Object.fromEntries(
      names.map((name) => [name, { before: before.parts[name] ?? 0, after: after.parts[name] ?? 0 }]),
    ),
  };
}

function tuple(values: readonly number[]): string {
  return `(${values.join(',')})`;
}
