/**
 * @file Where a graph uses its weights: the *places*, which are the parameters of training.
 *
 *     wte [V, d] ─ Gather                       lookup
 *          └────── Transpose ─ MatMul b         product, transposed
 *     bias [n] ─── Add (of a matmul)            bias
 *
 * Operators with one operand (Transpose, Cast, Reshape, Exp, Resize) are looked through, and so are those with a constant number
 * beside it: the place is where the value meets another.
 */
import { isFloating } from '../dtype.js';
import type { DimensionFactors } from '../factor-rule.js';
import { elementCount, type Graph, type Node, type TensorType } from '../graph.js';
import { appendTo } from '../group-by.js';
import { type Makers, makersOf } from '../makers-and-readers.js';
import { isDifferentiable, type OperatorEntry, type OperatorFamily } from '../operator.js';
import { operatorOf } from '../operator-of.js';
import { entryOf, operatorFamily, ruleOf } from '../ops/index.js';

/** One use of a weight. */
export interface ParameterPlace {
  /** The operator that uses it; a fused region is one operator. */
  readonly node: string;
  readonly op: string;
  /** Which operand of `node` it is. */
  readonly operand: number;
  /** Path in the module hierarchy, outermost first. */
  readonly module: readonly string[];
  readonly layer: string | null;
  /** Whether a matrix arrives with its dimensions exchanged. */
  readonly transposed: boolean;
  /** Operators between the weight and the place, in order. */
  readonly through: readonly string[];
  readonly use: PlaceUse;
}

/**
 * `lookup`: rows are fetched by index. `product`: contracted with data. `scale`: multiplies normalised data. `bias`: added to
 * the result of a matmul or to normalised data. `statistics`: running statistics. `addend`: added to data (position embeddings).
 * `scores`: added to the scores of a softmax (masks, position biases). `factor`: multiplies or divides data. `part`: becomes a
 * part of data (class tokens). `start`: the state that a recurrence begins with. `standard`: subtracted from an input of the
 * model, or divides it. `other`: anything else.
 */
export type PlaceUse =
  | 'lookup'
  | 'product'
  | 'scale'
  | 'bias'
  | 'statistics'
  | 'addend'
  | 'scores'
  | 'factor'
  | 'part'
  | 'start'
  | 'standard'
  | 'other';

/** Uses in which data meets parameters, and other constants as well. */
const PLAUSIBLE: ReadonlySet<PlaceUse> = new Set(['addend', 'scores', 'factor', 'part', 'start']);

/** Uses that show that a constant is not a weight. */
const NONE: ReadonlySet<PlaceUse> = new Set(['standard', 'other']);

/** Families whose second and later operands are weights by nature, where the entry does not list its own. */
const WEIGHTED: ReadonlySet<OperatorFamily> = new Set(['contraction', 'convolution', 'normalisation', 'recurrent']);

/** Families whose result a bias may be added to. */
const BIASED_FAMILIES: ReadonlySet<OperatorFamily> = new Set(['contraction', 'convolution']);

type PartOfGraph = Pick<Graph, 'nodes' | 'tensors' | 'inputs'>;

/** Whether a weight in this place is one by nature: the operator's entry calls it weight or bias. */
export function isNatural(place: ParameterPlace): boolean {
  return !NONE.has(place.use) && !isPlausible(place);
}

/** Whether a constant in this place may be a parameter: its values and the exporter's record decide. */
export function isPlausible({ use }: ParameterPlace): boolean {
  return PLAUSIBLE.has(use);
}

/** The places of each of `sources`: weights, or tensors that an operator without operands makes. */
export function parameterPlaces(
  graph: PartOfGraph,
  sources: Iterable<string>,
): ReadonlyMap<string, readonly ParameterPlace[]> {
  const finder = new PlaceFinder(graph);
  return new Map([...sources].map((source) => [source, finder.placesOf(source)]));
}

