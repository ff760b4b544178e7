/**
 * @file rehearse: plans for clusters run at reduced sizes, compute what one rank does, and are covered.
 */
import { existsSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import test from 'ava';
import { rehearse } from '../../../src/api/rehearse.js';
import { checkProgram } from '../../../src/program/check-program.js';
import type { Program } from '../../../src/program/program.js';
import type { Plan } from '../../../src/strategy/plan.js';
import { corruptionsOf as graphCorruptions, withoutStages } from '../../partition/graph-corruptions.js';
import { corruptionsOf } from '../../program/corruptions.js';
import { slowTests } from '../../selection.js';
import { faults, planned, TRAINING } from './planned.js';

const slow = slowTests(test);

const LLAMA = 'llama:layers=4,hidden=256,heads=16,kv_heads=4,vocab=512,seq=64';
const GPT = 'gpt:layers=4,hidden=128,heads=8,vocab=500,seq=32';

test('a family for 16 devices is rehearsed narrower, its heads cut by sub-axes of tp as in the plan', async (t) => {
  const directory = await planned(t, { family: LLAMA, globalBatch: 32, degrees: { dp: 2, tp: 8 } });
  const result = await rehearse({ directory });
  t.deepEqual(faults(result), []);
  t.true(result.passed);
  t.deepEqual(result.coverage.lost, []);
  t.is(result.coverage.covered, result.coverage.kinds);
  t.is(result.ranks, 8);
  t.deepEqual(
    result.reduced.find(({ name }) => name === 'tp'),
    { name: 'tp', from: 8, to: 4 },
  );
  t.deepEqual(
    result.reduced.find(({ name }) => name === 'layers'),
    { name: 'layers', from: 4, to: 2 },
  );
});

test('ranks that do not suffice reduce a sub-axis to 1, and what goes with it is listed as lost', async (t) => {
  const directory = await planned(t, { family: LLAMA, globalBatch: 32, degrees: { dp: 2, tp: 8 } });
  const result = await rehearse({ directory, ranks: 4 });
  t.deepEqual(faults(result), []);
  t.is(result.ranks, 4);
  t.true(result.coverage.lost.length > 0);
  t.true(result.coverage.lost.every(({ reason }) => reason === 'axis tp.2 is reduced to 1'));
});

slow('a training step in stages: losses, every gradient and the state are those of one rank', async (t) => {
  const directory = await planned(t, {
    family: GPT,
    globalBatch: 32,
    degrees: { dp: 2, tp: 4, pp: 2 },
    training: { ...TRAINING, microBatches: 8 },
  });
  const result = await rehearse({ directory });
  t.deepEqual(faults(result), []);
  t.true(result.passed);
  t.is(result.coverage.covered, result.coverage.kinds);
  const names = new Set(result.verification?.gradients?.map(({ name }) => name));
  t.true(names.has('embed.weight') && names.has('layers.3.attention.qkv.weight'));
});

slow('a ring in zig-zag order is rehearsed in that order', async (t) => {
  const family = 'llama:layers=3,hidden=64,heads=4,kv_heads=2,ffn=64,vocab=64,seq=64';
  const degrees = { dp: 2, tp: 1, sp: 8 };
  const directory = await planned(t, { family, globalBatch: 4, degrees, spMethod: 'ring', training: TRAINING });
  const { sequence } = JSON.parse(readFileSync(join(directory, 'plan.json'), 'utf8')) as Plan;
  t.is(sequence?.order, 'zigzag');
  const result = await rehearse({ directory });
  t.deepEqual(faults(result), []);
  t.true(result.passed);
  t.is(result.coverage.covered, result.coverage.kinds);
  t.is(result.ranks, 4);
});

slow('micro-batches in halves are rehearsed in halves', async (t) => {
  const directory = await planned(t, {
    file: 'models/mlp.onnx',
    globalBatch: 64,
    degrees: { dp: 2, tp: 4, pp: 2 },
    interleave: 2,
    training: { ...TRAINING, loss: { kind: 'mse' }, microBatches: 8 },
  });
  let program: Program | undefined;
  const result = await rehearse({ directory }, { program: (own) => (program = own) });
  t.deepEqual(faults(result), []);
  t.true(result.passed);
  t.deepEqual(
    result.reduced.find(({ name }) => name === 'micro-batches'),
    { name: 'micro-batches', from: 16, to: 4 },
  );
  t.true(program?.stages.every(({ phases }) => phases.forward?.some(({ half }) => half === 1)));
});

slow('what is wrong with a plan or with its lowered form fails its rehearsal', async (t) => {
  const directory = await planned(t, { family: GPT, globalBatch: 16, degrees: { dp: 4, tp: 4 } });
  const file = join(directory, 'plan.json');
  const text = readFileSync(file, 'utf8');
  const edited = async (edit: (plan: Writable<Plan>) => void) => {
    const plan = JSON.parse(text) as Writable<Plan>;
    edit(plan);
    writeFileSync(file, JSON.stringify(plan));
    return t.throwsAsync(rehearse({ directory }), { name: 'AutoparError' });
  };
  const { operators, redistributions } = JSON.parse(text) as Plan;
  const product = Object.keys(operators).find((name) => name.endsWith('/feed_forward/down/MatMul')) ?? '';
  const [moved = ''] = Object.keys(redistributions);
  await edited((plan) => {
    Object.assign(plan.operators[product] ?? {}, { strategy: {} });
  });
  await edited((plan) => {
    Object.assign(plan.operators[product] ?? {}, { strategy: { k: ['tp.0', 'tp.0'] } });
  });
  await edited((plan) => {
    Object.assign(plan.operators[product] ?? {}, { reduction: { kind: 'all-reduce' } });
  });
  await edited((plan) => {
    Object.assign(plan.redistributions[moved]?.[0] ?? {}, { layout: '[dp, -, tp.9]' });
  });
  await edited((plan) => {
    Object.assign(plan.redistributions[moved]?.[0] ?? {}, { readers: [] });
  });
  for (const steps of [[], ['all-reduce(dp)'], ['all-gather(tp)', 'all-gather(tp)', 'all-gather(tp)']])
    await edited((plan) => {
      Object.assign(plan.redistributions[moved]?.[0] ?? {}, { steps });
    });
  await edited((plan) => {
    plan.operators = {};
  });
  writeFileSync(file, text);
  let program: Program | null = null;
  t.true((await rehearse({ directory }, { program: (own) => (program = own) })).passed);
  t.truthy(program);
  const kinds = new Set<string>();
  for (const one of corruptionsOf(program as unknown as Program)) {
    t.not(checkProgram(one.program), null, `${one.kind}: ${one.where}`);
    if (kinds.has(one.kind) || kinds.size > 2) continue;
    kinds.add(one.kind);
    const wrong = await rehearse({ directory }, { program: () => one.program });
    t.false(wrong.passed, `${one.kind}: ${one.where}`);
  }
  for (const form of ['plan', 'lowered'] as const) {
    const result = await rehearse(
      { directory },
      {
        [form]: ([stage]: Parameters<NonNullable<Hooks['plan']>>[0]) => {
          const [wrong] = graphCorruptions(withoutStages((stage as NonNullable<typeof stage>).sharded));
          return [{ ...stage, sharded: wrong?.graph }];
        },
      },
    );
    t.false(result.passed);
    t.true(result.problems.length > 0 || !result.coverage.isEqual);
  }
});

type Hooks = NonNullable<Parameters<typeof rehearse>[1]>;
type Writable<T> = { -readonly [Key in keyof T]: T[Key] };

test('what does not fit in memory or time ends with the figure', async (t) => {
  const directory = await planned(t, {
    file: 'models/gpt-tiny.onnx',
    degrees: { dp: 2, tp: 2 },
    cluster: '1x4:h100-sxm-80',
  });
  const large = await t.throwsAsync(rehearse({ directory, memory: 1e6 }));
  t.like(large, { code: 'rehearsal-too-large', exit: 'noPlan' });
  t.regex(large?.message ?? '', /takes 0\.\d+ GB of memory, more than the limit of 0\.00100 GB/);
  const slow = await t.throwsAsync(rehearse({ directory, timeLimit: 0.001 }));
  t.like(slow, { code: 'rehearsal-too-large', exit: 'noPlan' });
  t.regex(slow?.message ?? '', /0\.001 s/);
});

test('a rehearsal whose time is over leaves no folder behind', async (t) => {
  const directory = await planned(t, { file: 'models/mlp.onnx', degrees: { tp: 2 }, cluster: '1x2:h100-sxm-80' });
  const timeLimit = 5;
  const over = performance.now() + 1000 * timeLimit;
  let made = '';
  const folder = (place: string) => {
    made = place;
    while (performance.now() < over) Math.random();
  };
  await t.throwsAsync(rehearse({ directory, timeLimit }, { folder }), { code: 'rehearsal-too-large' });
  t.false(made !== '' && existsSync(made), made);
});

test('folders without entries of operators, and folders that are none, are refused', async (t) => {
  const directory = await planned(t, {
    file: 'models/mlp.onnx',
    degrees: { dp: 2, tp: 2 },
    cluster: '1x4:h100-sxm-80',
  });
  const file = join(directory, 'plan.json');
  const plan = JSON.parse(readFileSync(file, 'utf8')) as Plan;
  writeFileSync(file, JSON.stringify({ ...plan, operators: {} }));
  t.like(await t.throwsAsync(rehearse({ directory })), { code: 'plan-invalid', exit: 'input' });
  t.like(await t.throwsAsync(rehearse({ directory: join(directory, 'none') })), {
    code: 'plan-missing',
    exit: 'input',
  });
});
