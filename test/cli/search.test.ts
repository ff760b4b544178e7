/**
 * @file Search options of `compile`: modes, solvers, the time limit, runners-up, memory limits, pins that leave no plan.
 */
import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import test, { type ExecutionContext } from 'ava';
import { SEARCH_MODES } from '../../src/search/search-mode.js';
import { EVERYTHING, slowTests, thinned } from '../selection.js';
import { autoparLine, type Ended, ROOT, workplace } from './autopar.js';

const slow = slowTests(test);

interface Printed {
  readonly search: { readonly mode: string; readonly gap: number; readonly costSeconds: number };
  readonly top: readonly {
    readonly stepSeconds: number;
    readonly peakBytes: readonly number[];
    reason: string | null;
  }[];
  readonly predicted: { readonly stepSeconds: number; readonly peakBytes: readonly number[] };
}

function place(t: ExecutionContext, files: Readonly<Record<string, string>> = {}): (line: string) => Promise<Ended> {
  const { folder, remove } = workplace();
  t.teardown(remove);
  for (const [name, text] of Object.entries(files)) writeFileSync(join(folder, name), text);
  return (rest) => autoparLine(`autopar compile ${rest} --plan-only --force -o x`, { cwd: folder });
}

const printed = ({ stdout }: Ended) => JSON.parse(stdout) as Printed;

test('every search mode makes a plan and says which it is', async (t) => {
  const compile = place(t);
  const found = new Map<string, Printed>();
  for (const mode of SEARCH_MODES) {
    const ended = await compile(`models/gpt-tiny.onnx --cluster 1x4:a100-sxm-80 --tp 4 --search-mode ${mode} --json`);
    t.is(ended.code, 0, ended.stderr);
    found.set(mode, printed(ended));
    if (mode !== 'auto') t.is(printed(ended).search.mode, mode);
  }
  const [auto, dynamic, integer, recursive] = ['auto', 'dynamic_programming', 'ilp', 'recursive_programming'].map(
    (mode) => found.get(mode)?.search,
  );
  t.is(auto?.mode, 'dynamic_programming');
  t.is(dynamic?.costSeconds, integer?.costSeconds);
  t.is(integer?.gap, 0);
  t.true((recursive?.costSeconds ?? 0) >= (dynamic?.costSeconds ?? Infinity));
  t.true((recursive?.gap ?? 0) > 0);
  const words = await compile(
    'models/gpt-tiny.onnx --cluster 1x4:a100-sxm-80 --tp 4 --search-mode recursive_programming',
  );
  t.regex(words.stdout, /search {5}recursive programming, within [\d.]+ % of the bound/);
});

test('--axes free is refused where nothing is searched', async (t) => {
  const compile = place(t);
  const { code, stderr } = await compile('models/mlp.onnx --devices 2 --axes free --search-mode sharding_propagation');
  t.is(code, 2);
  t.regex(
    stderr,
    /^error\[bad-option\]: --axes free applies to a search, and --search-mode sharding_propagation does not search/,
  );
});

test("a configuration's search_mode is the search mode, and an option wins over it", async (t) => {
  const compile = place(t, {
    'c.yaml': 'use_parallel: True\nparallel:\n  parallel_mode: 2\n  search_mode: recursive_programming\n',
  });
  const line = 'models/mlp.onnx --cluster 1x4:a100-sxm-80 --config c.yaml --json';
  const configured = await compile(line);
  t.is(configured.code, 0, configured.stderr);
  t.is(printed(configured).search.mode, 'recursive_programming');
  t.is(printed(await compile(`${line} --search-mode ilp --solver none`)).search.mode, 'ilp');
});

test('a time limit that is not reached leaves the bytes of plan.json as they are', async (t) => {
  const { folder, remove } = workplace();
  t.teardown(remove);
  const step = '--train --plan-only --cluster 2x4:a100-sxm-80 --global-batch 16';
  const lines = [
    'models/llama-tiny.onnx --cluster 1x4:a100-sxm-80 --memory 300kB --plan-only',
    `--model gpt:layers=8,hidden=64,heads=4,seq=32,vocab=64 ${step}`,
    'models/mlp.onnx --devices 4',
    'models/gpt-tiny.onnx --devices 4 --search-mode ilp --plan-only',
    'models/gpt-tiny.onnx --devices 4 --train --axes free --plan-only',
    `--model gpt:layers=8,hidden=64,heads=4,seq=32,vocab=64 ${step} --pp 4`,
    `--model gpt:layers=8,hidden=64,heads=4,seq=32,vocab=64 ${step} --objective devices --within 1`,
  ];
  for (const line of EVERYTHING ? thinned(lines, 3) : lines.slice(2, 3)) {
    for (const [name, more] of [
      ['free', ''],
      ['limited', '--time-limit 10000'],
    ] as const) {
      const { code, stderr } = await autoparLine(`autopar compile ${line} ${more} -o ${name} --force`, { cwd: folder });
      t.is(code, 0, `${line}: ${stderr}`);
    }
    const plan = (name: string) => readFileSync(join(folder, name, 'plan.json'), 'utf8');
    t.is(plan('limited'), plan('free'), line);
  }
});

