/**
 * @file Rows that a mask picks, as exporters write the tokens of one expert:
 *
 *     p, t = NonZero(mask)                          mask [k, tokens]: where a token's p-th choice is this expert
 *     result = ScatterND(sum, t, expert(x[t]) · w[t, p], add)
 *
 * How many there are depends on the data. An expert works row by row, so all rows may go through it, and those that the mask
 * leaves out have weight zero:
 *
 *     result = sum + expert(x) · Σ over p of mask · w
 *
 * The places are followed from NonZero on: as if the mask were true everywhere, one for each of its cells. A tensor picked by
 * one coordinate stands for its rows unpicked (`along` that dimension of the mask). An operator is followed where its factor rule
 * carries rows one by one from operands to results; anything else is refused as before, for a size that depends on the data.
 */
import { onnxOfDtype } from '../dtype.js';
import type { AutoparError } from '../error.js';
import { elementCount, INTERNAL_OPSET } from '../graph.js';
import type { SourceAttributes, SourceNode } from '../onnx/model.js';
import type { Operator } from '../operator.js';
import { constant, numbersOf } from '../ops/constants.js';
import { entryOf } from '../ops/index.js';
import { numberAttribute, numbersAttribute, type RewriteContext } from './rewrite.js';

/** The result of one NonZero. */
interface Places {
  readonly mask: string;
  /** One or two dimensions. */
  readonly shape: readonly number[];
  readonly refusal: AutoparError;
}

/** A tensor with a row for each place, or the tensor that replaces it. */
interface FollowedRows {
  readonly places: Places;
  /** The dimension of the mask that rows are positions of; null where they are its cells, row-major. */
  readonly along: number | null;
  readonly axis: number;
  /** A tensor by cells that rows along a dimension are multiplied by; null if none. */
  readonly gate: string | null;
}

/** Placeholder in a shape for the number of places. */
const COUNT = -1;

/** Operators that move numbers of a shape. */
const MOVES: ReadonlySet<string> = new Set(['Concat', 'Gather', 'Slice', 'Squeeze', 'Unsqueeze', 'Cast']);

/** Operators that change nothing where they keep the shape. */
const VIEWS: ReadonlySet<string> = new Set(['Reshape', 'Expand']);

/** Follows picked rows by the names of tensors, beside the walk that resolves a graph. */
export class PickedRows {
  private readonly rows = new Map<string, FollowedRows>();
  /** Shapes with COUNT in them. */
  private readonly shapes = new Map<string, Places>();
  private readonly rewrites: Readonly<Record<string, (node: SourceNode, places: Places) => Promise<Replacement>>> = {
    Shape: async (node, places) => this.sizes(node, places),
    Reshape: (node, places) => this.reshape(node, places),
    Expand: (node, places) => this.expand(node, places),
    Gather: (node, places) => this.gather(node, places),
    GatherND: (node, places) => this.gatherNd(node, places),
    Mul: async (node) => this.weighted(node),
    ScatterND: (node, places) => this.scatter(node, places),
    ScatterElements: (node, places) => this.scatter(node, places),
  };

  constructor(private readonly context: RewriteContext) {}

  /** A tensor gets another name. */
  alias(name: string, of: string): void {
    const rows = this.rows.get(of);
    const places = this.shapes.get(of);
    if (rows && !this.rows.has(name)) this.rows.set(name, rows);
    if (places && !this.shapes.has(name)) this.shapes.set(name, places);
  }

  /** @throws AutoparError `data-dependent-shape` where a result of the graph has a row for each place */
  checkOutput(name: string): void {
    const places = this.placesOf([name]);
    if (places) throw places.refusal;
  }

