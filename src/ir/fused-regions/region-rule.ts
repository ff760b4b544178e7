/**
 * @file The factor rule of a region, composed of the rules of the operators inside it.
 *
 * Every inner operator names the dimensions of its operands and results by its own factors. A tensor that one operator makes
 * and another reads has both names, so they are one factor; where one sees a dimension as one factor and the other as two,
 * the first is split. The factors that remain are the region's:
 *
 *     MatMul b h s e, b h e t → b h s t · Softmax … t% · MatMul b h s t, b h t f → b h s f
 *     Attention   b h s e%, b h t% e%, b h t% f → b h s f
 *
 * A factor passes if it passes through every operator inside. If one of them needs an expansion for it, or sums over it in the
 * middle, the region needs an expansion too: it is then lowered operator by operator, with their pending reductions between them.
 * A sum that only linear operators follow (summed-last.ts) is a sum of the whole region: a normalisation's gradient leaves the
 * gradient of its scale partial over rows, as a MatMul would.
 */
import { type DimensionFactors, type Factor, type FactorKind, type FactorRule, ruleSides } from '../factor-rule.js';
import type { Graph } from '../graph.js';
import type { Expansion, OperatorEntry } from '../operator.js';
import { operatorOf } from '../operator-of.js';
import { tensorsByName } from '../written-names.js';
import { rowwiseAttention } from './attention.js';
import { regionFactorNames } from './factor-names.js';
import { type BodyOperator, summedLast } from './summed-last.js';

/** How a region's inner operators are looked up; passed in, since the registry holds regions as well. */
export type FindEntry = (op: string, domain: string) => OperatorEntry;

export interface RegionRule {
  readonly rule: FactorRule;
  /** By tensor of the body: its dimensions as factors of the region. */
  readonly dims: ReadonlyMap<string, readonly DimensionFactors[]>;
}

/** The composed rule, or null if dimensions inside do not line up (6 as 2 · 3 against 3 · 2): then it is not a region. */
export function composeRule(kind: string, body: Graph, find: FindEntry): RegionRule | null {
  const composition = new Composition(body, find);
  return composition.link() ? composition.result(kind) : null;
}

/** The body's operators in the names of an expansion. */
export function expansionOf(body: Graph, dims: RegionRule['dims']): Expansion {
  const names = new Map([...tensorsByName(body.inputs, body.outputs)].map(([name, tensor]) => [tensor, name]));
  const rename = (name: string) => names.get(name) ?? `inside/${name}`;
  const constants = [...body.weights].flatMap(([name, weight]) =>
    weight.source.kind === 'inline'
      ? [[rename(name), { dtype: weight.dtype, shape: weight.shape, data: weight.source.data }] as const]
      : [],
  );
  return {
    nodes: body.nodes.map((node) => ({
      op: node.op,
      domain: node.domain,
      attributes: node.attributes,
      inputs: node.inputs.map((name) => (name === null ? null : rename(name))),
      outputs: node.outputs.map((name, index) => (name === null ? `unused/${node.name}/${index}` : rename(name))),
      dims: node.outputs.map((name) => (name === null ? [] : (dims.get(name) ?? []))),
    })),
    constants: Object.fromEntries(constants),
  };
}

/** Part of a dimension that all operators of the body see as one. */
interface RegionAtom {
  readonly size: number;
  kind: FactorKind;
  /** The atom that this one was merged into, or the parts that it was split into, major to minor. */
  parts: readonly RegionAtom[] | null;
}

type Dimension = readonly RegionAtom[];

/** The factor whose chunks ranks can pass round a ring (an attention's keys), and the factor that stays (its queries). */
const STREAMED = 't';
const BESIDE = 's';

/** By kind of region: the kind that the factor of its keys has if slices of them can be processed one after the other. */
const STREAMS: Readonly<Record<string, FactorKind>> = { Attention: 'expanded', AttentionGradient: 'contracting' };

/** From least to most strict: a factor of the region is as strict as the strictest inner one. */
const STRICTNESS: readonly FactorKind[] = ['pass', 'expanded', 'whole'];

