/**
 * @file Small image networks with batch normalisation and dropout, in evaluation form: convolutions without bias, running
 * statistics, one residual block that is called twice, a classifier behind dropout.
 */
import type { Graph } from '../src/ir/graph.js';
import { dropout, GraphBuilder } from './builder.js';
import type { CnnSizes } from './cnn.js';
import { linear } from './transformer.js';

export interface NormalisedCnnSizes extends CnnSizes {
  /** Dropout ratio before the classifier. */
  readonly dropout: number;
  /** Scales, shifts and running statistics as a new model has them, 0 and 1; else drawn. */
  readonly fresh?: boolean;
  /** As an exporter writes it: vectors of equal values stored once. */
  readonly exported?: boolean;
}

/** image [batch, channels, size, size] → logits [batch, classes]. */
export function normalisedCnn(name: string, sizes: NormalisedCnnSizes, seed: number): Graph {
  const { batch, channels, size, widths, classes } = sizes;
  const builder = new GraphBuilder(name, seed, sizes.exported ? 'exported' : 'random');
  let hidden = builder.input('image', 'float32', [batch, channels, size, size]);
  for (const [index, width] of widths.entries()) {
    hidden = unit(builder, `stage${index}`, width, builder.shapeOf(hidden)[1] ?? 1, 2, sizes)(hidden);
  }
  const width = widths.at(-1) ?? channels;
  const residual = unit(builder, 'residual', width, width, 1, sizes);
  for (let call = 0; call < 2; call++) hidden = builder.operator('Add', [hidden, residual(hidden)]);
  const pooled = builder.operator('GlobalAveragePool', [hidden]);
  const flat = dropout(builder, builder.operator('Flatten', [pooled], { axis: 1 }), sizes.dropout);
  builder.output('logits', linear(builder, 'classifier', flat, classes, { bias: true }));
  return builder.build();
}

/** A 3 × 3 convolution, batch normalisation, ReLU: made once, to be called on one tensor or several. */
function unit(
  builder: GraphBuilder,
  name: string,
  outputs: number,
  inputs: number,
  stride: number,
  { fresh = false }: NormalisedCnnSizes,
): (input: string) => string {
  const [kernel, ...vectors] = builder.within(name, () => [
    builder.within('conv', () =>
      builder.parameter('weight', [outputs, inputs, 3, 3], { deviation: 1 / Math.sqrt(9 * inputs) }),
    ),
    ...builder.within('bn', () =>
      [
        { vector: 'weight', mean: 1 },
        { vector: 'bias', mean: 0 },
        { vector: 'running_mean', mean: 0 },
        { vector: 'running_var', mean: 1 },
      ].map(({ vector, mean }) =>
        fresh
          ? builder.uniformParameter(vector, [outputs], mean)
          : builder.parameter(vector, [outputs], { mean, deviation: 0.1 }),
      ),
    ),
  ]);
  const window = {
    kernel_shape: [3, 3],
    pads: [1, 1, 1, 1],
    strides: [stride, stride],
    dilations: [1, 1],
    group: 1,
  };
  return (input) =>
    builder.within(name, () => {
      const convolved = builder.within('conv', () => builder.operator('Conv', [input, kernel ?? '', null], window));
      const attributes = { epsilon: 1e-5, momentum: 0.9, training_mode: 0 };
      const normal = builder.within('bn', () =>
        builder.operator('BatchNormalization', [convolved, ...vectors], attributes),
      );
      return builder.operator('Relu', [normal]);
    });
}
