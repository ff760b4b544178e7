/**
 * @file The factors of an operator that are batch, sequence, heads or experts, as roles need them (roles.ts). Batch, sequence
 * and experts are followed through the operators' rules from where they begin (batch.ts); heads are attention's other factors.
 *
 *     tokens [2, 12, 64] as rows [24, 64]     m = (2 | 12)     batch m.0, sequence m.1
 */
import { followBatch } from '../ir/batch.js';
import { sequenceDimensions } from '../ir/dimension-roles.js';
import { isFloating } from '../ir/dtype.js';
import { type Factor, type FactorRule, ruleSides } from '../ir/factor-rule.js';
import { type DimensionMark, type DimensionMarks, followDimensions } from '../ir/follow-dimensions.js';
import { type BatchDimension, type Graph, type Node, typeOf } from '../ir/graph.js';
import { weightTensors } from '../ir/of-weights.js';
import { operatorOf } from '../ir/operator-of.js';
import { operatorFamily, ruleOf } from '../ir/ops/index.js';
import { remembered } from '../ir/remembered.js';
import { type FactorPieces, pieceName, piecesProblem } from '../sharding-propagation/refine.js';
import type { FactorFamily, OperatorPlace } from '../sharding-propagation/roles.js';

/** The families of one operator's factors. */
export interface FactorFamilies {
  readonly place: OperatorPlace;
  /** Names of factors, or of their pieces under `digits`. */
  readonly factors: Readonly<Record<FactorFamily, ReadonlySet<string>>>;
  /** Factors that hold a sequence further in than at their major end, as pieces. */
  readonly digits: FactorPieces;
}

/** Families that are followed only where an axis asks for them, beside the batch. */
export interface OptionalFamilies {
  readonly sequence?: boolean;
  readonly experts?: boolean;
}

/** Families by operator. */
export function factorFamilies(
  graph: Graph,
  { sequence = false, experts = false }: OptionalFamilies = {},
): (node: Node, rule: FactorRule) => FactorFamilies {
  const batch = batchIn(graph);
  const alongSequence = sequence ? sequenceIn(graph) : null;
  const alongExperts = experts ? expertsIn(graph) : null;
  const nodes = new Map(graph.nodes.map((node) => [node.name, node]));
  return (node, rule) => {
    const own = batch.factorMarks(node);
    const marks = alongSequence?.factorMarks(node) ?? NO_MARKS;
    const digits = digitsOf(rule, own, marks);
    const ofBatch = new Set(majorFactors(firstDigits(own, batch.size ?? 1), rule, digits));
    const ofSequence = new Set(marks.size === 0 ? [] : markedFactors(marks, rule, digits));
    const place = placeOf(node, ofSequence, nodes.get(node.forward ?? '') ?? node);
    return {
      place,
      digits,
      factors: {
        batch: ofBatch,
        sequence: ofSequence,
        heads: new Set(place === 'attention' ? headFactors(node, rule, ofBatch, ofSequence) : []),
        expert: new Set(alongExperts ? expertFactors(node, rule, graph, alongExperts) : []),
      },
    };
  };
}

// Every mesh of a graph asks for them, and the plan's report.
const batchIn = remembered((graph: Graph) => followBatch(graph, { digits: true }));
const sequenceIn = remembered((graph: Graph) => followed(graph, sequenceDimensions(graph)));
const expertsIn = remembered((graph: Graph) => followed(graph, expertDimensions(graph)));

function followed(graph: Graph, starts: readonly BatchDimension[]): DimensionMarks | null {
  return starts.length === 0 ? null : followDimensions(graph, starts);
}

const NO_MARKS: ReadonlyMap<string, DimensionMark> = new Map();

/** Only the first digit of a batch in several digits: dp cannot shard the batch by digits further in. */
function firstDigits(marks: ReadonlyMap<string, DimensionMark>, batch: number): ReadonlyMap<string, DimensionMark> {
  return new Map([...marks].filter(([, { size, samples = 1 }]) => samples * size === batch));
}

/** Factors that the marks cover from their major end on, or the first of their pieces. */
function majorFactors(
  marks: ReadonlyMap<string, DimensionMark>,
  rule: FactorRule,
  digits: FactorPieces,
): readonly string[] {
  return [...marks]
    .filter(([factor, mark]) => mark.minor * mark.size === rule.factors.get(factor)?.size)
    .map(([factor]) => (digits[factor] ? pieceName(factor, 0) : factor))
    .sort();
}

/** Factors that begin with a marked dimension, and pieces that are one. */
function markedFactors(
  marks: ReadonlyMap<string, DimensionMark>,
  rule: FactorRule,
  digits: FactorPieces,
): readonly string[] {
  const pieces = [...marks].flatMap(([factor, { minor }]) => {
    const sizes = digits[factor];
    if (!sizes) return [];
    let below = 1;
    for (let index = sizes.length - 1; index >= 0; index--) {
      if (below === minor) return [pieceName(factor, index)];
      below *= sizes[index] ?? 1;
    }
    return [];
  });
  return [...majorFactors(marks, rule, {}).filter((factor) => !digits[factor]), ...pieces];
}