class Composition {
  /** By tensor: the atoms of each dimension, as its first mention had them. */
  private readonly known = new Map<string, readonly Dimension[]>();
  /** The operators, and the atoms that each of them sums over. */
  private readonly operators: { readonly inner: BodyOperator; readonly sums: readonly RegionAtom[] }[] = [];

  constructor(
    private readonly body: Graph,
    private readonly find: FindEntry,
  ) {}

  /** Unifies the factors of each tensor's maker and readers; false if their sizes do not nest. */
  link(): boolean {
    for (const node of this.body.nodes) {
      const operator = operatorOf(this.body, node);
      const entry = this.find(node.op, node.domain);
      const rule = entry.rule(operator);
      const atoms = new Map<string, RegionAtom>();
      for (const factor of rule.factors.values())
        atoms.set(factor.name, { size: factor.size, kind: kindInside(factor, entry), parts: null });
      const summed = [...rule.factors.values()].filter(isSummed).flatMap(({ name }) => atoms.get(name) ?? []);
      this.operators.push({ inner: { node, linear: entry.linear(operator) }, sums: summed });
      for (const { of: name, dims } of ruleSides(rule, node)) if (!this.see(name, dims, atoms)) return false;
    }
    return true;
  }

  result(kind: string): RegionRule {
    const everything = [...this.known].map(([name, dims]) => [name, dims.map(resolved)] as const);
    const dimsOf = new Map(everything);
    // A factor that one tensor has twice (a matmul of a tensor with itself) cannot be sharded in both places at once.
    for (const dims of dimsOf.values()) {
      const seen = new Set<RegionAtom>();
      for (const atom of dims.flat()) {
        if (seen.has(atom)) atom.kind = 'whole';
        seen.add(atom);
      }
    }
    const operand = (name: string) => dimsOf.get(name) ?? [];
    const summing = this.operators.map(({ inner, sums }) => ({
      ...inner,
      sums: new Set(resolved(sums).filter(({ kind }) => kind === 'pass')),
    }));
    const last = summedLast(this.body, summing, operand);
    for (const atom of summing.flatMap(({ sums }) => [...sums]))
      atom.kind = last.has(atom) ? 'contracting' : 'expanded';
    const outside = new Set([...this.body.inputs, ...this.body.outputs].flatMap(operand).flat());
    const names = regionFactorNames(kind, this.body, operand, new Set([...dimsOf.values()].flat(2)));
    const factors = new Map<string, Factor>();
    for (const [atom, name] of names) {
      const shardable = outside.has(atom) ? atom.kind : 'whole';
      factors.set(name, { name, size: atom.size, kind: shardable, reduction: 'sum' });
    }
    const named = (dims: readonly Dimension[]): readonly DimensionFactors[] =>
      dims.map((atoms) => atoms.map((atom) => names.get(atom) ?? ''));
    const inputs = this.body.inputs.map((name) => named(operand(name)));
    const outputs = this.body.outputs.map((name) => named(operand(name)));
    const keys = factors.get(STREAMED);
    // The gradient of a bias has both factors, and a rank would hold columns of it from all chunks.
    const isSum = !outputs.some((dims) => [STREAMED, BESIDE].every((name) => dims.flat().includes(name)));
    const isRowwise = keys?.kind !== 'expanded' || rowwiseAttention(this.body) !== null;
    if (keys && keys.kind === STREAMS[kind] && isSum && isRowwise) factors.set(STREAMED, { ...keys, streams: true });
    const rule = { factors, inputs, outputs, text: ruleText(factors, inputs, outputs) };
    return { rule, dims: new Map([...dimsOf].map(([name, dims]) => [name, named(dims)])) };
  }

