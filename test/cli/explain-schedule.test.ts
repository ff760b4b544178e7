/**
 * @file `explain --schedule`: the drawing and its figures, compared with the program's own order of actions, with the closed form
 * of equal stages and with the predicted step.
 */
import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import test from 'ava';
import { GraphBuilder } from '../../models/builder.js';
import type { ScheduledAction, ScheduledPipeline } from '../../src/api/index.js';
import { writeOnnx } from '../../src/ir/onnx/writer.js';
import { autopar, workplace } from './autopar.js';

const { folder, remove } = workplace();
test.after.always(remove);

/** Links without a cost: what is sent has arrived at once. */
writeFileSync(
  join(folder, 'fast.yaml'),
  `version: 1
device: a100-sxm-80
levels:
  - {name: node, size: 4, bandwidth: 1e9GB/s, latency: 1e-12}
`,
);
writeFileSync(join(folder, 'equal.onnx'), writeOnnx(equalLayers(4)));

const run = async (line: string) => {
  const { code, stdout, stderr } = await autopar(line.split(' '), { cwd: folder });
  return code === 0 ? stdout : Promise.reject(new Error(stderr));
};
const pipelineOf = async (directory: string) =>
  JSON.parse(await run(`explain ${directory} --schedule --json`)) as {
    readonly stepSeconds: number;
    readonly pipeline: ScheduledPipeline | null;
  };

const LETTERS = { forward: 'F', backward: 'B', 'input-gradient': 'I', 'weight-gradient': 'W' } as const;

for (const [kind, chunks] of [
  ['1f1b', 1],
  ['interleaved-zero-bubble', 2],
] as const) {
  test.serial(`a pipeline of ${kind} runs the actions of schedule.csv in their order, without overlap`, async (t) => {
    const words = `--train --loss mse --pp 2 --micro-batches 4 --schedule ${kind} --virtual-stages ${chunks}`;
    await run(`compile models/mlp.onnx ${words} -o ${kind}`);
    const { stepSeconds, pipeline } = await pipelineOf(kind);
    const { predicted } = JSON.parse(readFileSync(join(folder, kind, 'plan.json'), 'utf8')) as {
      readonly predicted: { readonly stepSeconds: number; readonly parts: Readonly<Record<string, number>> };
    };
    t.is(stepSeconds, predicted.stepSeconds);
    const rows = readFileSync(join(folder, kind, 'program/schedule.csv'), 'utf8')
      .trimEnd()
      .split('\n');
    const stages = pipeline?.stages ?? [];
    t.is(stages.length, rows.length);
    for (const [stage, { actions, bubble, busySeconds }] of stages.entries()) {
      t.is(actions.filter(({ phase }) => phase === 'forward').length, 4 * chunks);
      const named = ({ phase, chunk, microBatch }: ScheduledAction) =>
        `${stage + 2 * chunk}${LETTERS[phase]}${microBatch}`;
      t.deepEqual(
        actions.map(named),
        rows[stage]?.split(',').filter((cell) => !/SEND|RECV/.test(cell)),
      );
      t.true(actions.every(({ startSeconds }, at) => at === 0 || startSeconds >= (actions[at - 1]?.endSeconds ?? 0)));
      const busy = actions.reduce((sum, { startSeconds, endSeconds }) => sum + endSeconds - startSeconds, 0);
      t.true(Math.abs(busy - busySeconds) < 1e-12);
      t.true(Math.abs(1 - busy / (pipeline?.seconds ?? 0) - bubble) < 1e-9);
    }
    const text = await run(`explain ${kind} --schedule`);
    t.deepEqual(
      text.split('\n').filter((line) => line.length > 120),
      [],
    );
    t.regex(text, /^stage 1 {2}[-.\w]{92} {2}bubble [\d.]+ %$/m);
  });
}

test.serial('the bubble of equal stages is (p − 1) / (m + p − 1)', async (t) => {
  const layers = '--pp 4 --stages o*49|o*49|o*49|o*47';
  for (const microBatches of [4, 8]) {
    const words = `--train --loss mse --cluster fast.yaml ${layers} --micro-batches ${microBatches} --schedule 1f1b`;
    await run(`compile equal.onnx ${words} --plan-only -o equal --force`);
    const { pipeline } = await pipelineOf('equal');
    const share = 3 / (microBatches + 3);
    for (const bubble of [pipeline?.bubble ?? 0, ...(pipeline?.stages ?? []).map((stage) => stage.bubble)])
      t.true(Math.abs(bubble - share) < 0.02, `${bubble} for ${share}`);
  }
});

test.serial('a plan of one stage says that it has no pipeline', async (t) => {
  await run('compile models/mlp.onnx --tp 2 --dp 1 --plan-only -o whole');
  t.is(await run('explain whole --schedule'), 'one stage: no pipeline\n');
  t.is((await pipelineOf('whole')).pipeline, null);
});

/**
 * Each layer is a bias and functions of single elements, whose backward costs the same on the first stage as on the others. The
 * last has two less, since the loss runs on its stage.
 */
function equalLayers(count: number) {
  const builder = new GraphBuilder('equal', 1);
  let tensor = builder.input('x', 'float32', [64, 65536]);
  for (let layer = 0; layer < count; layer += 1) {
    tensor = builder.operator('Add', [tensor, builder.parameter(`bias${layer}`, [65536])]);
    for (let step = 0; step < (layer < count - 1 ? 48 : 46); step += 1) tensor = builder.operator('Tanh', [tensor]);
  }
  builder.output('y', tensor);
  return builder.build();
}
