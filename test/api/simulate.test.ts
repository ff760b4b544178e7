/**
 * @file simulate: identities of what it reports, and what it refuses.
 */
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import test from 'ava';
import { searchStep } from '../../src/api/planning/search-step.js';
import { type SimulateOptions, simulate } from '../../src/api/simulate.js';
import { parseCluster } from '../../src/cost-model/cluster.js';
import { CPU_RANK } from '../../src/cost-model/device.js';
import type { AutoparError } from '../../src/ir/error.js';
import { node, model as onnxModel, ramp, saved, small, value } from '../ir/model-maker.js';
import { slowTests } from '../selection.js';

const slow = slowTests(test);

/** GPT-3's family (Brown et al. 2020, table 2.1). */
const PRESETS = [
  'gpt:layers=24,hidden=2048,heads=16,seq=2048',
  'gpt:layers=32,hidden=4096,heads=32,seq=2048',
  'gpt:layers=40,hidden=5120,heads=40,seq=2048',
  'gpt:layers=96,hidden=12288,heads=96,seq=2048',
];

test(
  'from 1.3B to 175B parameters tensor parallelism moves more bytes than data parallelism, and that more ' +
    'than pipelines',
  async (t) => {
    for (const generate of PRESETS) {
      const { bytes } = await simulate({
        generate,
        cluster: '8x8:a100-sxm-80',
        tp: 8,
        pp: 4,
        globalBatch: 32,
        loss: { kind: 'cross_entropy' },
      });
      t.true(bytes.tp > bytes.dp && bytes.dp > bytes.pp && bytes.pp > 0, `${generate} ${JSON.stringify(bytes)}`);
    }
  },
);

test('tokens, FLOPs and utilisation go together', async (t) => {
  const result = await simulate({
    generate: 'gpt:layers=4,hidden=1024,heads=16,seq=512,vocab=51200',
    cluster: '1x8:a100-sxm-80',
    globalBatch: 64,
    microBatch: 8,
    loss: { kind: 'cross_entropy' },
  });
  t.is(result.tokensPerSecond, (64 * 512) / result.stepSeconds);
  // 72 b s l h² (1 + s / 12 h + V / 12 l h) with the causal half of attention: Narayanan et al. 2021, without recomputation.
  const [b, s, l, h, v] = [64, 512, 4, 1024, 51200];
  t.is(result.modelFlops, 72 * b * s * l * h * h * (1 + s / (12 * h) + v / (12 * l * h)));
  t.true(Math.abs(result.utilisation - result.modelFlops / (result.stepSeconds * 8 * 3.12e14)) < 1e-12);
});

test('FLOPs of the model are the same however it is cut: what ranks pad or compute alike does not count', async (t) => {
  const flops = async (tp: number) => {
    const { modelFlops, parts } = await simulate({
      generate: 'gpt:layers=2,hidden=960,heads=16,seq=512',
      cluster: `1x${tp}:h100-sxm-80`,
      tp,
      globalBatch: 2,
      loss: { kind: 'cross_entropy' },
    });
    t.true(parts.matmul > 0);
    return modelFlops;
  };
  const whole = await flops(1);
  // 16 heads over 3, 5 and 6 ranks.
  for (const tp of [2, 3, 5, 6]) t.is(await flops(tp), whole);
});

test('utilisation is of the peak of all devices, where nodes differ too', async (t) => {
  const folder = mkdtempSync(join(tmpdir(), 'autopar-peak-'));
  t.teardown(() => rmSync(folder, { recursive: true }));
  const cluster = join(folder, 'cluster.yaml');
  const levels = 'levels: [{name: node, size: 8}, {name: cluster, size: 4}]';
  writeFileSync(
    cluster,
    `version: 1\ndevice: a100-sxm-80\n${levels}\nnodes: [{count: 3}, {count: 1, device: h100-sxm-80}]\n`,
  );
  const result = await simulate({ generate: 'gpt:layers=4,hidden=256,heads=4,seq=128', cluster, tp: 8 });
  const peak = 24 * 312e12 + 8 * 989e12;
  t.true(Math.abs(result.utilisation / (result.modelFlops / (result.stepSeconds * peak)) - 1) < 1e-9);
});