  /** Unifies one operator's factors of a tensor with those known from other operators. */
  private see(name: string, dims: readonly DimensionFactors[], atoms: ReadonlyMap<string, RegionAtom>): boolean {
    const { shape } = this.body.tensors.get(name) ?? { shape: [] };
    const mine = shape.map((size, axis): Dimension => {
      const parts = (dims[axis] ?? []).flatMap((factor) => atoms.get(factor) ?? []);
      const covered = parts.reduce((product, atom) => product * atom.size, 1) === size;
      if (covered) return parts.filter((atom) => atom.size > 1);
      for (const atom of parts) atom.kind = 'whole';
      return [{ size, kind: 'whole', parts: null }];
    });
    const before = this.known.get(name);
    this.known.set(name, before ?? mine);
    return before === undefined || mine.every((dimension, axis) => unify(dimension, before[axis] ?? []));
  }
}

function isSummed({ kind, reduction }: Factor): boolean {
  return kind === 'contracting' && reduction === 'sum';
}

/** The kind that an inner operator's factor has for the region. Factors that are summed over are distinguished at the end. */
function kindInside(factor: Factor, entry: OperatorEntry): FactorKind {
  const { kind } = factor;
  if (kind === 'pass' || isSummed(factor)) return 'pass';
  if (kind === 'contracting') return 'expanded';
  if (kind === 'expanded') return entry.expansion ? 'expanded' : 'whole';
  if (kind === 'mask') return entry.indexInput === undefined ? 'whole' : 'expanded';
  if (kind === 'indexed') return entry.indexed ? 'expanded' : 'whole';
  return 'whole';
}

/** The atoms of a dimension after all merges and splits. */
function resolved(dimension: Dimension): readonly RegionAtom[] {
  return dimension.flatMap((atom) => (atom.parts ? resolved(atom.parts) : [atom])).filter((atom) => atom.size > 1);
}

/** Makes two views of one dimension the same, splitting atoms where the size of one is a product of the others'. */
function unify(left: Dimension, right: Dimension): boolean {
  const [a, b] = [[...resolved(left)], [...resolved(right)]];
  while (a.length > 0 && b.length > 0) {
    const [x, y] = [a.shift() as RegionAtom, b.shift() as RegionAtom];
    if (x === y) continue;
    if (x.size === y.size) {
      y.kind = stricter(x.kind, y.kind);
      x.parts = [y];
    } else if (x.size > y.size && x.size % y.size === 0) {
      a.unshift(...split(x, y.size));
      b.unshift(y);
    } else if (y.size > x.size && y.size % x.size === 0) {
      b.unshift(...split(y, x.size));
      a.unshift(x);
    } else return false;
    // An atom that was just split or merged may occur further on in either list.
    for (const list of [a, b]) list.splice(0, list.length, ...resolved(list));
  }
  return a.length === b.length;
}

/** Splits an atom. Only an atom that passes has parts that pass: other treatments need the whole dimension. */
function split(atom: RegionAtom, majorSize: number): readonly RegionAtom[] {
  const kind = atom.kind === 'pass' ? 'pass' : 'whole';
  const parts = [majorSize, atom.size / majorSize].map((size): RegionAtom => ({ size, kind, parts: null }));
  atom.parts = parts;
  return parts;
}

function stricter(a: FactorKind, b: FactorKind): FactorKind {
  return STRICTNESS.indexOf(a) > STRICTNESS.indexOf(b) ? a : b;
}

const MARKS: Readonly<Partial<Record<FactorKind, string>>> = { contracting: '+', expanded: '%', whole: '!' };

function ruleText(
  factors: ReadonlyMap<string, Factor>,
  inputs: readonly (readonly DimensionFactors[])[],
  outputs: readonly (readonly DimensionFactors[])[],
): string {
  const marked = (name: string) => {
    const { kind = 'pass', streams } = factors.get(name) ?? {};
    return `${name}${MARKS[kind] ?? ''}${streams ? '>' : ''}`;
  };
  const dimension = (names: DimensionFactors) => {
    if (names.length === 0) return '1';
    return names.length === 1 ? marked(names[0] as string) : `(${names.map(marked).join(' ')})`;
  };
  const side = (tensors: readonly (readonly DimensionFactors[])[]) =>
    tensors.map((dims) => dims.map(dimension).join(' ')).join(', ');
  return `${side(inputs)} -> ${side(outputs)}`;
}
