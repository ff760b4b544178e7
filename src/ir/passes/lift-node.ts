/**
 * @file One operator of a graph for a single sample, made to work on a batch: where its operands hold the batch, so do its
 * results. An operand without the batch that others have is repeated for all samples.
 */
import { AutoparError } from '../error.js';
import type { FactorKind, FactorRule } from '../factor-rule.js';
import { type Attributes, type Graph, type Node, type TensorType, typeOf } from '../graph.js';
import type { OperatorEntry, OperatorFamily } from '../operator.js';
import { operatorOf } from '../operator-of.js';
import { entryOf, ruleOf } from '../ops/index.js';
import {
  batchDigits,
  batchPlaces,
  type Choose,
  type Digits,
  factorPlace,
  type Missing,
  placesAfter,
  withBatch,
} from './batch-digit.js';
import { liftLookup, type MovedIndex } from './lift-lookup.js';

export interface LiftedNode {
  readonly attributes: Attributes;
  /** Per result; null where it is the same for all samples. */
  readonly results: readonly (Digits | null)[];
  /** Operands to be repeated for all samples. */
  readonly missing: readonly Missing[];
  /** Whether it joins samples: sums over them, normalises over them, or pairs them. */
  readonly joins: boolean;
  /** How operand 1 is moved to its own sample's part, for a lookup. */
  readonly index?: MovedIndex;
}

/** Why an operator cannot be followed. */
export interface Lost {
  readonly lost: string;
}

/** The effect of a batch on a factor, by kind: none, samples are joined, or it cannot be followed. */
const EFFECT: Readonly<Record<FactorKind, 'none' | 'joins' | 'lost'>> = {
  pass: 'none',
  blocked: 'none',
  contracting: 'joins',
  expanded: 'joins',
  mask: 'lost',
  whole: 'lost',
  indexed: 'lost',
  halo: 'lost',
};

/** Families that sum over a factor even where the rule expands them to do so. */
const SUMMING: ReadonlySet<OperatorFamily> = new Set(['reduction', 'loss']);

/** The operator for `batch` samples; `digits` gives where its operands hold the batch. */
export function liftNode(
  graph: Graph,
  node: Node,
  digits: (tensor: string) => Digits | null,
  batch: number,
  choose: Choose,
): LiftedNode | Lost {
  const operands = node.inputs.map((input) => (input === null ? null : digits(input)));
  if (operands.every((item) => item === null))
    return { attributes: node.attributes, results: node.outputs.map(() => null), missing: [], joins: false };
  if (node.op === 'Reshape' && node.domain === '') return liftReshape(graph, node, operands[0] ?? [], batch, choose);
  const lookup = liftLookup(graph, node, operands, batch, choose);
  if (lookup) return { ...lookup, attributes: node.attributes, results: [lookup.result], joins: false };
  const entry = entryOf(node.op, node.domain);
  if (!entry) return { lost: `${node.op} is unknown to autopar` };
  return new Lifting(graph, node, entry, operands, batch).result();
}

function liftReshape(graph: Graph, node: Node, digits: Digits, batch: number, choose: Choose): LiftedNode | Lost {
  const from = typeOf(graph, node.inputs[0] ?? '').shape;
  const to = typeOf(graph, node.outputs[0] ?? '').shape;
  const found: (number | null)[] = to.map(() => null);
  for (const place of batchPlaces(digits)) {
    const places = placesAfter(from, place, to).filter(({ axis }) => found[axis] === null);
    const chosen = choose(`${from.join()}/${place.axis},${place.minor}/${to.join()}`, places);
    if (!chosen) return { lost: `no dimension of [${to.join(', ')}] can hold the batch` };
    found[chosen.axis] = chosen.minor;
  }
  const attributes = { ...node.attributes, shape: [...withBatch(to, found, batch)] };
  return { attributes, results: [found], missing: [], joins: false };
}

/** An operator that the registry knows, other than Reshape. */
class Lifting {
  private readonly rule: FactorRule;
  private readonly places = new Map<string, number>();

  constructor(
    private readonly graph: Graph,
    private readonly node: Node,
    private readonly entry: OperatorEntry,
    private readonly operands: readonly (Digits | null)[],
    private readonly batch: number,
  ) {
    this.rule = ruleOf(operatorOf(graph, node));
  }

  result(): LiftedNode | Lost {
    const lost = this.findPlaces();
    if (lost !== null) return { lost };
    const results = this.rule.outputs.map((dims) => batchDigits(dims ?? [], this.rule, this.places));
    if (results.some((item) => item === null))
      return { lost: 'one dimension of its result would hold the batch twice' };
    const wanted = this.wantedOperands();
    if (!wanted) return { lost: 'one dimension of an operand would hold the batch twice' };
    const amiss = this.badJoin(results, wanted);
    if (amiss !== null) return { lost: amiss };
    const attributes = this.attributes();
    const shapes = results.map((item, index) => withBatch(this.resultType(index)?.shape ?? [], item ?? [], this.batch));
    const narrow = wanted.filter((item) => !this.mayBroadcast(item));
    let reason = '';
    for (const missing of narrow.length < wanted.length ? [narrow, wanted] : [wanted]) {
      const found = this.mismatch(attributes, missing, shapes);
      if (found === null) {
        const held = results.map((item) => (item?.some((minor) => minor !== null) ? item : null));
        return { attributes, results: held, missing, joins: this.joins(held) };
      }
      reason = found;
    }
    return { lost: reason };
  }