test('a pipeline sends each activation, and each gradient where there are any, from stage to stage once', async (t) => {
  const [seq, hidden, microBatches] = [128, 256, 8];
  const generate = `gpt:layers=8,hidden=${hidden},heads=4,seq=${seq}`;
  const sent = async (pp: number, training: boolean, virtualStages = 1) => {
    const { bytes } = await simulate({
      generate,
      cluster: `1x${pp}:a100-sxm-80`,
      ...{ pp, virtualStages, microBatches },
      ...(training ? { loss: { kind: 'cross_entropy' as const } } : {}),
    });
    return bytes.pp / (2 * seq * hidden * microBatches);
  };
  t.is(await sent(1, true), 0);
  t.is(await sent(4, true), 2);
  t.is(await sent(4, false), 1);
  // The first of two stages sends no gradients, and the last one no activations.
  t.is(await sent(2, true), 1);
  t.is(await sent(2, true, 2), 3);
  t.is(await sent(2, false, 2), 2);
});

test('gradients of experts go over the ranks that hold the same experts alone', async (t) => {
  const generate = 'moe:layers=2,hidden=256,heads=4,kv_heads=4,ffn=512,experts=8,seq=128,vocab=1000';
  const of = async (ep: number) =>
    simulate({ generate, cluster: '1x8:a100-sxm-80', ep, loss: { kind: 'cross_entropy' } });
  const [whole, spread] = [await of(1), await of(8)];
  const expertElements = 2 * 8 * 3 * 256 * 512;
  // An all-reduce of fp32 sends each element twice, less an eighth.
  t.is(Math.round(whole.bytes.dp - spread.bytes.dp), (2 * 4 * 7 * expertElements) / 8);
});

test('recurrent layers are priced by the products of their cells', async (t) => {
  const [steps, features, hidden] = [7, 3, 4];
  const file = await saved(
    onnxModel({
      node: [
        node('Transpose', ['x'], ['turned'], { perm: [1, 0, 2] }),
        node('LSTM', ['turned', 'w', 'r'], ['y'], { hidden_size: hidden }),
      ],
      initializer: [ramp('w', [1, 4 * hidden, features]), ramp('r', [1, 4 * hidden, hidden])],
      input: [value('x', [2, steps, features])],
      output: [value('y', [steps, 1, 2, hidden])],
    }),
  );
  const { modelFlops, configuration, parts } = await simulate({ model: file, cluster: '1x1:a100-sxm-80' });
  t.is(modelFlops / configuration.globalBatch, 2 * steps * 4 * hidden * (features + hidden));
  t.true(parts.matmul > 0);
});

test('what does not fit says by how much, and which change makes it fit', async (t) => {
  const choice = {
    generate: 'gpt:layers=40,hidden=5120,heads=40,seq=2048',
    cluster: '1x8:a100-sxm-80',
    tp: 2,
    loss: { kind: 'cross_entropy' as const },
  };
  const result = await simulate(choice);
  t.false(result.fits);
  const need = Math.max(...result.stages.map(({ total }) => total));
  t.is(result.missingBytes, need - 8e10);
  t.truthy(result.remedy);
  t.true((await simulate({ ...choice, memory: need })).fits);
});

