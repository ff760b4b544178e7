/**
 * @file Swin transformer (Liu et al. 2021) operator by operator, as exporters write it before opset 17: normalisations, GELU
 * and attention in parts, windows partitioned by Reshape and Transpose, shifted by Slice and Concat.
 */
import type { Graph } from '../src/ir/graph.js';
import { constant } from '../src/ir/ops/constants.js';
import { floats, GraphBuilder } from './builder.js';
import { linear } from './transformer.js';

export interface SwinSizes {
  readonly batch: number;
  /** Blocks: the third stage has all but six of them. */
  readonly layers: number;
  /** Features of the first stage; each one after it has twice as many. */
  readonly width: number;
  /** Heads of the first stage, likewise. */
  readonly heads: number;
  /** Height and width of a window, in patches. */
  readonly window: number;
  /** Height and width. */
  readonly image: number;
  readonly patch: number;
  readonly channels: number;
  readonly classes: number;
}

/** A block's place: height and width in patches, the window, by how much it is shifted. */
interface Place {
  readonly batch: number;
  readonly side: number;
  readonly window: number;
  readonly shift: number;
  readonly heads: number;
  /** Attention mask of windows that were shifted over the edge, for all blocks of the stage; null if nothing is masked. */
  readonly mask: string | null;
}

/** image [batch, channels, image, image] → logits [batch, classes]: the mean over patches is classified. */
export function swin({ batch, layers, width, heads, window, image, patch, channels, classes }: SwinSizes): Graph {
  const builder = new GraphBuilder('generated', 0, 'absent');
  const pixels = builder.input('image', 'float32', [batch, channels, image, image]);
  let state = builder.within('patch_embed', () => patches(builder, pixels, width, patch));
  const depths = [2, 2, Math.max(1, layers - 6), 2];
  for (const [stage, depth] of depths.entries()) {
    state = builder.within(`layers.${stage}`, () => {
      const merged = stage === 0 ? state : builder.within('downsample', () => merge(builder, state));
      return blocks(builder, merged, depth, { batch, window, heads: heads * 2 ** stage });
    });
  }
  const rows = layerNorm(builder, 'norm', state);
  const pooled = builder.operator('ReduceMean', [rows], { axes: [1, 2], keepdims: 0, noop_with_empty_axes: 0 });
  builder.output('logits', linear(builder, 'head', pooled, classes, { bias: true }));
  return builder.build();
}

/** Pixels → [batch, side, side, width]. */
function patches(builder: GraphBuilder, pixels: string, width: number, patch: number): string {
  const channels = builder.shapeOf(pixels)[1] ?? 1;
  const cut = builder.within('proj', () => {
    const weight = builder.parameter('weight', [width, channels, patch, patch]);
    return builder.operator('Conv', [pixels, weight, builder.parameter('bias', [width])], {
      kernel_shape: [patch, patch],
      pads: [0, 0, 0, 0],
      strides: [patch, patch],
      dilations: [1, 1],
      group: 1,
    });
  });
  return layerNorm(builder, 'norm', builder.operator('Transpose', [cut], { perm: [0, 2, 3, 1] }));
}

/** Four neighbours side by side, then half of the features: [batch, side / 2, side / 2, 2 · width]. */
function merge(builder: GraphBuilder, input: string): string {
  const [, side = 1, , width = 1] = builder.shapeOf(input);
  const every = (from: string, start: number, axis: number) =>
    builder.operator('Slice', [from], { starts: [start], ends: [side], axes: [axis], steps: [2] });
  const corners = [
    [0, 0],
    [1, 0],
    [0, 1],
    [1, 1],
  ].map(([row = 0, column = 0]) => every(every(input, row, 1), column, 2));
  const joined = layerNorm(builder, 'norm', builder.operator('Concat', corners, { axis: -1 }));
  return linear(builder, 'reduction', joined, 2 * width);
}

