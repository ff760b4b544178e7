/**
 * @file Megatron's sequence parallelism as a user sets it: norms sharded over the sequence on tp, in programs that compute the
 * same as the unsharded model; what it sends and saves, where it changes nothing, and what contradicts it.
 */
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import test from 'ava';
import { generatedModel } from '../../models/families.js';
import { AutoparError, type CompileOptions, compile } from '../../src/api/index.js';
import { readParallelConfig } from '../../src/api/parallel-config/read-config.js';
import { writeOnnx } from '../../src/ir/onnx/writer.js';
import type { Plan } from '../../src/strategy/plan.js';
import { slowTests } from '../selection.js';

const slow = slowTests(test);

const MODEL = 'models/gpt-tiny.onnx';
const TRAINING: NonNullable<CompileOptions['training']> = {
  loss: { kind: 'cross_entropy' },
  optimizer: { kind: 'adam', learningRate: 0.01 },
};

async function within<Result>(work: (output: string) => Promise<Result>): Promise<Result> {
  const folder = mkdtempSync(join(tmpdir(), 'autopar-test-'));
  try {
    return await work(join(folder, 'out'));
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
}

function compiled(options: Partial<CompileOptions>) {
  return within((output) => compile({ model: MODEL, output, degrees: { dp: 1, tp: 2 }, ...options }));
}

/** The factors that tp is on, for each norm of a plan's forward. */
function normFactors({ operators }: Plan): readonly (readonly string[])[] {
  return Object.entries(operators)
    .filter(([name]) => /LayerNormalization[^/]*$/.test(name))
    .map(([, { strategy }]) =>
      Object.keys(strategy).filter((factor) => strategy[factor]?.some((axis) => /^tp/.test(axis))),
    );
}

slow(
  'on: every norm is sharded along the sequence, its collectives are counted, and the program is right',
  async (t) => {
    for (const training of [undefined, TRAINING]) {
      const { plan, verification, communication } = await compiled({
        ...{ tpSequence: 'on', verify: true },
        ...(training ? { training } : {}),
      });
      t.true(verification?.passed);
      t.is(plan.requested?.tpSequence, 'on');
      const norms = normFactors(plan);
      t.true(norms.length >= 3);
      t.true(norms.every((factors) => factors.length === 1));
      const kinds = new Set(communication.map(({ kind }) => kind));
      t.true(kinds.has('all-gather'), [...kinds].join());
    }
  },
);

test('off: no norm is sharded over tp', async (t) => {
  const { plan, communication } = await compiled({ tpSequence: 'off', training: TRAINING });
  t.is(plan.requested?.tpSequence, 'off');
  t.true(normFactors(plan).every((factors) => factors.length === 0));
  t.false(communication.some(({ kind }) => kind === 'reduce-scatter'));
});

slow('stored activations take less with norms along the sequence', async (t) => {
  const model = join(mkdtempSync(join(tmpdir(), 'autopar-test-')), 'llama.onnx');
  writeFileSync(
    model,
    writeOnnx(generatedModel('llama:layers=2,hidden=256,heads=8,ffn=512,vocab=512,seq=256').build(8)),
  );
  const peak = async (tpSequence: 'on' | 'off') => {
    const { plan } = await within((output) =>
      compile({
        ...{ model, output, cluster: '1x4:a100-sxm-80', planOnly: true, tpSequence },
        ...{ degrees: { pp: 1, dp: 1, tp: 4 }, training: { ...TRAINING, microBatches: 1 } },
      }),
    );
    return Math.max(...plan.predicted.peakBytes);
  };
  t.true((await peak('on')) < 0.9 * (await peak('off')));
});

test('a configuration asks for it by use_seq_parallel', async (t) => {
  for (const [said, tpSequence] of [
    ['True', 'on'],
    ['False', 'off'],
  ] as const) {
    await within(async (output) => {
      const file = `${output}.yaml`;
      writeFileSync(file, `parallel_config:\n  model_parallel: 2\n  use_seq_parallel: ${said}\n`);
      const { plan } = await compile({ model: MODEL, output, config: await readParallelConfig(file) });
      t.is(plan.requested?.tpSequence, tpSequence);
      t.is(
        normFactors(plan).every((factors) => factors.length === 1),
        said === 'True',
      );
    });
  }
});

test('where tp is 1 a note says that it changes nothing', async (t) => {
  const { notes } = await compiled({ tpSequence: 'on', degrees: { dp: 2 } });
  t.true(notes.includes('--tp-sequence on changes nothing: tp is 1'));
});

const REFUSED: readonly (readonly [name: string, options: Partial<CompileOptions>, says: RegExp])[] = [
  ['tp is 1', { degrees: { dp: 2, tp: 1 } }, /tpSequence: 'on' shards norms over tp, and tp is 1/],
  ['no sequence', { model: 'models/mlp.onnx' }, /shards norms along the sequence, and mlp has none/],
  ['a sequence that tp does not divide', { degrees: { tp: 3 }, devices: 3 }, /tp 3 does not divide the \d+ positions/],
  ['a sequence that what is left for tp does not divide', { degrees: { dp: 1 }, devices: 3 }, /tp 3 does not divide/],
  ['free axes', { axes: 'free' }, /axes: 'free' lifts the roles of axes/],
  ['propagation', { complete: 'propagate' }, /complete: 'propagate' does not search/],
];

for (const [name, options, says] of REFUSED) {
  test(`refused: ${name}`, async (t) => {
    const error = await t.throwsAsync(compiled({ tpSequence: 'on', ...options }), { instanceOf: AutoparError });
    t.is(error.exit, 'usage');
    t.regex(error.message, says);
    t.truthy(error.hint);
  });
}