slow('the change that makes it fit is one: run as it says, it fits and takes as long', async (t) => {
  const generate = 'moe:layers=4,hidden=1024,heads=16,kv_heads=16,ffn=2048,experts=8,seq=256,vocab=8000';
  const asked = { generate, cluster: '2x8:a100-sxm-80', loss: { kind: 'cross_entropy' as const } };
  const names: Readonly<Record<string, keyof SimulateOptions>> = {
    '--dp': 'dp',
    '--tp': 'tp',
    '--pp': 'pp',
    '--sp': 'sp',
    '--ep': 'ep',
    '--zero': 'zero',
    '--recompute': 'recompute',
    '--global-batch': 'globalBatch',
    '--micro-batch': 'microBatch',
    '--micro-batches': 'microBatches',
  };
  const changes = new Set<string>();
  const choices: readonly (readonly [SimulateOptions, share: number])[] = [
    [asked, 0.6],
    [{ ...asked, ep: 8, zero: 3, recompute: 'full', microBatch: 4, microBatches: 2 }, 0.9],
    [{ generate: `${generate},batch=64`, cluster: asked.cluster }, 0.9],
    [
      { ...asked, generate: 'llama:layers=4,hidden=2048,heads=16,seq=32768,vocab=8000', zero: 3, recompute: 'full' },
      0.7,
    ],
  ];
  for (const [choice, share] of choices) {
    const { stages } = await simulate(choice);
    const all = { ...choice, memory: share * Math.max(...stages.map(({ total }) => total)) };
    const { fits, remedy } = await simulate(all);
    t.false(fits);
    if (!remedy) continue;
    const words = remedy.change.split(' ');
    changes.add(words[0] ?? '');
    const more = Object.fromEntries(
      words.flatMap((word, at) => {
        const name = names[word];
        const value = words[at + 1] ?? '';
        return name ? [[name, name === 'recompute' ? value : Number(value)]] : [];
      }),
    );
    const again = await simulate({ ...all, ...more });
    t.true(again.fits, remedy.change);
    t.is(again.stepSeconds, remedy.stepSeconds, remedy.change);
  }
  t.true(changes.size >= 2, [...changes].join());
});

slow('more sp in place of dp, and more ep, are changes that are looked at, wherever simulate takes them', async (t) => {
  const loss = { kind: 'cross_entropy' as const };
  const cluster = '1x8:h100-sxm-80';
  const long = 'llama:layers=8,hidden=2048,heads=16,kv_heads=4,seq=32768,vocab=8000';
  const experts = 'moe:layers=8,hidden=1024,heads=16,ffn=1024,experts=24,topk=2,seq=512,vocab=8000';
  const offered = new Set<string>();
  const choices: readonly SimulateOptions[] = [
    { generate: long, cluster, loss, globalBatch: 8, recompute: 'full', zero: 3 },
    { generate: long, cluster, loss, dp: 4, sp: 2, globalBatch: 8, recompute: 'full', zero: 3 },
    { generate: long, cluster, globalBatch: 8 },
    { generate: experts, cluster, loss, globalBatch: 32 },
    { generate: experts, cluster, loss, globalBatch: 32, dp: 4, sp: 2, ep: 2 },
    { generate: experts, cluster, globalBatch: 32 },
  ];
  for (const choice of choices) {
    const { stages } = await simulate(choice);
    const limited = { ...choice, memory: 0.75 * Math.max(...stages.map(({ total }) => total)) };
    const { fits, remedy } = await simulate(limited);
    t.false(fits);
    const { dp = 8, sp = 1, ep = 1 } = choice;
    const changes: readonly Partial<SimulateOptions>[] = [
      ...[2, 4, 8].filter((factor) => dp % factor === 0).map((factor) => ({ dp: dp / factor, sp: sp * factor })),
      ...[2, 4, 8].filter((more) => more > ep).map((more) => ({ ep: more })),
    ];
    let fitting = 0;
    for (const change of changes) {
      // A change that simulate refuses does not count: ep of a model without experts.
      const other = await simulate({ ...limited, ...change }).catch(() => null);
      if (!other?.fits) continue;
      fitting++;
      t.true(other.stepSeconds >= (remedy?.stepSeconds ?? Infinity), JSON.stringify(change));
    }
    t.true(fitting > 0, JSON.stringify(choice));
    for (const word of remedy?.change.split(' ') ?? []) offered.add(word);
  }
  t.true(offered.has('--sp') && offered.has('--ep'), [...offered].join());
});

