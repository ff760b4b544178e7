/**
 * @file A plan in readable form: its most expensive operators and its communication.
 */
import type { Cluster } from '../../cost-model/cluster.js';
import { hiddenBehind } from '../../cost-model/data-overlap.js';
import { clustersOf, sendsInStep } from '../../cost-model/predict-stages.js';
import { priceNode } from '../../cost-model/price.js';
import type { Graph, Node } from '../../ir/graph.js';
import type { Assignment } from '../../partition/assignment.js';
import { runsInStep } from '../../partition/except-last.js';
import type { LoweredStage } from '../../partition/lower-stages.js';
import { localBytes } from '../../partition/partition.js';
import { type ComputeNode, resultsOf, type ShardedGraph } from '../../partition/sharded-graph.js';
import { fileLayout } from '../../sharding-propagation/file-form.js';
import type { Layout } from '../../sharding-propagation/layout.js';
import { layoutText, rankNames, shownStrategy } from '../../sharding-propagation/layout-text.js';
import { type Mesh, STAGE_AXIS } from '../../sharding-propagation/mesh.js';
import { namesOn } from '../../sharding-propagation/stage-meshes.js';
import type { Strategy } from '../../sharding-propagation/strategy.js';
import { sidesUnder } from '../explanations/explain-layouts.js';
import { fileTensors } from '../models/file-tensors.js';

export interface ExpensiveOperator {
  readonly operator: string;
  /** Operators of equal layers that this one stands for, itself included; on all stages that run them alike. */
  readonly count: number;
  readonly op: string;
  /** Factors and their axes: `n: tp, b: dp`. */
  readonly strategy: string;
  /** Layouts of operands and results: `[dp, -] · [-, tp] → [dp, tp]`. */
  readonly layouts: string;
  /** The same for people, with axes in place of sub-axes: `n: (3 | 64:tp), h: tp 2 of 8`. */
  readonly shown: { readonly strategy: string; readonly layouts: string };
  /** Total seconds of these operators. */
  readonly seconds: number;
}

export interface Communication {
  readonly label: string;
  /** Its operator's counterpart in the first of equal layers; its own operator if there are none. */
  readonly like: string;
  readonly kind: string;
  readonly axes: readonly string[];
  /** The same for people: `tp 2 of 8` in place of the sub-axis `tp.2`. */
  readonly over: string;
  /** Bytes of the larger of operand and result on one rank, summed over its runs in a step. */
  readonly bytes: number;
  /** Seconds of its runs in a step. */
  readonly seconds: number;
}

/** For each operator of a layer that equals an earlier one, the operator in the same place of the first such layer. */
export type LikeOperators = ReadonlyMap<string, string>;

/** Operators of equal layers on one stage. */
export interface OperatorClass {
  readonly row: ExpensiveOperator;
  /** The operator that the row names comes first. */
  readonly operators: ReadonlySet<string>;
  /** Text of all that agrees where stages run the operators of equal layers alike. */
  readonly alike: string;
}

/** The operators that take most time, most expensive first; those of equal layers are one where stages run them alike. */
export function mostExpensiveOperators(
  lowered: readonly LoweredStage[],
  assignment: Assignment,
  cluster: Cluster,
  like: LikeOperators = new Map(),
  most = 8,
): readonly ExpensiveOperator[] {
  const rows = new Map<string, ExpensiveOperator>();
  for (const { row, alike } of classesOf(lowered, assignment, cluster, like)) {
    const { count, seconds } = rows.get(alike) ?? { count: 0, seconds: 0 };
    rows.set(alike, { ...(rows.get(alike) ?? row), count: count + row.count, seconds: seconds + row.seconds });
  }
  return [...rows.values()].sort(byExpense).slice(0, most);
}

/** All operators of each stage, most expensive first: a rank runs those of one stage only, so stages stay apart. */
export function operatorClassesOf(
  lowered: readonly LoweredStage[],
  assignment: Assignment,
  cluster: Cluster,
  like: LikeOperators,
): readonly OperatorClass[] {
  return [...classesOf(lowered, assignment, cluster, like)].sort((a, b) => byExpense(a.row, b.row));
}

function byExpense(a: ExpensiveOperator, b: ExpensiveOperator): number {
  return b.seconds - a.seconds || (a.operator < b.operator ? -1 : 1);
}

function classesOf(
  lowered: readonly LoweredStage[],
  assignment: Assignment,
  cluster: Cluster,
  like: LikeOperators,
): readonly OperatorClass[] {
  const clusters = clustersOf(lowered, cluster);
  return lowered.flatMap((stage, index) => classesOfStage(stage, assignment, clusters[index] as Cluster, like));
}

