/**
 * @file Which units are one parameter. By the available evidence, in this order:
 *
 * Places of one weight of the file
 * 1. under different names of the exporter's (Identity, its record): separate; it separates parameters that it merged.
 * 2. the weight has no value: one; an exporter without values cannot have merged by value.
 * 3. all its elements are equal (zeros, ones): separate; it is an initial value that many parameters have.
 * 4. in different repeated layers: separate, since copies of a layer start equal; unless the weight's own name is outside
 *    of the layers.
 * 5. else one.
 *
 * Two weights of the file with the same values
 * 6. one is the other's transpose: one, stored twice; unless the exporter calls each of them a parameter.
 * 7. equal as they are: one if they serve the same operand of the same module; else separate.
 *
 * In each case: a table that is looked up and a matmul outside of the layers (an embedding and its head) are one.
 */
import type { Graph } from '../graph.js';
import { appendTo, groupBy } from '../group-by.js';
import { endsInIteration, moduleText } from '../onnx/module-path.js';
import type { ParameterEvidence } from './parameter.js';
import type { EqualPair } from './same-values.js';
import type { ParameterUnit } from './units.js';

/** A unit in a parameter; `isTransposed`: its weight is the transpose of the parameter's first. */
export interface Member {
  readonly unit: ParameterUnit;
  readonly isTransposed: boolean;
}

/** The units of one parameter, leading one first, and why they are one. */
export interface Tied {
  readonly members: readonly Member[];
  readonly why: string;
}

const ONE_WEIGHT = 'one weight of the file';

/** Joins units to parameters, in the order of their first units. */
export function tieUnits(
  graph: Graph,
  units: ReadonlyMap<string, readonly ParameterUnit[]>,
  evidence: ParameterEvidence,
): readonly Tied[] {
  const joins = [
    ...[...units].flatMap(([weight, own]) => joinsWithin(graph, weight, own, evidence)),
    ...evidence.values.equal.flatMap((pair) => joinsAcross(pair, units, evidence)),
  ];
  const rank = (unit: ParameterUnit) => (evidence.kinds.get(unit.weight) === 'parameter' ? 0 : isTable(unit) ? 1 : 2);
  return joined([...units.values()].flat(), joins).map((tied) => ledBy(tied, rank));
}

/** Why the places of one weight are several parameters. */
export function separationOf(weight: string, units: readonly ParameterUnit[], { values }: ParameterEvidence): string {
  if (units.some(({ identity }) => identity !== null)) return 'the exporter names each of them';
  return values.uniform.has(weight)
    ? 'an initial value that the file stores once'
    : 'layers that start from equal values';
}

interface Join {
  readonly left: ParameterUnit;
  readonly right: ParameterUnit;
  readonly isTransposed: boolean;
  readonly why: string;
}

function joinsWithin(
  graph: Graph,
  weight: string,
  units: readonly ParameterUnit[],
  evidence: ParameterEvidence,
): readonly Join[] {
  if (units.length < 2) return [];
  const plain = units.filter((unit) => unit.identity === null && !isStatistics(unit));
  const embedding = embeddingJoins(units);
  if (graph.weights.get(weight)?.source.kind === 'absent') return [...chained(plain), ...embedding];
  if (evidence.values.uniform.has(weight)) return embedding;
  const layers = groupBy(plain, (unit) => layerOf(unit) ?? '');
  const inside = [...layers.keys()].filter((layer) => layer !== '');
  const outside = weight.includes('.') && !inside.some((layer) => weight.startsWith(`${layer}.`));
  // Places outside of all layers are one with those of the layer that the weight is named after.
  const home = inside.find((layer) => weight.startsWith(`${layer}.`)) ?? inside[0];
  const shared = layers.get('') ?? [];
  const groups = inside.map((layer) => [...(layer === home ? shared : []), ...(layers.get(layer) ?? [])]);
  return [...(outside || inside.length === 0 ? chained(plain) : groups.flatMap(chained)), ...embedding];
}

function chained(units: readonly ParameterUnit[]): readonly Join[] {
  const [first, ...rest] = units;
  return first ? rest.map((right) => ({ left: first, right, isTransposed: false, why: ONE_WEIGHT })) : [];
}

/** Joins lookups with the matmuls outside of layers. */
function embeddingJoins(units: readonly ParameterUnit[]): readonly Join[] {
  const tables = units.filter(isTable);
  const heads = units.filter(isHead);
  const [table] = tables;
  if (!table) return [];
  return heads
    .filter((head) => head !== table)
    .map((right) => ({ left: table, right, isTransposed: false, why: EMBEDDING }));
}

