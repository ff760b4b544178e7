/**
 * @file Casts of a type to itself, which exporters leave: the model trains to the same bits as without them.
 */
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import test, { type ExecutionContext } from 'ava';
import { GraphBuilder } from '../../models/builder.js';
import { compile } from '../../src/api/compile.js';
import { randomInputs } from '../../src/api/execution/inputs.js';
import { openCompiled } from '../../src/api/verify.js';
import { writeOnnx } from '../../src/ir/onnx/writer.js';
import { runProgram } from '../../src/runtime/run-program.js';
import { slowTests } from '../selection.js';

const slow = slowTests(test);

const STEPS = 3;
const FLOAT = 1;

/** Losses, and what the weights are then. */
async function trained(t: ExecutionContext, isCast: boolean): Promise<readonly unknown[]> {
  const folder = mkdtempSync(join(tmpdir(), 'autopar-test-'));
  t.teardown(() => rmSync(folder, { recursive: true, force: true }));
  const builder = new GraphBuilder('casts', 3);
  const cast = (name: string) => (isCast ? builder.operator('Cast', [name], { to: FLOAT }) : name);
  const x = cast(builder.input('x', 'float32', [8, 6]));
  const hidden = builder.operator('Relu', [builder.operator('MatMul', [x, cast(builder.parameter('up', [6, 10]))])]);
  const out = builder.operator('MatMul', [cast(hidden), builder.parameter('down', [10, 4])]);
  builder.output('y', cast(builder.operator('Add', [out, builder.parameter('bias', [4])])));
  const model = join(folder, 'model.onnx');
  writeFileSync(model, writeOnnx(builder.build()));
  const output = join(folder, 'out');
  const training = { loss: { kind: 'mse' }, optimizer: { kind: 'sgd', learningRate: 0.1 } } as const;
  const { verification } = await compile({
    model,
    output,
    devices: 2,
    degrees: { dp: 2, tp: 1 },
    axes: 'roles',
    training,
    verify: true,
  });
  t.true(verification?.passed);
  const { imported, program } = await openCompiled(output);
  const state = (program.state ?? []).map(({ from }) => from);
  const run = await runProgram(output, randomInputs(imported.graph, 1), { steps: STEPS, collect: state });
  t.true(state.length > 0);
  return [run.history, state.map((name) => run.tensors[name])];
}

slow('a model with casts of float32 to float32 trains as the same without', async (t) => {
  t.deepEqual(await trained(t, true), await trained(t, false));
});
