/**
 * @file A plan's tensor parallelism by names of modules, as Hugging Face's `tp_plan` has it: a style for each module with a
 * weight. A rowwise module reads the shards that a colwise one leaves; other results are gathered.
 */

import type { Graph, Node } from '../ir/graph.js';
import { weightTensors } from '../ir/of-weights.js';
import { operatorEntry } from '../ir/ops/index.js';
import { type WeightOperator, weightOperator } from '../sharding-propagation/annotations/weight-operators.js';
import { pieceName } from '../sharding-propagation/refine.js';
import { WEIGHT_AXIS } from '../sharding-propagation/roles.js';
import type { PlacedOperator, PlacedPlan } from './placed-operators.js';

export type TpStyle = 'colwise' | 'colwise_rep' | 'rowwise' | 'rowwise_rep' | 'embedding_rowwise';

export interface TpPlan {
  /** By module; `*` stands for every layer's number. */
  readonly styles: Readonly<Record<string, TpStyle>>;
  /** Features of the plan that the form cannot express, a line each. */
  readonly notes: readonly string[];
}

/** A matmul with a weight on tp. */
interface ShardedWeightOperator {
  readonly operator: WeightOperator;
  readonly module: string | null;
  readonly side: 'column' | 'row';
  readonly looksUp: boolean;
}

/** The plan's modules and their styles. */
export function tpPlan(placed: PlacedPlan): TpPlan {
  const { graph, assignment, operators, stages } = placed;
  const weights = weightTensors(graph);
  const notes: string[] = [];
  const weightOperators = new Map<Node, WeightOperator>();
  const whole = new Set<string>();
  const sharded = new Map<Node, ShardedWeightOperator>();
  for (const operator of operators) {
    const { node } = operator;
    if (node.phase !== 'forward') continue;
    const weighted = weightOperator(graph, node, weights);
    if (!weighted) continue;
    weightOperators.set(node, weighted);
    const side = sideOf(operator, weighted);
    const name = weightName(graph, node.inputs[weighted.operand] ?? '');
    const module = moduleOf(name);
    if (side === 'none' && module !== null) whole.add(module);
    if (side === 'none') continue;
    if (side === 'other') notes.push(`${name ?? node.name}: tp shards parts of its weight, which no style expresses`);
    else sharded.set(node, { operator: weighted, side, module, looksUp: operatorEntry(node).indexInput !== undefined });
  }
  const named = new Map<string, TpStyle>();
  const unlike = new Set<string>();
  for (const [node, own] of sharded) {
    const style = styleOf(graph, node, own, weightOperators, sharded);
    if (own.module === null)
      notes.push(`${node.name}: its weight is not a module parameter (a name that ends in .weight)`);
    else if (style === null) notes.push(`${own.module}: no style shards the features of a table`);
    else if (whole.has(own.module) || (named.get(own.module) ?? style) !== style) unlike.add(own.module);
    else named.set(own.module, style);
  }
  for (const module of unlike) {
    named.delete(module);
    notes.push(`${module}: operators read its weight in different layouts, and a module has one style`);
  }
  for (const { name, size } of assignment.mesh.axes)
    if (name !== WEIGHT_AXIS && size > 1) notes.push(`${name} ${size}: the format covers tp only`);
  if (stages > 1) notes.push(`${stages} stages: the format has no pipeline`);
  if (operators.some(({ recompute }) => recompute)) notes.push('recomputation');
  return { styles: byPattern(named), notes: [...new Set(notes)] };
}

/** The dimension of the weight that tp shards; `other` where it shards parts of one, or something that is not one of them. */
function sideOf(
  { strategy }: PlacedOperator,
  { rule, operand, column, row }: WeightOperator,
): 'column' | 'row' | 'none' | 'other' {
  const isOn = (factor: string) =>
    strategy.axes[factor]?.some((axis) => axis === WEIGHT_AXIS || axis.startsWith(`${WEIGHT_AXIS}.`));
  const isCut = (factor: string | null) => factor !== null && isOn(factor) === true;
  if (isCut(column)) return 'column';
  if (isCut(row)) return 'row';
  const own = (rule.inputs[operand] ?? []).flat();
  const parts = own.flatMap((factor) => (strategy.pieces?.[factor] ?? []).map((_, index) => pieceName(factor, index)));
  return [...own, ...parts].some(isOn) ? 'other' : 'none';
}

/** null for a table whose features are sharded. */
function styleOf(
  graph: Graph,
  node: Node,
  { side, looksUp }: ShardedWeightOperator,
  weightOperators: ReadonlyMap<Node, WeightOperator>,
  sharded: ReadonlyMap<Node, ShardedWeightOperator>,
): TpStyle | null {
  if (looksUp) return side === 'row' ? 'embedding_rowwise' : null;
  if (side === 'column') {
    const readers = [...nearest(graph, node, weightOperators, 'readers')];
    const isRead = readers.length > 0 && readers.every((reader) => sharded.get(reader)?.side === 'row');
    return isRead ? 'colwise' : 'colwise_rep';
  }
  const makers = [...nearest(graph, node, weightOperators, 'makers')];
  return makers.some((maker) => sharded.get(maker)?.side === 'column') ? 'rowwise' : 'rowwise_rep';
}

/** The operators with weights that a node's results lead to, or its operands come from, with none of them between. */
function nearest(
  graph: Graph,
  from: Node,
  weightOperators: ReadonlyMap<Node, WeightOperator>,
  way: 'readers' | 'makers',
): ReadonlySet<Node> {
  const found = new Set<Node>();
  const seen = new Set<Node>([from]);
  const open = [from];
  for (let node = open.pop(); node; node = open.pop()) {
    const names = way === 'readers' ? node.outputs : node.inputs;
    const next = graph.nodes.filter(
      (other) =>
        other.phase === 'forward' &&
        (way === 'readers' ? other.inputs : other.outputs).some((name) => name !== null && names.includes(name)),
    );
    for (const other of next) {
      if (seen.has(other)) continue;
      seen.add(other);
      if (weightOperators.has(other)) found.add(other);
      else open.push(other);
    }
  }
  return found;
}

/** The weight behind a tensor that is computed from it alone (transposed, converted). */
function weightName(graph: Graph, tensor: string): string | null {
  let name: string | null | undefined = tensor;
  while (name && !graph.weights.has(name) && !graph.state.some(({ input }) => input === name)) {
    const maker: Node | undefined = graph.nodes.find(({ outputs }) => outputs.includes(name as string));
    name = maker?.inputs[0];
  }
  return name ?? null;
}

function moduleOf(name: string | null): string | null {
  return /^(.+)\.weight$/.exec(name ?? '')?.[1] ?? null;
}

/** One entry for all layers where they agree. */
function byPattern(named: ReadonlyMap<string, TpStyle>): Readonly<Record<string, TpStyle>> {
  const pattern = (module: string) => module.replace(/(?<=^|\.)\d+(?=\.|$)/g, '*');
  const groups = new Map<string, Set<TpStyle>>();
  for (const [module, style] of named)
    groups.set(pattern(module), (groups.get(pattern(module)) ?? new Set()).add(style));
  return Object.fromEntries(
    [...named].map(([module, style]) => [groups.get(pattern(module))?.size === 1 ? pattern(module) : module, style]),
  );
}
