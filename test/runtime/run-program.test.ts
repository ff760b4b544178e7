import { rm, truncate, writeFile } from 'node:fs/promises';
import path from 'node:path';
import test from 'ava';
import type { Program } from '../../src/program/program.js';
import { AutoparError, byteLength, type ConstantTensor } from '../../src/program/values.js';
import { BACKENDS } from '../../src/runtime/backend.js';
import type { Fault } from '../../src/runtime/messages.js';
import { type RunOptions, runProgram } from '../../src/runtime/run-program.js';
import { slowTests } from '../selection.js';
import { axis, float32, floats, programOf, stageOf, tensor, tinyMatmul, tinyModel, writeTiny } from './tiny-program.js';

const x = float32([1, -1, 2, 3, -4, 5, 6, 7], [2, 4]);

test.serial('two ranks give what one device would', async (t) => {
  const dir = await tinyMatmul();
  const seen: string[] = [];
  const result = await runProgram(
    dir,
    { x },
    { steps: 3, warmup: 1, collect: 'all', onProgress: ({ kind }) => seen.push(kind) },
  );
  // relu(x) = [[1, 0, 2, 3], [0, 5, 6, 7]] times w, rows 1..12
  t.deepEqual(floats(result.outputs.y), [
    1 + 14 + 30,
    2 + 16 + 33,
    3 + 18 + 36,
    20 + 42 + 70,
    25 + 48 + 77,
    30 + 54 + 84,
  ]);
  t.deepEqual(result.outputs.y?.shape, [2, 3]);
  t.deepEqual(floats(result.outputs.offset), [1, 5]);
  t.deepEqual(Object.keys(result.tensors).sort(), ['p', 'x', 'y']);
  t.deepEqual(floats(result.tensors.p), floats(result.outputs.y), 'a partial tensor is summed when it is collected');
  t.deepEqual(floats(result.tensors.x), floats(x));
  t.is(result.stepSeconds.length, 3);
  t.is(result.ranks.length, 2);
  const [rank] = result.ranks;
  t.is(rank?.bytesCommunicated, 24, '2 (n-1)/n of 24 bytes');
  t.is(rank?.byKind.compute?.count, 2);
  t.is(rank?.byKind['all-reduce']?.count, 1);
  // weights 24 + coordinate 8 + slot 24, and at most x 16 + p 24 + offset 4 + y 24
  t.is(rank?.peakBytes, 24 + 8 + 24 + 16 + 24 + 4 + 24);
  t.true(result.rssBytes > 0);
  t.is(seen.filter((kind) => kind === 'loaded').length, 2);
  t.is(seen.filter((kind) => kind === 'step').length, 4);
  await rm(dir, { recursive: true });
});

for (const kind of ['throw', 'exit', 'stall'] as const) {
  for (const [instruction, words] of [
    [0, /instruction 0 \(compute layer 0 MatMul\), tensor p/],
    [3, /instruction 3 \(all-reduce layer 0 MatMul\), tensor y/],
  ] as const) {
    slowTests(test.serial, instruction === 0 && kind !== 'throw')(
      `a rank that fails (${kind}) at instruction ${instruction} ends the run soon, and is named`,
      async (t) => {
        const dir = await tinyMatmul();
        const fault: Fault = { rank: 1, instruction, kind };
        const error = await failure(dir, { x }, { fault });
        t.is(error.exit, 'rankFailed');
        t.regex(error.message, /rank 1 /);
        t.regex(error.message, words);
        if (kind === 'throw') t.regex(error.message, /failed on purpose/);
        await rm(dir, { recursive: true });
      },
    );
  }
}

test.serial('an abort ends the run at once, whatever the ranks are doing', async (t) => {
  const dir = await tinyMatmul();
  const fault: Fault = { rank: 0, instruction: 1, kind: 'stall' };
  for (const after of [0, 1, 2]) {
    const controller = new AbortController();
    let loaded = 0;
    const abort = () => controller.abort();
    const onProgress = () => {
      loaded++;
      if (loaded === after) setTimeout(abort, 100);
    };
    if (after === 0) abort();
    const error = await failure(dir, { x }, { fault, signal: controller.signal, onProgress });
    t.deepEqual([error.code, error.exit], ['interrupted', 'interrupted']);
  }
  await rm(dir, { recursive: true });
});

test.serial('wrong inputs are named with what is expected', async (t) => {
  const dir = await tinyMatmul();
  const wrong: [Record<string, ConstantTensor>, RegExp][] = [
    [{}, /input x is missing/],
    [{ x, z: x }, /no input z/],
    [{ x: { ...x, dtype: 'int32' } }, /input x is int32 \[2, 4\], but float32 \[2, 4\] is expected/],
    [{ x: { ...x, shape: [4, 2] } }, /input x is float32 \[4, 2\], but float32 \[2, 4\] is expected/],
    [{ x: { ...x, data: x.data.slice(1) } }, /input x has 31 bytes/],
  ];
  for (const [inputs, words] of wrong) {
    const error = await failure(dir, inputs, {});
    t.is(error.exit, 'input');
    t.regex(error.message, words);
  }
  await rm(dir, { recursive: true });
});

