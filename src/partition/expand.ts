/**
 * @file An operator replaced by its expansion, each node lowered under the strategy that the expanded operator's gives it.
 *
 * Every dimension inside an expansion is named by factors of the expanded operator. A factor of an inner operator spans
 * one or more of those; it takes their axes. Pending reductions of inner operators are done where they arise.
 *
 *     Softmax  b d%   with d on tp:   max (all-reduce max over tp) · sub · exp · sum (all-reduce over tp) · div
 */
import type { FactorRule, TensorFactors } from '../ir/factor-rule.js';
import type { TensorType } from '../ir/graph.js';
import type { Expansion, ExpansionNode, Operator } from '../ir/operator.js';
import { entryOf, operatorEntry } from '../ir/ops/index.js';
import { operandNames, resultNames } from '../ir/written-names.js';
import { followers, withFollowers } from '../sharding-propagation/halo.js';
import type { SubAxis } from '../sharding-propagation/mesh.js';
import { axesSize } from '../sharding-propagation/mesh.js';
import { type FactorPieces, pieceName } from '../sharding-propagation/refine.js';
import { type FactorAxes, pendingPartial, type Strategy } from '../sharding-propagation/strategy.js';
import type { Fragment } from './fragment.js';

/** A strategy that is invalid for an operator, or for an operator of its expansion. */
export class IllegalStrategy extends Error {}

/** Names around an operator: its operands in the fragment, and the names wanted for its results. */
export interface OperatorNames {
  readonly inputs: readonly (string | null)[];
  /** `undefined`: any name. */
  readonly outputs: readonly (string | null | undefined)[];
  /** The operator is part of a form that takes offsets: it knows its position already. */
  readonly positioned?: boolean;
}

/** Adds an operator to a fragment: the lowering of each node of an expansion. */
export type AddOperator = (
  fragment: Fragment,
  operator: Operator,
  strategy: Strategy,
  names: OperatorNames,
) => readonly (string | null)[];

/** An operator to be replaced. */
export interface Expanded {
  readonly operator: Operator;
  readonly rule: FactorRule;
  readonly strategy: Strategy;
  readonly expansion: Expansion;
  /** Where `rule` and `strategy` see factors as pieces (refine.ts): those, for the dimensions that the expansion names. */
  readonly pieces?: FactorPieces | undefined;
  /** Coordinate tensors that the nodes may read by name (the expansion of an operator with indexed factors). */
  readonly offsets?: readonly string[];
}

/** Adds an expansion, node by node. Returns the results' names. */
export function addExpansion(
  fragment: Fragment,
  { operator, rule, strategy: own, expansion, pieces, offsets = [] }: Expanded,
  names: OperatorNames,
  addOperator: AddOperator,
): readonly (string | null)[] {
  const strategy = { ...own, axes: withFollowers(rule, own.axes) };
  const inside = new Map<string, Inside>();
  operandNames(operator.inputs).forEach((name, index) => {
    const [type, tensor] = [operator.inputs[index], names.inputs[index]];
    if (type && tensor) inside.set(name, { tensor, dims: rule.inputs[index] ?? [], type });
  });
  for (const offset of offsets)
    inside.set(offset, { tensor: offset, dims: [[]], type: { dtype: 'int64', shape: [1] } });
  for (const [name, value] of Object.entries(expansion.constants)) {
    const isZero = value.data.every((byte) => byte === 0);
    inside.set(name, { tensor: fragment.constant(value), dims: value.shape.map(() => []), type: value, isZero });
  }
  // The strategy of a region, or of an operator that knows its position, states the pending reduction of its sum as a whole.
  const registered = entryOf(operator.op, operator.domain);
  const isWhole = operator.body !== undefined || offsets.length > 0 || registered?.isWritten === true;
  const resultsInside = resultNames(operator.outputs);
  for (const node of expansion.nodes) {
    const dims = node.dims.map((result) => refineDims(result, pieces));
    const operands = node.inputs.map((name) => {
      if (name === null) return null;
      const operand = inside.get(name);
      if (!operand) throw new Error(`expansion of ${operator.op} reads ${name}, which no node of it makes`);
      return operand;
    });
    const inner = innerOperator(
      operator,
      node,
      operands.map((operand) => operand?.type ?? null),
    );
    const innerStrategy = strategyInside(fragment, inner, operands, dims, rule, strategy, isWhole);
    const results = addOperator(fragment, inner, innerStrategy, {
      inputs: operands.map((operand) => operand?.tensor ?? null),
      positioned: offsets.length > 0,
      outputs: node.outputs.map((name) => names.outputs[resultsInside.indexOf(name)] ?? undefined),
    });
    node.outputs.forEach((name, index) => {
      const [tensor, type] = [results[index], inner.outputs[index]];
      if (tensor && type) inside.set(name, { tensor, dims: dims[index] ?? [], type });
    });
  }
  return resultsInside.map((name, index) => (operator.outputs[index] ? (inside.get(name)?.tensor ?? null) : null));
}

