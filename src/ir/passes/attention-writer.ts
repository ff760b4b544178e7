/**
 * @file Attention in the operators that exporters wrote before there was one operator for it, which fused regions then
 * replace. Causal masks are made of positions, one mask for all layers:
 *
 *     mask [s, t] = positions [t] ≤ positions [s, 1]     in a window of w besides:  positions [t] ≥ positions [s, 1] − w + 1
 */
import type { Attributes, Node } from '../graph.js';
import { constant } from '../ops/constants.js';
import type { ForwardWriter } from './forward-writer.js';

/**
 * An attention whose heads are apart: queries [batch, heads, s, e], keys [batch, key heads, t, e], values [batch, key heads, t,
 * f].
 */
export interface WrittenAttention {
  readonly query: string;
  readonly key: string;
  readonly value: string;
  readonly scale: number;
  /** c of c·tanh(score / c); 0 for none. */
  readonly softcap: number;
  /** Tensors that broadcast to the scores: added, or true where a query sees a key. */
  readonly masks: readonly string[];
  readonly isCausal: boolean;
  /** Positions that a query sees at most, with its own; null for all before it. */
  readonly window: number | null;
  /** The attention sink: a score [1, heads, 1, 1] of each row beside those of its keys, which has no value. */
  readonly sink: string | null;
}

/** The score of a hidden key: the least number of float32, as in ONNX Runtime's kernel; other types take their own. */
const HIDDEN: Readonly<Record<string, number>> = { float16: -65504, bfloat16: -3.3895313892515355e38 };

/** Writes one attention in place of a node; `masks`: those of the graph so far, by sizes. */
export class AttentionWriter {
  constructor(
    private readonly writer: ForwardWriter,
    private readonly node: Node,
    private readonly masks: Map<string, string>,
  ) {}

  add(op: string, inputs: readonly string[], attributes: Attributes = {}, name = `${this.node.name}/${op}`): string {
    return this.writer.add(name, this.node, op, inputs, attributes);
  }

  shapeOf(name: string): readonly number[] {
    return this.writer.tensors.get(name)?.shape ?? [];
  }

  /** A number in the type of the operator's first operand. */
  number(of: number, shape: readonly number[] = []): string {
    const { dtype = 'float32' } = this.writer.tensors.get(this.node.inputs[0] ?? '') ?? {};
    return this.writer.value(`${this.node.name}/number`, constant(dtype, [of], shape));
  }

  /** int64 0, 1, …. */
  positions(count: number, first = 0, shape: readonly number[] = [count]): string {
    const values = Array.from({ length: count }, (_, at) => first + at);
    return this.writer.value('positions', constant('int64', values, shape));
  }

  /** Splits tensors that are concatenated in the last dimension, of so many heads each. */
  parts(name: string, heads: readonly number[]): readonly string[] {
    const [, , width = 1] = this.shapeOf(name);
    const all = heads.reduce((sum, count) => sum + count, 0);
    const attributes = { axis: 2, split: heads.map((count) => (count * width) / all) };
    return this.writer.addAll(`${this.node.name}/Split`, this.node, 'Split', [name], attributes, '', heads.length);
  }

  /** [batch, positions, heads · features] → [batch, heads, positions, features]. */
  perHead(name: string, heads: number): string {
    const [batch = 1, positions = 1, width = 1] = this.shapeOf(name);
    const parted = this.add('Reshape', [name], { shape: [batch, positions, heads, width / heads] });
    return this.add('Transpose', [parted], { perm: [0, 2, 1, 3] });
  }

  /** [batch, heads, positions, features] → [batch, positions, heads · features]. */
  joined(name: string): string {
    const [batch = 1, heads = 1, positions = 1, width = 1] = this.shapeOf(name);
    const transposed = this.add('Transpose', [name], { perm: [0, 2, 1, 3] });
    return this.add('Reshape', [transposed], { shape: [batch, positions, heads * width] });
  }

  /** The result, [batch, heads, s, f]. */
  attended({ query, key, value, scale, softcap, masks, isCausal, window, sink }: WrittenAttention): string {
    const { dtype = 'float32' } = this.writer.tensors.get(query) ?? {};
    const [, heads = 1] = this.shapeOf(query);
    const transposed = this.add('Transpose', [this.repeated(key, heads)], { perm: [0, 1, 3, 2] });
    let scores = this.add('Mul', [this.add('MatMul', [query, transposed]), this.number(scale)]);
    if (softcap !== 0) {
      const cap = this.number(softcap);
      scores = this.add('Mul', [this.add('Tanh', [this.add('Div', [scores, cap])]), cap]);
    }
    const hide = (where: string) =>
      this.add('Where', [where, scores, this.number(HIDDEN[dtype] ?? -3.4028234663852886e38)]);
    for (const mask of masks) {
      const isTruth = this.writer.tensors.get(mask)?.dtype === 'bool';
      scores = isTruth ? hide(mask) : this.add('Add', [scores, mask]);
    }
    const [batch = 1, , rows = 1, columns = 1] = this.shapeOf(scores);
    if (isCausal) scores = hide(this.maskOf(rows, columns, window));
    const beside = sink === null ? [] : [this.add('Expand', [sink], { shape: [batch, heads, rows, 1] })];
    const all = beside.length === 0 ? scores : this.add('Concat', [scores, ...beside], { axis: 3 });
    let probabilities = this.add('Softmax', [all], { axis: sink === null ? -1 : 3 });
    if (sink !== null) {
      const ofKeys = { starts: [0], ends: [columns], axes: [3], steps: [1] };
      probabilities = this.add('Slice', [probabilities], ofKeys);
    }
    return this.add('MatMul', [probabilities, this.repeated(value, heads)], {}, this.node.name);
  }

  /** The operators that were written, of which the last makes `output`. */
  into(output: string): readonly Node[] {
    const made = this.writer.take();
    const last = made.at(-1) as Node;
    this.writer.tensors.delete(last.outputs[0] as string);
    return [...made.slice(0, -1), { ...last, outputs: [output] }];
  }

  /** Each head of keys for the query heads that share it. */
  private repeated(name: string, heads: number): string {
    const [batch = 1, count = 1, positions = 1, width = 1] = this.shapeOf(name);
    const groups = heads / count;
    if (groups === 1) return name;
    const apart = this.add('Unsqueeze', [name], { axes: [2] });
    const spread = this.add('Expand', [apart], { shape: [batch, count, groups, positions, width] });
    return this.add('Reshape', [spread], { shape: [batch, heads, positions, width] });
  }

  /** True where a query sees a key: at its own position and before, and in its window. */
  private maskOf(rows: number, columns: number, window: number | null): string {
    const key = `${rows} ${columns} ${window}`;
    const known = this.masks.get(key);
    if (known !== undefined) return known;
    const { writer } = this;
    const nowhere = { module: [], layer: null };
    const keys = this.positions(columns);
    let mask = writer.add('causal_mask', nowhere, 'LessOrEqual', [keys, this.positions(rows, 0, [rows, 1])]);
    if (window !== null) {
      const oldest = this.positions(rows, 1 - window, [rows, 1]);
      const isRecent = writer.add('window', nowhere, 'GreaterOrEqual', [keys, oldest]);
      mask = writer.add('window_mask', nowhere, 'And', [mask, isRecent]);
    }
    this.masks.set(key, mask);
    return mask;
  }
}
