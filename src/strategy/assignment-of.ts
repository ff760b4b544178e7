/**
 * @file From plan.json back to the assignment that partition obeys: the inverse of plan-of.ts.
 */
import { originalTensors } from '../ir/autodiff/recompute.js';
import { AutoparError } from '../ir/error.js';
import type { FactorRule } from '../ir/factor-rule.js';
import { fileTensorOf, type Graph, typeOf } from '../ir/graph.js';
import { type Leaders, leadersOf } from '../ir/layers.js';
import { operatorOf } from '../ir/operator-of.js';
import { operatorEntry } from '../ir/ops/index.js';
import { stateWeights } from '../ir/passes/state-weights.js';
import type { Assignment, SharedReshard, TensorReader } from '../partition/assignment.js';
import { fileShape, graphLayout, tensorLayoutText } from '../sharding-propagation/file-form.js';
import { isReplicated, type Layout, normalise, replicated } from '../sharding-propagation/layout.js';
import { parseLayout } from '../sharding-propagation/layout-text.js';
import { type Mesh, makeMesh, STAGE_AXIS } from '../sharding-propagation/mesh.js';
import { withExperts } from '../sharding-propagation/roles.js';
import { type StageMeshes, stageMeshes } from '../sharding-propagation/stage-meshes.js';
import { checkStrategy, pendingPartial, type Strategy } from '../sharding-propagation/strategy.js';
import { withoutFirst } from './first-only.js';
import type { Plan, PlanOperator } from './plan.js';
import { producedLayouts } from './produced-layouts.js';
import { readersByTensor, readerText } from './readers.js';
import { unfit } from './unfit.js';

/**
 * The assignment of a plan.
 * @throws AutoparError (input) where an operator has no entry, a strategy is illegal, or a layout contradicts the strategies
 */
export function assignmentOf(plan: Plan, graph: Graph): Assignment {
  checkMicroBatches(plan, graph);
  const mesh = operatorMesh(plan);
  const leaders = leadersOf(graph, plan.layerClasses);
  const strategies = strategiesOf(plan, graph, mesh, leaders);
  const inputs = new Map(
    graph.inputs.map((input) => {
      const { shape } = typeOf(graph, input);
      const text = plan.tensors[input];
      const whole = replicated(shape);
      const layout =
        text === undefined ? normalise(whole.dims, [], mesh) : layoutFrom(withoutFirst(text), graph, mesh, input);
      return [input, layout] as const;
    }),
  );
  const produced = producedLayouts(graph, { mesh, strategies, inputs });
  checkTensors(plan, graph, mesh, produced, leaders);
  const sharedReshards = [...readersByTensor(graph)].flatMap(([tensor, readers]) =>
    reshardsOf(plan, graph, mesh, tensor, readers, produced, leaders),
  );
  const { gathers } = plan.schedule.recompute ?? {};
  return { mesh, strategies, inputs, sharedReshards, ...(gathers ? { gathersAgain: true as const } : {}) };
}

/** The mesh of strategies and layouts: in a pipeline that of one stage, or the mesh that stages of unlike meshes share. */
function operatorMesh(plan: Plan): Mesh {
  const { mesh, degrees } = plan;
  const meshes = meshesOf(plan);
  if (meshes) return meshes.common;
  const own = mesh.filter(({ axis }) => axis !== STAGE_AXIS);
  return withExperts(makeMesh(own.map(({ axis, size }) => [axis, size] as const)), degrees.ep);
}

/** The meshes of a plan's stages where they differ. @throws Error (internal error) for meshes that planProblem refuses */
export function meshesOf({ meshes }: Pick<Plan, 'meshes'>): StageMeshes | undefined {
  return meshes && stageMeshes(meshes.map((axes) => axes.map(({ axis, size }) => [axis, size] as const)));
}

function checkMicroBatches({ schedule }: Plan, graph: Graph): void {
  const count = graph.microBatches?.count ?? 1;
  if (schedule.microBatches === count) return;
  throw unfit(
    'plan-contradicts-itself',
    `schedule.microBatches is ${schedule.microBatches}, the model's step has ${count}`,
    {},
  );
}

function strategiesOf(plan: Plan, graph: Graph, mesh: Mesh, leaders: Leaders): ReadonlyMap<string, Strategy> {
  const strategies = new Map<string, Strategy>();
  const plain = graph.nodes.filter(({ phase }) => phase !== 'recompute');
  for (const node of plain) {
    const name = leaders.operators.get(node.name) ?? node.name;
    const entry = Object.hasOwn(plan.operators, name) ? plan.operators[name] : undefined;
    if (!entry) throw unfit('plan-incomplete', `the plan has no entry for operator ${node.name}`, { node: node.name });
    const operator = operatorOf(graph, node);
    const registered = operatorEntry(operator);
    const strategy = strategyFrom(entry);
    const rule = registered.rule(operator);
    const reason = checkStrategy(rule, strategy, registered.linear(operator), mesh) ?? nothingPending(rule, strategy);
    if (reason)
      throw unfit('plan-illegal', `the plan's strategy for operator ${node.name} is not possible: ${reason}`, {
        node: node.name,
      });
    strategies.set(node.group, strategy);
  }
  const names = new Set(plain.map((node) => node.name));
  const stranger = Object.keys(plan.operators).find((name) => !names.has(name));
  if (stranger !== undefined) {
    throw unfit('plan-incomplete', `the plan names operator ${stranger}, which the model lacks`, { node: stranger });
  }
  return strategies;
}