/** A node and which of its operands a tensor is. */
export interface OperandReader {
  readonly node: Node;
  readonly operand: number;
}

/** By tensor: the operands that are it. */
export type OperandReaders = ReadonlyMap<string, readonly OperandReader[]>;

export function operandReaders(nodes: readonly Node[]): OperandReaders {
  const readers = new Map<string, OperandReader[]>();
  for (const node of nodes)
    for (const [operand, tensor] of node.inputs.entries())
      if (tensor !== null) appendTo(readers, tensor, { node, operand });
  return readers;
}

/** A tensor on the path from a weight to its places. */
interface Trail {
  readonly tensor: string;
  readonly transposed: boolean;
  readonly through: readonly string[];
  /** Whether an operator on the path does more than move elements. */
  readonly computed: boolean;
}

class PlaceFinder {
  private readonly readers: OperandReaders;
  private readonly makers: Makers<Node>;

  constructor(private readonly graph: PartOfGraph) {
    this.readers = operandReaders(graph.nodes);
    this.makers = makersOf(graph.nodes);
  }

  placesOf(source: string): readonly ParameterPlace[] {
    const places: ParameterPlace[] = [];
    const trails: Trail[] = [{ tensor: source, transposed: false, through: [], computed: false }];
    for (let trail = trails.pop(); trail; trail = trails.pop()) {
      const further: Trail[] = [];
      for (const { node, operand } of this.readers.get(trail.tensor) ?? []) {
        const next = this.lookThrough(node, operand);
        if (next === null) places.push(this.place(node, operand, trail));
        for (const tensor of next ?? [])
          further.push({
            tensor,
            transposed: trail.transposed !== this.exchanges(node),
            through: [...trail.through, node.name],
            computed: trail.computed || operatorFamily(node) !== 'view',
          });
      }
      trails.push(...further.reverse());
    }
    return places;
  }

  /**
   * The results of an operator whose only operand is the value, constant numbers aside, and which is not itself a place; null for
   * other operators. Parts of a Split are results of one.
   */
  private lookThrough(node: Node, operand: number): readonly string[] | null {
    const results = node.outputs.filter((tensor) => tensor !== null);
    const entry = entryOf(node.op, node.domain);
    if ((node.outputs.length !== 1 && entry?.family !== 'view') || node.body !== null || results.length === 0)
      return null;
    const others = node.inputs.filter((tensor, index) => tensor !== null && index !== operand);
    const isSmooth = isDifferentiable(entry);
    if (others.length > 0) {
      const passes = entry?.family === 'elementwise' || entry?.training?.kind === 'dropout';
      return passes && isSmooth && others.every((tensor) => this.isConstantNumber(tensor)) ? results : null;
    }
    return isSmooth || entry?.family === 'view' || entry?.family === 'elementwise' ? results : null;
  }

  private isConstantNumber(tensor: string | null): boolean {
    const type = this.graph.tensors.get(tensor ?? '');
    return tensor !== null && type !== undefined && elementCount(type.shape) === 1 && !this.depends(tensor);
  }

  /** Whether the operator exchanges the two dimensions of a matrix. */
  private exchanges(node: Node): boolean {
    const { inputs, outputs } = ruleOf(operatorOf(this.graph, node));
    const [operand, result] = [inputs[0], outputs[0]];
    if (operand?.length !== 2 || result?.length !== 2) return false;
    const text = (names: DimensionFactors | undefined) => (names ?? []).join(' ');
    return (
      text(operand[0]) === text(result[1]) &&
      text(operand[1]) === text(result[0]) &&
      text(operand[0]) !== text(operand[1])
    );
  }

