/**
 * @file A sharded operator, simulated rank by rank in ONNX Runtime: the work of partition and the runtime, in miniature and
 * by other code. Partial results are reduced at once; lookups outside a shard are masked; positions are offset.
 */
import type { DimensionFactors, FactorRule } from '../../../src/ir/factor-rule.js';
import type { TensorType } from '../../../src/ir/graph.js';
import type { Expansion, ExpansionNode, Operator, OperatorEntry } from '../../../src/ir/operator.js';
import { numbersOf } from '../../../src/ir/ops/constants.js';
import { entryOf } from '../../../src/ir/ops/index.js';
import type { Run, Values } from './one-node.js';
import { cut, type Rank, ranksOf, type ShardCounts } from './shards.js';

type Dims = readonly DimensionFactors[];

/** A tensor on all ranks. */
interface Spread {
  readonly type: TensorType;
  readonly dims: Dims;
  readonly byRank: readonly Values[];
}

export interface Simulation {
  readonly run: Run;
  /** The rule whose factors name all dimensions. */
  readonly rule: FactorRule;
  readonly shards: ShardCounts;
}

/** An entry that must be there. */
export function needEntry(op: string, domain = ''): OperatorEntry {
  const entry = entryOf(op, domain);
  if (!entry) throw new Error(`no entry for ${op}`);
  return entry;
}

/** Shards of all results of the operator under the assignment, in ranksOf's order. */
export async function simulate(
  operator: Operator,
  inputs: readonly (Values | null)[],
  at: Simulation,
): Promise<readonly (readonly Values[] | null)[]> {
  const entry = needEntry(operator.op, operator.domain);
  const expands = Object.keys(at.shards).some((name) => at.rule.factors.get(name)?.kind === 'expanded');
  const ranks = ranksOf(at.shards);
  const tensors = new Map<string, Spread>();
  for (const [index, value] of inputs.entries()) {
    const dims = at.rule.inputs[index];
    if (value && dims)
      tensors.set(`in${index}`, {
        type: { dtype: value.dtype, shape: value.shape },
        dims,
        byRank: ranks.map((rank) => cut(value, dims, at.rule, at.shards, rank)),
      });
  }
  const expansion = expands ? entry.expansion?.(operator) : undefined;
  if (expands && !expansion) throw new Error(`${operator.op} has an expanded factor and no expansion`);
  const single: ExpansionNode = {
    op: operator.op,
    domain: operator.domain,
    attributes: operator.attributes,
    inputs: operator.inputs.map((type, index) => (type ? `in${index}` : null)),
    outputs: operator.outputs.map((_, index) => `out${index}`),
    dims: operator.outputs.map((_, index) => at.rule.outputs[index] ?? []),
  };
  addConstants(expansion?.constants ?? {}, tensors, at);
  for (const node of expansion?.nodes ?? [single])
    await step(node, tensors, at, true, node === single ? operator : null);
  return operator.outputs.map((type, index) => (type ? (tensors.get(`out${index}`)?.byRank ?? null) : null));
}

