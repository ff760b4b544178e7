/**
 * @file One operator under one strategy, as local operators and collectives. Rule + strategy ⇒ everything.
 *
 * Five ways, chosen by the kinds of the factors that are sharded:
 *   streamed factor  → the operator on one chunk after the other, passed round the ring (streamed.ts)
 *   expanded factor  → the entry's expansion, lowered node by node (expand.ts); always for a fused region
 *   mask factor      → indices are shifted, those outside the shard contribute zero (masked-lookup.ts)
 *   indexed factor   → the entry's form that takes offsets (expand.ts)
 *   halo factor      → its operand gets the borders that its windows read (halo.ts)
 *   anything else    → the operator itself with attributes resized to the local factors
 * Afterwards the collective of a pending reduction.
 */

import type { Factor, FactorRule } from '../ir/factor-rule.js';
import type { Graph, Node } from '../ir/graph.js';
import { needed } from '../ir/needed.js';
import type { Expansion, Operator, OperatorEntry } from '../ir/operator.js';
import { operatorOf } from '../ir/operator-of.js';
import { operatorEntry } from '../ir/ops/index.js';
import { madeOnce, remembered } from '../ir/remembered.js';
import { structureKey } from '../ir/structure-key.js';
import { operandNames, resultNames } from '../ir/written-names.js';
import type { Layout } from '../sharding-propagation/layout.js';
import { axesOf, type PartialAxis, paddedSize, sameShards } from '../sharding-propagation/layout.js';
import type { Mesh, SubAxis } from '../sharding-propagation/mesh.js';
import { axesSize } from '../sharding-propagation/mesh.js';
import { pieceName, refineRule } from '../sharding-propagation/refine.js';
import type { Strategy } from '../sharding-propagation/strategy.js';
import {
  checkStrategy,
  operandLayouts,
  pendingPartial,
  reducedLayouts,
  resultLayouts,
  streamOf,
} from '../sharding-propagation/strategy.js';
import { addExpansion, IllegalStrategy, type OperatorNames } from './expand.js';
import { Fragment, type FragmentOperator } from './fragment.js';
import { markFused } from './fused.js';
import { addOnBorders, shardedHalos, withBorders } from './halo.js';
import { isMatmul, type KernelPart, kernelPartOf } from './kernels.js';
import { lowerReshardOps } from './lower-reshard.js';
import { addMaskedLookup } from './masked-lookup.js';
import { withNeutralPadding } from './neutral-padding.js';
import { pendingReshardOps } from './pending.js';
import { readsOf, resultsOf } from './sharded-graph.js';
import { addStreamed } from './streamed.js';

export interface LoweredOperator {
  /** Layout that each operand must have; null for an absent one. */
  readonly operandLayouts: readonly (Layout | null)[];
  /** Layout of each result, after its pending reduction is done. */
  readonly resultLayouts: readonly (Layout | null)[];
  /** Operands are `in0`, …; results `out0`, …. */
  readonly fragment: Fragment;
}

/** Facts about the surrounding graph that the lowering of an operator needs. */
export interface OperatorContext {
  /** Per operand: whether it is a weight, whose shards are padded with zeros. */
  readonly stored: readonly boolean[];
  /** Per result: whether anything reads it. Only nodes of an expansion that lead to such a result are kept. */
  readonly read: readonly boolean[];
  /** Its part of a kernel; left out: it is a kernel of its own. */
  readonly kernel?: KernelPart | undefined;
}

/** The context of a node in its graph. */
export function contextOf(graph: Graph, node: Node): OperatorContext {
  const read = readIn(graph);
  return {
    stored: node.inputs.map((input) => input !== null && graph.weights.has(input)),
    read: node.outputs.map((output) => output !== null && read.has(output)),
    kernel: kernelPartOf(graph, node),
  };
}

const readIn = remembered(
  ({ outputs, nodes }: Graph): ReadonlySet<string | null> =>
    new Set([...outputs, ...nodes.flatMap(({ inputs }) => inputs)]),
);

