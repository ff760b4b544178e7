/**
 * @file How tables of runs are read: values are read as they are meant, and unreadable ones are reported.
 */
import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import test from 'ava';
import { readCsv } from '../../../bench/published/csv.js';
import { publishedRun } from '../../../bench/published/run.js';
import { statesRecompute } from '../../../bench/published/wording.js';
import { ROOT } from '../../cli/autopar.js';
import { ROW, runOf } from './one-run.js';

test('a quote that is never closed, a name that two columns have, and fields that no column is for are said', (t) => {
  t.throws(() => readCsv('a,b\n1,"2\n3,4\n'), { message: 'the quote that line 2 opens is never closed' });
  t.throws(() => readCsv('gpus,Num GPUs\n8,8\n'), { message: 'two columns are gpus: leave one of them' });
  // A quote opens at the beginning of a field alone.
  t.deepEqual(readCsv('a,b\n5",6\n'), [{ a: '5"', b: '6' }]);
  // Columns without a name are none, however many there are.
  t.deepEqual(readCsv('a,b,,\n1,2,,\n'), [{ a: '1', b: '2', '': '' }]);
  const [row] = readCsv(`${Object.keys(ROW).join(',')}\n${Object.values(ROW).join(',').replace(',32,', ',1,024,')}\n`);
  t.is(publishedRun(row ?? {}, ''), 'fields that no column is for: 0.5');
});

test('columns are known by the other names that tables have for them', (t) => {
  const header =
    'GPU,Num GPUs,Model,Num Layers,hidden size,Num-Heads,Seq Len,TP,PP,DP,MBS,Global Batch Size,Step time (s)';
  const [row] = readCsv(`${header}\n${Object.values(ROW).join(',')}\n`);
  t.deepEqual(row, ROW);
});

test('a number that cannot be read is said and not passed over, in columns that a row could lack too', (t) => {
  for (const [column, text] of [
    ['gpus', '8-16'],
    ['cp', '2?'],
    ['vpp', 'a few'],
    ['dp', 'all'],
    ['vocab', '128k'],
    ['global_batch', '4M'],
    ['microbatch', '50%'],
    ['iteration_time_s', '31737 (30341)'],
    ['mem_gb', 'lots'],
    ['internode_gbps_per_gpu', 'fast'],
  ] as const)
    t.is(publishedRun({ ...ROW, [column]: text }, ''), `${column} is ${text}, which is no number`);
  t.regex(publishedRun({ ...ROW, iteration_time_s: '2,566' }, '') as string, /2.566 or 2566/);
  for (const [text, seconds] of [
    ['2,566.5', 2566.5],
    ['0,566', 0.566],
    ['2,5', 2.5],
    ['~2.5', 2.5],
    ['2.5 ± 0.1', 2.5],
    ['2.5 s (mean)', 2.5],
    ['2 min', 120],
  ] as const)
    t.is(runOf({ iteration_time_s: text }).seconds, seconds, text);
  t.is(runOf({ mem_gb: '40960 MiB' }).memoryBytes, 40960 * 2 ** 20);
  t.is(runOf({ internode_gbps_per_gpu: '50 GB/s' }).cluster.device.scaleOut.bandwidth, 5e10);
  t.is(runOf({ vocab: '50 257' }).sizes.vocabulary, runOf({ vocab: '50,257' }).sizes.vocabulary);
});

test('the tokens of a second tell how long a step took', (t) => {
  const tokens = { iteration_time_s: '', tokens_per_s_per_gpu: '2048' };
  t.is(runOf(tokens).seconds, (32 * 512) / (16 * 2048));
  t.is(publishedRun({ ...ROW, iteration_time_s: '', tokens_per_s_per_gpu: 'N/A' }, ''), 'no time');
});

test('racks are one domain of links under any name, boards of eight are not, and other markets get fewer links', (t) => {
  const cluster = (gpu_type: string, gpus_per_node = '') =>
    runOf({ gpu_type, gpus_per_node, gpus: '128', dp: '32' }).cluster;
  // A job of 128 takes as many of each of two racks of 72.
  for (const name of ['GB200', 'DGX-GB200', 'nvidia gb200 nvl72']) t.is(cluster(name, '4').perNode, 64, name);
  t.is(cluster('B300').perNode, 8);
  t.is(cluster('B200').perNode, 8);
  for (const [name, id] of [
    ['H800', 'h100-sxm-80'],
    ['NVIDIA A800-SXM4-80GB', 'a100-sxm-80'],
  ] as const) {
    const whole = runOf({ gpu_type: id }).cluster.device;
    const { device } = cluster(name);
    t.is(device.id, id);
    // 400 GB/s are left of 600 and of 900, both directions counted.
    const both = id.startsWith('a') ? 600 : 900;
    t.true(Math.abs(device.scaleUp.bandwidth / whole.scaleUp.bandwidth - 400 / both) < 1e-9, name);
    t.deepEqual(device.peakFlops, whole.peakFlops);
  }
  t.is(cluster('A100-SXM4-40').device.id, 'a100-sxm-40');
  t.is(cluster('H100 80GB (NVLink)').device.id, 'h100-sxm-80');
  t.is(publishedRun({ ...ROW, gpu_type: 'H100 NVL' }, ''), 'device H100 NVL is not in the catalogue');
});

