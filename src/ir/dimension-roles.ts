/**
 * @file Roles of the dimensions of a model's inputs (batch, sequence, channels, …), and where they go: each dimension is
 * followed through the factor rules, as batch.ts follows the batch, and the operators that use it determine its role.
 *
 *     ids [2, 12]   axis 1  →  rows of a lookup, query and key of attention, rows of matmuls   →  sequence
 *     image [8, 3, 32, 32]  axis 1  →  channels of a convolution                               →  channels
 */

import { batchStarts } from './batch.js';
import { isFloating } from './dtype.js';
import type { DimensionFactors, FactorKind, FactorRule } from './factor-rule.js';
import { type DimensionMarks, followDimensions } from './follow-dimensions.js';
import { flattenRegions } from './fused-regions/flatten-regions.js';
import type { BatchDimension, Graph, Node } from './graph.js';
import { elementCount, typeOf } from './graph.js';
import { fixedTensors } from './of-weights.js';
import type { OperatorFamily } from './operator.js';
import { operatorOf } from './operator-of.js';
import { entryOf, operatorFamily, ruleOf } from './ops/index.js';
import { remembered } from './remembered.js';

export type DimensionRole =
  | 'batch'
  | 'sequence'
  | 'channels'
  | 'length'
  | 'height'
  | 'width'
  | 'depth'
  | 'heads'
  | 'features'
  | 'vocabulary'
  | 'other';

export interface TensorDimension {
  readonly tensor: string;
  readonly axis: number;
  readonly size: number;
}

export interface InputDimension extends TensorDimension {
  readonly role: DimensionRole;
  /** Operators that it reaches as a factor of its own, by the kind of that factor. */
  readonly operatorsByKind: Readonly<Partial<Record<FactorKind, number>>>;
}

export interface OutputDimension extends TensorDimension {
  readonly role: DimensionRole;
  /** The input's dimension that arrives here; null for one that the model makes. */
  readonly from: { readonly input: string; readonly axis: number } | null;
}

export interface DimensionRoles {
  readonly inputs: readonly InputDimension[];
  readonly outputs: readonly OutputDimension[];
}

/** Tokens of a sample: the size of an integer input along what attention or a recurrence runs over; null if there is none. */
export function tokensOf(graph: Graph): number | null {
  const indices = graph.inputs.filter((input) => !isFloating(typeOf(graph, input).dtype));
  if (indices.length === 0) return null;
  const { inputs } = dimensionRoles(graph);
  return inputs.find(({ tensor, role }) => role === 'sequence' && indices.includes(tensor))?.size ?? null;
}

/** The dimensions of all inputs and outputs with their roles. */
export function dimensionRoles(given: Graph): DimensionRoles {
  const graph = flattenRegions(given);
  const rules = new Map(graph.nodes.map((node) => [node, ruleOf(operatorOf(graph, node))] as const));
  const derived = fixedTensors(graph);
  const followed = graph.inputs.flatMap((input) =>
    typeOf(graph, input).shape.map((size, axis) => {
      const marks = size > 1 ? followDimensions(graph, [{ input, axis }]) : null;
      const isBatch = graph.batch.some((item) => item.input === input && item.axis === axis);
      const seen = marks ? evidenceOf(graph, marks, rules, derived) : NOTHING;
      const sign = RANKING.find((candidate) => seen.signs.has(candidate)) ?? 'other';
      const role = isBatch ? 'batch' : sign === 'queries' ? 'sequence' : sign;
      return {
        dimension: { tensor: input, axis, size, role, operatorsByKind: seen.kinds } satisfies InputDimension,
        marks,
      };
    }),
  );
  const vocabularies = vocabularySizes(graph);
  const outputs = graph.outputs.flatMap((output) =>
    typeOf(graph, output).shape.map((size, axis): OutputDimension => {
      const source = followed.find(({ marks }) => arrives(marks, output, axis, size));
      const last = axis === typeOf(graph, output).shape.length - 1;
      const made = vocabularies.has(size) ? 'vocabulary' : last ? 'features' : 'other';
      return {
        tensor: output,
        axis,
        size,
        role: source?.dimension.role ?? (size > 1 ? made : 'other'),
        from: source ? { input: source.dimension.tensor, axis: source.dimension.axis } : null,
      };
    }),
  );
  return { inputs: followed.map(({ dimension }) => dimension), outputs };
}