/**
 * A node of a graph, lowered. Operators of one structure under one strategy share their lowered form: partition only replaces its
 * names.
 * @throws IllegalStrategy as `lowerOperator`
 */
export function lowerNode(graph: Graph, node: Node, strategy: Strategy, mesh: Mesh): LoweredOperator {
  const operator = operatorOf(graph, node);
  const context = contextOf(graph, node);
  const key = `${structureKey(operator)} ${JSON.stringify(context)}`;
  const byStrategy = madeOnce(LOWERED, mesh, () => new WeakMap<Strategy, Map<string, LoweredOperator>>());
  const byKey = madeOnce(byStrategy, strategy, () => new Map<string, LoweredOperator>());
  return madeOnce(byKey, key, () => lowerOperator(operator, strategy, mesh, context));
}

const LOWERED = new WeakMap<Mesh, WeakMap<Strategy, Map<string, LoweredOperator>>>();

/**
 * Lowers an operator. `context`: left out where no operand is a weight and every result is read.
 * @throws IllegalStrategy (an internal error) where the strategy is illegal for the rule or inside the operator's expansion
 */
export function lowerOperator(
  operator: Operator,
  strategy: Strategy,
  mesh: Mesh,
  { stored, read, kernel = ownKernel(operator) }: OperatorContext = {
    stored: [],
    read: operator.outputs.map(() => true),
  },
): LoweredOperator {
  const fragment = new Fragment(mesh);
  const entry = operatorEntry(operator);
  const rule = entry.rule(operator);
  const operands = operandLayouts(rule, strategy, entry.linear(operator), mesh);
  fragment.inputs = operandNames(operator.inputs).map((name, index) => {
    const [type, layout] = [operator.inputs[index], operands[index]];
    return type && layout ? fragment.tensor(type, layout, name, [], stored[index] ?? false) : null;
  });
  const { inputs } = fragment;
  const outputs = resultNames(operator.outputs).map((name, index) => (operator.outputs[index] ? name : null));
  const results = addOperator(fragment, operator, strategy, { inputs, outputs });
  fragment.outputs = results;
  const wanted = results.filter((name, index) => name !== null && read[index] === true) as readonly string[];
  fragment.keep(needed(fragment.nodes, wanted, readsOf, resultsOf));
  markFused(fragment, operator, kernel);
  markStored(fragment, new Set(inputs.filter((_, index) => stored[index])));
  return {
    operandLayouts: operands,
    resultLayouts: results.map((name) => (name === null ? null : fragment.get(name).layout)),
    fragment,
  };
}

/** The kernel of an operator whose surrounding graph is unknown. */
function ownKernel(operator: Operator): KernelPart {
  return {
    kind: isMatmul(operator) ? 'matmul' : 'memory',
    inputs: operator.inputs.map(() => false),
    outputs: operator.outputs.map(() => false),
    launches: true,
  };
}

/** The operator lowered; null where its rule allows the strategy, and an operator of its expansion does not. */
export function lowerIfLegal(...operator: Parameters<typeof lowerOperator>): LoweredOperator | null {
  try {
    return lowerOperator(...operator);
  } catch (error) {
    if (error instanceof IllegalStrategy) return null;
    throw error;
  }
}

/** Marks the fragment's nodes whose second operand is one of `weights`. */
function markStored(fragment: Fragment, weights: ReadonlySet<string | null>): void {
  if (weights.size === 0) return;
  for (const [index, node] of fragment.nodes.entries()) {
    if (node.kind === 'compute' && node.inputs[1] && weights.has(node.inputs[1]))
      fragment.nodes[index] = { ...node, stored: true };
  }
}

