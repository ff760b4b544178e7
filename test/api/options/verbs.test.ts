import { mkdtemp, readFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { fileURLToPath } from 'node:url';
import test, { type ExecutionContext } from 'ava';
import { randomInputs } from '../../../src/api/execution/inputs.js';
import * as autopar from '../../../src/api/index.js';
import { inJavaScript } from '../../../src/api/options/in-javascript.js';
import { failureOf } from '../../../src/cli/failure.js';
import { AutoparError } from '../../../src/ir/error.js';

const { calibrate, compile, importModel, inspect, plan, profile, run, simulate, verify } = autopar;
const model = fileURLToPath(new URL('../../../../models/mlp.onnx', import.meta.url));
const output = async () => path.join(await mkdtemp(path.join(tmpdir(), 'autopar-verbs-')), 'out');
const optimizer = { kind: 'adamw', learningRate: 1e-3 } as const;
const loss = { kind: 'mse' } as const;

async function refusal(t: ExecutionContext, done: Promise<unknown>, code: string): Promise<string> {
  const error = await t.throwsAsync(done, { instanceOf: AutoparError });
  t.deepEqual([error?.code, error?.exit], [code, 'usage'], error?.message);
  const said = `${error?.message}\n${error?.hint ?? ''}`;
  t.notRegex(said, /--[a-z]/, 'words of the command line');
  return said;
}

test('degrees are options of their own; the older spelling is the same', async (t) => {
  const [flat, nested] = [await output(), await output()];
  await compile({ model, dp: 2, tp: 2, planOnly: true, output: flat });
  await compile({ model, degrees: { dp: 2, tp: 2 }, planOnly: true, output: nested });
  const written = (folder: string) => readFile(path.join(folder, 'plan.json'), 'utf8');
  t.is(await written(flat), await written(nested));
  t.deepEqual((JSON.parse(await written(flat)) as { degrees: unknown }).degrees, { dp: 2, tp: 2, pp: 1, sp: 1, ep: 1 });
  const planned = await plan(await importModel(model), { dp: 4 });
  t.is(planned.plan.degrees.dp, 4);
  t.regex(await refusal(t, compile({ model, dp: 2, degrees: { dp: 2 } }), 'bad-option'), /dp and degrees\.dp/);
});

// Options that the types refuse are refused from JavaScript, too.
test('options that are none, and a cluster that is missing', async (t) => {
  // @ts-expect-error no options
  t.regex(await refusal(t, simulate(), 'bad-option'), /simulate\(\): expected an object of options/);
  // @ts-expect-error no cluster
  t.regex(await refusal(t, calibrate({ files: ['runs.csv'] }), 'missing-argument'), /needs the option cluster/);
  t.regex(
    await refusal(t, simulate({ model, meshOrder: ['dp', 'tp'] }), 'bad-option'),
    /meshOrder: expected an array of/,
  );
});

test('unknown options: the nearest is offered, or where the option belongs', async (t) => {
  // @ts-expect-error no such option
  t.regex(await refusal(t, compile({ model, dpp: 2 }), 'unknown-option'), /'dpp' of compile\(\)\ndid you mean dp\?/);
  // @ts-expect-error an option of others
  const other = compile({ model, meshOrder: ['dp'] });
  t.regex(await refusal(t, other, 'unknown-option'), /option of simulate\(\)/);
  // @ts-expect-error an option inside of another
  t.regex(await refusal(t, compile({ model, momentum: 0.9 }), 'unknown-option'), /it is training\.optimizer\.momentum/);
  // @ts-expect-error a name misspelt, inside of another
  const inner = compile({ model, training: { loss: { knid: 'mse' }, optimizer } });
  t.regex(await refusal(t, inner, 'unknown-option'), /'training\.loss\.knid'.*\ndid you mean training\.loss\.kind\?/);
  // @ts-expect-error the command's spelling
  t.regex(await refusal(t, simulate({ model, 'micro-batch': 2 }), 'unknown-option'), /did you mean microBatch\?/);
  // @ts-expect-error an option of the command that has another form here
  t.regex(await refusal(t, importModel(model, { dim: { batch: 2 } }), 'unknown-option'), /did you mean dims\?/);
  // @ts-expect-error no such option
  await refusal(t, run({ directory: 'x', stpes: 2 }), 'unknown-option');
  // @ts-expect-error no such option
  await refusal(t, verify({ directory: 'x', tolerance: 2 }), 'unknown-option');
  // @ts-expect-error no such option
  await refusal(t, inspect({ model, seed: 2 }), 'unknown-option');
  // @ts-expect-error no such option
  await refusal(t, profile({ fast: true }), 'unknown-option');
});

test('values of another form: both are said', async (t) => {
  // @ts-expect-error a string
  const worded = compile({ model, dp: '2' });
  t.regex(await refusal(t, worded, 'bad-option'), /dp: expected a positive whole number, found "2"/);
  t.regex(await refusal(t, compile({ model, dp: 1.5 }), 'bad-option'), /found 1\.5/);
  // @ts-expect-error no choice
  t.regex(await refusal(t, compile({ model, mode: 'fast' }), 'bad-option'), /one of "auto".*found "fast"/);
  t.regex(await refusal(t, compile({ model, dims: { batch: 0 } }), 'bad-option'), /each a positive whole number/);
  // @ts-expect-error no object
  t.regex(await refusal(t, compile(model), 'bad-option'), /expected an object of options/);
  // @ts-expect-error nothing
  await refusal(t, compile(), 'bad-option');
  t.regex(await refusal(t, compile({ dp: 4 }), 'missing-argument'), /needs the option model/);
});

test('a generated model and a loss have the same name in every verb', async (t) => {
  const generate = 'mlp:layers=2,hidden=8,batch=2';
  const { plan } = await compile({ generate, output: await output(), planOnly: true, dp: 2 });
  t.is(plan.model.name, 'mlp');
  t.is((await inspect({ generate })).name, 'mlp');
  const priced = { generate: 'gpt:layers=2', cluster: '1x2:a100-sxm-80', dp: 2 };
  const { stepSeconds } = await simulate({ ...priced, loss });
  t.is((await simulate({ ...priced, training: { loss } })).stepSeconds, stepSeconds);
  t.regex(await refusal(t, compile({ model, generate }), 'bad-option'), /generate .*contradicts the file/);
});

test('misplaced options are refused as on the command line, in words of JavaScript', async (t) => {
  const says = async (done: Promise<unknown>, code = 'bad-option') => refusal(t, done, code);
  t.regex(
    await says(compile({ model, verify: true, planOnly: true })),
    /verify runs the program, and planOnly writes none/,
  );
  t.regex(await says(compile({ model, seed: 1 })), /add initRandom: true or verify/);
  t.regex(await says(compile({ model, solver: 'glpk', complete: 'propagate' })), /complete: 'propagate' solves none/);
  t.regex(await says(compile({ model, microBatch: 2 })), /add training/);
  t.regex(
    await says(compile({ model, spMethod: 'gather' })),
    /spMethod gather applies to .*\nleave it out, or add sp: 2/,
  );
  t.regex(
    await says(compile({ model, dp: 2, tp: 2, devices: 8 }), 'degrees-do-not-match-devices'),
    /leave out devices/,
  );
  t.regex(
    await says(verify({ directory: 'x', seed: 1, inputs: 'y' })),
    /seed applies to random inputs, and inputs gives the inputs/,
  );
  t.regex(await says(run({ directory: 'x', seed: 1, inputs: 'y' })), /seed applies to random inputs/);
  const cluster = '1x2:a100-sxm-80';
  t.regex(await says(simulate({ model, cluster, schedule: '1f1b' })), /add pp: 2/);
  t.regex(
    await says(simulate({ model, cluster, gradientBytes: 2 })),
    /gradientBytes applies to training only\nadd loss/,
  );
  t.regex(await says(compile({ model, cluster, within: 2 })), /add objective: 'devices'/);
  const training = { loss, optimizer: { ...optimizer, momentum: 0.9 } };
  t.regex(await says(compile({ model, training })), /training\.optimizer\.momentum applies to sgd only/);
});

test('an error says the same on the command line in its words', async (t) => {
  const error = await t.throwsAsync(compile({ model, seed: 1 }), { instanceOf: AutoparError });
  const circumstances = { version: '0', line: [], interrupted: false };
  t.regex(failureOf(error, circumstances).hint ?? '', /add --init random or --verify/);
});

test('options of the command line become properties; commands stay', (t) => {
  const sentences: readonly (readonly [string, string])[] = [
    ['bind them: --dim batch=SIZE', 'bind them: dims: { batch: SIZE }'],
    ["--dim 'a b'", "dims 'a b'"],
    ['give --dp 2 and --tp-sequence on', "give dp: 2 and tpSequence: 'on'"],
    ['--init random makes some', 'initRandom: true makes some'],
    ['autopar inspect MODEL --parameters lists them', 'autopar inspect MODEL --parameters lists them'],
    ['add --weight-decay', 'add training.optimizer.weightDecay'],
    ['--mode hybrid', "mode: 'hybrid'"],
    ['--global-batch 2, or --dp 1', 'globalBatch: 2, or dp: 1'],
    ['a well-known name--kept', 'a well-known name--kept'],
  ];
  for (const [command, script] of sentences) t.is(inJavaScript('compile', command), script);
});

test('arguments before options, and options of functions that are no verbs, are refused by their names', async (t) => {
  const { explainPlan, openExplainable, mergeStrategies, convertStrategy, diffStrategies, openSession } = autopar;
  // @ts-expect-error nothing
  t.regex(await refusal(t, importModel(), 'bad-option'), /importModel\(\): file: expected a string, found undefined/);
  // @ts-expect-error no path
  t.regex(await refusal(t, explainPlan(5), 'bad-option'), /directory: expected a string, found 5/);
  // @ts-expect-error no path
  t.regex(await refusal(t, openExplainable(model, {}), 'bad-option'), /model: expected a string, found {}/);
  // @ts-expect-error one file
  t.regex(await refusal(t, mergeStrategies(model, 'x.ckpt'), 'bad-option'), /files: expected an array of strings/);
  // @ts-expect-error no output
  const nowhere = convertStrategy({ from: model });
  t.regex(await refusal(t, nowhere, 'bad-option'), /options: expected an object with from, output/);
  // @ts-expect-error no such form
  const formless = convertStrategy({ from: model, output: 'x', to: 'plam' });
  t.regex(await refusal(t, formless, 'bad-option'), /\bto: expected one of "plan"/);
  // @ts-expect-error an option of others
  const misplaced = diffStrategies(model, model, { force: true });
  t.regex(await refusal(t, misplaced, 'unknown-option'), /unknown option 'force' of options of diffStrategies/);
  t.regex(await refusal(t, openSession('x', { threadsPerRank: 0 }), 'bad-option'), /threadsPerRank: expected/);
  // @ts-expect-error no name
  t.throws(() => autopar.hardwareById(3), { instanceOf: AutoparError, code: 'bad-option' });
  // @ts-expect-error no degrees
  t.throws(() => autopar.processGroups(), { instanceOf: AutoparError, code: 'bad-option' });
});

test('every function refuses arguments of another form by an AutoparError', async (t) => {
  // Those that need no argument, of which `profile` measures, and classes.
  const others = new Set(['hardware', 'localDevices', 'profile', 'AutoparError', 'Trainer']);
  for (const [name, exported] of Object.entries(autopar)) {
    if (typeof exported !== 'function' || others.has(name)) continue;
    const call = exported as (...given: readonly unknown[]) => unknown;
    for (const wrong of [undefined, null, 5, 'x', {}, []]) {
      const error = await Promise.resolve()
        .then(() => call(wrong, wrong, wrong))
        .then(
          () => null,
          (thrown: unknown) => thrown,
        );
      const written = `${name}(${JSON.stringify(wrong)})`;
      if (error === null) t.true(['setParallelConfig({})', 'convertStrategies([])'].includes(written), written);
      else t.true(error instanceof AutoparError, `${written}: ${error}`);
    }
  }
});

test('all combinations may be asked for, and a number that is none is said', async (t) => {
  const directory = await output();
  await compile({ model, dp: 2, planOnly: true, output: directory });
  const { top } = await autopar.explainChoices(directory, { top: Number.POSITIVE_INFINITY });
  t.is(top[0]?.degrees.dp, 2);
  const asked = autopar.explainChoices(directory, { top: Number.NaN });
  t.regex(await refusal(t, asked, 'bad-option'), /top: expected a positive whole number or Infinity, found NaN/);
});

test('an aborted signal ends every verb by one error, whatever the reason of the signal', async (t) => {
  const [directory, other] = [await output(), await output()];
  await compile({ model, output: directory, dp: 2 });
  for (const reason of [undefined, new Error('mine'), 'late']) {
    const signal = AbortSignal.abort(reason);
    for (const ended of [
      compile({ model, output: other, dp: 2, signal }),
      run({ directory, signal }),
      verify({ directory, signal }),
      autopar.rehearse({ directory, signal }),
      autopar.explainPins(directory, { signal }),
      autopar.openSession(directory, { signal }),
      autopar.recut({ from: directory, to: directory, signal }),
    ]) {
      const error = await t.throwsAsync(ended, { instanceOf: AutoparError });
      t.deepEqual([error?.code, error?.exit], ['interrupted', 'interrupted'], error?.message);
    }
  }
});

test('a session that works refuses another call, and goes on', async (t) => {
  const directory = await output();
  await compile({ model, output: directory, dp: 2 });
  const session = await autopar.openSession(directory);
  const inputs = randomInputs((await importModel(model)).graph, 0);
  const [first, second] = await Promise.allSettled([session.step(inputs), session.step(inputs)]);
  t.is(first.status, 'fulfilled');
  const reason = second.status === 'rejected' ? (second.reason as AutoparError) : null;
  t.deepEqual([reason?.code, reason?.exit], ['session-busy', 'usage']);
  t.is((await session.step()).ranks.length, 2);
  await session.close();
});
