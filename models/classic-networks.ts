/**
 * @file Networks of plain convolutions under wide fully connected layers: AlexNet (Krizhevsky 2014, one column) and VGG
 * (Simonyan and Zisserman 2015). Nearly all their work is in convolutions, nearly all their weights are not. Without dropout.
 */
import type { Graph } from '../src/ir/graph.js';
import { GraphBuilder } from './builder.js';
import { convolution, type ImageModelSizes, maxPool } from './image-models.js';
import { linear } from './transformer.js';

/** image [batch, channels, image, image] → logits [batch, classes]; `width` is the first convolution's channels. */
export function alexnet({ batch, width, image, channels, classes, feedForward }: ImageModelSizes): Graph {
  const builder = new GraphBuilder('generated', 0, 'absent');
  const pixels = builder.input('image', 'float32', [batch, channels, image, image]);
  const convolved = (name: string, input: string, outputs: number, kernel: number, stride: number, pad: number) =>
    builder.operator('Relu', [convolution(builder, name, input, outputs, { kernel, stride, pad })]);
  const first = maxPool(builder, convolved('features.0', pixels, width, 11, 4, 2), 3);
  const second = maxPool(builder, convolved('features.1', first, 3 * width, 5, 1, 2), 3);
  const third = convolved('features.2', second, 6 * width, 3, 1, 1);
  const fourth = convolved('features.3', third, 4 * width, 3, 1, 1);
  const last = maxPool(builder, convolved('features.4', fourth, 4 * width, 3, 1, 1), 3);
  return classified(builder, last, feedForward, classes);
}

/** Convolutions per block, by the number of layers with weights. */
export const VGG_BLOCKS: Readonly<Record<number, readonly number[]>> = {
  11: [1, 1, 2, 2, 2],
  13: [2, 2, 2, 2, 2],
  16: [2, 2, 3, 3, 3],
  19: [2, 2, 4, 4, 4],
};

/** image → logits: five blocks of 3 × 3 convolutions, each at half the height of the one before. */
export function vgg({ batch, layers, width, image, channels, classes, feedForward }: ImageModelSizes): Graph {
  const builder = new GraphBuilder('generated', 0, 'absent');
  let state = builder.input('image', 'float32', [batch, channels, image, image]);
  for (const [block, count] of (VGG_BLOCKS[layers] ?? []).entries()) {
    const outputs = width * Math.min(8, 2 ** block);
    for (let index = 0; index < count; index++) {
      const name = `features.${block}.${index}`;
      state = builder.operator('Relu', [convolution(builder, name, state, outputs, { kernel: 3, stride: 1, pad: 1 })]);
    }
    state = maxPool(builder, state, 2);
  }
  return classified(builder, state, feedForward, classes);
}

/** Three fully connected layers on the flattened features of the convolutions. */
function classified(builder: GraphBuilder, features: string, hidden: number, classes: number): Graph {
  let state = builder.operator('Flatten', [features], { axis: 1 });
  for (const layer of [0, 1])
    state = builder.operator('Relu', [linear(builder, `classifier.${layer}`, state, hidden, { bias: true })]);
  builder.output('logits', linear(builder, 'classifier.2', state, classes, { bias: true }));
  return builder.build();
}