/** Adds an operator and its pending reduction to a fragment; its operands must have the layouts that the strategy demands. */
function addOperator(
  fragment: Fragment,
  operator: Operator,
  strategy: Strategy,
  names: OperatorNames,
): readonly (string | null)[] {
  const entry = operatorEntry(operator);
  const rule = entry.rule(operator);
  const linear = entry.linear(operator);
  const reason = checkStrategy(rule, strategy, linear, fragment.mesh);
  if (reason) throw new IllegalStrategy(`illegal strategy for ${operator.op} ${operator.name}: ${reason}`);
  const before = resultLayouts(rule, strategy, linear, fragment.mesh);
  const reduces = strategy.pending.kind !== 'none' && pendingPartial(rule, strategy).length > 0;
  const after = reduces ? reducedLayouts(rule, strategy, linear, fragment.mesh) : before;
  const owing = (index: number) => {
    const [from, to] = [before[index], after[index]];
    return from && to && !sameShards(from, to, fragment.mesh);
  };
  const rawNames = names.outputs.map((name, index) => (owing(index) && name !== null ? undefined : name));
  const raw = addUnreduced(fragment, entry, operator, rule, strategy, before, { ...names, outputs: rawNames });
  return raw.map((tensor, index) => {
    const [from, to] = [before[index], after[index]];
    if (tensor === null || !from || !to || !owing(index)) return tensor;
    return lowerReshardOps(fragment, tensor, pendingReshardOps(from, to), names.outputs[index] ?? undefined);
  });
}

/** Attributes, types and work of the operator on one rank's shards. */
function addUnreduced(
  fragment: Fragment,
  entry: OperatorEntry,
  operator: Operator,
  rule: FactorRule,
  strategy: Strategy,
  results: readonly (Layout | null)[],
  names: OperatorNames,
): readonly (string | null)[] {
  const refined = refineRule(rule, strategy.pieces);
  const sharded = [...refined.factors.values()].filter((factor) => (strategy.axes[factor.name] ?? []).length > 0);
  const has = (kind: Factor['kind']) => sharded.some((factor) => factor.kind === kind);
  const stream = streamOf(refined, strategy);
  if (stream)
    return addStreamed(fragment, { entry, operator, rule: refined, strategy, stream, results }, names, addOperator);
  const isWritten = entry.isWritten && shardedHalos(fragment, refined, strategy).length === 0;
  if (has('expanded') || operator.body || isWritten) {
    const { expansion } = entry;
    if (!expansion) throw new Error(`${operator.op} has an expanded factor but no expansion`);
    const { pieces, ...unrefined } = strategy;
    const expanded = {
      operator,
      rule: refined,
      strategy: unrefined,
      expansion: madeOnce(EXPANSIONS, operator, () => expansion(operator)),
      pieces,
    };
    return addExpansion(fragment, expanded, names, addOperator);
  }
  if (has('indexed') && !names.positioned) {
    if (!entry.indexed) throw new Error(`${operator.op} has an indexed factor but no form that takes offsets`);
    const indexed = sharded.filter((factor) => factor.kind === 'indexed');
    const offsets = Object.fromEntries(indexed.map((factor) => [factor.name, offsetOf(fragment, factor, strategy)]));
    const shardSizes = Object.fromEntries(
      indexed.map((factor) => [factor.name, shardSizeOn(fragment, factor, strategy)]),
    );
    const { pieces, ...unrefined } = strategy;
    const expansion = entry.indexed(operator, offsets, shardSizes);
    const positioned = {
      operator,
      rule: refined,
      strategy: unrefined,
      expansion,
      pieces,
      offsets: Object.values(offsets),
    };
    return addExpansion(fragment, positioned, names, addOperator);
  }
  const halos = shardedHalos(fragment, refined, strategy);
  const cut = new Set(halos.map(({ factor }) => factor));
  const bordered =
    cut.size > 0 ? { ...operator, attributes: (entry.bordered ?? attributesOf)(operator, cut) } : operator;
  const attributes = entry.resize
    ? entry.resize(bordered, rule, (name) => localSize(fragment.mesh, refined, strategy, name))
    : bordered.attributes;
  const counted = withOperandsOnce(fragment, entry, pendingPartial(rule, strategy), names.inputs);
  const neutral = withNeutralPadding(fragment, refined, strategy, counted);
  const inputs = withBorders(fragment, refined, halos, neutral);
  const varying = varyingOf(fragment, inputs);
  const stays = (layout: Layout) => varying.filter((axis) => !axesOf(layout).includes(axis));
  const plain: FragmentOperator = {
    op: operator.op,
    domain: operator.domain,
    attributes,
    inputs,
    // An unused result keeps its position: positions identify results.
    results: operator.outputs.map((type, index) => {
      const layout = results[index];
      const name = names.outputs[index];
      return type && layout ? { ...(name ? { name } : {}), type, layout, varying: stays(layout) } : null;
    }),
    // A result that is sharded over the axes along which offsets vary is an ordinary shard.
    ...(varying.length > 0 ? { lowering: 'indexed' as const } : {}),
    ...(counted === names.inputs ? {} : { lowering: 'to-partial' as const }),
  };
  const masked = sharded.find((factor) => factor.kind === 'mask');
  const added = masked
    ? addMaskedLookup(fragment, plain, rule, entry, masked.size, strategy.axes[masked.name] ?? [])
    : halos.length > 0
      ? addOnBorders(fragment, entry, plain, refined, halos)
      : fragment.add(plain);
  let next = 0;
  return operator.outputs.map((type, index) => (type && results[index] ? (added[next++] ?? null) : null));
}