slow('the change is the cheapest: of recomputations, ZeRO over sp too, and every micro-batch', async (t) => {
  const generate = 'llama:layers=4,hidden=1024,heads=16,kv_heads=4,seq=1024,vocab=8000';
  const asked = { generate, cluster: '1x8:a100-sxm-80', loss: { kind: 'cross_entropy' as const }, globalBatch: 36 };
  const offered = new Set<string>();
  const choices: readonly SimulateOptions[] = [
    { ...asked, dp: 1, sp: 8, microBatch: 1, recompute: 'full' },
    { ...asked, dp: 4, tp: 2, microBatch: 9, zero: 3 },
    { ...asked, dp: 4, tp: 2, microBatch: 1, zero: 3 },
  ];
  for (const choice of choices) {
    const { stages } = await simulate(choice);
    const limited = { ...choice, memory: 0.9 * Math.max(...stages.map(({ total }) => total)) };
    const { remedy } = await simulate(limited);
    offered.add(remedy?.change.split(' ')[0] ?? '');
    const changes: readonly Partial<SimulateOptions>[] = [
      ...([1, 2, 3] as const).filter((zero) => zero > (choice.zero ?? 0)).map((zero) => ({ zero })),
      ...(choice.recompute === 'full' ? [] : (['selective', 'operators', 'full'] as const)).map((recompute) => ({
        recompute,
      })),
      ...[1, 3].filter((size) => size < (choice.microBatch ?? 1)).map((microBatch) => ({ microBatch })),
    ];
    for (const change of changes) {
      const other = await simulate({ ...limited, ...change });
      if (other.fits) t.true(other.stepSeconds >= (remedy?.stepSeconds ?? Infinity), JSON.stringify(change));
    }
  }
  t.true(offered.has('--zero'), [...offered].join());
});

test('a model that states a batch of several samples is taken at its word', async (t) => {
  const generate = 'gpt:layers=4,hidden=256,heads=4,seq=128,batch=16';
  const cluster = '1x4:a100-sxm-80';
  const flat = await simulate({ generate, cluster });
  t.like(flat.configuration, { globalBatch: 16, microBatch: 4 });
  t.is(flat.microBatches, 1);
  const piped = await simulate({ generate, cluster, pp: 2 });
  t.like(piped.configuration, { globalBatch: 16, microBatch: 4 });
  t.is(piped.microBatches, 2);
  const said = await simulate({ generate, cluster, microBatch: 1 });
  t.like(said.configuration, { globalBatch: 16, microBatch: 1 });
  const counted = await simulate({ generate, cluster, pp: 2, microBatches: 4 });
  t.like(counted.configuration, { globalBatch: 16, microBatch: 2 });
  await t.throwsAsync(simulate({ generate, cluster, microBatch: 3 }), { code: 'batch-does-not-divide' });
});

test('tokens of a file are its integers along the sequence', async (t) => {
  const { tokensPerSecond, stepSeconds } = await simulate({
    model: 'models/gpt-tiny.onnx',
    cluster: '1x1:a100-sxm-80',
  });
  t.is(tokensPerSecond, (4 * 16) / stepSeconds);
  const image = await simulate({ model: 'models/cnn-tiny.onnx', cluster: '1x1:a100-sxm-80' });
  t.is(image.tokensPerSecond, null);
});

test('inference is the forward alone, of files as of families', async (t) => {
  const generate = 'gpt:layers=4,hidden=1024,heads=16';
  const train = await simulate({ generate, cluster: '1x1:a100-sxm-80', loss: { kind: 'cross_entropy' } });
  const infer = await simulate({ generate, cluster: '1x1:a100-sxm-80' });
  t.is(train.modelFlops / infer.modelFlops, 3);
  t.is(infer.parts.optimizer, 0);
  const image = await simulate({ generate: 'resnet:layers=50', cluster: '1x8:a100-sxm-80' });
  // 4.1 billion multiply-adds an image (He et al. 2016), and a little for shortcuts that stride.
  t.true(Math.abs(image.modelFlops / image.configuration.globalBatch / 8.2e9 - 1) < 0.1);
});

test('a step has the loss that is asked for', async (t) => {
  const generate = 'gpt:layers=2,hidden=256,heads=4,seq=256,vocab=51200';
  const memoryOf = async (kind: 'cross_entropy' | 'mse') =>
    (await simulate({ generate, cluster: '1x1:a100-sxm-80', loss: { kind } })).parts.memory;
  // Squares read logits, targets and differences, which are as large as logits; entropy reads logits and one label a token.
  t.true((await memoryOf('mse')) > 1.2 * (await memoryOf('cross_entropy')));
  const error = await t.throwsAsync(simulate({ generate, cluster: '1x1:a100-sxm-80', loss: { kind: 'model-output' } }));
  t.is((error as AutoparError).code, 'loss-not-scalar');
});

