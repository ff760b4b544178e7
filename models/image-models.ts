/**
 * @file Image models at any size: vision transformer, residual network, U-Net. Weights have no values; normalisations are in
 * training form (over groups of channels, which needs no batch statistics).
 */
import type { Graph } from '../src/ir/graph.js';
import { GraphBuilder } from './builder.js';
import { linear } from './transformer.js';

export interface ImageModelSizes {
  readonly batch: number;
  /** Blocks of a transformer, layers of a residual network, levels of a U-Net. */
  readonly layers: number;
  /** Features of a transformer, channels of the first convolution. */
  readonly width: number;
  readonly heads: number;
  readonly feedForward: number;
  /** Height and width. */
  readonly image: number;
  readonly patch: number;
  readonly channels: number;
  readonly classes: number;
}

/** image [batch, channels, image, image] → logits [batch, classes]: the mean over patches is classified. */
export function vit({
  batch,
  layers,
  width,
  heads,
  feedForward,
  image,
  patch,
  channels,
  classes,
}: ImageModelSizes): Graph {
  const builder = new GraphBuilder('generated', 0, 'absent');
  const pixels = builder.input('image', 'float32', [batch, channels, image, image]);
  const side = Math.floor(image / patch);
  const patches = convolution(builder, 'patches', pixels, width, { kernel: patch, stride: patch, pad: 0 });
  const rows = builder.operator('Reshape', [patches], { shape: [batch, width, side * side], allowzero: 0 });
  let state = builder.operator('Transpose', [rows], { perm: [0, 2, 1] });
  state = builder.within('position', () =>
    builder.operator('Add', [state, builder.parameter('weight', [1, side * side, width])]),
  );
  for (let layer = 0; layer < layers; layer++) {
    state = builder.within(`layers.${layer}`, () => {
      const attended = builder.within('attention', () => {
        const joined = linear(builder, 'qkv', layerNorm(builder, 'norm', state), 3 * width, { bias: true });
        const parts = builder.operators('Split', [joined], { axis: 2, split: [width, width, width] }, 3);
        const heard = builder.operator('Attention', parts, { q_num_heads: heads, kv_num_heads: heads, is_causal: 0 });
        return linear(builder, 'output', heard, width, { bias: true });
      });
      const middle = builder.operator('Add', [state, attended]);
      const fed = builder.within('feed_forward', () => {
        const wide = linear(builder, 'up', layerNorm(builder, 'norm', middle), feedForward, { bias: true });
        return linear(builder, 'down', builder.operator('Gelu', [wide], { approximate: 'tanh' }), width, {
          bias: true,
        });
      });
      return builder.operator('Add', [middle, fed]);
    });
  }
  const pooled = builder.operator('ReduceMean', [layerNorm(builder, 'norm', state)], {
    axes: [1],
    keepdims: 0,
    noop_with_empty_axes: 0,
  });
  builder.output('logits', linear(builder, 'head', pooled, classes, { bias: true }));
  return builder.build();
}

/** Blocks per stage of the usual depths (He et al. 2016, table 1); other depths divide them evenly. */
const STAGES: Readonly<Record<number, readonly number[]>> = {
  50: [3, 4, 6, 3],
  101: [3, 4, 23, 3],
  152: [3, 8, 36, 3],
};

/** image → logits: four stages of bottleneck blocks, each at half the height and twice the channels of the one before. */
export function resnet({ batch, layers, width, image, channels, classes }: ImageModelSizes): Graph {
  const builder = new GraphBuilder('generated', 0, 'absent');
  const pixels = builder.input('image', 'float32', [batch, channels, image, image]);
  let state = normRelu(
    builder,
    'stem_norm',
    convolution(builder, 'stem', pixels, width, { kernel: 7, stride: 2, pad: 3 }),
  );
  const even = Math.max(1, Math.round(layers / 12));
  for (const [stage, blocks] of (STAGES[layers] ?? [even, even, even, even]).entries()) {
    const inner = width * 2 ** stage;
    for (let block = 0; block < blocks; block++) {
      const stride = block === 0 ? 2 : 1;
      state = builder.within(`stages.${stage}.blocks.${block}`, () => bottleneck(builder, state, inner, stride));
    }
  }
  const flat = builder.operator('Flatten', [builder.operator('GlobalAveragePool', [state])], { axis: 1 });
  builder.output('logits', linear(builder, 'head', flat, classes, { bias: true }));
  return builder.build();
}

