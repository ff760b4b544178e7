/**
 * @file Runs that are read from tables, and scores.
 */
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import test from 'ava';
import { readCsv } from '../../../bench/published/csv.js';
import { PublishedPredictor } from '../../../bench/published/predictor.js';
import { publishedRun } from '../../../bench/published/run.js';
import { languageModel } from '../../../models/language-model.js';
import { kendall, labelScore, scoreOf } from '../../../src/api/calibration/score.js';
import { STEP_CONSTANTS } from '../../../src/cost-model/step/constants.js';
import { elementCount } from '../../../src/ir/graph.js';
import { ROOT } from '../../cli/autopar.js';
import { slowTests } from '../../selection.js';
import { ROW, runOf } from './one-run.js';

const slow = slowTests(test);

test('quoted fields hold commas, line ends and quotes', (t) => {
  const rows = readCsv('a,b,c\r\n1,"x, ""y""\nz",\n2,,3\n');
  t.deepEqual(rows, [
    { a: '1', b: 'x, "y"\nz', c: '' },
    { a: '2', b: '', c: '3' },
  ]);
});

test("Kendall's tau is 1 for the same order, −1 for the reverse, and by hand with one swap", (t) => {
  const rows = (predicted: readonly number[]) =>
    predicted.map((value, index) => ({ measured: index + 1, predicted: value, group: '' }));
  t.is(kendall(rows([10, 20, 30, 40])), 1);
  t.is(kendall(rows([40, 30, 20, 10])), -1);
  t.true(Math.abs(kendall(rows([20, 10, 30, 40])) - 4 / 6) < 1e-12);
});

test('error, bias and regret of a sweep by hand', (t) => {
  const score = scoreOf([
    { measured: 10, predicted: 11, group: 'a' },
    { measured: 20, predicted: 10, group: 'a' },
    { measured: 40, predicted: 40, group: 'a' },
  ]);
  t.true(Math.abs(score.mape - 0.6 / 3) < 1e-12);
  t.true(Math.abs(score.bias - (0.1 - 0.5) / 3) < 1e-12);
  t.is(score.regret, 1);
  const better = [30, 20, 10].map((seconds) => ({ measured: seconds, predicted: seconds, group: 'b' }));
  const both = scoreOf([
    ...better,
    ...[10, 20, 40].map((measured, index) => ({ measured, predicted: 3 - index, group: 'a' })),
  ]);
  t.deepEqual([both.sweeps, both.regret, both.worst], [2, 1.5, { regret: 3, sweep: 'a' }]);
  t.deepEqual(
    labelScore([
      { fits: false, predicted: false },
      { fits: true, predicted: false },
    ]),
    { rows: 2, accuracy: 0.5, f1: 2 / 3 },
  );
});

test('a row becomes a run; what it lacks is said', (t) => {
  const run = publishedRun(ROW, 'x.csv');
  if (typeof run === 'string') return t.fail(run);
  t.deepEqual(run.configuration.degrees, { tp: 2, pp: 2, sp: 1, dp: 4, ep: 1 });
  t.is(run.sizes.feedForward, 2048);
  t.is(publishedRun({ ...ROW, dp: '3' }, ''), 'degrees do not multiply to the devices');
  t.is(publishedRun({ ...ROW, gpu_type: 'Abacus' }, ''), 'device Abacus is not in the catalogue');
  t.is(publishedRun({ ...ROW, iteration_time_s: '' }, ''), 'no time');
  t.is(publishedRun({ ...ROW, layers: '' }, ''), 'the model is not described');
});

test('devices, formats, sharding and numbers are read as tables spell them', (t) => {
  for (const [name, id] of [
    ['NVIDIA H100 80GB HBM3', 'h100-sxm-80'],
    ['H100-PCIe-80GB', 'h100-pcie-80'],
    ['A100-PCIE-40GB', 'a100-pcie-40'],
    ['AMD Instinct MI300X', 'mi300x-192'],
    ['TPU-v5p', 'tpu-v5p'],
    ['TPU-trillium', 'tpu-v6e'],
    ['B300', 'gb300-nvl72'],
    ['v100-sxm2-32', 'v100-sxm2-32'],
  ] as const)
    t.is(runOf({ gpu_type: name }).cluster.device.id, id, name);
  t.is(publishedRun({ ...ROW, gpu_type: 'GH200' }, ''), 'device GH200 is not in the catalogue');
  for (const [text, precision] of [
    ['BF16', 'bf16'],
    ['float16', 'fp16'],
    ['MXFP8', 'fp8'],
    ['fp8 (bf16 masters)', 'fp8'],
    ['NVFP4', 'fp4'],
    ['amp_bf16', 'bf16'],
    ['', 'bf16'],
  ] as const)
    t.is(runOf({ precision: text }).configuration.precision, precision, text);
  for (const [text, level] of [
    ['ZeRO-2', 2],
    ['stage 1', 1],
    ['FSDP2', 3],
    ['3(fsdp2)', 3],
    ['0?', 0],
    ['none', 0],
    ['full_shard', 3],
  ] as const)
    t.is(runOf({ zero: text }).configuration.zero, level, text);
  t.is(runOf({ zero: '3+CPU AdamW offload' }).configuration.offload, 'optimizer');
  t.is(runOf({ seq: '8k' }).sizes.sequence, 8192);
  t.is(runOf({ global_batch: '1,024' }).configuration.globalBatch, 1024);
  t.is(runOf({ sp: 'True' }).configuration.tpSequence, true);
  // With 16 devices, tp 2 and pp 2 leave 4: two for context, and two that share nothing else.
  t.deepEqual(runOf({ cp: '2' }).configuration.degrees, { tp: 2, pp: 2, sp: 2, dp: 2, ep: 1 });
  t.is(runOf({ status: 'OOM' }).fits, false);
  t.is(publishedRun({ ...ROW, status: 'cancelled' }, ''), 'status is cancelled');
});

