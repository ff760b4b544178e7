/**
 * @file A recognised attention whose keys and values arrive in chunks, one after the other. Each of them is processed by the
 * attention's own body at the sizes of one chunk. Every row of scores keeps a maximum, a sum and a result that is not divided yet
 * (online softmax: Milakov and Gimelshein 2018; FlashAttention, Dao et al. 2022; over ranks: ring attention, Liu et al. 2023):
 *
 *     S = scores of the chunk    m' = max(m, max S)    E = exp(S − m')    a = exp(m − m')
 *     l' = a·l + Σ E             O' = a·O + E·V        at the end: result = O / l,  row_max = m,  row_share = 1 / l
 *
 * With a sink a row begins with m = sink and l = exp(sink − m').
 *
 * A gradient does not need this: given row_max and row_share it only sums over keys and over queries, chunk by chunk.
 */

import { type DType, onnxOfDtype } from '../dtype.js';
import type { TensorFactors } from '../factor-rule.js';
import type { Attributes, Graph, Node, Weight } from '../graph.js';
import { needed } from '../needed.js';
import type { Expansion, Streamed } from '../operator.js';
import { constant, constantWeight } from '../ops/constants.js';
import { summationType } from '../ops/expansion.js';
import { type RowwiseAttention, rowwiseAttention } from './attention.js';
import { expansionOf, type FindEntry, type RegionRule } from './region-rule.js';

/** The attention on one chunk of keys, with its attributes at the sizes that the factors have then. */
export function streamedChunk(
  kind: string,
  whole: Graph,
  rule: RegionRule,
  { size, isPadded }: { readonly size: (factor: string) => number; readonly isPadded: boolean },
  find: FindEntry,
): Streamed {
  const body = resizedBody(whole, rule, size, find);
  if (kind.endsWith('Gradient')) return { first: expansionOf(body, rule.dims), online: null };
  const core = rowwiseAttention(body);
  if (!core) throw new Error(`${body.name} has no form for keys that arrive in chunks`);
  const online = (continues: boolean) => onlineChunk(body, rule.dims, core, { continues, isPadded });
  const rows = rowsOf(rule.dims, core);
  const scores = rule.dims.get(core.softmax.scores) ?? [];
  const there = isPadded ? scores.map((names, axis) => (axis === core.softmax.axis ? names : [])) : null;
  const kept = [rule.dims.get(body.outputs[0] ?? '') ?? [], rows, rows];
  return { first: online(false), online: { next: online(true), end: endOfChunks(body, rule.dims, core), there, kept } };
}

type RegionDims = RegionRule['dims'];

/** The dimensions of a tensor with one number for each row of scores. */
function rowsOf(dims: RegionDims, { softmax }: RowwiseAttention): readonly (readonly string[])[] {
  return (dims.get(softmax.scores) ?? []).map((names, axis) => (axis === softmax.axis ? [] : names));
}

/** The least finite number of a type: exporters mask scores with it, or with −∞. */
const LOWEST: Readonly<Partial<Record<DType, number>>> = {
  float32: -3.4028234663852886e38,
  float16: -65504,
  bfloat16: -3.3895313892515355e38,
};

/** The state of the rows so far, in the order of results and of operands after the attention's own. */
const RESULT = 'streamed/result';
const MAX = 'streamed/max';
const SUM = 'streamed/sum';

/** Which keys of a chunk exist, where chunks are padded. */
const THERE = 'streamed/there';

/** Writes operators after those of a body. */
class BodyWriter {
  readonly made: Node[] = [];
  readonly weights: Map<string, Weight>;
  readonly dims: Map<string, readonly (readonly string[])[]>;
  private readonly dtypes: Map<string, DType>;

  constructor(
    private readonly body: Graph,
    known: RegionDims,
    private readonly near: Node,
  ) {
    this.weights = new Map(body.weights);
    this.dims = new Map(known);
    this.dtypes = new Map([...body.tensors].map(([name, { dtype }]) => [name, dtype] as const));
  }

  /** Declares the state that rows keep from chunk to chunk, in its types. */
  runningState({ softmax }: RowwiseAttention): { readonly type: DType; readonly own: DType } {
    const own = this.dtypeOf(softmax.scores);
    const type = summationType(own);
    for (const [name, dtype] of [
      [RESULT, type],
      [SUM, type],
      [MAX, own],
    ] as const)
      this.dtypes.set(name, dtype);
    return { type, own };
  }

  add(op: string, inputs: readonly string[], dtype: DType, own: TensorFactors, attributes: Attributes = {}): string {
    const name = `streamed/${op}/${this.made.length}`;
    this.dtypes.set(name, dtype);
    this.dims.set(name, own);
    const plain = { op, domain: '', attributes, inputs, outputs: [name], group: name, body: null };
    this.made.push({ ...this.near, name, ...plain });
    return name;
  }

  cast(name: string, to: DType, own: TensorFactors): string {
    return this.dtypeOf(name) === to ? name : this.add('Cast', [name], to, own, { to: onnxOfDtype(to) });
  }

  number(dtype: DType, value: number): string {
    const name = `streamed/number/${dtype}/${value}`;
    this.weights.set(name, constantWeight(constant(dtype, [value])));
    return name;
  }

  dtypeOf(name: string): DType {
    return this.dtypes.get(name) as DType;
  }

  /** The operators that lead to the given results, as an expansion. */
  expansion(inputs: readonly string[], outputs: readonly string[]): Expansion {
    const nodes = needed(this.made, outputs);
    return expansionOf({ ...this.body, nodes, weights: this.weights, inputs, outputs }, this.dims);
  }
}