  private place(node: Node, operand: number, trail: Trail): ParameterPlace {
    const use = this.useOf(node, operand, trail.tensor);
    // A mean that is computed of a weight is no running one: weights that are normalised themselves.
    const own = use === 'statistics' && trail.computed ? 'other' : use;
    const inner = node.body && own === 'other' ? innerPlace(node, node.body, operand) : null;
    return {
      node: node.name,
      op: node.op,
      operand,
      module: inner?.module ?? node.module,
      layer: node.layer,
      transposed: trail.transposed !== (inner?.transposed ?? false),
      through: trail.through,
      use: inner?.use ?? own,
    };
  }

  private useOf(node: Node, operand: number, tensor: string): PlaceUse {
    const entry = entryOf(node.op, node.domain);
    if (!entry) return 'other';
    if (entry.statisticsInputs?.includes(operand)) return 'statistics';
    if (isNaturalOperand(entry, operand)) return naturalUse(entry, operand, this.graph.tensors.get(tensor));
    if (node.body !== null) return 'other';
    if (entry.family === 'elementwise') return this.elementwiseUse(node, entry, operand, tensor);
    if (entry.family === 'recurrent') return this.isFloating(node.inputs[operand]) ? 'start' : 'other';
    if (BIASED_FAMILIES.has(entry.family) && operand === 0) return 'factor';
    if (entry.family === 'normalisation' && operand === 0) return 'part';
    return node.op === 'Concat' && node.domain === '' ? 'part' : 'other';
  }

  private isFloating(tensor: string | null | undefined): boolean {
    const type = this.graph.tensors.get(tensor ?? '');
    return type !== undefined && isFloating(type.dtype);
  }

  /** A constant and data that share dimensions, added, multiplied or chosen from. */
  private elementwiseUse(node: Node, entry: OperatorEntry, operand: number, tensor: string): PlaceUse {
    const other = node.inputs[1 - operand];
    const [result] = node.outputs;
    if (node.op === 'Where' && node.domain === '') return operand > 0 ? 'part' : 'other';
    if (node.inputs.length !== 2 || !other || !result || !this.isFloating(result)) return 'other';
    const linear = entry.linear(operatorOf(this.graph, node));
    const adds = linear.some((set) => set.length === 2);
    const type = this.graph.tensors.get(tensor);
    if (adds && type && !this.isNumber(type, result) && this.isBias(type, other)) return 'bias';
    if (!this.sharesDimensions(tensor, other, result))
      return this.scalesData(node, tensor, result) ? 'factor' : 'other';
    if ((node.op === 'Sub' || node.op === 'Div') && operand === 1 && this.isInput(other)) return 'standard';
    if (adds) return this.isNormalised(result) ? 'scores' : 'addend';
    return linear.length > 0 || node.op === 'Pow' ? 'factor' : 'other';
  }

  /**
   * Whether data has the result's shape, or is repeated along dimensions of the constant beside dimensions that both have: steps
   * and decays of a state space. Positions times frequencies have none in common.
   */
  private sharesDimensions(tensor: string, data: string, result: string): boolean {
    const [own, other, whole] = [tensor, data, result].map((name) => this.graph.tensors.get(name)?.shape ?? []);
    if (!own || !other || !whole || other.join() === whole.join()) return other !== undefined;
    return whole.some((size, axis) => {
      const from = (shape: readonly number[]) => shape[axis - whole.length + shape.length] ?? 1;
      return size > 1 && from(own) === size && from(other) === size;
    });
  }

  /** Whether a factor of a number for each row multiplies data with it: x · (w · r), as Keras scales normalised data. */
  private scalesData(node: Node, tensor: string, product: string): boolean {
    const isProduct = ({ op, domain }: Node) => op === 'Mul' && domain === '';
    return (
      isProduct(node) &&
      (this.readers.get(product) ?? []).some(({ node: reader, operand }) => {
        const [data, result] = [reader.inputs[1 - operand], reader.outputs[0]];
        return isProduct(reader) && data && result && this.sharesDimensions(tensor, data, result);
      })
    );
  }