/** Runs one node on every rank and adds its results, reduced, to `tensors`. */
async function step(
  node: ExpansionNode,
  tensors: Map<string, Spread>,
  at: Simulation,
  offsets: boolean,
  whole: Operator | null,
): Promise<void> {
  const entry = needEntry(node.op, node.domain);
  const operands = node.inputs.map((name) => (name === null ? null : need(tensors, name)));
  const operator = whole ?? inferred(entry, node, operands);
  const rule = entry.rule(operator);
  const sharded = ownShards(rule, node, operands, at);
  const indexed = [...sharded].filter(([own]) => rule.factors.get(own)?.kind === 'indexed');
  if (offsets && indexed.length > 0) {
    await onShard(entry, operator, node, tensors, at, new Map(indexed), sharded);
    return;
  }
  if (whole === null && [...sharded].some(([own]) => rule.factors.get(own)?.kind === 'expanded')) {
    await expanded(entry, operator, node, tensors, at, offsets, sharded);
    return;
  }
  const counted = countedOnce(entry, operands, rule, sharded, at);
  const localOperands = entry.indexInput === undefined ? counted : maskedOperands(entry, operands, rule, sharded, at);
  const size = sizeOf(rule, node, operands, at);
  const attributes = entry.resize?.(operator, rule, size) ?? operator.attributes;
  const ranks = ranksOf(at.shards);
  const results: Values[][] = node.outputs.map(() => []);
  for (const [position] of ranks.entries()) {
    const own = localOperands.map((operand) => operand?.byRank[position] ?? null);
    const localOperator: Operator = {
      ...operator,
      attributes,
      inputs: own,
      outputs: [],
      outputCount: node.outputs.length,
    };
    const types = entry.infer(localOperator).map((type, index) => (operator.outputs[index] ? type : null));
    const outputs = await at.run({ op: node.op, domain: node.domain ?? '', attributes }, own, types);
    for (const [index, output] of outputs.entries()) {
      if (output && types[index]?.shape.join() !== output.shape.join())
        throw new Error(`${node.op}: inferred [${types[index]?.shape}], ONNX Runtime has [${output.shape}]`);
      if (output) results[index]?.push(output);
    }
  }
  for (const [index, name] of node.outputs.entries()) {
    const type = operator.outputs[index];
    if (!type) continue;
    let byRank: readonly Values[] = results[index] ?? [];
    if (entry.indexInput !== undefined)
      byRank = maskedResults(byRank, operands[entry.indexInput], rule, sharded, at, node);
    for (const [own, factor] of sharded) {
      const { kind, reduction } = rule.factors.get(own) ?? { kind: 'pass', reduction: 'sum' };
      if ((kind === 'contracting' || kind === 'mask') && !node.dims[index]?.some((names) => names.includes(factor)))
        byRank = reduce(byRank, factor, reduction, ranks);
    }
    tensors.set(name, { type, dims: node.dims[index] ?? [], byRank });
  }
}

/** A node of an expansion that is expanded itself: its own factors are called as those of the outer rule are. */
async function expanded(
  entry: OperatorEntry,
  operator: Operator,
  node: ExpansionNode,
  tensors: Map<string, Spread>,
  at: Simulation,
  offsets: boolean,
  sharded: ReadonlyMap<string, string>,
): Promise<void> {
  const expansion = entry.expansion?.(operator);
  if (!expansion) throw new Error(`${operator.op} has an expanded factor and no expansion`);
  const inner = new Map<string, Spread>();
  for (const [index, name] of node.inputs.entries()) if (name) inner.set(`in${index}`, need(tensors, name));
  addConstants(expansion.constants, inner, at);
  for (const item of expansion.nodes) await step(inOuterNames(item, sharded), inner, at, offsets, null);
  for (const [index, name] of node.outputs.entries()) {
    if (!operator.outputs[index]) continue;
    tensors.set(name, { ...need(inner, `out${index}`), dims: node.dims[index] ?? [] });
  }
}

/** A node whose dimensions are named by own factors of the operator around it, in the names of the outer rule. */
function inOuterNames(node: ExpansionNode, sharded: ReadonlyMap<string, string>): ExpansionNode {
  const outer = (dims: Dims): Dims => dims.map((names) => names.map((name) => sharded.get(name) ?? `${name}?`));
  return { ...node, dims: node.dims.map(outer) };
}

function addConstants(constants: Expansion['constants'], tensors: Map<string, Spread>, at: Simulation): void {
  for (const [name, value] of Object.entries(constants)) {
    const whole: Values = { ...value, data: numbersOf(value) };
    const byRank = ranksOf(at.shards).map(() => whole);
    tensors.set(name, { type: value, dims: value.shape.map(() => []), byRank });
  }
}

