/**
 * @file How far ONNX Runtime's results of one quantised model differ. Its optimisations compute in integers where the original
 * graph dequantises, and a number near the middle between two steps rounds to either of them.
 */
import type { Graph } from '../../ir/graph.js';
import { runOnnx } from '../../runtime/reference.js';
import type { Arrays } from '../execution/arrays.js';
import { type Comparison, compareTensors } from './compare.js';
import { runGraph } from './reference.js';

const QUANTISED = /Quantize|^QLinear|Integer/;

/** Whether the graph rounds values to quantised numbers, or computes in these. */
export function isQuantised(graph: Graph): boolean {
  return graph.nodes.some(({ op }) => QUANTISED.test(op));
}

/**
 * Compares the unsharded model's results without ONNX Runtime's optimisations with those with them (`optimised`), for the given
 * outputs. `file`: the model file, if it made the results; null if the graph did.
 */
export async function ownDifferences(
  outputs: readonly string[],
  model: { readonly file: string | null; readonly graph: Graph },
  inputs: Arrays,
  optimised: Arrays,
): Promise<readonly Comparison[]> {
  const plain =
    model.file === null
      ? await runGraph(model.graph, inputs, [], { optimised: false })
      : await runOnnx(model.file, inputs, { optimised: false });
  return outputs.flatMap((name) => {
    const [left, right] = [plain[name], optimised[name]];
    return left && right ? [compareTensors(name, left, right, { relative: 0, absolute: 0 })] : [];
  });
}