test('choices that cannot be are refused', async (t) => {
  const generate = 'gpt:layers=4,hidden=256,heads=4,seq=128';
  const cluster = '1x8:a100-sxm-80';
  const code = async (options: Parameters<typeof simulate>[0]) =>
    ((await t.throwsAsync(simulate(options))) as AutoparError).code;
  t.is(await code({ generate, cluster, tp: 3 }), 'degrees-do-not-match-devices');
  t.is(await code({ generate, cluster, dp: 3, tp: 2 }), 'degrees-do-not-match-devices');
  t.is(await code({ generate, cluster, ep: 3 }), 'degrees-do-not-match-devices');
  t.is(await code({ generate, cluster, globalBatch: 12 }), 'batch-does-not-divide');
  t.is(await code({ generate, cluster, pp: 8 }), 'too-many-stages');
  t.is(await code({ generate, cluster, zero: 1 }), 'bad-option');
  t.is(await code({ generate, cluster, recompute: 'full' }), 'bad-option');
  const loss = { kind: 'cross_entropy' as const };
  t.is(await code({ generate, cluster, loss, pp: 2, virtualStages: 2, microBatches: 3 }), 'bad-schedule');
  t.is(await code({ generate, cluster, loss, pp: 2, virtualStages: 2, schedule: 'zero-bubble' }), 'bad-schedule');
  t.is(await code({ generate, cluster, loss, virtualStages: 2 }), 'bad-schedule');
});

test('stages have the layers that are given, else even ones', async (t) => {
  const step = { generate: 'gpt:layers=8,hidden=256,heads=4', cluster: '1x4:a100-sxm-80', pp: 4, microBatches: 8 };
  const even = await simulate(step);
  t.is(even.stageLayout, 'E t*2 | t*2 | t*2 | t*2 H');
  t.is((await simulate({ ...step, stages: 'E t*2|t*2|t*2|t*2 H' })).stepSeconds, even.stepSeconds);
  const uneven = await simulate({ ...step, stages: 't*5 | t | t | t' });
  t.is(uneven.stageLayout, 'E t*5 | t | t | t H');
  t.true(uneven.stepSeconds > even.stepSeconds);
  const refused = async (stages: string, pp = 4) =>
    ((await t.throwsAsync(simulate({ ...step, pp, stages }))) as AutoparError).code;
  t.deepEqual(await Promise.all(['t*8', 't*4 | t*4 | t | t', 't*2 | E t*2 | t*2 | t*2'].map((text) => refused(text))), [
    'bad-stages',
    'bad-stages',
    'bad-stages',
  ]);
  t.is(await refused('t*8', 1), 'bad-stages');
});

test('a batch of 0 is refused for what it is: no multiple of it would help', async (t) => {
  const model = await saved(
    small([node('MatMul', ['x', 'w'], ['y'])], {
      initializer: [ramp('w', [8, 8])],
      input: [value('x', [0, 8])],
      output: [value('y', [0, 8])],
    }),
  );
  const { message, hint } = (await t.throwsAsync(simulate({ model, devices: 2 }))) as AutoparError;
  t.is(message, 'the global batch is 0, and a step needs samples');
  t.notRegex(hint ?? '', /--global-batch 0/);
});

test('attention outside repeated layers is not called absent where sp is refused', async (t) => {
  const names = ['q', 'k', 'v'];
  const model = await saved(
    onnxModel(
      {
        node: [
          ...names.map((name) => node('MatMul', ['x', `w${name}`], [name])),
          node('Attention', names, ['y'], { q_num_heads: 2, kv_num_heads: 2 }),
        ],
        initializer: names.map((name) => ramp(`w${name}`, [16, 16])),
        input: [value('x', [4, 6, 16])],
        output: [value('y', [4, 6, 16])],
      },
      23,
    ),
  );
  const refused = simulate({ model, cluster: '1x4:a100-sxm-80', sp: 2, dp: 2 });
  const attention = 'sp 2 shards the sequence of attention, and the estimate of the layers has no attention';
  const { message, hint } = (await t.throwsAsync(refused)) as AutoparError;
  t.is(message, attention);
  t.regex(hint ?? '', /or compile with it/);
  const generate = 'gpt:layers=2,hidden=64,heads=4,seq=32,vocab=64,dropout=0.1';
  const dropped = { generate, cluster: '1x4:a100-sxm-80', loss: { kind: 'cross_entropy' }, sp: 2, dp: 2 } as const;
  t.is(((await t.throwsAsync(simulate(dropped))) as AutoparError).message, attention);
  await t.throwsAsync(searchStep({ ...dropped, globalBatch: 8 }), { message: new RegExp(attention) });
});

