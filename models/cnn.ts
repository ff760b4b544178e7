/**
 * @file Small image networks: convolutions with strides, one residual block, a mean over positions, a classifier.
 */
import type { Graph } from '../src/ir/graph.js';
import { GraphBuilder } from './builder.js';
import { linear } from './transformer.js';

export interface CnnSizes {
  readonly batch: number;
  readonly channels: number;
  /** Height and width of the image. */
  readonly size: number;
  /** Output channels of each strided convolution. */
  readonly widths: readonly number[];
  readonly classes: number;
}

/** image [batch, channels, size, size] → logits [batch, classes]. */
export function cnn(name: string, { batch, channels, size, widths, classes }: CnnSizes, seed: number): Graph {
  const builder = new GraphBuilder(name, seed);
  let hidden = builder.input('image', 'float32', [batch, channels, size, size]);
  for (const [index, width] of widths.entries()) {
    hidden = convolution(builder, `conv${index}`, hidden, width, 2);
  }
  hidden = builder.within('residual', () => {
    const inner = convolution(builder, 'conv', hidden, widths.at(-1) ?? channels, 1);
    return builder.operator('Add', [hidden, inner]);
  });
  const pooled = builder.operator('GlobalAveragePool', [hidden]);
  const flat = builder.operator('Flatten', [pooled], { axis: 1 });
  builder.output('logits', linear(builder, 'classifier', flat, classes, { bias: true }));
  return builder.build();
}

/** A 3 × 3 convolution with bias, then ReLU. */
function convolution(builder: GraphBuilder, name: string, input: string, outputs: number, stride: number): string {
  return builder.within(name, () => {
    const inputs = builder.shapeOf(input)[1] ?? 1;
    const kernel = builder.parameter('weight', [outputs, inputs, 3, 3], { deviation: 1 / Math.sqrt(9 * inputs) });
    const bias = builder.parameter('bias', [outputs], { deviation: 0.02 });
    const attributes = {
      kernel_shape: [3, 3],
      pads: [1, 1, 1, 1],
      strides: [stride, stride],
      dilations: [1, 1],
      group: 1,
    };
    return builder.operator('Relu', [builder.operator('Conv', [input, kernel, bias], attributes)]);
  });
}
