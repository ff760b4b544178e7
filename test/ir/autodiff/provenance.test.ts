/**
 * @file Where the operators of a training graph come from: each gradient names its forward operator, each update an operator that
 * reads its weight, and the two backward phases are apart as zero-bubble schedules need them.
 */
import test from 'ava';
import { SHIPPED_MODELS } from '../../../models/shipped.js';
import { importModel } from '../../../src/api/models/import.js';
import type { OptimizerOptions } from '../../../src/ir/autodiff/optimizer-options.js';
import { type TrainingOptions, trainingGraph } from '../../../src/ir/autodiff/training-graph.js';
import { type Graph, isBackward, type Node } from '../../../src/ir/graph.js';
import { makersOf } from '../../../src/ir/makers-and-readers.js';
import { weightTensors } from '../../../src/ir/of-weights.js';

const OPTIMIZER: OptimizerOptions = { kind: 'adamw', learningRate: 1e-3, clipNorm: 1 };
const FORMS: readonly Partial<TrainingOptions>[] = [
  {},
  { precision: 'fp16' },
  { precision: 'fp16', isHeldInFloat32: true },
];

for (const file of Object.keys(SHIPPED_MODELS)) {
  for (const form of FORMS) {
    test(`${file} ${JSON.stringify(form)}`, async (t) => {
      const { graph } = await importModel(`models/${file}`);
      const { graph: step, trained } = trainingGraph(graph, {
        loss: { kind: 'cross_entropy' },
        optimizer: OPTIMIZER,
        ...form,
      });
      const forward = new Map(step.nodes.flatMap((node) => (node.phase === 'forward' ? [[node.name, node]] : [])));
      const summed = new Set(trained.map((name) => `${name}/gradient`));
      for (const { name, phase, forward: of, outputs } of step.nodes) {
        if (phase === 'forward') t.is(of, null, name);
        // A weight with several readers belongs to none of them, and neither does the sum of its gradients.
        if (isBackward(phase) && of === null)
          t.true(
            outputs.some((output) => summed.has(output ?? '')),
            name,
          );
        if (of !== null) t.true(forward.has(of), `${name} belongs to ${of}`);
      }
      for (const name of trained) {
        const update = step.nodes.find(
          ({ phase, inputs, forward }) => phase === 'update' && inputs.includes(name) && forward,
        );
        t.true(update !== undefined, name);
        t.true(forward.get(update?.forward ?? '')?.inputs.includes(name), name);
      }
      t.true(splitIsExact(t.is, step) > 0);
    });
  }
}

/**
 * Tensors that pass from one operator's gradient to another's are of `backward-input`, which reads nothing of `backward-weight`,
 * unless that other operator reads weights alone, as a cast does: then they are of `backward-weight`, and so are the operands of
 * a trained weight's update, wherever the weight is multiplied with. Returns how many updates read such a product.
 */
function splitIsExact(is: (value: unknown, expected: unknown, message: string) => unknown, graph: Graph): number {
  const makers = makersOf(graph.nodes);
  const nodes = new Map(graph.nodes.map((node) => [node.name, node]));
  const ofWeights = weightTensors(graph);
  const readsWeightsAlone = (name: string) =>
    nodes.get(name)?.inputs.every((input) => input === null || ofWeights.has(input)) ?? false;
  let products = 0;
  for (const reader of graph.nodes) {
    for (const input of reader.inputs) {
      const maker = makers.get(input ?? '');
      if (!maker || !isBackward(maker.phase)) continue;
      const isHandedOn = isBackward(reader.phase) && reader.forward !== null && reader.forward !== maker.forward;
      if (isHandedOn && readsWeightsAlone(reader.forward ?? '')) {
        if (maker.op === 'MatMul') is(maker.phase, 'backward-weight', `${maker.name} for ${reader.name}`);
      } else if (isHandedOn || reader.phase === 'backward-input')
        is(maker.phase, 'backward-input', `${maker.name} for ${reader.name}`);
      if (reader.phase !== 'update') continue;
      let product: Node | undefined = maker;
      while (product && ['Cast', 'Rounding'].includes(product.op)) product = makers.get(product.inputs[0] ?? '');
      if (product?.op !== 'MatMul') continue;
      is(product.phase, 'backward-weight', product.name);
      products++;
    }
  }
  return products;
}