  /** Nodes that replace a node with such rows; null if none, or `follow` handles it once its types are known. */
  async rewrite(node: SourceNode, refusal: () => AutoparError): Promise<Replacement> {
    if (node.domain !== '' || this.isKnown(node)) return null;
    if (node.op === 'NonZero') return this.begin(node, refusal);
    for (const name of node.inputs)
      if (name !== null && this.shapes.has(name) && !(await this.numbers(name)).includes(COUNT))
        this.shapes.delete(name);
    const places = this.placesOf(node.inputs);
    return places && Object.hasOwn(this.rewrites, node.op)
      ? ((await this.rewrites[node.op]?.(node, places)) ?? null)
      : null;
  }

  /** Follows rows through a node; `operator` has null for operands that have become attributes. */
  follow(node: SourceNode, operator: Operator): void {
    const places = this.placesOf(node.inputs);
    if (!places || this.isKnown(node)) return;
    if (node.inputs.some((name) => this.shapes.has(name ?? ''))) {
      if (!MOVES.has(node.op) || node.domain !== '') throw places.refusal;
      for (const name of node.outputs) if (name !== null) this.shapes.set(name, places);
      return;
    }
    const marks = node.inputs.map((name) => this.rows.get(name ?? '') ?? null);
    const found = marks.flatMap((mark) => mark ?? []);
    const [first] = found;
    const isAttribute = marks.some((mark, index) => mark && !operator.inputs[index]);
    if (!first || isAttribute || found.some((mark) => mark.places !== places || mark.along !== first.along))
      throw places.refusal;
    const [before, after] = [operator.inputs[0], operator.outputs[0]].map((type) => type?.shape.join());
    if (found.some(({ gate }) => gate !== null) && !(VIEWS.has(node.op) && before === after)) throw places.refusal;
    const axes = rowAxes(operator, marks);
    if (!axes) throw places.refusal;
    for (const [index, name] of node.outputs.entries())
      if (name !== null) this.rows.set(name, { ...first, axis: axes[index] ?? 0 });
  }

  /** The places of a mask as constants: all of its cells. */
  private async begin(
    { inputs: [mask], outputs: [result] }: SourceNode,
    refusal: () => AutoparError,
  ): Promise<Replacement> {
    if (!mask || !result || this.rows.has(mask) || (await this.context.heldValueOf(mask))) return null;
    const { shape } = this.context.typeOf(mask);
    if (shape.length < 1 || shape.length > 2) return null;
    const all = shape.flatMap((_, dimension) => coordinates(shape, dimension));
    const value = constant('int64', all, [shape.length, elementCount(shape)]);
    this.context.alias(result, this.context.literal(`${result}/all`, value));
    this.rows.set(result, { places: { mask, shape, refusal: refusal() }, along: null, axis: 1, gate: null });
    return [];
  }

  /** A shape with COUNT for the rows. */
  private sizes({ inputs: [input], outputs: [result], attributes }: SourceNode, places: Places): Replacement {
    const rows = this.rows.get(input ?? '');
    if (!input || !result || !rows) throw places.refusal;
    const all = this.context.typeOf(input).shape.with(rows.axis, COUNT);
    const part = all.slice(numberAttribute(attributes, 'start', 0), numberAttribute(attributes, 'end', all.length));
    this.context.alias(result, this.context.literal(`${result}/sizes`, constant('int64', part, [part.length])));
    this.shapes.set(result, places);
    return [];
  }

  /** Rows keep their place in the order of elements, and their number is left open. */
  private async reshape(node: SourceNode, places: Places): Promise<Replacement> {
    const [input, sizes] = node.inputs;
    const rows = this.rows.get(input ?? '');
    if (!input || !rows) throw places.refusal;
    const { shape } = this.context.typeOf(input);
    const given = sizes ? await this.numbers(sizes) : numbersAttribute(node.attributes, 'shape');
    const copies = numberAttribute(node.attributes, 'allowzero', 0) === 0;
    const target = given.map((size, axis) =>
      size === 0 && copies ? (axis === rows.axis ? COUNT : (shape[axis] ?? 0)) : size,
    );
    const at = target.indexOf(COUNT);
    const isKept =
      elementCount(target.slice(0, at)) === elementCount(shape.slice(0, rows.axis)) &&
      elementCount(target.slice(at + 1)) === elementCount(shape.slice(rows.axis + 1));
    if (at < 0 || !isKept) throw places.refusal;
    return sizes ? [{ ...node, attributes: { shape: target, allowzero: 0 }, inputs: [input] }] : null;
  }