test('degrees that cut what the model does not have are refused: its figures would be those of another model', async (t) => {
  const cluster = '1x8:a100-sxm-80';
  const refused = async (generate: string, degrees: Parameters<typeof simulate>[0]) => {
    const { code, message } = (await t.throwsAsync(simulate({ generate, cluster, ...degrees }))) as AutoparError;
    return `${code}: ${message}`;
  };
  const language = 'layers=2,hidden=256,heads=4,seq=100';
  t.is(
    await refused('mlp:layers=2,hidden=64', { sp: 8 }),
    'degree-does-not-fit: sp 8 shards the sequence of attention, and the estimate of the layers has no attention',
  );
  t.is(await refused(`gpt:${language}`, { sp: 8 }), 'degree-does-not-fit: sp 8 does not divide the sequence of 100');
  t.is(await refused(`gpt:${language}`, { ep: 2 }), 'degree-does-not-fit: ep 2 shards experts, and the model has none');
  t.is(
    await refused(`moe:${language},kv_heads=4,experts=4`, { ep: 8 }),
    'degree-does-not-fit: ep 8 does not divide the 4 experts of the model',
  );
  const fits = await simulate({ generate: `moe:${language},kv_heads=4,experts=4`, cluster, sp: 4, ep: 4 });
  t.is(fits.configuration.degrees.dp, 2);
  const both = await simulate({ generate: `moe:${language},kv_heads=4,experts=4`, cluster, tp: 4, ep: 2 });
  t.is(both.configuration.degrees.ep, 2);
});

test(
  'ranks of this machine are what compile plans for: as many, in float32, with nothing of an accelerator ' +
    'around them',
  async (t) => {
    const generate = 'gpt:layers=2,hidden=64,heads=4,seq=32,vocab=64';
    const loss = { kind: 'cross_entropy' as const };
    const usual = await simulate({ generate, loss });
    t.deepEqual(usual.cluster.perNode, parseCluster(undefined, undefined).perNode);
    t.is((await simulate({ generate, tp: 2, pp: 2 })).cluster.perNode % 4, 0);
    t.is((await simulate({ generate, dp: 3, tp: 2 })).cluster.perNode, 6);
    t.is(usual.configuration.precision, 'fp32');
    t.is(usual.parts.other, 0);
    const parameters = usual.stages[0]?.parameters ?? 0;
    t.is(usual.stages[0]?.overhead, 0);
    const half = await simulate({ generate, loss, precision: 'bf16' });
    t.is(half.stages[0]?.parameters, parameters / 2, 'what is asked for is priced');
    const named = await simulate({ generate, loss, cluster: '1x2:a100-sxm-80' });
    t.is(named.configuration.precision, 'bf16');
    t.true(named.parts.other > 0 && (named.stages[0]?.overhead ?? 0) > 1e9);
    t.is(
      usual.utilisation,
      usual.modelFlops / (usual.stepSeconds * usual.cluster.perNode * (CPU_RANK.peakFlops.fp32 ?? 0)),
    );
  },
);

test('what is said of inputs and losses of a generated model is heard', async (t) => {
  const generate = 'gpt:layers=2,hidden=64,heads=4,seq=32,vocab=64';
  const code = async (options: Parameters<typeof simulate>[0]) =>
    ((await t.throwsAsync(simulate({ generate, ...options }))) as AutoparError).code;
  t.is(await code({ dims: { batch: 2 } }), 'bad-option');
  t.is(await code({ weights: ['embed*'] }), 'bad-option');
  t.is(await code({ loss: { kind: 'cross_entropy', output: 'nothing' } }), 'no-loss-output');
  t.is(await code({ loss: { kind: 'model-output' } }), 'loss-not-scalar');
  const of = async (kind: 'cross_entropy' | 'mse') => (await simulate({ generate, loss: { kind } })).parts;
  t.not((await of('mse')).memory, (await of('cross_entropy')).memory);
});