function onlineChunk(
  body: Graph,
  known: RegionDims,
  core: RowwiseAttention,
  { continues, isPadded }: { readonly continues: boolean; readonly isPadded: boolean },
): Expansion {
  const { nodes, softmax } = core;
  const [resultName = ''] = body.outputs;
  const write = new BodyWriter(body, known, nodes[0] as Node);
  const { made, dims } = write;
  const add = write.add.bind(write);
  const { type, own } = write.runningState(core);
  const [scores, rows, results] = [dims.get(softmax.scores) ?? [], rowsOf(dims, core), dims.get(resultName) ?? []];
  const alongRow = { axes: [softmax.axis], keepdims: 1 };
  const replaced = new Set(softmax.nodes);
  const end = nodes.findLastIndex((node) => replaced.has(node));
  made.push(...nodes.slice(0, end).filter((node) => !replaced.has(node)));
  const seen = isPadded
    ? add('Where', [THERE, softmax.scores, write.number(own, Number.NEGATIVE_INFINITY)], own, scores)
    : softmax.scores;
  const highest = add('ReduceMax', [seen], own, rows, alongRow);
  // A row that sees none of the chunk's keys would otherwise compute −∞ − −∞.
  const lowest = write.number(own, LOWEST[own] ?? -Number.MAX_VALUE);
  // A sink is one term of a row, whichever rank has its keys: it is added in the row's first chunk.
  const sink = continues ? null : (softmax.sink?.tensor ?? null);
  const max = add('Max', [highest, continues ? MAX : (sink ?? lowest)], own, rows);
  const power = (name: string, along: TensorFactors): string =>
    add('Exp', [write.cast(add('Sub', [name, max], own, along), type, along)], type, along);
  const powers = power(seen, scores);
  const weighted = write.cast(powers, write.dtypeOf(softmax.probabilities), scores);
  const inPlace = (name: string | null) => (name === softmax.probabilities ? weighted : name);
  const chunkSum = add('ReduceSum', [powers], type, rows, alongRow);
  made.push(...nodes.slice(end + 1).map((node) => ({ ...node, inputs: node.inputs.map(inPlace) })));
  const decay = continues ? power(MAX, rows) : null;
  const joined = (name: string, before: string, along: TensorFactors): string =>
    decay === null ? name : add('Add', [add('Mul', [before, decay], type, along), name], type, along);
  const seenSum = sink === null ? chunkSum : add('Add', [chunkSum, power(sink, rows)], type, rows);
  const sum = joined(seenSum, SUM, rows);
  const result = joined(write.cast(resultName, type, results), RESULT, results);
  const inputs = [...body.inputs, ...(isPadded ? [THERE] : []), ...(continues ? [RESULT, MAX, SUM] : [])];
  return write.expansion(inputs, [result, max, sum]);
}

/** The results, from the state of the rows after the last chunk. */
function endOfChunks(body: Graph, known: RegionDims, core: RowwiseAttention): Expansion {
  const [resultName = '', , shareName] = body.outputs;
  const write = new BodyWriter(body, known, core.nodes[0] as Node);
  const { type, own } = write.runningState(core);
  const [rows, results] = [rowsOf(known, core), known.get(resultName) ?? []];
  const divided = write.add('Div', [RESULT, SUM], type, results);
  const isEmpty = core.isGuarded ? write.add('Equal', [SUM, write.number(type, 0)], 'bool', rows) : null;
  const whole =
    isEmpty === null ? divided : write.add('Where', [isEmpty, write.number(type, 0), divided], type, results);
  const numbers =
    shareName === undefined
      ? []
      : [write.add('Identity', [MAX], own, rows), write.add('Reciprocal', [SUM], type, rows)];
  return write.expansion([RESULT, MAX, SUM], [write.cast(whole, write.dtypeOf(resultName), results), ...numbers]);
}

/** A body with its operators' attributes at other sizes of the region's factors. Its tensors keep their types. */
function resizedBody(
  body: Graph,
  { rule, dims }: RegionRule,
  size: (factor: string) => number,
  find: FindEntry,
): Graph {
  const wholeSize = (name: string) => rule.factors.get(name)?.size ?? 1;
  const product = (names: readonly string[], of: (name: string) => number) =>
    names.reduce((all, name) => all * of(name), 1);
  const types = (names: readonly (string | null)[]) =>
    names.map((name) => (name === null ? null : (body.tensors.get(name) ?? null)));
  const nodes = body.nodes.map((node) => {
    const entry = find(node.op, node.domain);
    if (!entry.resize) return node;
    const { name, op, domain, attributes } = node;
    const [inputs, outputs] = [types(node.inputs), types(node.outputs)];
    const operator = { name, op, domain, attributes, inputs, outputs, outputCount: outputs.length };
    const inner = entry.rule(operator);
    const sizes = new Map<string, number>();
    const sides = [
      ...node.inputs.map((tensor, index) => [tensor, inner.inputs[index]] as const),
      ...node.outputs.map((tensor, index) => [tensor, inner.outputs[index]] as const),
    ];
    for (const [tensor, factors] of sides)
      factors?.forEach((own, axis) => {
        // The region's factors are at least as fine as those of its operators: each inner factor is a run of them.
        const outer = [...(dims.get(tensor ?? '')?.[axis] ?? [])];
        for (const factor of own) {
          const wanted = inner.factors.get(factor)?.size ?? 1;
          const run: string[] = [];
          while (product(run, wholeSize) < wanted && outer.length > 0) run.push(outer.shift() as string);
          if (run.length > 0) sizes.set(factor, product(run, size));
        }
      });
    const resized = entry.resize(
      operator,
      inner,
      (factor) => sizes.get(factor) ?? inner.factors.get(factor)?.size ?? 1,
    );
    return { ...node, attributes: resized };
  });
  return { ...body, nodes };
}