  /** Rows are as many as they were. */
  private async expand(node: SourceNode, places: Places): Promise<Replacement> {
    const [input, sizes] = node.inputs;
    if (!sizes || !this.shapes.has(sizes)) return null;
    const target = await this.numbers(sizes);
    const rows = this.rows.get(input ?? '');
    const rank = this.context.typeOf(input ?? '').shape.length;
    if (!rows || target.length < rank || target.indexOf(COUNT) !== rows.axis + target.length - rank)
      throw places.refusal;
    const shape = target.map((size) => (size === COUNT ? 1 : size));
    return [{ ...node, attributes: { shape }, inputs: [input ?? ''] }];
  }

  private async gather(node: SourceNode, places: Places): Promise<Replacement> {
    const [data = '', index = ''] = node.inputs;
    if (data === null || index === null || this.rows.has(data) || !this.rows.has(index)) return null;
    const rank = this.context.typeOf(data).shape.length;
    const given = numberAttribute(node.attributes, 'axis', 0);
    const axis = given < 0 ? given + rank : given;
    const { shape } = this.context.typeOf(index);
    return this.pick(node, places, { data, index, axis, depth: 1, shape, picked: await this.numbers(index) });
  }

  private async gatherNd(node: SourceNode, places: Places): Promise<Replacement> {
    const [data = '', index = ''] = node.inputs;
    if (data === null || index === null || this.rows.has(data) || !this.rows.has(index)) return null;
    const { shape } = this.context.typeOf(index);
    const depth = shape.at(-1) ?? 1;
    const leading = this.context.typeOf(data).shape.slice(0, depth);
    if (numberAttribute(node.attributes, 'batch_dims', 0) !== 0) throw places.refusal;
    const numbers = await this.numbers(index);
    const picked = Array.from({ length: numbers.length / depth }, (_, place) =>
      leading.reduce((at, size, dimension) => at * size + (numbers[place * depth + dimension] ?? 0), 0),
    );
    return this.pick(node, places, { data, index, axis: 0, depth, shape: shape.slice(0, -1), picked });
  }

  /** Rows of a tensor: all of them, or its cells in the mask's order. */
  private pick(node: SourceNode, places: Places, from: Picking): Replacement {
    const { data, index, axis, depth, shape, picked } = from;
    const [result = ''] = node.outputs;
    const own = this.context.typeOf(data).shape;
    const size = elementCount(own.slice(axis, axis + depth));
    const [before, after] = [own.slice(0, axis), own.slice(axis + depth)];
    const mark = this.rows.get(index);
    if (
      result === null ||
      !mark ||
      mark.along !== null ||
      elementCount(shape) !== picked.length ||
      mark.axis >= shape.length
    )
      throw places.refusal;
    const is = (order: readonly number[]) => picked.every((at, place) => at === order[place]);
    const along = places.shape.findIndex(
      (length, dimension) => length === size && is(coordinates(places.shape, dimension)),
    );
    const cells = elementCount(places.shape);
    const sizes = (rows: number) => [...before, ...shape.with(mark.axis, rows), ...after];
    const made = { places, axis: axis + mark.axis, gate: null };
    if (along >= 0 || (size === cells && is([...picked.keys()]))) {
      this.rows.set(result, { ...made, along: along >= 0 ? along : null });
      return [plain(node, 'Reshape', [data], result, { shape: sizes(size), allowzero: 0 })];
    }
    const [first = 1, second = 1] = places.shape;
    if (size !== cells || !is(picked.map((_, place) => Math.floor(place / second) + (place % second) * first)))
      throw places.refusal;
    this.rows.set(result, { ...made, along: null });
    const prefix = this.context.prefix(result);
    const apart = plain(node, 'Reshape', [data], `${prefix}/apart`, {
      shape: [...before, second, first, ...after],
      allowzero: 0,
    });
    const perm = Array.from({ length: before.length + after.length + 2 }, (_, at) => at);
    perm.splice(axis, 2, axis + 1, axis);
    const transposed = plain(node, 'Transpose', [`${prefix}/apart`], `${prefix}/turned`, { perm });
    return [
      apart,
      transposed,
      plain(node, 'Reshape', [`${prefix}/turned`], result, { shape: sizes(size), allowzero: 0 }),
    ];
  }