test('steps of Megatron-Turing NLG, which no constant was fitted to, are met within a tenth', async (t) => {
  const predictor = new PublishedPredictor();
  for (const row of readCsv(readFileSync(join(ROOT, 'test/bench/papers.csv'), 'utf8'))) {
    const run = publishedRun(row, 'papers.csv');
    if (typeof run === 'string') return t.fail(run);
    const { stepSeconds } = await predictor.price(run, STEP_CONSTANTS);
    t.true(Math.abs(stepSeconds / (run.seconds ?? 0) - 1) < 0.1, `${stepSeconds} for ${run.seconds}`);
  }
});

test('empty lines, a byte-order mark and capital letters in names are no obstacle', (t) => {
  t.deepEqual(readCsv('\uFEFF\n A , b\n\n1,2\n , \n'), [{ a: '1', b: '2' }]);
});

test('semicolons, tabs, spaces and any line end part fields and rows as commas and new lines do', (t) => {
  const rows = [
    { a: '1', b: '2,5' },
    { a: '3', b: '' },
  ];
  for (const text of ['a,b\r1,"2,5"\r3,\r', 'a;b\n1;2,5\n3;\n', 'a\tb\r\n 1 \t 2,5\r\n3\t'])
    t.deepEqual(readCsv(text), rows, text);
});

test('what a row leaves open in other words, or in units, keeps it from nothing', (t) => {
  for (const [text, seconds] of [
    ['0.5 s', 0.5],
    ['500 ms', 0.5],
    ['5e-1', 0.5],
  ] as const)
    t.is(runOf({ iteration_time_s: text }).seconds, seconds, text);
  t.is(runOf({ mem_gb: '10 GiB' }).memoryBytes, 10 * 2 ** 30);
  for (const status of ['n/a', '-', 'PASS', '1', 'unknown']) t.is(runOf({ status }).seconds, 0.5, status);
  t.is(publishedRun({ ...ROW, status: 'timeout' }, ''), 'status is timeout');
  t.is(runOf({ vpp: '0', ep: '0', cp: '0' }).configuration.virtualStages, 1);
  t.is(runOf({ ep: '0' }).configuration.degrees.ep, 1);
  // If context parallelism is not given, its degree is what the other degrees leave of the devices.
  t.is(runOf({ dp: '2' }).configuration.degrees.sp, 2);
  t.is(publishedRun({ ...ROW, dp: '2', cp: '1' }, ''), 'degrees do not multiply to the devices');
  // If tp has more ranks than key heads, ranks have copies of them; a number that does not divide the heads is ignored.
  t.is(runOf({ kv_heads: '1' }).sizes.keyHeads, 2);
  t.is(runOf({ kv_heads: '3' }).sizes.keyHeads, 8);
  t.is(runOf({ gpu_type: 'V100', precision: 'fp8' }).cluster.device.id, 'v100-sxm2-32');
  for (const recompute of ['uniform', 'block', 'checkpointing', 'True'])
    t.is(runOf({ recompute }).configuration.recompute, 'full', recompute);
});

test('software and attention are those that a source had', (t) => {
  const configuration = (also: Readonly<Record<string, string>>) => runOf(also).configuration;
  const engine = configuration({ source: 'Megatron-DeepSpeed', zero: '1' });
  t.is(engine.software, 'eager');
  t.is(engine.loss, 'parallel');
  t.is(engine.gradientBytes, 4);
  t.false(engine.overlap.data || engine.scatteredSends);
  t.is(configuration({ source: 'Korthikanti2022' }).software, 'megatron');
  for (const [also, attention] of [
    [{ source: 'Hagemann', attn: 'flash_attentionv1.0.8' }, 'early'],
    [{ source: 'Hagemann', attn: 'flash_attention2' }, 'portable'],
    [{ source: 'MosaicML llm-foundry', attn: 'flash' }, 'early'],
    [{ source: 'JAX-Toolbox', attn: '' }, 'parts'],
    [{ source: 'JAX-Toolbox', attn: '', precision: 'te-bf16' }, 'fused'],
    [{ source: 'functional test', model: 'gpt3_mcore_tp4', attn: 'auto' }, 'parts'],
    [{ source: 'functional test', model: 'gpt3_mcore_te_tp4', attn: 'auto' }, 'fused'],
    [{ source: 'functional test', attn: 'fused', notes: 'flags {"attention-backend": "fused"}' }, 'fused'],
    [{ source: 'Hagemann', attn: 'fused' }, 'parts'],
  ] as const)
    t.is(configuration(also).attention, attention, JSON.stringify(also));
});