  /** Whether it is a single number that is added to more than one channel, which is not a bias. */
  private isNumber(type: TensorType | undefined, result: string): boolean {
    const channels = this.graph.tensors.get(result)?.shape.at(-1) ?? 1;
    return channels > 1 && type !== undefined && type.shape.every((size) => size === 1);
  }

  /** Whether a tensor is an input of the model, perhaps of another form, or one that was standardised. */
  private isInput(tensor: string): boolean {
    for (let at = tensor; ; ) {
      if (this.graph.inputs.includes(at)) return true;
      const maker = this.makers.get(at);
      const read = (maker?.inputs ?? []).filter((input) => input !== null && this.depends(input));
      const family = maker ? operatorFamily(maker) : undefined;
      const [next] = read;
      if ((family !== 'view' && family !== 'elementwise') || read.length !== 1 || !next) return false;
      at = next;
    }
  }

  /** Whether a tensor is an input or is made by an operator, as against a weight. */
  private depends(tensor: string): boolean {
    return this.makers.has(tensor) || this.graph.inputs.includes(tensor);
  }

  /**
   * Whether a vector, or a number for each column of a matmul in heads of columns, is added to the result of a matmul or
   * convolution: exporters write Gemm's bias after it, and so does import.
   */
  private isBias(type: TensorType, data: string): boolean {
    let at: string | null = data;
    for (let step = 0; at !== null && step < 4; step++) {
      const maker = this.makers.get(at);
      const family = maker ? operatorFamily(maker) : undefined;
      if (!maker || !family) return false;
      if (BIASED_FAMILIES.has(family)) {
        const columns = this.graph.tensors.get(at)?.shape.at(-1);
        return isVector(type) || (maker.op === 'MatMul' && elementCount(type.shape) === columns);
      }
      const alone = maker.inputs.filter((input) => input !== null).length === 1;
      at = family === 'view' && alone ? (maker.inputs[0] ?? null) : null;
    }
    return false;
  }

  /** Whether a softmax, which has one operand, reads the tensor, perhaps after other operators of its shape. */
  private isNormalised(tensor: string): boolean {
    let next: string | null = tensor;
    for (let step = 0; next !== null && step < 4; step++) {
      const readers: readonly OperandReader[] = this.readers.get(next) ?? [];
      const families = readers.map(({ node }) => operatorFamily(node));
      if (readers.some(({ node }, index) => families[index] === 'normalisation' && node.inputs.length === 1))
        return true;
      const [only] = readers;
      const passes = families[0] === 'view' || families[0] === 'elementwise';
      next = readers.length === 1 && only && passes ? (only.node.outputs[0] ?? null) : null;
    }
    return false;
  }
}

/** The first place inside a region that the region's operand has. */
function innerPlace(node: Node, body: Graph, operand: number): ParameterPlace | null {
  const name = node.inputs[operand];
  if (!name) return null;
  const places = new PlaceFinder(body).placesOf(name);
  return places.find(isNatural) ?? places.find(isPlausible) ?? places[0] ?? null;
}

/** Whether it is an operator's weight or bias by nature. */
export function isNaturalOperand(entry: OperatorEntry, operand: number): boolean {
  return entry.parameterInputs?.includes(operand) ?? (operand > 0 && WEIGHTED.has(entry.family));
}

function naturalUse(entry: OperatorEntry, operand: number, type: TensorType | undefined): PlaceUse {
  if (entry.indexInput !== undefined && operand !== entry.indexInput) return 'lookup';
  if (entry.family === 'recurrent' && operand > 2) return operand === 3 ? 'bias' : 'scale';
  if (entry.family === 'elementwise') return entry.domain === '' ? 'scale' : 'bias';
  const first = entry.parameterInputs?.[0] ?? 1;
  if (operand !== first && isVector(type)) return 'bias';
  return entry.family === 'normalisation' ? 'scale' : 'product';
}

/** At most one dimension larger than 1. */
function isVector(type: TensorType | undefined): boolean {
  return type !== undefined && type.shape.filter((size) => size > 1).length <= 1;
}