  /** Rows times a number for each cell: the cells wait until rows are added up. */
  private weighted({ inputs, outputs: [result] }: SourceNode): Replacement {
    const marks = inputs.map((name) => this.rows.get(name ?? ''));
    const at = marks.findIndex((mark) => mark && mark.along !== null);
    const [rows, cells] = [marks[at], marks[1 - at]];
    const [name, gate] = [inputs[at], inputs[1 - at]];
    if (at < 0 || !rows || !cells || cells.along !== null || !name || !gate || !result) return null;
    const [shape, other] = [name, gate].map((each) => this.context.typeOf(each).shape);
    if (!shape || !other || rows.places !== cells.places || rows.gate !== null || other.length > shape.length)
      return null;
    const isBeside = other.every((size, axis) => size === 1 || axis === cells.axis);
    if (!isBeside || cells.axis + shape.length - other.length !== rows.axis) return null;
    this.context.alias(result, name);
    this.rows.set(result, { ...rows, gate });
    return [];
  }

  /** Rows added to those that they were picked from: all of them, multiplied by mask and gate. */
  private async scatter(node: SourceNode, places: Places): Promise<Replacement> {
    const [data = '', index = '', update = ''] = node.inputs;
    const [result = ''] = node.outputs;
    if (data === null || index === null || update === null || result === null) throw places.refusal;
    const rows = this.rows.get(update);
    const own = this.rows.get(index);
    if (!rows || rows.along === null || !own || own.along !== null || own.places !== rows.places || this.rows.has(data))
      throw places.refusal;
    const { mask, shape } = rows.places;
    const { dtype, shape: sizes } = this.context.typeOf(update);
    const wanted = node.op === 'ScatterND' ? [elementCount(shape), 1] : [elementCount(shape), ...sizes.slice(1)];
    const each = elementCount(wanted.slice(1));
    const numbers = await this.numbers(index);
    const positions = coordinates(shape, rows.along);
    const isWhole =
      rows.axis === 0 &&
      own.axis === 0 &&
      numberAttribute(node.attributes, 'axis', 0) === 0 &&
      this.context.typeOf(data).shape.join() === sizes.join() &&
      this.context.typeOf(index).shape.join() === wanted.join() &&
      numbers.every((at, place) => at === positions[Math.floor(place / each)]);
    const adds = node.attributes['reduction'] === 'add';
    const fromZero = await this.isZero(data);
    // Without a reduction each row is written at most once, or the file leaves its value open.
    if (!isWhole || !(adds || (isWithout(node) && fromZero))) throw places.refusal;
    const prefix = this.context.prefix(result);
    const bare = (name: string, as: string) => {
      this.context.alias(`${prefix}/${as}`, name);
      this.rows.delete(`${prefix}/${as}`);
      return `${prefix}/${as}`;
    };
    const nodes: SourceNode[] = [];
    const add = (
      op: string,
      inputs: readonly string[],
      attributes: SourceAttributes,
      name = `${prefix}/${op}_${nodes.length}`,
    ) => {
      nodes.push(plain(node, op, inputs, name, attributes));
      return name;
    };
    const holds = add('Cast', [add('Cast', [mask], { to: onnxOfDtype('bool') })], { to: onnxOfDtype(dtype) });
    const gate = rows.gate && add('Reshape', [bare(rows.gate, 'gate')], { shape, allowzero: 0 });
    const counted = gate ? add('Mul', [gate, holds], {}) : holds;
    const other = 1 - rows.along;
    const sum = shape.length === 1 ? counted : add('ReduceSum', [counted], { axes: [other], keepdims: 0 });
    const column = add('Reshape', [sum], { shape: sizes.map((size, axis) => (axis === 0 ? size : 1)), allowzero: 0 });
    const factors = [bare(update, 'rows'), column];
    if (fromZero) add('Mul', factors, {}, result);
    else add('Add', [data, add('Mul', factors, {})], {}, result);
    return nodes;
  }

