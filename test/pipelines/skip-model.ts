/**
 * @file A chain of layers with what pipelines find hard: a skip connection over most of the stages, a value that several later
 * stages read, and a weight that the first and the last layer share.
 */
import { model, node, ramp, saved, value } from '../ir/model-maker.js';

const WIDTH = 8;
const BATCH = 12;

/** The ONNX file of `layers` layers, 5 or more. */
export async function skipModel(layers: number): Promise<string> {
  const nodes = Array.from({ length: layers }, (_, layer) => {
    const weight = layer === layers - 1 ? 'w0' : `w${layer}`;
    const product = [
      node('MatMul', [layer === 0 ? 'x' : `h${layer - 1}`, weight], [`p${layer}`], {}, { name: `product${layer}` }),
      node('Tanh', [`p${layer}`], [`t${layer}`], {}, { name: `tanh${layer}` }),
    ];
    // The second layer's value is read by the next, by the last and by one shortly before it.
    const skips = layer === layers - 1 || layer === layers - 4;
    const result = layer === layers - 1 ? 'y' : `h${layer}`;
    return [
      ...product,
      skips
        ? node('Add', [`t${layer}`, 'h1'], [result], {}, { name: `skip${layer}` })
        : node('Identity', [`t${layer}`], [result], {}, { name: `end${layer}` }),
    ];
  });
  return saved(
    model({
      node: nodes.flat(),
      input: [value('x', [BATCH, WIDTH])],
      output: [value('y', [BATCH, WIDTH])],
      initializer: Array.from({ length: layers - 1 }, (_, layer) => ramp(`w${layer}`, [WIDTH, WIDTH])),
    }),
  );
}