/** A stage: every other block shifts its windows, where there are several. */
function blocks(
  builder: GraphBuilder,
  input: string,
  depth: number,
  sizes: Pick<Place, 'batch' | 'window' | 'heads'>,
): string {
  const [, side = 1] = builder.shapeOf(input);
  const window = Math.min(sizes.window, side);
  const half = side > window ? Math.floor(window / 2) : 0;
  const mask = half > 0 && depth > 1 ? builder.constant('attn_mask', shiftedMask(side, window, half)) : null;
  let state = input;
  for (let block = 0; block < depth; block++) {
    const shift = block % 2 === 0 ? 0 : half;
    const place = { ...sizes, window, side, shift, mask: shift > 0 ? mask : null };
    state = builder.within(`blocks.${block}`, () => {
      const attended = windowed(builder, layerNorm(builder, 'norm1', state), place);
      const middle = builder.operator('Add', [state, attended]);
      return builder.operator('Add', [middle, builder.within('mlp', () => fed(builder, middle))]);
    });
  }
  return state;
}

function fed(builder: GraphBuilder, input: string): string {
  const width = builder.shapeOf(input).at(-1) ?? 1;
  const wide = linear(builder, 'fc1', layerNorm(builder, 'norm2', input), 4 * width, { bias: true });
  const share = builder.operator('Erf', [builder.operator('Div', [wide, builder.scalar(Math.SQRT2)])]);
  const weighed = builder.operator('Mul', [wide, builder.operator('Add', [share, builder.scalar(1)])]);
  return linear(builder, 'fc2', builder.operator('Mul', [weighed, builder.scalar(0.5)]), width, { bias: true });
}

/** Attention inside windows: [batch, side, side, width] → the same. */
function windowed(builder: GraphBuilder, input: string, place: Place): string {
  const { batch, side, window, shift } = place;
  const width = builder.shapeOf(input)[3] ?? 1;
  const across = side / window;
  const shape = (sizes: readonly number[]) => ({ shape: sizes, allowzero: 0 });
  const moved = rolled(builder, input, shift);
  const cut = builder.operator('Reshape', [moved], shape([batch, across, window, across, window, width]));
  const turned = builder.operator('Transpose', [cut], { perm: [0, 1, 3, 2, 4, 5] });
  const rows = builder.operator('Reshape', [turned], shape([batch * across * across, window * window, width]));
  const heard = builder.within('attn', () => attention(builder, rows, place));
  const apart = builder.operator('Reshape', [heard], shape([batch, across, across, window, window, width]));
  const back = builder.operator('Transpose', [apart], { perm: [0, 1, 3, 2, 4, 5] });
  return rolled(builder, builder.operator('Reshape', [back], shape([batch, side, side, width])), -shift);
}

/** Cyclic shift of rows, then of columns. */
function rolled(builder: GraphBuilder, input: string, by: number): string {
  if (by === 0) return input;
  return [1, 2].reduce((state, axis) => {
    const side = builder.shapeOf(state)[axis] ?? 1;
    const at = by > 0 ? by : side + by;
    const part = (start: number, end: number) =>
      builder.operator('Slice', [state], { starts: [start], ends: [end], axes: [axis], steps: [1] });
    return builder.operator('Concat', [part(at, side), part(0, at)], { axis });
  }, input);
}