/**
 * Where sequences begin: dimensions of the inputs that have the batch, and, where none of them is one (patches of an image), the
 * queries of attention; for images without attention the first dimension of positions. Every form of sequence parallelism needs
 * them again.
 */
export const sequenceDimensions = remembered(foundSequences);

function foundSequences(given: Graph): readonly BatchDimension[] {
  const forward = { ...given, nodes: given.nodes.filter(({ phase }) => phase === 'forward') };
  const graph = flattenRegions(forward);
  const rules = new Map(graph.nodes.map((node) => [node, ruleOf(operatorOf(graph, node))] as const));
  const derived = fixedTensors(graph);
  const batch = batchStarts(graph);
  const seen = batch.flatMap(({ input, axis: own }) =>
    typeOf(graph, input).shape.flatMap((size, axis) => {
      if (axis === own || size <= 1) return [];
      const { signs } = evidenceOf(graph, followDimensions(graph, [{ input, axis }]), rules, derived);
      return [{ input, axis, sign: RANKING.find((candidate) => signs.has(candidate)) }];
    }),
  );
  const those = (signs: readonly (Sign | undefined)[]) =>
    seen.flatMap(({ input, axis, sign }) => (signs.includes(sign) ? [{ input, axis }] : []));
  const ofInputs = those(['sequence', 'queries']);
  if (ofInputs.length > 0) return ofInputs;
  const queries = forward.nodes.flatMap((node) => {
    const named = BY_FACTOR[operatorFamily(node) ?? 'view'];
    if (!named) return [];
    const rule = ruleOf(operatorOf(forward, node));
    const [queries] = node.inputs;
    return (rule.inputs[0] ?? []).flatMap(([factor, ...others], axis) =>
      queries && factor !== undefined && others.length === 0 && named[factor] === 'sequence'
        ? [{ input: queries, axis }]
        : [],
    );
  });
  return queries.length > 0 ? queries : those(SPATIAL.map(([first]) => first));
}

/** The role that an operator gives a dimension; `queries`: it looks like one of unfused attention, which is weak evidence. */
type Sign = DimensionRole | 'queries';

/** Where operators disagree, the more specific role wins. */
const RANKING: readonly Sign[] = [
  'channels',
  'depth',
  'height',
  'width',
  'length',
  'sequence',
  'heads',
  'features',
  'batch',
  'queries',
];

/** Roles of the first operand's dimensions, by family and by how many dimensions there are besides the first two. */
const IMAGES: ReadonlySet<OperatorFamily> = new Set(['convolution', 'pooling']);
const SPATIAL: readonly (readonly DimensionRole[])[] = [
  [],
  ['length'],
  ['height', 'width'],
  ['depth', 'height', 'width'],
];

/** Roles by the factor names of families whose entries all name them alike. */
const BY_FACTOR: Readonly<Partial<Record<OperatorFamily, Readonly<Record<string, DimensionRole>>>>> = {
  attention: {
    b: 'batch',
    s: 'sequence',
    t: 'sequence',
    u: 'sequence',
    h: 'heads',
    g: 'heads',
    e: 'features',
    f: 'features',
  },
  recurrent: { n: 'batch', t: 'sequence', x: 'features' },
};

interface Evidence {
  readonly signs: ReadonlySet<Sign>;
  readonly kinds: Readonly<Partial<Record<FactorKind, number>>>;
}

const NOTHING: Evidence = { signs: new Set(), kinds: {} };