/** Pieces of the factors that hold a sequence further in, cut where the batch and the sequence begin and end. */
function digitsOf(
  rule: FactorRule,
  batch: ReadonlyMap<string, DimensionMark>,
  sequence: ReadonlyMap<string, DimensionMark>,
): FactorPieces {
  const digits: Record<string, readonly number[]> = {};
  for (const [name, mark] of sequence) {
    const size = rule.factors.get(name)?.size ?? 1;
    if (mark.size === 1 || mark.minor * mark.size === size) continue;
    const cuts = new Set(
      [mark, ...(batch.has(name) ? [batch.get(name) as DimensionMark] : [])].flatMap((own) => [
        own.minor,
        own.minor * own.size,
      ]),
    );
    const places = [...cuts].filter((cut) => cut > 1 && cut < size).sort((a, b) => b - a);
    const sizes = [size, ...places].map((cut, index) => cut / (places[index] ?? 1));
    if (sizes.every(Number.isInteger) && piecesProblem(rule, { [name]: sizes }) === null) digits[name] = sizes;
  }
  return digits;
}

/**
 * 'attention': an attention, its gradient, or an operator that has the sequence twice, as scores have. 'norm': an operator that
 * normalises features and scales them, and its gradient.
 */
function placeOf(node: Node, sequence: ReadonlySet<string>, forward: Node): OperatorPlace {
  const isAttention = operatorFamily(node) === 'attention';
  if (isAttention || sequence.size > 1) return 'attention';
  // Without a scale it is a softmax.
  const isNorm = operatorFamily(forward) === 'normalisation' && forward.inputs.length > 1;
  return isNorm ? 'norm' : 'elsewhere';
}

/** Names of head factors in the entries of attention and its regions: key heads, and the query heads that share them. */
const HEADS: ReadonlySet<string> = new Set(['h', 'g']);

/** Sizes of an attention's heads: key heads, and the query heads that share each. */
export function attentionHeads(rule: FactorRule): readonly number[] {
  return [...HEADS].flatMap((name) => rule.factors.get(name)?.size ?? []).filter((size) => size > 1);
}

/**
 * Whether an axis of these sub-axes divides heads: the key heads, the query heads that share each, or its first sub-axes the one
 * and the rest the other. Keys are then replicated over the sub-axes that shard queries alone.
 */
export function dividesHeads(sizes: readonly number[], subAxes: readonly number[]): boolean {
  const product = (axes: readonly number[]) => axes.reduce((all, size) => all * size, 1);
  return sizes.some((major, index) =>
    subAxes.some((_, at) => {
      const rest = product(subAxes.slice(at + 1));
      return (
        major % product(subAxes.slice(0, at + 1)) === 0 &&
        (rest === 1 || sizes.some((minor, other) => other !== index && minor % rest === 0))
      );
    }),
  );
}

/**
 * Heads of an attention; for an attention in plain operators, the factors that all its operands and its result have, besides
 * batch and sequence.
 */
function headFactors(
  node: Node,
  rule: FactorRule,
  batch: ReadonlySet<string>,
  sequence: ReadonlySet<string>,
): readonly string[] {
  const others = [...rule.factors.values()].filter(({ name }) => !batch.has(name) && !sequence.has(name));
  if (operatorFamily(node) === 'attention') return others.filter(({ name }) => HEADS.has(name)).map(({ name }) => name);
  const sides = [...rule.inputs, ...rule.outputs].flatMap((dims) => (dims ? [new Set(dims.flat())] : []));
  return others.filter(isPassed).flatMap(({ name }) => (sides.every((names) => names.has(name)) ? [name] : []));
}

function isPassed({ kind }: Factor): boolean {
  return kind === 'pass';
}

/**
 * The first dimensions of weights that hold one matrix for each expert: [experts, rows, columns], multiplied expert by expert.
 * A graph without such weights has none.
 */
export function expertDimensions(graph: Graph): readonly BatchDimension[] {
  const weights = weightTensors(graph);
  const found = new Map<string, BatchDimension>();
  for (const node of graph.nodes) {
    if (node.phase !== 'forward' || operatorFamily(node) !== 'contraction') continue;
    const rule = ruleOf(operatorOf(graph, node));
    node.inputs.forEach((input, index) => {
      if (input === null || !weights.has(input)) return;
      const { dtype, shape } = typeOf(graph, input);
      const [first] = rule.inputs[index]?.[0] ?? [];
      const isEach = first !== undefined && rule.outputs[0]?.flat().includes(first) === true;
      if (shape.length >= 3 && (shape[0] ?? 1) > 1 && isFloating(dtype) && isEach) found.set(input, { input, axis: 0 });
    });
  }
  return [...found.values()];
}

/** Whether an operator of a graph has experts. */
export function expertOperators(graph: Graph): (node: Node) => boolean {
  const starts = expertDimensions(graph);
  if (starts.length === 0) return () => false;
  const marks = followBatch({ ...graph, batch: starts });
  return (node) => expertFactors(node, ruleOf(operatorOf(graph, node)), graph, marks).length > 0;
}

/**
 * Expert factors of an operator on tensors with one matrix per expert: weights, their gradients and state, and the tokens
 * dispatched to each. Scores and choices, whose last dimension is experts, are the router's: each rank has those of its tokens.
 */
function expertFactors(node: Node, rule: FactorRule, graph: Graph, marks: DimensionMarks): readonly string[] {
  const own = marks.factorMarks(node);
  const stacked = new Set(
    ruleSides(rule, node).flatMap(({ of: name, dims }) =>
      typeOf(graph, name).shape.length >= 3 ? dims.slice(0, -1).flat() : [],
    ),
  );
  return [...own].flatMap(([factor, { minor, size }]) =>
    stacked.has(factor) && minor === 1 && size === rule.factors.get(factor)?.size ? [factor] : [],
  );
}
