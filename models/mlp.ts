/**
 * @file Plain networks: fully connected layers with ReLU between them.
 */
import type { Graph } from '../src/ir/graph.js';
import { GraphBuilder } from './builder.js';
import { linear } from './transformer.js';

export interface MlpSizes {
  readonly batch: number;
  /** Widths of the input and of every layer's output. */
  readonly widths: readonly number[];
}

/** x [batch, widths[0]] → y [batch, widths.at(-1)]. */
export function mlp(name: string, { batch, widths }: MlpSizes, seed: number): Graph {
  const builder = new GraphBuilder(name, seed);
  let hidden = builder.input('x', 'float32', [batch, widths[0] ?? 1]);
  for (const [index, width] of widths.slice(1).entries()) {
    hidden = linear(builder, `fc${index}`, hidden, width, { bias: true });
    if (index < widths.length - 2) hidden = builder.within(`fc${index}`, () => builder.operator('Relu', [hidden]));
  }
  builder.output('y', hidden);
  return builder.build();
}