/** The reason why a reduction is not valid: it would be over no axes. */
function nothingPending(rule: FactorRule, strategy: Strategy): string | null {
  if (strategy.pending.kind === 'none' || pendingPartial(rule, strategy).length > 0) return null;
  return `its results are not partial, and its reduction is ${strategy.pending.kind}`;
}

function strategyFrom(entry: PlanOperator): Strategy {
  return {
    axes: entry.strategy,
    ...(entry.pieces ? { pieces: entry.pieces } : {}),
    partialOperands: entry.partial ?? null,
    pending: entry.reduction ?? { kind: 'none' },
  };
}

/** Layouts in the plan are there to be read; that they agree with the strategies shows whether the file was edited. */
function checkTensors(
  plan: Plan,
  graph: Graph,
  mesh: Mesh,
  produced: ReadonlyMap<string, Layout>,
  leaders: Leaders,
): void {
  // Clones leave their results as their originals do.
  const clones = originalTensors(graph);
  const held = stateWeights(graph);
  for (const [tensor, layout] of produced) {
    if (leaders.tensors.has(tensor) || clones.has(tensor)) continue;
    const stated = Object.hasOwn(plan.tensors, tensor) ? withoutFirst(plan.tensors[tensor] as string) : undefined;
    const isLeftOut = isReplicated(layout) && !held.has(tensor);
    // An entry may state only which ranks have the tensor.
    if (isLeftOut && stated !== plan.tensors[tensor] && stated === tensorLayoutText(graph, tensor, layout, mesh))
      continue;
    const follows = isLeftOut ? undefined : tensorLayoutText(graph, tensor, layout, mesh);
    if (stated === follows) continue;
    const where = { tensor };
    throw unfit(
      'plan-contradicts-itself',
      `tensor ${tensor} is ${stated ?? 'replicated'} in the plan, and ${follows ?? 'replicated'} by its strategies`,
      where,
    );
  }
  const stranger = Object.keys(plan.tensors).find((tensor) => !produced.has(tensor) || clones.has(tensor));
  if (stranger !== undefined) {
    throw unfit('plan-incomplete', `the plan names tensor ${stranger}, which graph ${graph.name} lacks`, {
      tensor: stranger,
    });
  }
}

function reshardsOf(
  plan: Plan,
  graph: Graph,
  mesh: Mesh,
  tensor: string,
  readers: readonly TensorReader[],
  produced: ReadonlyMap<string, Layout>,
  leaders: Leaders,
): readonly SharedReshard[] {
  const entries = (name: string) =>
    Object.hasOwn(plan.redistributions, name) ? plan.redistributions[name] : undefined;
  const own = entries(tensor);
  if (own) {
    const byText = new Map(readers.map((reader) => [readerText(reader), reader]));
    // A tensor that leaves its stage without leaving the graph has such a reader where stages have unlike meshes (staged-graph.ts
    // checks it).
    const sent = { kind: 'output', name: tensor, operand: 0 } as const;
    if (plan.meshes && own.some((entry) => entry.readers.includes(readerText(sent))))
      byText.set(readerText(sent), sent);
    const reshards = own.map((entry) => ({
      tensor,
      readers: entry.readers.map((text) => {
        const reader = byText.get(text);
        if (reader && byText.delete(text)) return reader;
        throw unfit('plan-incomplete', `the plan names ${text} as a reader of tensor ${tensor}, which it is not`, {
          tensor,
        });
      }),
      layout: layoutFrom(entry.layout, graph, mesh, tensor),
    }));
    const [missing] = byText.keys();
    if (missing === undefined) return reshards;
    throw unfit('plan-incomplete', `the plan does not list ${missing}, a reader of tensor ${tensor}`, { tensor });
  }
  const leader = leaders.tensors.get(tensor);
  const [leading, ...more] = (leader === undefined ? undefined : entries(leader)) ?? [];
  if (leading && more.length === 0)
    return [{ tensor, readers, layout: layoutFrom(leading.layout, graph, mesh, tensor) }];
  const layout = produced.get(tensor);
  if (!layout) throw new Error(`tensor ${tensor} is neither an input nor a result`);
  return [{ tensor, readers, layout }];
}

/** Parses a layout of the plan, naming the tensor where it is wrong. */
function layoutFrom(text: string, graph: Graph, mesh: Mesh, tensor: string): Layout {
  try {
    return graphLayout(parseLayout(text, fileShape(graph, tensor), mesh), fileTensorOf(graph, tensor));
  } catch (error) {
    if (!(error instanceof AutoparError)) throw error;
    throw unfit('plan-illegal', `the plan's layout of tensor ${tensor} is wrong: ${error.message}`, { tensor });
  }
}
