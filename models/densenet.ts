/**
 * @file DenseNet (Huang et al. 2017) as exporters write it: every layer reads the channels of all layers before it in its
 * block, concatenated again each time, so that no two layers are alike.
 */
import type { Graph } from '../src/ir/graph.js';
import { GraphBuilder } from './builder.js';
import { convolution } from './image-models.js';
import { linear } from './transformer.js';

export interface DenseNetSizes {
  readonly batch: number;
  /** Convolutions and the classifier: 121, 161, 169 or 201; other depths divide their layers evenly over the blocks. */
  readonly layers: number;
  /** Channels that each layer adds. */
  readonly growth: number;
  /** Height and width. */
  readonly image: number;
  readonly channels: number;
  readonly classes: number;
}

/** Layers of the four blocks (table 1). */
const BLOCKS: Readonly<Record<number, readonly number[]>> = {
  121: [6, 12, 24, 16],
  161: [6, 12, 36, 24],
  169: [6, 12, 32, 32],
  201: [6, 12, 48, 32],
};

/** image [batch, channels, image, image] → logits [batch, classes]. */
export function densenet({ batch, layers, growth, image, channels, classes }: DenseNetSizes): Graph {
  const builder = new GraphBuilder('generated', 0, 'absent');
  const pixels = builder.input('image', 'float32', [batch, channels, image, image]);
  const stem = normRelu(
    builder,
    'norm0',
    convolution(builder, 'conv0', pixels, 2 * growth, { kernel: 7, stride: 2, pad: 3, bias: false }),
  );
  let state = builder.operator('MaxPool', [stem], {
    kernel_shape: [3, 3],
    strides: [2, 2],
    pads: [1, 1, 1, 1],
    dilations: [1, 1],
    ceil_mode: 0,
    storage_order: 0,
  });
  const even = Math.max(1, Math.round((layers - 5) / 8));
  const blocks = BLOCKS[layers] ?? [even, even, even, even];
  for (const [block, count] of blocks.entries()) {
    const parts = [state];
    for (let layer = 0; layer < count; layer++) {
      parts.push(
        builder.within(`denseblock${block + 1}.denselayer${layer + 1}`, () => denseLayer(builder, parts, growth)),
      );
    }
    state = builder.within(`denseblock${block + 1}`, () => builder.operator('Concat', parts, { axis: 1 }));
    if (block < blocks.length - 1) state = builder.within(`transition${block + 1}`, () => transition(builder, state));
  }
  const pooled = builder.operator('GlobalAveragePool', [normRelu(builder, 'norm5', state)]);
  const flat = builder.operator('Flatten', [pooled], { axis: 1 });
  builder.output('logits', linear(builder, 'classifier', flat, classes, { bias: true }));
  return builder.build();
}

/** The channels of all layers before → `growth` more channels, through a bottleneck of four times as many. */
function denseLayer(builder: GraphBuilder, before: readonly string[], growth: number): string {
  const [only = ''] = before;
  const joined = before.length === 1 ? only : builder.operator('Concat', [...before], { axis: 1 });
  const normed = normRelu(builder, 'norm1', joined);
  const narrow = convolution(builder, 'conv1', normed, 4 * growth, { kernel: 1, stride: 1, pad: 0, bias: false });
  return convolution(builder, 'conv2', normRelu(builder, 'norm2', narrow), growth, {
    kernel: 3,
    stride: 1,
    pad: 1,
    bias: false,
  });
}

/** Half the channels, half the height and width. */
function transition(builder: GraphBuilder, input: string): string {
  const half = Math.floor((builder.shapeOf(input)[1] ?? 2) / 2);
  const narrow = convolution(builder, 'conv', normRelu(builder, 'norm', input), half, {
    kernel: 1,
    stride: 1,
    pad: 0,
    bias: false,
  });
  return builder.operator('AveragePool', [narrow], {
    kernel_shape: [2, 2],
    strides: [2, 2],
    pads: [0, 0, 0, 0],
    dilations: [1, 1],
    ceil_mode: 0,
    count_include_pad: 1,
  });
}

/** Batch normalisation with running statistics, which are not parameters, then ReLU. */
function normRelu(builder: GraphBuilder, name: string, input: string): string {
  return builder.within(name, () => {
    const channels = builder.shapeOf(input)[1] ?? 1;
    const scale = builder.parameter('weight', [channels], { mean: 1 });
    const bias = builder.parameter('bias', [channels]);
    const statistics = ['running_mean', 'running_var'].map((statistic) =>
      builder.table(statistic, [channels], () => []),
    );
    const normed = builder.operator('BatchNormalization', [input, scale, bias, ...statistics], {
      epsilon: 1e-5,
      momentum: 0.9,
      training_mode: 0,
    });
    return builder.operator('Relu', [normed]);
  });
}