/** A tensor of the expansion. */
interface Inside {
  readonly tensor: string;
  readonly dims: TensorFactors;
  readonly type: TensorType;
  /** A constant zero is whole and a partial sum at once. */
  readonly isZero?: boolean;
}

function refineDims(dims: TensorFactors, pieces: FactorPieces | undefined): TensorFactors {
  if (!pieces) return dims;
  return dims.map((names) =>
    names.flatMap((name) => pieces[name]?.map((_, index) => pieceName(name, index)) ?? [name]),
  );
}

/** A node of the expansion with whole types inferred, which are the same under every strategy. */
function innerOperator(operator: Operator, node: ExpansionNode, inputs: readonly (TensorType | null)[]): Operator {
  const known = OPERATORS.get(node);
  if (known?.of === operator && inputs.every((type, index) => type === known.inner.inputs[index])) return known.inner;
  const inner = inferredOperator(operator, node, inputs);
  OPERATORS.set(node, { of: operator, inner });
  return inner;
}

const OPERATORS = new WeakMap<ExpansionNode, { readonly of: Operator; readonly inner: Operator }>();

function inferredOperator(operator: Operator, node: ExpansionNode, inputs: readonly (TensorType | null)[]): Operator {
  const domain = node.domain ?? '';
  const bare: Operator = {
    name: `${operator.name}/${node.op}`,
    op: node.op,
    domain,
    attributes: node.attributes ?? {},
    inputs,
    outputs: [],
    outputCount: node.outputs.length,
  };
  const entry = operatorEntry({ op: node.op, domain });
  return { ...bare, outputs: entry.infer(bare) };
}

/** The inner operator's strategy: axes by the outer factors its dimensions are made of; partial operands are carried. */
function strategyInside(
  fragment: Fragment,
  operator: Operator,
  operands: readonly (Inside | null)[],
  resultDims: readonly TensorFactors[],
  outerRule: FactorRule,
  outer: Strategy,
  leaves: boolean,
): Strategy {
  const entry = operatorEntry(operator);
  const rule = entry.rule(operator);
  const axes: Record<string, readonly SubAxis[]> = {};
  const pieces: Record<string, readonly number[]> = {};
  // A factor of size 1 that no axis shards does not separate other factors.
  const isReal = (name: string) => outerRule.factors.get(name)?.size !== 1 || (outer.axes[name]?.length ?? 0) > 0;
  const assign = (inner: readonly (readonly string[])[] | null | undefined, outerDims: TensorFactors) => {
    inner?.forEach((factors, position) => {
      for (const group of alignedFactors(factors, (outerDims[position] ?? []).filter(isReal), rule, outerRule)) {
        const [only, ...others] = group.inner;
        if (only !== undefined && others.length === 0 && isCutInside(fragment, group.outer, outerRule, outer)) {
          pieces[only] = group.outer.map((name) => outerRule.factors.get(name)?.size ?? 1);
          group.outer.forEach((name, index) => {
            axes[pieceName(only, index)] = outer.axes[name] ?? [];
          });
          continue;
        }
        for (const [name, list] of axesOfDimension(fragment, rule, group.inner, group.outer, outerRule, outer)) {
          if (list.length > 0) axes[name] = list;
        }
      }
    });
  };
  for (const [index, dims] of rule.inputs.entries()) assign(dims, operands[index]?.dims ?? []);
  for (const [index, dims] of rule.outputs.entries()) assign(dims, resultDims[index] ?? []);
  for (const [{ name }, { of }] of followers(rule, axes)) {
    if (axes[name]?.join() !== axes[of]?.join())
      throw new IllegalStrategy(`${operator.name}: factors ${name} and ${of} are sharded over different axes`);
    delete axes[name];
  }
  const partial = operands.map((operand) => (operand ? fragment.get(operand.tensor).layout.partial : []));
  const arriving = partial.flatMap((list, index) => (list.length > 0 ? [index] : []));
  const placed = Object.keys(pieces).length > 0 ? { axes, pieces } : { axes };
  const later = leaves && leavesPartial(rule, placed, outerRule, outer);
  const pending: Strategy['pending'] = { kind: later ? 'none' : 'all-reduce' };
  if (arriving.length === 0) return { ...placed, partialOperands: null, pending };
  const set = entry
    .linear(operator)
    .findIndex(
      (members) =>
        arriving.every((operand) => members.includes(operand)) &&
        members.every((member) => arriving.includes(member) || operands[member]?.isZero),
    );
  if (set < 0)
    throw new IllegalStrategy(`${operator.name} is not linear in its partial operands ${arriving.join(', ')}`);
  const partialOperands = { set, axes: (partial[arriving[0] ?? 0] ?? []).map((entry) => entry.axis) };
  // Partial operands stay partial; the operator's own sum is reduced where it arises, or is a pending reduction of the region.
  return { ...placed, partialOperands, pending };
}