test.serial('missing, cut and corrupt files are named', async (t) => {
  const damage: [(dir: string) => Promise<void>, RegExp][] = [
    [(dir) => rm(path.join(dir, 'weights/w-1.safetensors')), /w-1\.safetensors does not exist/],
    [(dir) => truncate(path.join(dir, 'weights/w-1.safetensors'), 90), /w-1\.safetensors is truncated/],
    [(dir) => rm(path.join(dir, 'segments/mm.onnx')), /mm\.onnx does not exist/],
    [(dir) => writeFile(path.join(dir, 'segments/mm.onnx'), 'nonsense'), /mm\.onnx has SHA-256 .* as in program\.json/],
    [(dir) => rm(path.join(dir, 'program.json')), /no program\.json/],
    [(dir) => truncate(path.join(dir, 'program.json'), 500), /program\.json: is not JSON or is truncated/],
  ];
  for (const [harm, words] of damage) {
    const dir = await tinyMatmul();
    await harm(dir);
    const error = await failure(dir, { x }, {});
    t.is(error.exit, 'input');
    t.regex(error.message, words);
    await rm(dir, { recursive: true });
  }
});

test.serial('programs at odds with themselves are refused', async (t) => {
  const flaws: [(program: Program) => Program, RegExp][] = [
    [(program) => ({ ...program, version: 99 as 2 }), /version 99/],
    [
      (program) => ({ ...program, mesh: [{ axis: 'tp', size: 4, subAxes: [{ name: 'tp', size: 2 }] }] }),
      /multiply to 2, not to 4/,
    ],
    [
      (program) => ({ ...program, stages: program.stages.map((stage) => ({ ...stage, segments: {} })) }),
      /segment mm is not declared/,
    ],
    [
      (program) => ({ ...program, outputs: [{ ...program.outputs[0], tensor: 'nowhere' }] as Program['outputs'] }),
      /nowhere/,
    ],
    [withPhase((list) => list.filter(({ kind }) => kind !== 'wait')), /collective 0 begins but is not waited for/],
    [withPhase((list) => list.filter(({ kind }) => kind !== 'start')), /has not begun/],
    [withPhase((list) => list.slice(1)), /p is read where it is not live/],
  ];
  for (const [change, words] of flaws) {
    const dir = await tinyMatmul(change);
    const error = await failure(dir, { x }, {});
    t.is(error.exit, 'input');
    t.regex(error.message, words);
    await rm(dir, { recursive: true });
  }
});

test.serial('a program with bfloat16 is refused with the name of the backend', async (t) => {
  const dir = await writeTiny(
    programOf({
      mesh: [axis('dp', 1)],
      stages: [stageOf({ tensors: { h: tensor([2], [2], [[]], { dtype: 'bfloat16' }) } })],
    }),
    {},
  );
  const error = await failure(dir, {}, {});
  t.is(error.exit, 'backendAbsent');
  t.regex(error.message, /backend cpu .* h is bfloat16/);
  await rm(dir, { recursive: true });
});

test.serial('two stages hand tensors on, rank by rank; scalars and empty tensors pass', async (t) => {
  const relu = (shape: readonly number[]) =>
    tinyModel([{ op: 'Relu', inputs: ['a'], outputs: ['b'] }], [{ name: 'a', shape }], [{ name: 'b', shape }]);
  const segment = (file: string) => ({
    file: `segments/${file}`,
    inputs: ['a'],
    weights: [],
    outputs: ['b'],
    flops: 1,
    operators: ['Relu'],
  });
  const compute = (name: string, input: string, output: string) =>
    ({ kind: 'compute', segment: name, inputs: [input], weights: [], outputs: [output], label: output }) as const;
  const tensors = {
    x: tensor([4], [2], [['tp']]),
    s: tensor([], [], []),
    e: tensor([0, 3], [0, 3], [[], []]),
    h: tensor([4], [2], [['tp']]),
  };
  const dir = await writeTiny(
    programOf({
      mesh: [axis('pp', 2), axis('tp', 2)],
      inputs: [
        { name: 'x', dtype: 'float32', shape: [4], stage: 0, tensor: 'x' },
        { name: 's', dtype: 'float32', shape: [], stage: 0, tensor: 's' },
        { name: 'e', dtype: 'float32', shape: [0, 3], stage: 1, tensor: 'e' },
      ],
      outputs: [
        { name: 'g', dtype: 'float32', shape: [4], stage: 1, tensor: 'g' },
        { name: 's', dtype: 'float32', shape: [], stage: 1, tensor: 's' },
        { name: 'e', dtype: 'float32', shape: [0, 3], stage: 1, tensor: 'f' },
      ],
      stages: [
        stageOf({
          tensors,
          segments: { r: segment('two.onnx') },
          phases: {
            forward: [
              compute('r', 'x', 'h'),
              { kind: 'send', tensor: 'h', stage: 1, label: 'h' },
              { kind: 'send', tensor: 's', stage: 1, label: 's' },
            ],
          },
        }),
        stageOf({
          tensors: { ...tensors, g: tensor([4], [4], [[]]), f: tensor([0, 3], [0, 3], [[], []]) },
          segments: { r: segment('empty.onnx') },
          phases: {
            forward: [
              { kind: 'recv', tensor: 'h', stage: 0, label: 'h' },
              compute('r', 'e', 'f'),
              { kind: 'recv', tensor: 's', stage: 0, label: 's' },
              {
                kind: 'start',
                id: 7,
                collective: { kind: 'all-gather', outer: 1, inner: 2 },
                axes: ['tp'],
                input: 'h',
                output: 'g',
                label: 'g',
              },
              { kind: 'wait', id: 7 },
            ],
          },
        }),
      ],
    }),
    { 'two.onnx': relu([2]), 'empty.onnx': relu([0, 3]) },
  );
  const inputs = { x: float32([1, -2, Number.NaN, 4], [4]), s: float32([-5], []), e: float32([], [0, 3]) };
  const result = await runProgram(dir, inputs, { steps: 2 });
  t.deepEqual(floats(result.outputs.g), [1, 0, Number.NaN, 4]);
  t.deepEqual(floats(result.outputs.s), [-5]);
  t.is(result.outputs.e?.data.byteLength, 0);
  t.deepEqual(
    result.ranks.map(({ bytesCommunicated }) => bytesCommunicated),
    [12, 12, 8, 8],
  );
  await rm(dir, { recursive: true });
});

