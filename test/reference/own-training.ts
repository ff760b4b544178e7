/**
 * @file autopar's side of the comparisons with PyTorch: gradients of a training graph that ONNX Runtime runs whole, and steps of
 * a compiled program.
 */
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { compile } from '../../src/api/compile.js';
import { runGraph } from '../../src/api/reference.js';
import type { Training } from '../../src/api/training.js';
import { appendLoss } from '../../src/ir/autodiff/append-loss.js';
import { differentiate } from '../../src/ir/autodiff/differentiate.js';
import { flattenBlocks } from '../../src/ir/blocks/flatten-blocks.js';
import { isFloating } from '../../src/ir/dtype.js';
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

/** The loss, and its gradient for each of `wanted`, by ONNX Runtime on the whole graph. */
export async function ownGradients(
  { imported, loss: options, arrays }: TrainingCase,
  wanted: readonly string[],
): Promise<{ readonly loss: number; readonly gradients: Arrays; readonly nodes: number; readonly forward: number }> {
  const { graph: scored, loss } = appendLoss(flattenBlocks(imported.graph), options);
  const { graph, gradients } = differentiate(scored, loss, wanted);
  const results = await runGraph({ ...graph, outputs: [loss] }, arrays, [...gradients.values()]);
  const found = wanted.flatMap((name) => {
    const value = results[gradients.get(name) ?? ''];
    return value ? [[name, value] as const] : [];
  });
  return {
    loss: numbersOf(results[loss] as Arrays[string])[0] ?? Number.NaN,
    gradients: Object.fromEntries(found),
    nodes: graph.nodes.length,
    forward: scored.nodes.length,
  };
}

/** Losses of `steps` steps and the parameters after them, by `compile --train` and `run`. */
export async function ownSteps(
  { file, dims, loss, arrays }: TrainingCase,
  training: Omit<Training, 'loss'>,
  steps: number,
  degrees: { readonly dp: number; readonly tp: number } = { dp: 1, tp: 1 },
): Promise<{ readonly losses: readonly number[]; readonly parameters: Arrays }> {
  const folder = mkdtempSync(join(tmpdir(), 'autopar-test-'));
  try {
    const output = join(folder, 'step');
    const devices = degrees.dp * degrees.tp;
    await compile({ model: file, dims, output, training: { ...training, loss }, devices, degrees });
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