/** Rows [windows, window², width], with a learned bias for each distance in a window. */
function attention(builder: GraphBuilder, rows: string, { batch, side, window, heads, mask }: Place): string {
  const [windows = 1, length = 1, width = 1] = builder.shapeOf(rows);
  const shape = (sizes: readonly number[]) => ({ shape: sizes, allowzero: 0 });
  const joined = linear(builder, 'qkv', rows, 3 * width, { bias: true });
  const split = builder.operator('Reshape', [joined], shape([windows, length, 3, heads, width / heads]));
  const turned = builder.operator('Transpose', [split], { perm: [2, 0, 3, 1, 4] });
  const [queries = '', keys = '', values = ''] = builder
    .operators('Split', [turned], { axis: 0, split: [1, 1, 1] }, 3)
    .map((part) => builder.operator('Squeeze', [part], { axes: [0] }));
  const scaled = builder.operator('Mul', [queries, builder.scalar((width / heads) ** -0.5)]);
  const scores = builder.operator('MatMul', [scaled, builder.operator('Transpose', [keys], { perm: [0, 1, 3, 2] })]);
  const table = builder.parameter('relative_position_bias_table', [(2 * window - 1) ** 2, heads]);
  const index = builder.constant('relative_position_index', distances(window));
  const found = builder.operator(
    'Reshape',
    [builder.operator('Gather', [table, index], { axis: 0 })],
    shape([length, length, heads]),
  );
  const bias = builder.operator('Unsqueeze', [builder.operator('Transpose', [found], { perm: [2, 0, 1] })], {
    axes: [0],
  });
  let biased = builder.operator('Add', [scores, bias]);
  if (mask !== null) {
    const count = (side / window) ** 2;
    const apart = builder.operator('Reshape', [biased], shape([batch, count, heads, length, length]));
    const masked = builder.operator('Add', [apart, mask]);
    biased = builder.operator('Reshape', [masked], shape([windows, heads, length, length]));
  }
  const heard = builder.operator('MatMul', [builder.operator('Softmax', [biased], { axis: -1 }), values]);
  const gathered = builder.operator('Transpose', [heard], { perm: [0, 2, 1, 3] });
  return linear(builder, 'proj', builder.operator('Reshape', [gathered], shape([windows, length, width])), width, {
    bias: true,
  });
}

/** A layer norm as nine operators. */
function layerNorm(builder: GraphBuilder, name: string, input: string): string {
  return builder.within(name, () => {
    const width = builder.shapeOf(input).at(-1) ?? 1;
    const mean = (of: string) =>
      builder.operator('ReduceMean', [of], { axes: [-1], keepdims: 1, noop_with_empty_axes: 0 });
    const centred = builder.operator('Sub', [input, mean(input)]);
    const variance = mean(builder.operator('Pow', [centred, builder.scalar(2)]));
    const deviation = builder.operator('Sqrt', [builder.operator('Add', [variance, builder.scalar(1e-5)])]);
    const normal = builder.operator('Div', [centred, deviation]);
    const scaled = builder.operator('Mul', [normal, builder.parameter('weight', [width], { mean: 1 })]);
    return builder.operator('Add', [scaled, builder.parameter('bias', [width])]);
  });
}

/** For each two patches of a window, the row of the bias table: their distance in rows and columns. */
function distances(window: number) {
  const length = window ** 2;
  const indices = Array.from({ length: length * length }, (_, pair) => {
    const [from, to] = [Math.floor(pair / length), pair % length];
    const rows = Math.floor(from / window) - Math.floor(to / window) + window - 1;
    const columns = (from % window) - (to % window) + window - 1;
    return rows * (2 * window - 1) + columns;
  });
  return constant('int64', indices, [length * length]);
}

/** [1, windows, 1, window², window²]: −100 between patches that only the shift has brought together. */
function shiftedMask(side: number, window: number, shift: number) {
  const across = side / window;
  const length = window ** 2;
  const region = (at: number) => (at < side - window ? 0 : at < side - shift ? 1 : 2);
  const regionOf = (number: number, patch: number) => {
    const row = Math.floor(number / across) * window + Math.floor(patch / window);
    const column = (number % across) * window + (patch % window);
    return 3 * region(row) + region(column);
  };
  const values = Array.from({ length: across * across * length * length }, (_, at) => {
    const number = Math.floor(at / (length * length));
    const [from, to] = [Math.floor(at / length) % length, at % length];
    return regionOf(number, from) === regionOf(number, to) ? 0 : -100;
  });
  return floats(values, [1, across * across, 1, length, length]);
}