test('a timeline has every micro-batch on every stage, and ends near the predicted step', async (t) => {
  const folder = mkdtempSync(join(tmpdir(), 'autopar-trace-'));
  t.teardown(() => rmSync(folder, { recursive: true }));
  const trace = join(folder, 'trace.json');
  const result = await simulate({
    generate: 'gpt:layers=8,hidden=1024,heads=16,seq=512',
    cluster: '1x8:a100-sxm-80',
    ...{ dp: 2, pp: 4 },
    microBatches: 8,
    loss: { kind: 'cross_entropy' },
    trace,
  });
  const { traceEvents } = JSON.parse(readFileSync(trace, 'utf8')) as {
    readonly traceEvents: readonly {
      readonly ph: string;
      readonly cat: string;
      readonly ts: number;
      readonly dur: number;
      readonly tid: number;
    }[];
  };
  const actions = traceEvents.filter(({ cat }) => ['forward', 'backward'].includes(cat));
  t.is(actions.length, 4 * 8 * 2);
  // Activations and gradients cross each boundary.
  t.is(traceEvents.filter(({ ph, cat }) => ph === 'X' && cat.startsWith('send')).length, 3 * 8 * 2);
  const end = Math.max(...actions.map(({ ts, dur }) => ts + dur)) / 1e6;
  const { optimizer, other, dp } = result.parts;
  const pipeline = result.stepSeconds - optimizer - other - dp;
  t.true(Math.abs(end / pipeline - 1) < 0.1, `${end} ${pipeline}`);
  for (const [kind, seconds] of [
    ['all-reduce(dp)', dp],
    ['update', optimizer],
  ] as const) {
    const spans = traceEvents.filter(({ cat }) => cat === kind);
    t.is(spans.length, seconds > 0 ? 4 : 0);
    for (const { ts, dur } of spans) t.true(ts / 1e6 >= end * (1 - 1e-9) && Math.abs(dur / 1e6 / seconds - 1) < 1e-6);
  }
});

test('a stage on nodes with less memory fits by what its own devices have', async (t) => {
  const folder = mkdtempSync(join(tmpdir(), 'autopar-'));
  const file = join(folder, 'cluster.yaml');
  writeFileSync(
    file,
    [
      'version: 1',
      'device: a100-sxm-80',
      'levels: [{ name: node, size: 4 }, { name: network, size: 2, bandwidth: 25GB/s }]',
      'nodes:',
      '  - { count: 1 }',
      '  - { count: 1, device: { like: a100-sxm-80, memory: 8GB } }',
      '',
    ].join('\n'),
  );
  const choice = { cluster: file, pp: 2, dp: 4, microBatches: 4, loss: { kind: 'cross_entropy' as const } };
  const wide = await simulate({ ...choice, generate: 'gpt:layers=4,hidden=4096,heads=32,seq=1024' });
  const [first, second] = wide.stages.map(({ total }) => total);
  t.true((first ?? 0) > 8e9 && (first ?? 0) < 8e10 && (second ?? 0) > 8e9);
  t.false(wide.fits);
  t.is(wide.tightestStage, 1);
  t.is(wide.missingBytes, (second ?? 0) - 8e9);
  rmSync(folder, { recursive: true });
});

test('the format and the attention kernel are those that the device has, unless something else is asked for', async (t) => {
  const of = async (cluster: string, more: Partial<SimulateOptions> = {}) => {
    const options = { generate: 'gpt:layers=2,hidden=256,heads=4,seq=128,vocab=512', cluster, dp: 1, ...more };
    const { precision, attention } = (await simulate({ ...options, devices: 1 })).configuration;
    return [precision, attention];
  };
  t.deepEqual(await of('1x1:v100-sxm2-32'), ['fp16', 'early']);
  t.deepEqual(await of('1x1:a100-sxm-80'), ['bf16', 'fused']);
  t.deepEqual(await of('local'), ['fp32', 'fused']);
  t.deepEqual(await of('1x1:v100-sxm2-32', { precision: 'fp32', attention: 'parts' }), ['fp32', 'parts']);
});