test.serial('every dtype that the backend has passes segments and collectives unchanged', async (t) => {
  const dtypes = [...BACKENDS.cpu.dtypes];
  const segments = Object.fromEntries(
    dtypes.map((dtype) => [
      `${dtype}.onnx`,
      tinyModel(
        [{ op: 'Identity', inputs: ['a'], outputs: ['b'] }],
        [{ name: 'a', dtype, shape: [3] }],
        [{ name: 'b', dtype, shape: [3] }],
      ),
    ]),
  );
  const program = programOf({
    mesh: [axis('tp', 2)],
    inputs: dtypes.map((dtype) => ({ name: dtype, dtype, shape: [6], stage: 0, tensor: `x-${dtype}` })),
    outputs: dtypes.map((dtype) => ({ name: dtype, dtype, shape: [6], stage: 0, tensor: `z-${dtype}` })),
    stages: [
      stageOf({
        tensors: Object.fromEntries(
          dtypes.flatMap((dtype) => [
            [`x-${dtype}`, tensor([6], [3], [['tp']], { dtype })],
            [`y-${dtype}`, tensor([6], [3], [['tp']], { dtype })],
            [`z-${dtype}`, tensor([6], [6], [[]], { dtype })],
          ]),
        ),
        segments: Object.fromEntries(
          dtypes.map((dtype) => [
            dtype,
            {
              file: `segments/${dtype}.onnx`,
              inputs: ['a'],
              weights: [],
              outputs: ['b'],
              flops: 0,
              operators: ['Identity'],
            },
          ]),
        ),
        phases: {
          forward: dtypes.flatMap((dtype, id) => [
            {
              kind: 'compute',
              segment: dtype,
              inputs: [`x-${dtype}`],
              weights: [],
              outputs: [`y-${dtype}`],
              label: dtype,
            } as const,
            {
              kind: 'start',
              id,
              collective: { kind: 'all-gather', outer: 1, inner: 3 },
              axes: ['tp'],
              input: `y-${dtype}`,
              output: `z-${dtype}`,
              label: dtype,
            } as const,
            { kind: 'wait', id } as const,
          ]),
        },
      }),
    ],
  });
  const dir = await writeTiny(program, segments);
  const inputs = Object.fromEntries(
    dtypes.map((dtype) => {
      const data = Uint8Array.from({ length: byteLength(dtype, 6) }, (_, index) =>
        dtype === 'bool' ? index % 2 : index * 5 + 1,
      );
      return [dtype, { dtype, shape: [6], data }];
    }),
  );
  const { outputs } = await runProgram(dir, inputs);
  t.deepEqual({ ...outputs }, inputs);
  await rm(dir, { recursive: true });
});

type List = Program['stages'][number]['phases'][string];

function withPhase(change: (list: List) => List): (program: Program) => Program {
  return (program) => ({
    ...program,
    stages: program.stages.map((stage) => ({ ...stage, phases: { forward: change(stage.phases.forward ?? []) } })),
  });
}

async function failure(
  dir: string,
  inputs: Record<string, ConstantTensor>,
  options: RunOptions,
): Promise<AutoparError> {
  try {
    await runProgram(dir, inputs, options);
  } catch (error) {
    if (error instanceof AutoparError) return error;
    throw error;
  }
  throw new Error('the run should have failed');
}