/** The operator on a shard whose positions matter: its own nodes over a rank's offsets. */
async function onShard(
  entry: OperatorEntry,
  operator: Operator,
  node: ExpansionNode,
  tensors: Map<string, Spread>,
  at: Simulation,
  indexed: ReadonlyMap<string, string>,
  sharded: ReadonlyMap<string, string>,
): Promise<void> {
  const names = Object.fromEntries([...indexed.keys()].map((own) => [own, `offset_${own}`]));
  const sizes = Object.fromEntries(
    [...indexed].map(([own, factor]) => [own, (at.rule.factors.get(factor)?.size ?? 1) / (at.shards[factor] ?? 1)]),
  );
  const body = entry.indexed?.(operator, names, sizes);
  if (!body) throw new Error(`${operator.op} has an indexed factor and no lowering`);
  const inner = new Map<string, Spread>();
  for (const [index, name] of node.inputs.entries()) if (name) inner.set(`in${index}`, need(tensors, name));
  const ranks = ranksOf(at.shards);
  for (const [own, factor] of indexed) {
    const shardSize = (at.rule.factors.get(factor)?.size ?? 1) / (at.shards[factor] ?? 1);
    const byRank = ranks.map(
      (rank): Values => ({ dtype: 'int64', shape: [1], data: [(rank[factor] ?? 0) * shardSize] }),
    );
    inner.set(`offset_${own}`, { type: { dtype: 'int64', shape: [1] }, dims: [[]], byRank });
  }
  addConstants(body.constants, inner, at);
  for (const item of body.nodes) await step(inOuterNames(item, sharded), inner, at, false, null);
  for (const [index, name] of node.outputs.entries())
    tensors.set(name, { ...need(inner, `out${index}`), dims: node.dims[index] ?? [] });
}

function inferred(entry: OperatorEntry, node: ExpansionNode, operands: readonly (Spread | null)[]): Operator {
  const operator: Operator = {
    name: node.op,
    op: node.op,
    domain: node.domain ?? '',
    attributes: node.attributes ?? {},
    inputs: operands.map((operand) => operand?.type ?? null),
    outputs: [],
    outputCount: node.outputs.length,
  };
  return { ...operator, outputs: entry.infer(operator) };
}

/** The node's own factors that are sharded → the factor of the outer rule that they are. */
function ownShards(rule: FactorRule, node: ExpansionNode, operands: readonly (Spread | null)[], at: Simulation) {
  const found = new Map<string, string>();
  const match = (own: Dims | null | undefined, outer: Dims | undefined) => {
    for (const [dimension, names] of (own ?? []).entries())
      for (const [index, name] of names.entries()) {
        const outerNames = outer?.[dimension] ?? [];
        const candidates =
          names.length === outerNames.length ? [outerNames[index]] : names.length === 1 ? outerNames : [];
        for (const factor of candidates) if (factor && (at.shards[factor] ?? 1) > 1) found.set(name, factor);
      }
  };
  for (const [index, operand] of operands.entries()) match(rule.inputs[index], operand?.dims);
  for (const [index, dims] of node.dims.entries()) match(rule.outputs[index], dims);
  return found;
}

/** Local sizes of the node's own factors. */
function sizeOf(rule: FactorRule, node: ExpansionNode, operands: readonly (Spread | null)[], at: Simulation) {
  const sharded = ownShards(rule, node, operands, at);
  return (name: string) => {
    const factor = sharded.get(name);
    return (rule.factors.get(name)?.size ?? 1) / (factor ? (at.shards[factor] ?? 1) : 1);
  };
}

/** Operands that sums are added to: zero but on the first rank along what is summed over. */
function countedOnce(
  entry: OperatorEntry,
  operands: readonly (Spread | null)[],
  rule: FactorRule,
  sharded: ReadonlyMap<string, string>,
  at: Simulation,
): readonly (Spread | null)[] {
  const summed = [...sharded].flatMap(([own, factor]) =>
    rule.factors.get(own)?.kind === 'contracting' ? [factor] : [],
  );
  const ranks = ranksOf(at.shards);
  const isFirst = (position: number) => summed.every((factor) => (ranks[position]?.[factor] ?? 0) === 0);
  return withNumbers(operands, entry.countedOnce ?? [], (value, position) => (isFirst(position) ? value : 0));
}

/** Some operands with every number replaced, by the rank that holds it. */
function withNumbers(
  operands: readonly (Spread | null)[],
  which: readonly number[],
  number: (value: number, position: number) => number,
): readonly (Spread | null)[] {
  return operands.map((operand, index) => {
    if (!operand || !which.includes(index)) return operand;
    const byRank = operand.byRank.map((shard, position) => ({
      ...shard,
      data: shard.data.map((value) => number(value, position)),
    }));
    return { ...operand, byRank };
  });
}