  /** Finds the factors that hold the batch; returns why they cannot be found, or null. */
  private findPlaces(): string | null {
    for (const [index, digits] of this.operands.entries()) {
      for (const { axis, minor } of batchPlaces(digits ?? [])) {
        const found = factorPlace(this.rule.inputs[index]?.[axis] ?? [], this.rule, minor);
        if (!found)
          return `dimension ${axis} of its operand ${index}, which holds the batch, meets a dimension that does not`;
        if (EFFECT[found.factor.kind] === 'lost')
          return `it operates along dimension ${axis} of its operand ${index}, which holds the batch`;
        const known = this.places.get(found.factor.name);
        if (known !== undefined && known !== found.minor) return 'its operands hold the batch in different places';
        this.places.set(found.factor.name, found.minor);
      }
    }
    return null;
  }

  /** Operands with a dimension that others hold the batch in, and they do not. */
  private wantedOperands(): readonly Missing[] | null {
    const wanted: Missing[] = [];
    for (const [operand, dims] of this.rule.inputs.entries()) {
      if (!dims || (this.node.inputs[operand] ?? null) === null) continue;
      const digits = batchDigits(dims, this.rule, this.places);
      if (!digits) return null;
      const has = this.operands[operand] ?? null;
      if (digits.some((minor, axis) => minor !== null && (has?.[axis] ?? null) === null))
        wanted.push({ operand, digits });
    }
    return wanted;
  }

  /** An operand whose dimensions of size 1 fit any batch as they are. */
  private mayBroadcast({ operand, digits }: Missing): boolean {
    const { shape } = typeOf(this.graph, this.node.inputs[operand] ?? '');
    const broadcasts = this.entry.family === 'elementwise' || this.node.op === 'MatMul';
    return broadcasts && digits.every((minor, axis) => minor === null || shape[axis] === 1);
  }

  private attributes(): Attributes {
    const { entry, node, rule } = this;
    const size = (name: string) => (rule.factors.get(name)?.size ?? 1) * (this.places.has(name) ? this.batch : 1);
    return entry.resize?.(operatorOf(this.graph, node), rule, size) ?? node.attributes;
  }

  /** The registry must infer the shapes that the factors imply: returns the difference as text, or null. */
  private mismatch(
    attributes: Attributes,
    missing: readonly Missing[],
    shapes: readonly (readonly number[])[],
  ): string | null {
    const inputs = this.node.inputs.map((input, index): TensorType | null => {
      if (input === null) return null;
      const { dtype, shape } = typeOf(this.graph, input);
      const digits = missing.find(({ operand }) => operand === index)?.digits ?? this.operands[index] ?? [];
      return { dtype, shape: withBatch(shape, digits, this.batch) };
    });
    try {
      const found = this.entry.infer({ ...operatorOf(this.graph, this.node), attributes, inputs, outputs: [] });
      const wrong = shapes.findIndex(
        (shape, index) => this.resultType(index) !== null && found[index]?.shape.join() !== shape.join(),
      );
      if (wrong < 0) return null;
      return `its result would be [${found[wrong]?.shape.join(', ')}] where [${shapes[wrong]?.join(', ')}] is needed`;
    } catch (error) {
      if (error instanceof AutoparError) return error.message;
      throw error;
    }
  }

  private joins(results: readonly (Digits | null)[]): boolean {
    return this.joinedFactors().length > 0 || this.pairs(results);
  }

  private joinedFactors(): readonly string[] {
    return [...this.places.keys()].filter((name) => EFFECT[this.rule.factors.get(name)?.kind ?? 'pass'] === 'joins');
  }

  private pairs(results: readonly (Digits | null)[]): boolean {
    const twice = (digits: Digits | null) => batchPlaces(digits ?? []).length > 1;
    return results.some(twice) && !this.operands.some(twice);
  }

  /**
   * Samples are summed over where all operands hold them, and normalised over or paired where they are a dimension of
   * their own. No model means anything else: the walk took a wrong turn. Returns the reason, or null.
   */
  private badJoin(results: readonly (Digits | null)[], wanted: readonly Missing[]): string | null {
    const joined = this.joinedFactors();
    const own = (name: string) => this.rule.factors.get(name)?.size === 1;
    const lacking = wanted.find(({ operand }) =>
      this.rule.inputs[operand]?.some((names) => names.some((name) => joined.includes(name))),
    );
    if (lacking) return `it sums over samples that its operand ${lacking.operand} does not distinguish`;
    const sums = (name: string) =>
      SUMMING.has(this.entry.family) || this.rule.factors.get(name)?.kind === 'contracting';
    const spread = joined.filter((name) => !sums(name));
    const pairing = this.pairs(results) ? [...this.places.keys()] : [];
    return [...spread, ...pairing].every(own)
      ? null
      : 'it joins samples along a dimension that holds more than the batch';
  }

  private resultType(index: number): TensorType | null {
    const name = this.node.outputs[index] ?? null;
    return name === null ? null : typeOf(this.graph, name);
  }
}