const EMBEDDING = 'an embedding table and its head have the same values';

function joinsAcross(
  { left, right, transposed }: EqualPair,
  units: ReadonlyMap<string, readonly ParameterUnit[]>,
  evidence: ParameterEvidence,
): readonly Join[] {
  const [own, other] = [units.get(left) ?? [], units.get(right) ?? []];
  const embedding = pairsOf(own, other).filter(([a, b]) => (isTable(a) && isHead(b)) || (isHead(a) && isTable(b)));
  if (embedding.length > 0)
    return embedding.map(([a, b]) => ({ left: a, right: b, isTransposed: transposed, why: EMBEDDING }));
  if (!transposed)
    return pairsOf(own, other)
      .filter(([a, b]) => servesAlike(a, b))
      .map(([a, b]) => ({ left: a, right: b, isTransposed: false, why: 'the same values in the same place' }));
  const stated = (weight: string) => evidence.kinds.get(weight) === 'parameter';
  if (stated(left) && stated(right)) return [];
  const alone = own.length === 1 || other.length === 1;
  return pairsOf(own, other)
    .filter(([a, b]) => alone || layerOf(a) === layerOf(b))
    .map(([a, b]) => ({ left: a, right: b, isTransposed: true, why: 'the same values, transposed' }));
}

/** All pairs of units of two weights. There are few: few weights are equal, and equal weights have few units. */
function pairsOf(
  left: readonly ParameterUnit[],
  right: readonly ParameterUnit[],
): readonly (readonly [ParameterUnit, ParameterUnit])[] {
  return left.flatMap((a) => right.map((b) => [a, b] as const));
}

function isTable(unit: ParameterUnit): boolean {
  return unit.places.some(({ use }) => use === 'lookup');
}

/** Running statistics: state that nothing ties. */
export function isStatistics(unit: ParameterUnit): boolean {
  return unit.places.length > 0 && unit.places.every(({ use }) => use === 'statistics');
}

function isHead(unit: ParameterUnit): boolean {
  return layerOf(unit) === null && unit.places.some(({ use }) => use === 'product');
}

function servesAlike(left: ParameterUnit, right: ParameterUnit): boolean {
  const [a, b] = [left.places[0], right.places[0]];
  if (!a || !b || a.module.length === 0) return false;
  return moduleText(a.module) === moduleText(b.module) && a.op === b.op && a.operand === b.operand;
}

/** The repeated layer of a unit. Iterations of a loop are no copies of one another: all read the same weights. */
function layerOf(unit: ParameterUnit): string | null {
  const { layer = null, module = [] } = unit.places[0] ?? {};
  return layer !== null && endsInIteration(module, layer) ? null : layer;
}

/** The same parameter with the unit of the lowest rank first: its weight gives name and shape. */
function ledBy({ members, why }: Tied, rank: (unit: ParameterUnit) => number): Tied {
  const sorted = [...members].sort((left, right) => rank(left.unit) - rank(right.unit));
  return { members: straightened(sorted), why };
}

/** Members with `isTransposed` relative to the first of them. */
export function straightened(members: readonly Member[]): readonly Member[] {
  const isTransposed = members[0]?.isTransposed ?? false;
  return members.map((member) => ({ ...member, isTransposed: member.isTransposed !== isTransposed }));
}

/** Groups of connected units, with `isTransposed` relative to the first of each group. */
function joined(units: readonly ParameterUnit[], joins: readonly Join[]): readonly Tied[] {
  const edges = new Map<
    ParameterUnit,
    { readonly to: ParameterUnit; readonly isTransposed: boolean; readonly why: string }[]
  >();
  const add = (from: ParameterUnit, to: ParameterUnit, { isTransposed, why }: Join) => {
    appendTo(edges, from, { to, isTransposed, why });
  };
  for (const join of joins) {
    add(join.left, join.right, join);
    add(join.right, join.left, join);
  }
  const seen = new Set<ParameterUnit>();
  return units.flatMap((start) => {
    if (seen.has(start)) return [];
    seen.add(start);
    const members: Member[] = [{ unit: start, isTransposed: false }];
    const reasons = new Set<string>();
    for (let at = 0; at < members.length; at++) {
      const member = members[at];
      for (const { to, isTransposed, why } of member ? (edges.get(member.unit) ?? []) : []) {
        if (seen.has(to)) continue;
        seen.add(to);
        reasons.add(why);
        members.push({ unit: to, isTransposed: member?.isTransposed !== isTransposed });
      }
    }
    return [{ members, why: [...reasons].join('; ') }];
  });
}
