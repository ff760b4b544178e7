/**
 * @file A whole model trained for a few steps: on one rank, where the first step is compared with the unsharded graph in ONNX
 * Runtime, then sharded, where the last step shows what the steps before it made of the parameters.
 */

import { rm } from 'node:fs/promises';
import { join } from 'node:path';
import { compile } from '../../src/api/compile.js';
import type { Training } from '../../src/api/requests/training-request.js';
import { verify } from '../../src/api/verify.js';
import { isFloating } from '../../src/ir/dtype.js';
import { elementCount } from '../../src/ir/graph.js';
import { constant } from '../../src/ir/ops/constants.js';
import { readProgram } from '../../src/program/reader.js';
import { runProgram } from '../../src/runtime/run-program.js';
import type { Arrays, DataSet, Tolerance } from './case-files.js';
import { difference } from './compare.js';
import type { Mode } from './modes.js';
import type { ModeResult } from './report.js';

/** The training objective: any model with a floating-point output has a mean squared error. */
const TRAINING: Training = { loss: { kind: 'mse' }, optimizer: { kind: 'sgd', learningRate: 0.01 } };

/** The loss of the last step depends on two updates. */
const STEPS = 3;

/** Gradients are sums over a whole batch, in another order on every number of ranks, and two updates add theirs. */
const TOLERANCE: Tolerance = { rtol: 5e-3, atol: 1e-4 };

/** Training data of a model, with the options that `compile` needs for it. */
export interface TrainedCase extends DataSet {
  readonly model: string;
  readonly dims: Readonly<Record<string, number>>;
  readonly constants: Arrays;
}

/** Trains in one mode. Returns the outputs of the last step; throws where they differ from `expected`. */
export async function trainIn(
  mode: Mode,
  { model, dims, constants, inputs }: TrainedCase,
  scratch: string,
  expected: Arrays | null,
): Promise<{ readonly outputs: Arrays; readonly shares: Partial<ModeResult> }> {
  const output = join(scratch, mode.name.replaceAll(/\W+/g, '-'));
  await rm(output, { recursive: true, force: true });
  const result = await compile({
    model,
    output,
    dims,
    constants,
    training: TRAINING,
    devices: mode.ranks,
    ...(mode.degrees ? { degrees: mode.degrees, axes: 'roles' } : {}),
  });
  if (!result.programWritten) throw new Error(result.programReason ?? 'no program was written');
  if (expected === null) {
    const { passed, outputs } = await verify({ directory: output });
    const wrong = outputs.filter((found) => !found.passed).map(({ name }) => name);
    if (!passed) throw new Error(`the first step differs from the unsharded graph in ${wrong.join(', ')}`);
  }
  const program = await readProgram(output);
  const feeds = Object.fromEntries(program.inputs.map((input) => [input.name, inputs[input.name] ?? targets(input)]));
  const { outputs } = await runProgram(join(output, 'program'), feeds, { steps: STEPS });
  const faults = Object.entries(expected ?? {}).flatMap(
    ([name, wanted]) => difference(name, outputs[name], wanted, TOLERANCE) ?? [],
  );
  if (faults.length > 0) throw new Error(faults.join('; '));
  const { flopsPerRank, flopsTotal, peakBytes } = result.plan.predicted;
  return {
    outputs,
    shares: {
      bytes: Math.max(...peakBytes),
      flopsShare: flopsTotal > 0 ? flopsPerRank / flopsTotal : 1,
      sharded: Object.values(result.plan.operators).some(({ strategy }) =>
        Object.values(strategy).some((axes) => axes.length > 0),
      ),
    },
  };
}

/** The values that the loss compares the model's output with. */
function targets({ dtype, shape }: { readonly dtype: Arrays[string]['dtype']; readonly shape: readonly number[] }) {
  const values = Array.from({ length: elementCount(shape) }, (_, index) =>
    isFloating(dtype) ? Math.sin(index * 12.9898) : 0,
  );
  return constant(dtype, values, shape);
}