/** An operator is lowered under dozens of strategies: its expansion is the same in all. */
const EXPANSIONS = new WeakMap<Operator, Expansion>();

/** The operands that sums are added to, kept on the first of the ranks that hold partial sums. */
function withOperandsOnce(
  fragment: Fragment,
  { countedOnce = [] }: OperatorEntry,
  partial: readonly PartialAxis[],
  inputs: readonly (string | null)[],
): readonly (string | null)[] {
  if (countedOnce.length === 0 || partial.length === 0) return inputs;
  return inputs.map((name, operand) => {
    if (name === null || !countedOnce.includes(operand)) return name;
    const from = fragment.get(name).layout;
    const order = (entry: PartialAxis) => entry.axis;
    const to = { ...from, partial: [...from.partial, ...partial].sort((a, b) => (order(a) < order(b) ? -1 : 1)) };
    return lowerReshardOps(fragment, name, [{ kind: 'to-partial', axes: partial.map(order), from, to }]);
  });
}

function attributesOf({ attributes }: Operator): Operator['attributes'] {
  return attributes;
}

/** Positions of a factor that a rank holds, padding included. */
function shardSizeOf(size: number, shards: number): number {
  return paddedSize(size, shards) / shards;
}

/** Local size of a factor: the product of its pieces' where the strategy sees it as several. */
function localSize(mesh: Mesh, refined: FactorRule, strategy: Strategy, name: string): number {
  const names = strategy.pieces?.[name]?.map((_, index) => pieceName(name, index)) ?? [name];
  return names.reduce((product, part) => {
    const factor = refined.factors.get(part);
    if (!factor) throw new Error(`rule ${refined.text} has no factor ${part}`);
    return product * shardSizeOf(factor.size, axesSize(mesh, strategy.axes[part] ?? []));
  }, 1);
}

/** Axes along which operands hold unrelated values: coordinates, and values computed from them. */
function varyingOf(fragment: Fragment, inputs: readonly (string | null)[]): readonly SubAxis[] {
  return [...new Set(inputs.flatMap((name) => (name === null ? [] : (fragment.get(name).varying ?? []))))];
}

function offsetOf(fragment: Fragment, factor: Factor, strategy: Strategy): string {
  return fragment.coordinate(strategy.axes[factor.name] ?? [], shardSizeOn(fragment, factor, strategy));
}

function shardSizeOn(fragment: Fragment, factor: Factor, strategy: Strategy): number {
  return shardSizeOf(factor.size, axesSize(fragment.mesh, strategy.axes[factor.name] ?? []));
}