test('words for what is recomputed, sharded and overlapped are known, or are said not to be', (t) => {
  const recompute = (text: string, source = '') => {
    const { recompute: kind, recomputedLayers } = runOf({ recompute: text, source }).configuration;
    return recomputedLayers ? `${kind} of ${recomputedLayers.join(' and ')}` : kind;
  };
  for (const [text, kind] of [
    ['Full', 'full'],
    ['activation checkpointing', 'full'],
    ['Gradient Checkpointing', 'full'],
    ['all layers', 'full'],
    ['No', 'none'],
    ['n/a', 'none'],
    ['see config', 'none'],
    ['selective', 'selective'],
    ['selective (core attention)', 'selective'],
    ['selective(norm, act)', 'none'],
    ['selective op', 'operators'],
    // Every second of two layers on each of two stages.
    ['selective layer', 'full of 1 and 1'],
  ] as const)
    t.is(recompute(text), kind, text);
  t.is(recompute('selective', 'torchtitan'), 'operators');
  // Unknown words only keep a run from its fit label, and are reported.
  for (const text of ['selective(norm, moe)', 'save_qkv_proj']) {
    t.is(recompute(text), 'none');
    t.regex(runOf({ recompute: text }).assumed ?? '', /nothing recomputed: what ".*" is, is not known/);
    t.false(statesRecompute({ recompute: text }), text);
  }
  t.is(runOf({ recompute: 'full' }).assumed, null);
  t.true(statesRecompute({ recompute: 'none' }) && !statesRecompute({}));
  for (const [column, text] of [
    ['zero', 'ZeRO++'],
    ['zero', '4'],
    ['precision', 'int8'],
    ['precision', 'tf32'],
  ] as const)
    t.is(publishedRun({ ...ROW, [column]: text }, ''), `${column} is ${text}, which is not known`);
  for (const [text, level] of [
    ['no FSDP', 0],
    ['FSDP=0', 0],
    ['replicated', 0],
    ['dist-opt', 1],
    ['Fully-sharded ZeRO 3', 3],
  ] as const)
    t.is(runOf({ zero: text }).configuration.zero, level, text);
  t.throws(() => runOf({ notes: 'LoRA' }), { message: /adapters alone/ });
  const overlap = (text: string) => runOf({ overlap: text, source: 'NeMo' }).configuration.overlap;
  t.deepEqual(overlap('none'), { tensor: false, data: false, pipeline: false, experts: false });
  t.deepEqual(overlap('N/A'), overlap(''));
  t.true(overlap('Async TP').tensor);
});

test('software is told by its name, then by where a run is from, and Megatron of newer devices is its core', (t) => {
  for (const [also, software] of [
    [{ source: 'Megatron-LM' }, 'megatron'],
    [{ source: 'Megatron-LM', gpu_type: 'H100' }, 'megatron-core'],
    [{ source: 'A model zoo (Megatron-Core)' }, 'megatron-core'],
    [{ source: 'Anybody', software: 'eager PyTorch' }, 'eager'],
    [{ source: 'Anybody', software: 'torch.compile' }, 'compiled'],
    [{ source: 'Anybody, without torch.compile', zero: 'FSDP2' }, 'eager'],
    [{ source: 'Anybody', zero: 'ZeRO-3' }, 'eager'],
    [{ source: 'MaxText' }, 'compiled'],
    [{ source: 'NeMo AutoModel' }, 'eager'],
  ] as const)
    t.is(runOf(also).configuration.software, software, JSON.stringify(also));
  // Sequence parallelism is a part of torchtitan's tensor parallelism; a Hugging Face model in DeepSpeed is none of Megatron's.
  t.true(runOf({ source: 'torchtitan', zero: 'FSDP2' }).configuration.tpSequence);
  t.is(runOf({ source: 'XTuner (DeepSpeed)', zero: '3' }).configuration.loss, 'plain');
});

test('runs that were gathered after the fit are read, all but five of adapters, and what 12 recompute', (t) => {
  const folder = join(ROOT, 'bench/published/raw');
  const rows = readdirSync(folder).flatMap((file) => readCsv(readFileSync(join(folder, file), 'utf8')));
  const runs = rows.map((row) => publishedRun(row, ''));
  t.is(rows.length, 266);
  t.deepEqual(
    runs.filter((run) => typeof run === 'string'),
    new Array(5).fill('adapters alone are trained, which is not planned'),
  );
  t.is(runs.filter((run) => typeof run !== 'string' && run.assumed !== null).length, 12);
  for (const row of rows) t.truthy(row['source_ref'], row['row_id']);
});