function classesOfStage(
  { graph, sharded }: LoweredStage,
  assignment: Assignment,
  cluster: Cluster,
  like: LikeOperators,
): readonly OperatorClass[] {
  const seconds = new Map<string, number>();
  const alike = new Map<string, Set<string>>();
  const main = new Map<string, ComputeNode>();
  const fileOf = fileTensors(graph, sharded);
  const byName = new Map(graph.nodes.map((node) => [node.name, node]));
  const runsOf = runsInStep(sharded);
  for (const node of sharded.nodes) {
    if (node.kind !== 'compute') continue;
    const price = runsOf(node) * priceNode(node, sharded, cluster);
    const leader = like.get(node.origin) ?? node.origin;
    const members = alike.get(leader) ?? new Set([node.origin]);
    alike.set(leader, members.add(node.origin));
    seconds.set(leader, (seconds.get(leader) ?? 0) + price / 1e9);
    if (node.op === byName.get(node.origin)?.op) main.set(node.origin, node);
  }
  const layoutOf = (name: string | null) => {
    const tensor = name === null ? undefined : sharded.tensors.get(name);
    return tensor ? fileLayout(tensor.layout, fileOf.get(name ?? '') ?? null) : null;
  };
  const place = JSON.stringify([sharded.mesh, cluster.device.id]);
  return [...seconds].map(([leader, time]) => {
    // A later stage does not contain the first layer of a class.
    const members = alike.get(leader) ?? new Set([leader]);
    const [operator = leader] = members;
    const [node, lowered] = [byName.get(operator), main.get(operator)];
    const strategy = assignment.strategies.get(node?.group ?? operator);
    const [inputs, outputs] = lowered
      ? [lowered.inputs, lowered.outputs].map((names) => names.map(layoutOf))
      : sidesOf(graph, node, strategy, sharded.mesh);
    const layoutsIn = (text: (layout: Layout) => string, join = joined) => {
      const texts = [inputs, outputs].map((side = []) => side.flatMap((layout) => (layout ? [text(layout)] : [])));
      return texts.flat().length > 0 ? texts.map(join).join(' → ') : '';
    };
    const row = {
      operator,
      count: members.size,
      op: node?.op ?? '',
      strategy: Object.entries(strategy?.axes ?? {})
        .map(([factor, axes]) => `${factor}: ${namesOn(sharded.mesh, axes).join(',')}`)
        .join(', '),
      layouts: layoutsIn((layout) => layoutText(layout, sharded.mesh)),
      shown: {
        strategy: strategy ? shownStrategy(strategy, sharded.mesh) : '',
        layouts: layoutsIn((layout) => layoutText(layout, sharded.mesh, rankNames), joinedOnce),
      },
      seconds: time,
    };
    // Sums of the same prices differ in their last digits.
    const each = (time / members.size).toPrecision(9);
    const key = [leader, row.op, row.strategy, row.layouts, each, place].join('\n');
    return { row, operators: members, alike: key };
  });
}

function joined(texts: readonly string[]): string {
  return texts.join(' · ');
}

/** Three or more equal texts in a row become one: `[dp, -] ×3 · [-, tp]`. */
function joinedOnce(texts: readonly string[]): string {
  const runs: { readonly text: string; count: number }[] = [];
  for (const text of texts) {
    const last = runs.at(-1);
    if (last?.text === text) last.count++;
    else runs.push({ text, count: 1 });
  }
  return joined(
    runs.flatMap(({ text, count }) => (count > 2 ? [`${text} ×${count}`] : count > 1 ? [text, text] : [text])),
  );
}

/** Layouts of an operator that was lowered to others. */
function sidesOf(graph: Graph, node: Node | undefined, strategy: Strategy | undefined, mesh: Mesh) {
  if (!node || !strategy) return [];
  const { operands, results } = sidesUnder(graph, node, strategy, mesh);
  return [operands, results];
}

/** Every collective in the order of the sharded graph, then the sends to other stages; stage by stage. */
export function communicationOf(
  lowered: readonly LoweredStage[],
  cluster: Cluster,
  like: LikeOperators = new Map(),
): readonly Communication[] {
  const clusters = clustersOf(lowered, cluster);
  return lowered.flatMap(({ sharded }, stage) => [
    ...collectivesOf(sharded, clusters[stage] as Cluster, like),
    ...sendsOf(sharded, lowered.length, cluster, like),
  ]);
}

function sendsOf(
  sharded: ShardedGraph,
  stages: number,
  cluster: Cluster,
  like: LikeOperators,
): readonly Communication[] {
  const sends = sendsInStep(sharded, stages, cluster);
  const sent = new Set(sends.map(({ tensor }) => tensor));
  const makers = new Map(
    sharded.nodes.flatMap((node) =>
      resultsOf(node).flatMap((result) => (sent.has(result) ? [[result, node.origin] as const] : [])),
    ),
  );
  const likeOf = (operator: string) => like.get(operator) ?? operator;
  return sends.map(({ name, tensor, bytes, seconds }) => ({
    ...{ label: name, kind: 'send', axes: [STAGE_AXIS], over: STAGE_AXIS, bytes, seconds },
    like: likeOf(makers.get(tensor) ?? name),
  }));
}

function collectivesOf(sharded: ShardedGraph, cluster: Cluster, like: LikeOperators): readonly Communication[] {
  const runsOf = runsInStep(sharded);
  const joined = hiddenBehind(sharded, cluster)?.joined;
  return sharded.nodes.flatMap((node) => {
    if (node.kind !== 'communicate') return [];
    const runs = runsOf(node);
    const bytes = [node.input, node.output].map((name) => {
      const tensor = sharded.tensors.get(name);
      return tensor ? localBytes(tensor) : 0;
    });
    return [
      {
        label: node.origin,
        like: like.get(node.origin) ?? node.origin,
        kind: node.collective.kind,
        axes: namesOn(sharded.mesh, node.axes),
        over: rankNames(node.axes, sharded.mesh).join(', '),
        bytes: runs * Math.max(...bytes),
        seconds: (runs * (joined?.get(node.name) ?? priceNode(node, sharded, cluster))) / 1e9,
      },
    ];
  });
}
