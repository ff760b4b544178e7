/**
 * @file Fully connected layers of any size, their weights without values.
 */
import type { Graph } from '../src/ir/graph.js';
import { GraphBuilder } from './builder.js';
import type { MlpSizes } from './mlp.js';
import { linear } from './transformer.js';

/** x [batch, widths[0]] → y [batch, widths.at(-1)], one module `layers.N` a layer. */
export function perceptron({ batch, widths }: MlpSizes): Graph {
  const builder = new GraphBuilder('generated', 0, 'absent');
  let state = builder.input('x', 'float32', [batch, widths[0] ?? 1]);
  const last = widths.length - 2;
  for (const [index, width] of widths.slice(1).entries()) {
    state = builder.within(`layers.${index}`, () => {
      const sum = linear(builder, 'linear', state, width, { bias: true });
      return index < last ? builder.operator('Relu', [sum]) : sum;
    });
  }
  builder.output('y', state);
  return builder.build();
}
