/**
 * @file Steps of an unsharded training graph in ONNX Runtime: each step begins with the state that the last one leaves.
 */
import { runGraph } from '../../../src/api/verification/reference.js';
import type { ConstantTensor, Graph, Weight } from '../../../src/ir/graph.js';
import { numbersOf } from '../../../src/ir/ops/constants.js';

type Arrays = Readonly<Record<string, ConstantTensor>>;

export interface Steps {
  readonly losses: readonly number[];
  /** Values of state inputs after the last step. */
  readonly state: Arrays;
}

/** Takes `steps` steps on batches, over and over; the loss is the graph's first output. */
export async function takeSteps(graph: Graph, batches: readonly Arrays[], steps: number): Promise<Steps> {
  const losses: number[] = [];
  let initial = new Map<string, Weight>(graph.initial);
  let state: Record<string, ConstantTensor> = {};
  for (let step = 0; step < steps; step++) {
    const results = await runGraph({ ...graph, initial }, batches[step % batches.length] ?? {});
    const loss = results[graph.outputs[0] ?? ''];
    losses.push(loss ? (numbersOf(loss)[0] ?? Number.NaN) : Number.NaN);
    state = {};
    const next = new Map(initial);
    for (const { input, output } of graph.state) {
      const [value, weight] = [results[output], initial.get(input)];
      if (!value || !weight) throw new Error(`no state ${input}`);
      state[input] = value;
      next.set(input, { ...weight, source: { kind: 'inline', data: value.data } });
    }
    initial = next;
  }
  return { losses, state };
}