/** Indices moved into the shard; those outside look up row 0. */
function maskedOperands(
  entry: OperatorEntry,
  operands: readonly (Spread | null)[],
  rule: FactorRule,
  sharded: ReadonlyMap<string, string>,
  at: Simulation,
): readonly (Spread | null)[] {
  const mask = maskOf(rule, sharded, at);
  if (!mask || entry.indexInput === undefined) return operands;
  return withNumbers(operands, [entry.indexInput], (value, position) => {
    const local = counted(value, mask) - offsetOf(mask, position, at);
    return local >= 0 && local < mask.shardSize ? local : 0;
  });
}

/** Zero where the index is outside the shard. */
function maskedResults(
  byRank: readonly Values[],
  indices: Spread | null | undefined,
  rule: FactorRule,
  sharded: ReadonlyMap<string, string>,
  at: Simulation,
  node: ExpansionNode,
): readonly Values[] {
  const mask = maskOf(rule, sharded, at);
  const dims = node.dims[0];
  if (!mask || !indices || !dims) return byRank;
  const own = rule.outputs[0] ?? [];
  const places = (rule.inputs[1] ?? []).map((names) => own.findIndex((other) => other.join() === names.join()));
  return byRank.map((shard, position) => {
    const index = indices.byRank[position];
    if (!index) return shard;
    const data = shard.data.map((value, flat) => {
      const coordinates = unflatten(flat, shard.shape);
      const at_ = index.shape.reduce(
        (sum, size, axis) => sum * size + (size === 1 ? 0 : (coordinates[places[axis] ?? 0] ?? 0)),
        0,
      );
      const local = counted(index.data[at_] ?? 0, mask) - offsetOf(mask, position, at);
      return local >= 0 && local < mask.shardSize ? value : 0;
    });
    return { ...shard, data };
  });
}

interface Mask {
  readonly factor: string;
  readonly size: number;
  readonly shardSize: number;
}

function maskOf(rule: FactorRule, sharded: ReadonlyMap<string, string>, at: Simulation): Mask | null {
  for (const [own, factor] of sharded) {
    const found = rule.factors.get(own);
    if (found?.kind === 'mask') return { factor, size: found.size, shardSize: found.size / (at.shards[factor] ?? 1) };
  }
  return null;
}

function counted(index: number, mask: Mask): number {
  return index < 0 ? index + mask.size : index;
}

function offsetOf(mask: Mask, position: number, at: Simulation): number {
  return (ranksOf(at.shards)[position]?.[mask.factor] ?? 0) * mask.shardSize;
}

function unflatten(flat: number, shape: readonly number[]): readonly number[] {
  let rest = flat;
  return [...shape]
    .reverse()
    .map((size) => {
      const coordinate = rest % size;
      rest = Math.floor(rest / size);
      return coordinate;
    })
    .reverse();
}

/** All-reduce over the ranks that differ on one factor only. */
function reduce(
  byRank: readonly Values[],
  factor: string,
  reduction: string,
  ranks: readonly Rank[],
): readonly Values[] {
  const others = (rank: Rank) => JSON.stringify({ ...rank, [factor]: 0 });
  return byRank.map((shard, position) => {
    const group = byRank.filter((_, other) => others(ranks[other] ?? {}) === others(ranks[position] ?? {}));
    return {
      ...shard,
      data: shard.data.map((_, index) =>
        combine(
          group.map((member) => member.data[index] ?? 0),
          reduction,
        ),
      ),
    };
  });
}

function combine(values: readonly number[], reduction: string): number {
  if (reduction === 'max') return Math.max(...values);
  if (reduction === 'min') return Math.min(...values);
  return values.reduce((sum, value) => sum + value, 0);
}

function need(tensors: ReadonlyMap<string, Spread>, name: string): Spread {
  const found = tensors.get(name);
  if (!found) throw new Error(`the expansion reads ${name} before it is made`);
  return found;
}