/** Whether the sum of an inner operator is the sum of the operator around it. */
function leavesPartial(rule: FactorRule, placed: FactorAxes, outerRule: FactorRule, outer: Strategy): boolean {
  const summed = new Set(
    pendingPartial(rule, { ...placed, partialOperands: null, pending: { kind: 'none' } }).map(({ axis }) => axis),
  );
  return (
    summed.size > 0 &&
    [...summed].every((axis) =>
      Object.entries(outer.axes).some(
        ([name, axes]) => axes.includes(axis) && outerRule.factors.get(name)?.kind === 'contracting',
      ),
    )
  );
}

/** Factors of one dimension as the inner operator and the outer one have them. */
interface FactorGroup {
  readonly inner: readonly string[];
  readonly outer: readonly string[];
}

/** A dimension split where factors of both end together: each group's inner and outer factors have the same product. */
function alignedFactors(
  inner: readonly string[],
  outer: readonly string[],
  rule: FactorRule,
  outerRule: FactorRule,
): readonly FactorGroup[] {
  const sizeIn = (of: FactorRule, names: readonly string[]) =>
    names.reduce((product, name) => product * (of.factors.get(name)?.size ?? 1), 1);
  const groups: FactorGroup[] = [];
  let [from, to] = [0, 0];
  inner.forEach((_, index) => {
    const part = inner.slice(from, index + 1);
    const size = sizeIn(rule, part);
    const end = outer.findIndex((_name, at) => at >= to && sizeIn(outerRule, outer.slice(to, at + 1)) === size);
    if (end < 0 || index === inner.length - 1) return;
    groups.push({ inner: part, outer: outer.slice(to, end + 1) });
    [from, to] = [index + 1, end + 1];
  });
  return [...groups, { inner: inner.slice(from), outer: outer.slice(to) }];
}

/** Whether a dimension of several outer factors is sharded inside its major factor: channels inside whole groups. */
function isCutInside(
  fragment: Fragment,
  outerFactors: readonly string[],
  outerRule: FactorRule,
  outer: Strategy,
): boolean {
  const ways = outerFactors.map((name) => axesSize(fragment.mesh, outer.axes[name] ?? []));
  const isPadded = outerFactors.some(
    (name, index) => (outerRule.factors.get(name)?.size ?? 1) % (ways[index] ?? 1) !== 0,
  );
  if (isPadded && outerFactors.length > 1) return true;
  const last = ways.findLastIndex((count) => count > 1);
  return outerFactors
    .slice(0, Math.max(last, 0))
    .some((name, index) => outerRule.factors.get(name)?.size !== ways[index]);
}

/** Distributes a dimension's axes, known by outer factors, among the inner factors that make the same dimension. */
function axesOfDimension(
  fragment: Fragment,
  rule: FactorRule,
  innerFactors: readonly string[],
  outerFactors: readonly string[],
  outerRule: FactorRule,
  outer: Strategy,
): readonly (readonly [string, readonly SubAxis[]])[] {
  const result: [string, SubAxis[]][] = innerFactors.map((name) => [name, []]);
  let position = 0;
  let room = rule.factors.get(innerFactors[0] ?? '')?.size ?? 1;
  for (const name of outerFactors) {
    const size = outerRule.factors.get(name)?.size ?? 1;
    const list = outer.axes[name] ?? [];
    if (list.length > 0) {
      while (room <= 1 && position + 1 < innerFactors.length) {
        position++;
        // A factor that reached beyond the last inner one leaves room < 1: the rest of it is in the next.
        room *= rule.factors.get(innerFactors[position] ?? '')?.size ?? 1;
      }
      const target = result[position];
      const full = target ? (rule.factors.get(target[0])?.size ?? 1) : 1;
      // Axes may join a factor only at its major end or behind a part that is already fully sharded.
      if (!target || full / axesSize(fragment.mesh, target[1]) !== room) {
        throw new IllegalStrategy(`axes of factor ${name} have no place in ${rule.text}`);
      }
      target[1].push(...list);
    }
    room /= size;
  }
  return result;
}
