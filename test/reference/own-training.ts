/**
 * @file autopar's side of the comparisons with PyTorch: gradients of a training graph that ONNX Runtime runs whole, and steps of
 * a compiled program.
 */
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { compile } from '../../src/api/compile.js';
import type { Training } from '../../src/api/models/training.js';
import { runGraph } from '../../src/api/verification/reference.js';
import { trainingGraph } from '../../src/ir/autodiff/training-graph.js';
import { isFloating } from '../../src/ir/dtype.js';
import { flattenRegions } from '../../src/ir/fused-regions/flatten-regions.js';
import type { Graph } from '../../src/ir/graph.js';
import { numbersOf } from '../../src/ir/ops/constants.js';
import { readProgram } from '../../src/program/reader.js';
import { runProgram } from '../../src/runtime/run-program.js';
import type { Arrays } from './torch.js';
import type { TrainingCase } from './training-cases.js';

/** Weights of a graph that training changes by default. */
export function trainedWeights(graph: Graph): readonly string[] {
  return [...graph.weights].flatMap(([name, { role, dtype }]) =>
    role === 'parameter' && isFloating(dtype) ? [name] : [],
  );
}

/**
 * The loss, and its gradient for each of `wanted`: a training graph that ONNX Runtime runs whole. Its optimizer is plain gradient
 * descent, weight − gradient · rate, and the gradients are what the rate is multiplied with.
 */
export async function ownGradients(
  { imported, loss: options, arrays }: TrainingCase,
  wanted: readonly string[],
): Promise<{ readonly loss: number; readonly gradients: Arrays }> {
  const optimizer = { kind: 'sgd', learningRate: 1 } as const;
  const { graph: regions, loss } = trainingGraph(imported.graph, { loss: options, optimizer, trained: wanted });
  const graph = flattenRegions(regions);
  const makers = new Map(graph.nodes.flatMap((node) => node.outputs.map((output) => [output, node] as const)));
  const names = graph.state.flatMap(({ input, output }) => {
    if (!wanted.includes(input)) return [];
    const made = makers.get(output);
    // Weights in 16 bit are rounded last.
    const update = made?.op === 'Cast' ? makers.get(made.inputs[0] ?? null) : made;
    const step = makers.get(update?.inputs[1] ?? null);
    const [gradient] = step?.op === 'Mul' ? step.inputs : [];
    if (!gradient) throw new Error(`the update of ${input} is not weight − gradient · rate`);
    return [[input, gradient] as const];
  });
  const given = { ...graph, outputs: [loss] };
  const results = await runGraph(given, arrays, [...new Set(names.map(([, gradient]) => gradient))]);
  const gradients = names.map(([name, gradient]) => [name, results[gradient] as Arrays[string]] as const);
  return {
    loss: numbersOf(results[loss] as Arrays[string])[0] ?? Number.NaN,
    gradients: Object.fromEntries(gradients),
  };
}

/** Losses of `steps` steps and the parameters after them, by `compile --train` and `run`. */
export async function ownSteps(
  { file, dims, loss, arrays }: Pick<TrainingCase, 'file' | 'dims' | 'loss' | 'arrays'>,
  training: Omit<Training, 'loss'>,
  steps: number,
  degrees: { readonly dp: number; readonly tp: number } = { dp: 1, tp: 1 },
): Promise<{ readonly losses: readonly number[]; readonly parameters: Arrays }> {
  const folder = mkdtempSync(join(tmpdir(), 'autopar-test-'));
  try {
    const output = join(folder, 'step');
    const devices = degrees.dp * degrees.tp;
    await compile({
      ...{ model: file, dims, output, training: { ...training, loss }, devices, degrees, axes: 'roles' },
    });
    const program = await readProgram(output);
    const kept = program.state ?? [];
    const given = program.inputs.map(({ name }) => name);
    const inputs = Object.fromEntries(given.flatMap((name) => (arrays[name] ? [[name, arrays[name]] as const] : [])));
    const { history, tensors } = await runProgram(output, inputs, { steps, collect: kept.map(({ from }) => from) });
    const [losses] = Object.values(history);
    const parameters = kept.flatMap(({ from, to }) => {
      const value = tensors[from];
      return value ? [[to, value] as const] : [];
    });
    return { losses: losses ?? [], parameters: Object.fromEntries(parameters) };
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
}