function bottleneck(builder: GraphBuilder, input: string, inner: number, stride: number): string {
  const narrow = normRelu(
    builder,
    'norm1',
    convolution(builder, 'conv1', input, inner, { kernel: 1, stride: 1, pad: 0 }),
  );
  const middle = normRelu(
    builder,
    'norm2',
    convolution(builder, 'conv2', narrow, inner, { kernel: 3, stride, pad: 1 }),
  );
  const wide = convolution(builder, 'conv3', middle, 4 * inner, { kernel: 1, stride: 1, pad: 0 });
  const same = stride === 1 && builder.shapeOf(input)[1] === 4 * inner;
  const skipped = same ? input : convolution(builder, 'shortcut', input, 4 * inner, { kernel: 1, stride, pad: 0 });
  return builder.operator('Relu', [builder.operator('Add', [wide, skipped])]);
}

/** image → logits [batch, classes, image, image] (Ronneberger et al. 2015, with padding so that sizes stay). */
export function unet({ batch, layers: levels, width, image, channels, classes }: ImageModelSizes): Graph {
  const builder = new GraphBuilder('generated', 0, 'absent');
  let state = builder.input('image', 'float32', [batch, channels, image, image]);
  const across: string[] = [];
  const twice = (name: string, input: string, to: number) =>
    builder.within(name, () => {
      const first = normRelu(
        builder,
        'norm1',
        convolution(builder, 'conv1', input, to, { kernel: 3, stride: 1, pad: 1 }),
      );
      return normRelu(builder, 'norm2', convolution(builder, 'conv2', first, to, { kernel: 3, stride: 1, pad: 1 }));
    });
  for (let level = 0; level < levels; level++) {
    const held = twice(`down.${level}`, state, width * 2 ** level);
    across.push(held);
    state = maxPool(builder, held, 2);
  }
  state = twice('middle', state, width * 2 ** levels);
  for (let level = levels - 1; level >= 0; level--) {
    const to = width * 2 ** level;
    const from = builder.shapeOf(state)[1] ?? to;
    const raised = builder.within(`up.${level}`, () =>
      builder.operator('ConvTranspose', [state, builder.parameter('weight', [from, to, 2, 2])], {
        kernel_shape: [2, 2],
        strides: [2, 2],
        pads: [0, 0, 0, 0],
        dilations: [1, 1],
        group: 1,
        output_padding: [0, 0],
      }),
    );
    const joined = builder.operator('Concat', [across[level] ?? raised, raised], { axis: 1 });
    state = twice(`join.${level}`, joined, to);
  }
  builder.output('logits', convolution(builder, 'head', state, classes, { kernel: 1, stride: 1, pad: 0 }));
  return builder.build();
}

/** A convolution with bias, in a module of its own. */
export function convolution(
  builder: GraphBuilder,
  name: string,
  input: string,
  outputs: number,
  {
    kernel,
    stride,
    pad,
    bias = true,
  }: { readonly kernel: number; readonly stride: number; readonly pad: number; readonly bias?: boolean },
): string {
  return builder.within(name, () => {
    const inputs = builder.shapeOf(input)[1] ?? 1;
    const weight = builder.parameter('weight', [outputs, inputs, kernel, kernel]);
    const added = bias ? [builder.parameter('bias', [outputs])] : [];
    return builder.operator('Conv', [input, weight, ...added], {
      kernel_shape: [kernel, kernel],
      pads: [pad, pad, pad, pad],
      strides: [stride, stride],
      dilations: [1, 1],
      group: 1,
    });
  });
}

/** The largest of each square of `side` positions, at every second one. */
export function maxPool(builder: GraphBuilder, input: string, side: number): string {
  return builder.operator('MaxPool', [input], {
    kernel_shape: [side, side],
    strides: [2, 2],
    pads: [0, 0, 0, 0],
    dilations: [1, 1],
    ceil_mode: 0,
    storage_order: 0,
  });
}

/** Group normalisation over 32 groups (fewer where there are fewer channels), then ReLU. */
function normRelu(builder: GraphBuilder, name: string, input: string): string {
  return builder.within(name, () => {
    const channels = builder.shapeOf(input)[1] ?? 1;
    const scale = builder.parameter('scale', [channels], { mean: 1 });
    const groups = channels % 32 === 0 ? 32 : 1;
    const normed = builder.operator('GroupNormalization', [input, scale, builder.parameter('bias', [channels])], {
      num_groups: groups,
      epsilon: 1e-5,
      stash_type: 1,
    });
    return builder.operator('Relu', [normed]);
  });
}

function layerNorm(builder: GraphBuilder, name: string, input: string): string {
  return builder.within(name, () => {
    const width = builder.shapeOf(input).at(-1) ?? 1;
    const parameters = [builder.parameter('weight', [width], { mean: 1 }), builder.parameter('bias', [width])];
    return builder.operator('LayerNormalization', [input, ...parameters], { axis: -1, epsilon: 1e-5 });
  });
}