test("what experts' dispatch is hidden under, releases and layers decide", (t) => {
  const overlaps = (model: string, release: string) =>
    runOf({
      model,
      source: `Megatron-Bridge ${release} NeMo`,
      layers: '',
      hidden: '',
      heads: '',
      tp: '1',
      pp: '1',
      dp: '16',
    }).configuration.overlap.experts;
  t.true(overlaps('Qwen3 30B', '26.06'));
  t.false(overlaps('Qwen3 30B', '26.04'));
  t.false(overlaps('Nemotron_3_Nano', '26.06'));
});

test('experts lie on as many ranks as are stated, and on several where tokens are sent between them', (t) => {
  const ranks = (ep: string, attn: string) => runOf({ ep, attn, tp: '1', pp: '1', dp: '16' }).configuration.degrees.ep;
  t.is(ranks('4', 'TE + DeepEP'), 4);
  t.is(ranks('64', ''), 16);
  t.is(ranks('1', 'TE + DeepEP + FlexAttn'), 16);
  t.is(ranks('1', 'TE'), 1);
});

test("settings of Megatron in a row's notes give experts, gates and tables", (t) => {
  const sizes = (notes: string) => runOf({ ffn: '1024', notes }).sizes;
  const flags = '{"num-experts": 8, "moe-router-topk": 1, "swiglu": true, "untie-embeddings-and-output-weights": true}';
  const { experts, gated, tied } = sizes(`(rank logged); flags ${flags}`);
  t.deepEqual(experts, { count: 8, chosen: 1, feedForward: 1024, shared: 0, dense: 0 });
  t.deepEqual([gated, tied], [true, false]);
  for (const other of ['', 'flags {', 'flags {"num-experts": "many"}', 'flags {}']) {
    t.is(sizes(other).experts, undefined, other);
    t.true(sizes(other).tied, other);
  }
});

slow('layers of several kinds are those of the published models, and what is not public is said', async (t) => {
  const run = runOf({ model: 'Nemotron_3_Nano', layers: '', hidden: '', heads: '', tp: '1', pp: '1', dp: '16' });
  t.is(run.sizes.layers, 52);
  t.is(run.predictions, 0);
  const billions = (model: string) => {
    const { sizes } = runOf({ model, layers: '', hidden: '', heads: '', vocab: '', tp: '1', pp: '1', dp: '16' });
    const weights = languageModel('published', sizes, 0, 'absent').weights.values();
    return (
      [...weights].reduce((sum, { role, shape }) => sum + (role === 'parameter' ? elementCount(shape) : 0), 0) / 1e9
    );
  };
  for (const [model, published] of [
    ['Nemotron_3_Nano', 31.6],
    ['Nemotron V3 Super 120B (26.02)', 120.6],
    ['Nemotron_3_Ultra', 550],
  ] as const)
    t.true(Math.abs(billions(model) / published - 1) < 0.01, `${model}: ${billions(model)}`);
  // Two predictions more: two layers each of attention and experts, and the head thrice.
  const predictor = new PublishedPredictor();
  const whole = { ...run, predictions: 2 };
  const [plain, more] = [await predictor.work(run), await predictor.work(whole)];
  t.deepEqual(
    more.layers.map(({ count }, index) => count - (plain.layers[index]?.count ?? 0)),
    [0, 2, 2],
  );
  t.is(more.last.forward.length, 3 * plain.last.forward.length + 2);
  t.is(publishedRun({ ...ROW, model: 'moe/deepseek_proxy' }, ''), 'a reduced model whose layers are not public');
  t.regex(publishedRun({ ...ROW, model: 'DeepSeekV4 Flash' }, '') as string, /compressed sparse attention/);
});

test('a row whose numbers no run can have is skipped, and spoils no total', (t) => {
  for (const [column, value, says] of [
    ['iteration_time_s', '-3', 'iteration_time_s is -3'],
    ['iteration_time_s', '0', 'iteration_time_s is 0'],
    ['layers', '-5', 'layers is -5'],
    ['layers', '4.5', 'layers is 4.5'],
    ['layers', '1e12', 'layers is 1000000000000'],
    ['hidden', '1e300', 'hidden is 1e+300'],
    ['heads', '7', 'heads do not divide the hidden size'],
    ['layers', '1', 'more stages than layers'],
  ] as const)
    t.is(publishedRun({ ...ROW, [column]: value }, ''), says);
});