function evidenceOf(
  graph: Graph,
  marks: DimensionMarks,
  rules: ReadonlyMap<Node, FactorRule>,
  derived: ReadonlySet<string>,
): Evidence {
  const signs = new Set<Sign>();
  const kinds: Partial<Record<FactorKind, number>> = {};
  for (const node of graph.nodes) {
    const place = imagePlace(graph, node, marks);
    if (place) signs.add(place);
    const rule = rules.get(node);
    const factors = rule ? marks.factorMarks(node) : null;
    if (!rule || !factors || factors.size === 0) continue;
    const own = [...factors].flatMap(([name, mark]) => {
      const factor = rule.factors.get(name);
      return factor && mark.minor === 1 && mark.size === factor.size ? [factor] : [];
    });
    for (const { name, kind } of own) {
      kinds[kind] = (kinds[kind] ?? 0) + 1;
      const sign = signIn(node, rule, name, derived);
      // Scores of attention have the sequence twice: as queries and as keys.
      if (sign) signs.add(sign === 'queries' && own.length > 1 ? 'sequence' : sign);
    }
  }
  return { signs, kinds };
}

/** The role that the followed dimension has in the first operand of a convolution; null for other operators. */
function imagePlace(graph: Graph, node: Node, marks: DimensionMarks): DimensionRole | null {
  const [image] = node.inputs;
  const family = operatorFamily(node);
  if (!image || !family || !IMAGES.has(family)) return null;
  const { shape } = typeOf(graph, image);
  const names = (['batch', 'channels'] as readonly DimensionRole[]).concat(SPATIAL[shape.length - 2] ?? []);
  const axis = marks.dimensionMarks(image).findIndex((mark, at) => mark?.minor === 1 && mark.size === shape[at]);
  return names[axis] ?? null;
}

/** The role that an operator gives one of its factors; null where it gives none. */
function signIn(node: Node, rule: FactorRule, factor: string, derived: ReadonlySet<string>): Sign | null {
  const entry = entryOf(node.op, node.domain);
  if (!entry) return null;
  const named = BY_FACTOR[entry.family]?.[factor];
  if (named) return named;
  if (entry.indexInput !== undefined) return positionInLookup(node, rule, factor, entry.indexInput, derived);
  return entry.family === 'contraction' ? signInMatmul(node, rule, factor, derived) : null;
}

/** The last dimension of indices into a weight counts positions. */
function positionInLookup(
  node: Node,
  rule: FactorRule,
  factor: string,
  indexInput: number,
  derived: ReadonlySet<string>,
): DimensionRole | null {
  const indices = rule.inputs[indexInput];
  const ofWeight = derived.has(node.inputs[0] ?? '');
  return ofWeight && indices && indices.length > 1 && axisOf(indices, factor) === indices.length - 1
    ? 'sequence'
    : null;
}

/**
 * A dimension that is contracted with a weight is features. In a batched matmul of two data tensors (unfused attention), a
 * dimension that only one of them has runs over queries or keys.
 */
function signInMatmul(node: Node, rule: FactorRule, factor: string, derived: ReadonlySet<string>): Sign | null {
  const holders = rule.inputs.filter((operand) => axisOf(operand, factor) >= 0);
  const withWeight = node.inputs.some((input) => input !== null && derived.has(input));
  if (rule.factors.get(factor)?.kind === 'contracting') return withWeight ? 'features' : null;
  const stacked = rule.inputs.every((operand) => operand !== null && operand.length > 2);
  return !withWeight && stacked && holders.length === 1 ? 'queries' : null;
}

function axisOf(operand: readonly DimensionFactors[] | null | undefined, factor: string): number {
  return operand?.findIndex((names) => names.length === 1 && names[0] === factor) ?? -1;
}

function arrives(marks: DimensionMarks | null, output: string, axis: number, size: number): boolean {
  const mark = marks?.dimensionMarks(output)[axis];
  return mark !== null && mark !== undefined && mark.minor === 1 && mark.size === size;
}

/** Rows of tables that are looked up: a result of this size is over the vocabulary. */
function vocabularySizes(graph: Graph): ReadonlySet<number> {
  const sizes = graph.nodes.flatMap((node) => {
    const table = node.inputs[0];
    const weight = table ? graph.weights.get(table) : undefined;
    const isLookup = entryOf(node.op, node.domain)?.indexInput !== undefined;
    return isLookup && weight?.shape.length === 2 && elementCount(weight.shape) > 0 ? [weight.shape[0] ?? 0] : [];
  });
  return new Set(sizes);
}