  private async isZero(tensor: string): Promise<boolean> {
    const value = await this.context.heldValueOf(tensor);
    return value?.data.every((byte) => byte === 0) === true;
  }

  private async numbers(tensor: string): Promise<readonly number[]> {
    const value = await this.context.valueOf(tensor);
    return value ? numbersOf(value) : [];
  }

  /** Whether rows of the results were followed already, in another form of the operator. */
  private isKnown({ outputs }: SourceNode): boolean {
    return outputs.every((name) => name === null || this.rows.has(name));
  }

  /** The places that operands belong to; null where they belong to none. */
  private placesOf(names: readonly (string | null)[]): Places | null {
    for (const name of names) {
      const places = this.rows.get(name ?? '')?.places ?? this.shapes.get(name ?? '');
      if (places) return places;
    }
    return null;
  }
}

type Replacement = readonly SourceNode[] | null;

/** Rows that Gather and GatherND read: by place the position `picked` of `depth` dimensions of the data, from `axis` on. */
interface Picking {
  readonly data: string;
  readonly index: string;
  readonly axis: number;
  readonly depth: number;
  /** The shape of the places. */
  readonly shape: readonly number[];
  readonly picked: readonly number[];
}

/** By result the dimension that the rule carries rows to, one by one; null where it does not. */
function rowAxes(operator: Operator, marks: readonly (FollowedRows | null)[]): readonly number[] | null {
  const rule = entryOf(operator.op, operator.domain)?.rule(operator);
  if (!rule) return null;
  const factors = new Set(marks.flatMap((mark, index) => (mark ? (rule.inputs[index]?.[mark.axis] ?? ['']) : [])));
  const [factor = ''] = factors;
  const isShared = rule.inputs.some((dimensions, index) => !marks[index] && dimensions?.flat().includes(factor));
  if (factors.size !== 1 || rule.factors.get(factor)?.kind !== 'pass' || isShared) return null;
  const axes = rule.outputs.flatMap((dimensions) => dimensions?.findIndex((names) => names.join() === factor) ?? 0);
  return axes.includes(-1) ? null : axes;
}

/** By cell of a shape, row-major, its position in a dimension. */
function coordinates(shape: readonly number[], dimension: number): readonly number[] {
  const inner = elementCount(shape.slice(dimension + 1));
  return Array.from({ length: elementCount(shape) }, (_, cell) => Math.floor(cell / inner) % (shape[dimension] ?? 1));
}

function isWithout({ op, attributes }: SourceNode): boolean {
  return op === 'ScatterElements' && [undefined, 'none'].includes(attributes['reduction'] as string | undefined);
}

function plain(
  { name, module }: SourceNode,
  op: string,
  inputs: readonly string[],
  output: string,
  attributes: SourceAttributes,
): SourceNode {
  const node = { name: `${name}/${op}`, op, domain: '', overload: '', attributes, inputs, outputs: [output], module };
  return { ...node, opset: INTERNAL_OPSET };
}