test('a time limit that is over at once leaves the propagation plan, marked', async (t) => {
  const { folder, remove } = workplace();
  t.teardown(remove);
  const line = 'autopar compile models/gpt-tiny.onnx --devices 4 --dp 2 --time-limit 0 --plan-only -o x';
  const { code, stdout, stderr } = await autoparLine(line, { cwd: folder });
  t.is(code, 0, stderr);
  t.regex(stderr, /note: the time limit of 0 s ended before any plan was found: propagation/);
  t.regex(stdout, /search {5}sharding propagation/);
  const { search } = JSON.parse(readFileSync(join(folder, 'x', 'plan.json'), 'utf8')) as { search: object };
  t.like(search, { mode: 'sharding_propagation', timeLimited: true });
});

test('--top shows the best combinations of degrees with their figures', async (t) => {
  const compile = place(t);
  const words = await compile('models/mlp.onnx --cluster 1x4:a100-sxm-80 --top 2');
  t.regex(words.stdout, /best degrees\n.*step.*memory per rank.*because\n.*chosen\n.*as long/);
  const { top, predicted } = printed(await compile('models/mlp.onnx --cluster 1x4:a100-sxm-80 --top 2 --json'));
  t.is(top.length, 2);
  t.is(top[0]?.reason, null);
  t.is(top[0]?.stepSeconds, predicted.stepSeconds);
  t.deepEqual(top[0]?.peakBytes, predicted.peakBytes);
});

slow(
  'what the cheapest plan needs too much of is found cheaper in memory; what nothing meets is refused with the figure',
  async (t) => {
    const compile = place(t);
    const line = 'models/gpt-tiny.onnx --cluster 1x4:a100-sxm-80 --dp 1 --tp 4';
    const free = printed(await compile(`${line} --json`));
    const [peak = 0] = free.predicted.peakBytes;
    const tight = printed(await compile(`${line} --memory ${Math.floor(0.9 * peak)} --json`));
    t.true((tight.predicted.peakBytes[0] ?? peak) <= 0.9 * peak);
    t.true(tight.predicted.stepSeconds > free.predicted.stepSeconds);
    const { code, stderr } = await compile(`${line} --memory 1000`);
    t.is(code, 4);
    t.regex(stderr, /^error\[nothing-fits\]: .*needs at least [\d.]+ kB of 1\.00 kB on each device/);
    t.regex(stderr, /hint: use devices with more memory .* more of them/);
    const training = `models/gpt-tiny.onnx --cluster 1x1:a100-sxm-80 --train --plan-only --dp 1 --tp 1 --memory 450kB`;
    t.regex((await compile(`${training} --global-batch 8`)).stderr, /hint: --dp 1 --tp 1 --micro-batches 8 may fit/);
    t.notRegex((await compile(`${training} --global-batch 1`)).stderr, /micro-batches \d/, 'one sample is not cut');
  },
);

test('pins that leave no plan are refused; only those that do are named', async (t) => {
  const pins = ['version: 1', 'mesh: {dp: 2, tp: 2}', 'pins:', '  - match: {tensor: x}', "    layout: '[dp, -]'"];
  const partial = ['  - match: {tensor: y}', "    layout: '[dp, -] + partial(tp)'"];
  const compile = place(t, { 'pins.yaml': [...pins, ...partial, ''].join('\n') });
  for (const mode of ['auto', 'ilp']) {
    const { code, stderr } = await compile(`models/mlp.onnx --annotations pins.yaml --search-mode ${mode}`);
    t.is(code, 4, stderr);
    t.regex(stderr, /^error\[pins-leave-no-plan\]: pins\[1\]: layout .* on y leaves no plan on dp 2 · tp 2/);
    t.regex(stderr, /in pins\.yaml:7/);
    t.notRegex(stderr, /pins\[0\]/);
  }
});

slow('pins with which nothing fits are named too, beside what else would', async (t) => {
  const pins = ['h.*.mlp', 'h.*.attn'].map((module) => `  - match: {module: '${module}'}\n    style: replicate\n`);
  const compile = place(t, { 'pins.yaml': `version: 1\npins:\n${pins.join('')}` });
  const line = 'models/gpt-tiny.onnx --cluster 1x4:a100-sxm-80 --dp 1 --tp 4 --annotations pins.yaml';
  const { code, stderr } = await compile(`${line} --memory 150kB`);
  t.is(code, 4, stderr);
  t.regex(stderr, /hint: pins\[0\]: style replicate on h\.\*\.mlp and pins\[1\]: .* leave no plan that fits/);
  t.regex(stderr, /without pins, a plan that fits takes [\d.]+ µs a step; else --dp 4 --tp 1 fits/);
  t.regex(
    (await compile(`${line} --memory 100kB`)).stderr,
    /hint: pins\[0\]: .* on h\.\*\.mlp leaves no plan that fits/,
  );
});

slow('docs/planner.md shows what its lines print', async (t) => {
  const compile = place(t);
  const text = readFileSync(join(ROOT, 'docs', 'planner.md'), 'utf8');
  const examples = [...text.matchAll(/```\n(autopar compile .*)\n([^`]*)```/g)];
  t.true(examples.length >= 4);
  for (const [, line = '', shown = ''] of examples) {
    const { stdout, stderr } = await compile(line.replace('autopar compile ', ''));
    for (const part of shown.split('\n')) t.true(`${stdout}${stderr}`.includes(part), `${line}: ${part}`);
  }
});
