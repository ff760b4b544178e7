/**
 * @file Language models whose layer is called several times with one set of weights, as in ALBERT (Lan et al. 2020), and whose
 * head is the embedding table; in the form of the author, or in the form that exporters store.
 */
import type { Graph } from '../src/ir/graph.js';
import { dropout, GraphBuilder } from './builder.js';
import { embedding } from './transformer.js';

export interface SharedLayerSizes {
  readonly batch: number;
  readonly sequence: number;
  readonly width: number;
  readonly vocabulary: number;
  /** How often the layer is called. */
  readonly calls: number;
  /** Dropout ratio of the layer's result; 0 by default. */
  readonly dropout?: number;
  /** As an exporter writes it: biases of equal values stored once, the head a transposed copy of the table. */
  readonly exported?: boolean;
}

/** ids [batch, sequence] int64 → logits [batch, sequence, vocabulary]. */
export function sharedLayers(name: string, sizes: SharedLayerSizes, seed: number): Graph {
  const { batch, sequence, width, vocabulary, calls } = sizes;
  const builder = new GraphBuilder(name, seed, sizes.exported ? 'exported' : 'random');
  const ids = builder.input('ids', 'int64', [batch, sequence]);
  const table = builder.within('embedding', () => builder.parameter('weight', [vocabulary, width], { deviation: 0.3 }));
  let hidden = builder.within('embedding', () => embedding(builder, ids, table));
  hidden = zeroBiased(builder, 'enter', width, width)(hidden);
  const layer = layerOf(builder, sizes);
  for (let call = 0; call < calls; call++) hidden = builder.operator('Add', [hidden, layer(hidden)]);
  hidden = zeroBiased(builder, 'leave', width, width)(hidden);
  const head = builder.within('head', () => builder.transposed('weight', table));
  builder.output(
    'logits',
    builder.within('head', () => builder.operator('MatMul', [hidden, head])),
  );
  return builder.build();
}

function layerOf(builder: GraphBuilder, { width, dropout: ratio = 0 }: SharedLayerSizes): (input: string) => string {
  return builder.within('layer', () => {
    const [widen, narrow] = [
      zeroBiased(builder, 'fc1', width, 2 * width),
      zeroBiased(builder, 'fc2', 2 * width, width),
    ];
    const [scale, shift] = builder.within('ln', () => [
      builder.uniformParameter('weight', [width], 1),
      builder.uniformParameter('bias', [width], 0),
    ]);
    return (input) =>
      builder.within('layer', () => {
        const normal = builder.within('ln', () =>
          builder.operator('LayerNormalization', [input, scale ?? '', shift ?? ''], { axis: -1, epsilon: 1e-5 }),
        );
        const fed = narrow(builder.operator('Gelu', [widen(normal)], { approximate: 'tanh' }));
        return ratio === 0 ? fed : dropout(builder, fed, ratio);
      });
  });
}

/** x · W + b with b = 0 at first: made once, to be called on one tensor or several. */
function zeroBiased(builder: GraphBuilder, name: string, inputs: number, outputs: number): (input: string) => string {
  const [weight, bias] = builder.within(name, () => [
    builder.parameter('weight', [inputs, outputs], { deviation: 1 / Math.sqrt(inputs) }),
    builder.uniformParameter('bias', [outputs], 0),
  ]);
  return (input) =>
    builder.within(name, () => {
      const product = builder.operator('MatMul', [input, weight ?? '']);
      return builder.operator('Add', [product, bias ?? '']);
    });
}
