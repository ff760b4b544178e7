import { readFileSync } from 'node:fs';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import test, { type ExecutionContext } from 'ava';
import { compile } from '../../../src/api/compile.js';
import { importModel } from '../../../src/api/models/import.js';
import { KEY_ROWS, NOTED_KEYS } from '../../../src/api/parallel-config/config-keys.js';
import { optionsOf } from '../../../src/api/parallel-config/config-options.js';
import { pinsOfConfig } from '../../../src/api/parallel-config/config-pins.js';
import { checkAgainstModel } from '../../../src/api/parallel-config/config-rules.js';
import type { ParallelConfig } from '../../../src/api/parallel-config/parallel-config.js';
import { readParallelConfig } from '../../../src/api/parallel-config/read-config.js';
import { setParallelConfig } from '../../../src/api/parallel-config/set-parallel-config.js';
import { wordEmbedding } from '../../../src/api/parallel-config/word-embedding.js';
import { openCompiled } from '../../../src/api/verify.js';
import type { Graph } from '../../../src/ir/graph.js';
import { makeMesh } from '../../../src/sharding-propagation/mesh.js';
import { ROOT } from '../../cli/autopar.js';
import { GraphBuilder } from '../../search/small-graphs.js';
import { fileOf, refused } from '../../sharding-propagation/annotations/file.js';

/** A file as MindFormers ships them, other sections included. */
const FILE = `seed: 0
output_dir: './output'
load_checkpoint: ''
run_mode: 'train'

trainer:
  type: CausalLanguageModelingTrainer
  model_name: 'llama2_7b'

runner_config:
  epochs: 2
  batch_size: 1
  sink_mode: True
  gradient_accumulation_steps: 1

optimizer:
  type: AdamW
  betas: [0.9, 0.95]
  eps: 1.e-8

train_dataset: &train_dataset
  data_loader:
    type: MindDataset
    shuffle: True
  input_columns: ["input_ids"]
train_dataset_task:
  type: CausalLanguageModelDataset
  dataset_config: *train_dataset

use_parallel: True
# parallel context config
parallel:
  parallel_mode: 1 # 0-data parallel, 1-semi-auto parallel, 2-auto parallel, 3-hybrid parallel
  gradients_mean: False
  enable_alltoall: False
  full_batch: True
  search_mode: "sharding_propagation"
  enable_parallel_optimizer: True
  strategy_ckpt_save_file: "./ckpt_strategy.ckpt"
  parallel_optimizer_config:
    gradient_accumulation_shard: False
    parallel_optimizer_threshold: 64

# default parallel of device num = 8 for Atlas 800T A2
parallel_config:
  data_parallel: 4
  model_parallel: 2
  pipeline_stage: 1
  use_seq_parallel: False
  micro_batch_num: 1
  vocab_emb_dp: True
  gradient_aggregation_group: 4
# when model parallel is greater than 1, we can set micro_batch_interleave_num=2, that may accelerate the train process.
micro_batch_interleave_num: 1

recompute_config:
  recompute: True
callbacks:
  - type: MFLossMonitor
`;

/** A file with these entries, given as `section.key: value`. */
async function configOf(entries: Readonly<Record<string, string>>): Promise<ParallelConfig> {
  return readParallelConfig(await fileOf(textOf(entries), 'run.yaml'));
}

function textOf(entries: Readonly<Record<string, string>>): string {
  const all: Readonly<Record<string, string>> = { use_parallel: 'True', ...entries };
  const sections = new Map<string, string[]>();
  for (const [path, value] of Object.entries(all)) {
    const steps = path.split('.');
    const key = steps.pop();
    const section = steps.join('.');
    sections.set(section, [...(sections.get(section) ?? []), `${'  '.repeat(steps.length)}${key}: ${value}`]);
  }
  const nested = [...sections].flatMap(([section, lines]) => {
    const steps = section === '' ? [] : section.split('.');
    const headers = steps.map((step, depth) => `${'  '.repeat(depth)}${step}:`);
    return [...headers, ...lines];
  });
  return `${nested.join('\n')}\n`;
}

test("a file of MindFormers' is read as it is", async (t) => {
  const config = await readParallelConfig(await fileOf(FILE, 'run_llama2_7b.yaml'));
  t.is(config.parallelMode, 'semi-auto');
  t.is(config.given.get('modelParallel'), 1 + FILE.split('\n').indexOf('  model_parallel: 2'));
  const options = optionsOf(config, 8);
  t.like(options, {
    mode: 'semi-auto',
    degrees: { dp: 4, tp: 2, pp: 1, sp: 1 },
    devices: 8,
    tpSequence: 'off',
    microBatches: 1,
    searchMode: 'auto',
    zero: 1,
    saveFile: './ckpt_strategy.ckpt',
    loadFile: null,
    allToAll: false,
    fullBatch: true,
    vocabEmbDp: true,
  });
  t.deepEqual(
    options.remarks.map(({ key }) => key),
    ['parallel.parallel_optimizer_config.parallel_optimizer_threshold', 'search_mode'],
  );
  t.deepEqual(
    options.notLowered.map(({ key, line }) => [key, line]),
    [],
  );
});

/** Tokens and positions looked up, the words among 100 rows of 64. */
function lookupGraph(): Graph {
  const builder = new GraphBuilder();
  const ids = builder.input('ids', [4, 12], 'int64');
  const words = builder.add('words', 'Gather', [builder.weight('wte', [100, 64]), ids]);
  const kinds = builder.add('kinds', 'Gather', [
    builder.weight('types', [2, 64]),
    builder.input('type', [4, 12], 'int64'),
  ]);
  return builder.build([builder.add('sum', 'Add', [words, kinds])]);
}

/** The effect of each value on the options, by key of the file. */
const KEYS: Readonly<Record<string, (t: ExecutionContext) => Promise<void>>> = {
  use_parallel: async (t) => {
    const off = await configOf({ use_parallel: 'False', 'parallel_config.data_parallel': '4' });
    t.like(optionsOf(off, 1), { mode: 'auto', degrees: { dp: 1, tp: 1 }, devices: 1 });
    const error = await refused(t, () => optionsOf(off, 4));
    t.is(error.code, 'config-rule');
    t.regex(error.message, /use_parallel: False is for one device, not for 4/);
  },
  'parallel.parallel_mode': async (t) => {
    const modes = {
      '0': 'data',
      '1': 'semi-auto',
      '2': 'auto',
      '3': 'hybrid',
      DATA_PARALLEL: 'data',
      semi_auto_parallel: 'semi-auto',
      AUTO_PARALLEL: 'auto',
      hybrid_parallel: 'hybrid',
    };
    for (const [written, mode] of Object.entries(modes))
      t.is(optionsOf(await configOf({ 'parallel.parallel_mode': written })).mode, mode as 'auto', written);
    t.is(optionsOf(await configOf({})).mode, 'semi-auto');
    t.deepEqual(optionsOf(await configOf({ 'parallel.parallel_mode': '0' }), 4).degrees, { tp: 1, pp: 1, sp: 1 });
    const free = await configOf({ 'parallel.parallel_mode': '2', 'parallel_config.data_parallel': '4' });
    t.deepEqual(optionsOf(free, 2).degrees, {});
    t.regex(optionsOf(free, 2).remarks[0]?.says ?? '', /degrees are searched/);
    const alone = await configOf({ 'parallel.parallel_mode': 'STAND_ALONE' });
    t.regex((await refused(t, () => optionsOf(alone, 2))).message, /STAND_ALONE is for one device/);
    const error = await refused(t, () => configOf({ 'parallel.parallel_mode': 'AUTOPARALLEL' }));
    t.regex(`${error.message} ${error.hint}`, /parallel\.parallel_mode is "AUTOPARALLEL".*AUTO_PARALLEL/s);
    t.is((await refused(t, () => configOf({ 'parallel.parallel_mode': '4' }))).where.line, 3);
  },
  'parallel.gradients_mean': async (t) => {
    const read = async (keys: Parameters<typeof configOf>[0]) => optionsOf(await configOf(keys)).gradientReduction;
    t.is(await read({ 'parallel.gradients_mean': 'True' }), 'mean');
    t.is(await read({ 'parallel.gradients_mean': 'False' }), 'sum');
    t.is(await read({}), null);
  },
  'parallel.enable_alltoall': async (t) => {
    t.true(optionsOf(await configOf({ 'parallel.enable_alltoall': 'True' })).allToAll);
    t.false(optionsOf(await configOf({})).allToAll);
    t.true(optionsOf(setParallelConfig({})).allToAll);
  },
  'parallel.full_batch': async (t) => {
    t.true(optionsOf(await configOf({ 'parallel.full_batch': 'True' })).fullBatch);
    const { graph } = await importModel(join(ROOT, 'models/gpt-tiny.onnx'), { globalBatch: 4 });
    const pins = async (keys: Parameters<typeof configOf>[0], dp = 2) =>
      pinsOfConfig(
        await configOf(keys),
        graph,
        makeMesh([
          ['dp', dp],
          ['tp', 2],
        ]),
      );
    const own = { kind: 'tensor', tensor: 'ids', demand: { kind: 'split', counts: [2, 1] } };
    t.like(await pins({ 'parallel.full_batch': 'False' }), [own]);
    t.like(await pins({ 'parallel.dataset_strategy': 'data_parallel' }), [own]);
    t.deepEqual(await pins({ 'parallel.full_batch': 'False' }, 1), []);
    t.deepEqual(await pins({ 'parallel.full_batch': 'True' }), []);
    t.deepEqual(await pins({ 'parallel.dataset_strategy': 'full_batch' }), []);
    t.deepEqual(await pins({}), []);
    const error = await refused(t, () => configOf({ 'parallel.parallel_mode': '0', 'parallel.full_batch': 'True' }));
    t.is(error.code, 'config-rule');
    t.is(error.where.line, 4);
    t.regex(error.message, /full_batch: True in parallel_mode 0 \(data\)/);
  },
  'parallel.dataset_strategy': async (t) => {
    const read = async (written: string) => (await configOf({ 'parallel.dataset_strategy': written })).datasetStrategy;
    t.is(await read('full_batch'), 'full_batch');
    t.deepEqual(await read('[[4, 1], [4, 1]]'), [
      [4, 1],
      [4, 1],
    ]);
    t.deepEqual(await read("'((4,1),(4,1))'"), [
      [4, 1],
      [4, 1],
    ]);
    t.regex((await refused(t, () => read('fullbatch'))).hint ?? '', /did you mean full_batch/);
    t.regex((await refused(t, () => read('[[4, -1]]'))).message, /split counts per input/);
    const config = await configOf({ 'parallel.dataset_strategy': '[[8, 2]]' });
    t.regex((await refused(t, () => optionsOf(config, 8))).message, /\(8, 2\), more parts than the 8 devices/);
    const { graph } = await importModel(join(ROOT, 'models/gpt-tiny.onnx'));
    const mesh = makeMesh([
      ['dp', 2],
      ['tp', 1],
    ]);
    const pins = pinsOfConfig(await configOf({ 'parallel.dataset_strategy': '[[2, 1]]' }), graph, mesh);
    t.like(pins, [{ kind: 'tensor', tensor: 'ids', demand: { kind: 'split', counts: [2, 1] } }]);
    const two = await configOf({ 'parallel.dataset_strategy': '[[2, 1], [2, 1]]' });
    t.regex(
      (await refused(t, () => pinsOfConfig(two, graph, mesh))).message,
      /2 entries, the model has 1 inputs \(ids\)/,
    );
    const both = await configOf({ 'parallel.dataset_strategy': '[[2, 1]]', 'parallel.full_batch': 'True' });
    t.deepEqual(pinsOfConfig(both, graph, mesh), []);
    t.regex(optionsOf(both).remarks[0]?.says ?? '', /overrides it/);
  },
  'parallel.search_mode': async (t) => {
    for (const mode of ['recursive_programming', 'dynamic_programming', 'sharding_propagation'])
      t.is(
        optionsOf(await configOf({ 'parallel.parallel_mode': '2', 'parallel.search_mode': mode })).searchMode,
        mode as 'auto',
      );
    const semi = optionsOf(await configOf({ 'parallel.search_mode': 'dynamic_programming' }));
    t.is(semi.searchMode, 'auto');
    t.regex(semi.remarks[0]?.says ?? '', /auto\) only/);
    t.regex(
      (await refused(t, () => configOf({ 'parallel.search_mode': 'dynamic' }))).message,
      /search_mode is "dynamic"/,
    );
  },
  'parallel.auto_parallel_search_mode': async (t) => {
    const config = await configOf({ 'parallel.auto_parallel_search_mode': 'dynamic_programming' });
    t.is(config.searchMode, 'dynamic_programming');
  },
  'parallel.enable_parallel_optimizer': async (t) => {
    const options = optionsOf(await configOf({ 'parallel.enable_parallel_optimizer': 'True' }));
    t.is(options.zero, 1);
    t.deepEqual(options.notLowered, []);
    t.is(optionsOf(await configOf({})).zero, null);
    t.is(optionsOf(await configOf({ 'parallel.enable_parallel_optimizer': 'False' })).zero, 0);
  },
  'parallel.parallel_optimizer_config.optimizer_level': async (t) => {
    const text =
      'parallel:\n  enable_parallel_optimizer: True\n  parallel_optimizer_config:\n    optimizer_level: level3\n';
    t.is(optionsOf(await readParallelConfig(await fileOf(text))).zero, 3);
    const wrong = await fileOf(text.replace('level3', 'level4'));
    t.is((await refused(t, () => readParallelConfig(wrong))).where.line, 4);
  },
  'parallel.parallel_optimizer_config.gradient_accumulation_shard': async (t) => {
    const text = (level: number) =>
      'parallel:\n  enable_parallel_optimizer: True\n  parallel_optimizer_config:\n' +
      `    optimizer_level: level${level}\n    gradient_accumulation_shard: True\n`;
    const levelOf = async (file: string) => optionsOf(await readParallelConfig(await fileOf(file))).zero;
    t.is(await levelOf(text(1)), 2);
    t.is(await levelOf(text(3)), 3);
    const idle = optionsOf(
      await readParallelConfig(
        await fileOf(text(1).replace('enable_parallel_optimizer: True', 'enable_parallel_optimizer: False')),
      ),
    );
    t.is(idle.zero, 0);
    t.deepEqual(
      idle.remarks.map(({ key }) => key),
      ['gradient_accumulation_shard'],
    );
  },
  'parallel.strategy_ckpt_save_file': async (t) => {
    t.is(optionsOf(await configOf({ 'parallel.strategy_ckpt_save_file': './a.ckpt' })).saveFile, './a.ckpt');
    t.is(optionsOf(await configOf({ 'parallel.strategy_ckpt_save_file': "''" })).saveFile, null);
    const error = await refused(t, () => configOf({ 'parallel.strategy_ckpt_save_file': '3' }));
    t.regex(error.message, /the path of a file is expected/);
  },
  'parallel.strategy_ckpt_config.save_file': async (t) => {
    t.is((await configOf({ 'parallel.strategy_ckpt_config.save_file': './b.ckpt' })).strategySaveFile, './b.ckpt');
  },
  'parallel.strategy_ckpt_load_file': async (t) => {
    t.is(optionsOf(await configOf({ 'parallel.strategy_ckpt_load_file': './a.ckpt' })).loadFile, './a.ckpt');
  },
  'parallel.strategy_ckpt_config.load_file': async (t) => {
    t.is((await configOf({ 'parallel.strategy_ckpt_config.load_file': './b.ckpt' })).strategyLoadFile, './b.ckpt');
  },
  'parallel_config.data_parallel': async (t) => {
    const config = await configOf({ 'parallel_config.data_parallel': '4' });
    t.is(optionsOf(config, 4).degrees.dp, 4);
    const error = await refused(t, () => optionsOf(config, 2));
    t.is(error.code, 'config-rule');
    t.is(error.where.line, 3);
    t.regex(error.message, /data_parallel 4 · model_parallel 1 · pipeline_stage 1 is 4, more than the 2 devices/);
    t.regex(optionsOf(config, 8).remarks[0]?.says ?? '', /use 4 of the 8 devices/);
    t.regex((await refused(t, () => configOf({ 'parallel_config.data_parallel': '0' }))).message, /at least 1/);
    t.regex((await refused(t, () => configOf({ 'parallel_config.data_parallel': 'two' }))).message, /whole number/);
  },
  'parallel_config.model_parallel': async (t) => {
    t.is(optionsOf(await configOf({ 'parallel_config.model_parallel': '2' })).degrees.tp, 2);
    const graph = lookupGraph();
    t.like(wordEmbedding(graph), { table: 'wte', vocabulary: 100, hidden: 64 });
    t.deepEqual(checkAgainstModel(await configOf({ 'parallel_config.model_parallel': '4' }), graph), []);
    const three = await configOf({ 'parallel_config.model_parallel': '3' });
    const [hidden = '', vocabulary = ''] = checkAgainstModel(three, graph);
    t.regex(
      hidden,
      /model_parallel 3 does not divide the hidden size 64 \(of wte\): it is padded to 66.*, 3\.1 % more/,
    );
    t.regex(vocabulary, /does not divide the vocabulary 100 \(of wte\): it is padded to 102.*, 2\.0 % more/);
    const wide = await configOf({ 'parallel_config.model_parallel': '8' });
    t.is(checkAgainstModel(wide, graph).length, 1, 'the vocabulary alone');
    t.is(wordEmbedding((await importModel(join(ROOT, 'models/gpt-tiny.onnx'))).graph)?.table, 'wte.weight');
    const data = await refused(t, () =>
      configOf({ 'parallel.parallel_mode': '0', 'parallel_config.model_parallel': '2' }),
    );
    t.regex(data.message, /model_parallel is 2, and parallel_mode 0 \(data\) shards the batch only/);
  },
  'parallel_config.pipeline_stage': async (t) => {
    const config = await configOf({ 'parallel_config.pipeline_stage': '2', 'parallel_config.micro_batch_num': '4' });
    t.like(optionsOf(config, 2), { degrees: { pp: 2 }, microBatches: 4 });
    t.deepEqual(optionsOf(config, 2).notLowered, []);
    const { graph } = await importModel(join(ROOT, 'models/gpt-tiny.onnx'));
    t.deepEqual(checkAgainstModel(config, graph), []);
    const layers = (count: number) => ({
      ...graph,
      nodes: graph.nodes.map((node, index) => ({ ...node, layer: `h.${index % count}` })),
    });
    const [warning = ''] = checkAgainstModel(config, layers(5), { layersSeconds: 0.01 });
    t.regex(warning, /pipeline_stage 2 does not divide the 5 layers: stages have 2 or 3 layers/);
    t.regex(warning, /which has 3 where even stages had 2\.5; that is 20 % more time, 1\.00 ms of each step/);
  },
  'parallel.pipeline_config.pipeline_scheduler': async (t) => {
    const of = async (scheduler: string, more: Readonly<Record<string, string>> = {}) =>
      optionsOf(
        await configOf({
          ...{ 'parallel_config.pipeline_stage': '2', 'parallel_config.micro_batch_num': '4' },
          'parallel.pipeline_config.pipeline_scheduler': scheduler,
          ...more,
        }),
        2,
      );
    t.like(await of('gpipe'), { schedule: 'f-then-b', virtualStages: null, notLowered: [] });
    t.like(await of("'1f1b'"), { schedule: '1f1b', virtualStages: null, notLowered: [] });
    t.like(await of('zero_bubble_v'), { schedule: 'zbv', virtualStages: null, notLowered: [] });
    for (const name of ['seqpipe', 'seqvpp', 'seqsmartvpp']) {
      const options = await of(name);
      t.is(options.schedule, null);
      t.is(
        options.notLowered[0]?.says,
        `schedule ${name} is not supported; 1f1b is planned unless --schedule names another`,
      );
    }
    const one = await configOf({ 'parallel.pipeline_config.pipeline_scheduler': 'gpipe' });
    t.is(optionsOf(one).schedule, null);
    t.regex(optionsOf(one).remarks[0]?.says ?? '', /pipeline_stage is 1/);
    t.regex((await refused(t, () => of('gpip'))).message, /pipeline_scheduler is "gpip", where one of gpipe, 1f1b/);
  },
  'parallel.pipeline_config.pipeline_interleave': async (t) => {
    const interleaved = {
      ...{ 'parallel_config.pipeline_stage': '2', 'parallel_config.micro_batch_num': '4' },
      'parallel.pipeline_config.pipeline_interleave': 'True',
    };
    const chunks = { 'model.model_config.pp_interleave_num': '3' };
    const options = optionsOf(await configOf({ ...interleaved, ...chunks }), 2);
    t.like(options, { schedule: 'interleaved-1f1b', virtualStages: 3, remarks: [] });
    const alone = optionsOf(await configOf(interleaved), 2);
    t.like(alone, { schedule: null, virtualStages: null });
    t.regex(alone.remarks[0]?.says ?? '', /a stage has one chunk: set pp_interleave_num/);
  },
  'model.model_config.pp_interleave_num': async (t) => {
    const config = {
      ...{ 'parallel_config.pipeline_stage': '2', 'parallel_config.micro_batch_num': '4' },
      'model.model_config.pp_interleave_num': '2',
    };
    const options = optionsOf(await configOf(config), 2);
    t.like(options, { schedule: null, virtualStages: null });
    t.regex(options.remarks[0]?.says ?? '', /it needs pipeline_interleave: True/);
  },
  'parallel_config.context_parallel': async (t) => {
    const options = optionsOf(await configOf({ 'parallel_config.context_parallel': '2' }), 2);
    t.is(options.degrees.sp, 2);
    t.is(options.spMethod, null);
    t.deepEqual(options.notLowered, []);
  },
  'parallel_config.context_parallel_algo': async (t) => {
    const of = async (algorithm: string, sp: string) =>
      optionsOf(
        await configOf({ 'parallel_config.context_parallel': sp, 'parallel_config.context_parallel_algo': algorithm }),
        Number(sp),
      );
    t.is((await of('colossalai_cp', '2')).spMethod, 'gather');
    t.is((await of('ulysses_cp', '2')).spMethod, 'ulysses');
    const hybrid = await of('hybrid_cp', '2');
    t.is(hybrid.spMethod, null);
    t.regex(hybrid.notLowered[0]?.says ?? '', /the cheaper of the two is planned/);
    const alone = await of('ulysses_cp', '1');
    t.is(alone.spMethod, null);
    t.regex(alone.remarks[0]?.says ?? '', /context_parallel is 1/);
  },
  'parallel_config.expert_parallel': async (t) => {
    const config = await configOf({ 'parallel_config.expert_parallel': '2', 'parallel_config.data_parallel': '4' });
    t.like(optionsOf(config, 4), { degrees: { ep: 2, dp: 4 }, devices: 4 });
    const error = await refused(t, () =>
      configOf({ 'parallel_config.expert_parallel': '3', 'parallel_config.data_parallel': '4' }),
    );
    t.regex(error.message, /expert_parallel 3 does not divide data_parallel 4/);
  },
  'parallel_config.use_seq_parallel': async (t) => {
    const read = async (value: string, tp: string) =>
      optionsOf(await configOf({ 'parallel_config.use_seq_parallel': value, 'parallel_config.model_parallel': tp }));
    t.is((await read('True', '2')).tpSequence, 'on');
    t.is((await read('False', '2')).tpSequence, 'off');
    t.is(optionsOf(await configOf({ 'parallel_config.model_parallel': '2' })).tpSequence, 'auto');
    t.regex((await read('True', '1')).remarks[0]?.says ?? '', /model_parallel is 1/);
  },
  'parallel_config.micro_batch_num': async (t) => {
    const error = await refused(t, () =>
      configOf({ 'parallel_config.micro_batch_num': '2', 'parallel_config.pipeline_stage': '4' }),
    );
    t.is(error.code, 'config-rule');
    t.regex(error.message, /micro_batch_num 2 is less than pipeline_stage 4/);
    const alone = optionsOf(await configOf({ 'parallel_config.micro_batch_num': '4' }));
    t.is(alone.microBatches, 1);
    t.regex(alone.remarks[0]?.says ?? '', /it needs a pipeline/);
  },
  'parallel_config.gradient_aggregation_group': async (t) => {
    t.is(optionsOf(await configOf({ 'parallel_config.gradient_aggregation_group': '8' })).gradientBuckets, 8);
    t.is(optionsOf(await configOf({})).gradientBuckets, null);
    const training = { loss: { kind: 'mse' }, optimizer: { kind: 'sgd', learningRate: 0.1 } } as const;
    const config = await configOf({
      'parallel_config.data_parallel': '2',
      'parallel_config.gradient_aggregation_group': '2',
    });
    const folder = await mkdtemp(join(tmpdir(), 'autopar-test-'));
    const model = join(ROOT, 'models/mlp.onnx');
    const { plan } = await compile({ model, output: join(folder, 'out'), globalBatch: 4, config, training });
    t.is(plan.schedule.bucketMembers, 2);
    const { program } = await openCompiled(join(folder, 'out'));
    const buckets = new Map<number, number>();
    for (const each of Object.values(program.stages[0]?.phases ?? {}).flat())
      if (each.kind === 'start' && each.bucket !== undefined)
        buckets.set(each.bucket, (buckets.get(each.bucket) ?? 0) + 1);
    t.is(Math.max(...buckets.values()), 2);
    t.true(buckets.size > 1);
    await rm(folder, { recursive: true });
  },
  'parallel_config.vocab_emb_dp': async (t) => {
    const { graph } = await importModel(join(ROOT, 'models/gpt-tiny.onnx'));
    const mesh = makeMesh([
      ['dp', 1],
      ['tp', 2],
    ]);
    const pins = async (value: string) =>
      pinsOfConfig(
        await configOf({ 'parallel_config.vocab_emb_dp': value, 'parallel_config.model_parallel': '2' }),
        graph,
        mesh,
      );
    t.like(await pins('True'), [{ kind: 'operator', node: '/wte/Gather', without: ['tp'] }]);
    t.like(await pins('False'), [{ kind: 'operator', node: '/wte/Gather', axes: { v: ['tp'] }, reduced: true }]);
    t.deepEqual(pinsOfConfig(await configOf({ 'parallel_config.model_parallel': '2' }), graph, mesh), []);
    const whole = await configOf({ 'parallel_config.vocab_emb_dp': 'True', 'parallel_config.model_parallel': '8' });
    t.deepEqual(checkAgainstModel(whole, lookupGraph()), []);
    const staged = await configOf({
      'parallel_config.vocab_emb_dp': 'True',
      'parallel_config.pipeline_stage': '2',
      'parallel_config.micro_batch_num': '2',
    });
    t.false(optionsOf(staged).vocabEmbDp);
  },
  micro_batch_interleave_num: async (t) => {
    const config = await configOf({ micro_batch_interleave_num: '2', 'parallel_config.model_parallel': '2' });
    t.is(optionsOf(config).interleave, 2);
    t.deepEqual(optionsOf(config).notLowered, []);
    const four = await configOf({ micro_batch_interleave_num: '4', 'parallel_config.model_parallel': '2' });
    t.is(optionsOf(four).interleave, 1);
    t.regex(optionsOf(four).notLowered[0]?.says ?? '', /in two halves only/);
    t.regex(
      optionsOf(await configOf({ micro_batch_interleave_num: '2' })).remarks[0]?.says ?? '',
      /model_parallel is 1/,
    );
  },
  'recompute_config.recompute': async (t) => {
    const of = async (value: string) => optionsOf(await configOf({ 'recompute_config.recompute': value }));
    t.is((await of('True')).recompute, 'full');
    t.is((await of('False')).recompute, 'none');
    t.is(optionsOf(await configOf({})).recompute, null);
    t.deepEqual((await of('[3]')).recompute, { kind: 'full', counts: [3] });
    t.regex((await of("['mul']")).notLowered[0]?.says ?? '', /--recompute full:LAYERS/);
    const uneven = await refused(t, () => of('[3, 4]'));
    t.regex(
      `${uneven.message}\n${uneven.hint}`,
      /recompute is \[3,4\], and pipeline_stage 1 has 1 parts\ngive 1 number/,
    );
    const error = await refused(t, () => configOf({ 'recompute_config.recompute': '3' }));
    t.regex(error.message, /recompute_config\.recompute is 3, where True, False, or a list/);
  },
  'recompute_config.select_recompute': async (t) => {
    const key = 'recompute_config.select_recompute';
    t.is(optionsOf(await configOf({ [key]: 'True' })).recompute, 'selective');
    const both = optionsOf(await configOf({ [key]: 'True', 'recompute_config.recompute': 'True' }));
    t.is(both.recompute, 'full');
    t.regex(both.remarks[0]?.says ?? '', /recompute overrides it/);
    const chunked = await configOf({
      ...{ 'parallel_config.pipeline_stage': '2', 'parallel_config.micro_batch_num': '2' },
      ...{ 'parallel.pipeline_config.pipeline_interleave': 'True', 'model.model_config.pp_interleave_num': '2' },
      [key]: '[[1, 0], [0, 1]]',
    });
    t.deepEqual(optionsOf(chunked).recompute, { kind: 'selective', counts: [1, 0, 0, 1] });
    // The second chunk of the first stage is the end of the model.
    const inShapeOfV = await configOf({
      ...{ 'parallel_config.pipeline_stage': '2', 'parallel_config.micro_batch_num': '2' },
      'parallel.pipeline_config.pipeline_scheduler': 'zero_bubble_v',
      [key]: '[[1, 0], [0, 2]]',
    });
    t.deepEqual(optionsOf(inShapeOfV).recompute, { kind: 'selective', counts: [1, 0, 2, 0] });
    t.regex(optionsOf(await configOf({ [key]: "['mul']" })).notLowered[0]?.says ?? '', /annotations/);
  },
  'parallel_config.recompute': async (t) => {
    t.is(optionsOf(await configOf({ 'parallel_config.recompute': 'True' })).recompute, 'full');
  },
  'parallel_config.select_recompute': async (t) => {
    t.is(optionsOf(await configOf({ 'parallel_config.select_recompute': 'True' })).recompute, 'selective');
  },
  'runner_config.gradient_accumulation_steps': async (t) => {
    const options = optionsOf(await configOf({ 'runner_config.gradient_accumulation_steps': '4' }));
    t.like(options, { microBatches: 4, remarks: [], notLowered: [] });
    const staged = await configOf({
      ...{ 'parallel_config.pipeline_stage': '2', 'parallel_config.micro_batch_num': '2' },
      'runner_config.gradient_accumulation_steps': '4',
    });
    t.is(optionsOf(staged).microBatches, 2);
    t.regex(optionsOf(staged).remarks[0]?.says ?? '', /accumulates gradients over its micro-batches, micro_batch_num/);
  },
  'parallel.grad_accumulation_step': async (t) => {
    t.is(optionsOf(await configOf({ 'parallel.grad_accumulation_step': '2' })).microBatches, 2);
  },
  'parallel.comm_fusion': async (t) => {
    const of = async (value: string) => optionsOf(await configOf({ 'parallel.comm_fusion': value }));
    t.like(await of('{allreduce: {mode: size, config: 32}}'), { bucketBytes: 32 * 2 ** 20, remarks: [] });
    t.is(
      (await of("{'openstate': True, 'reducescatter': {'mode': 'auto', 'config': None}}")).bucketBytes,
      64 * 2 ** 20,
    );
    t.is(optionsOf(await configOf({})).bucketBytes, null);
    for (const [value, bytes, says] of [
      ['{allreduce: {mode: index, config: [2, 4]}}', null, /not by indices/],
      ['{openstate: False, allreduce: {mode: size, config: 32}}', null, /a separate message/],
      ['{allreduce: {mode: size, config: 1}, allgather: {mode: size, config: 2}}', 2 ** 20, /one bucket size/],
    ] as const) {
      const options = await of(value);
      t.is(options.bucketBytes, bytes);
      t.regex(options.remarks[0]?.says ?? '', says);
    }
    for (const value of ['32', '{allreduce: {mode: sise}}', '{allreduse: {mode: auto}}', '{allreduce: {mode: size}}'])
      t.regex((await refused(t, () => of(value))).message, /comm_fusion is .*, where a mapping such as .* is expected/);
  },
  'swap_config.swap': async (t) => {
    t.is(optionsOf(await configOf({ 'swap_config.swap': 'True' })).offload, 'activations');
    t.is(optionsOf(await configOf({ 'swap_config.swap': 'False' })).offload, 'none');
    t.is(optionsOf(await configOf({})).offload, null);
  },
};

for (const [key, check] of Object.entries(KEYS)) test(key, check);

test('every key has its test, and docs/reference/mindformers.md its row', (t) => {
  const paths = KEY_ROWS.map(({ path }) => path.join('.'));
  t.deepEqual([...paths].sort(), Object.keys(KEYS).sort());
  const rows = [
    ...readFileSync(join(ROOT, 'docs/reference/mindformers.md'), 'utf8').matchAll(/^\| `([\w.]+)` \|/gm),
  ].map(([, key]) => key);
  t.deepEqual([...rows].sort(), [...paths, ...Object.keys(NOTED_KEYS)].sort());
});

test('schedule, accumulated steps, messages and layers that recompute are those of the plan', async (t) => {
  const training = { loss: { kind: 'cross_entropy' }, optimizer: { kind: 'sgd', learningRate: 0.1 } } as const;
  const folder = await mkdtemp(join(tmpdir(), 'autopar-test-'));
  const model = join(ROOT, 'models/llama-tiny.onnx');
  const planWith = async (entries: Readonly<Record<string, string>>) => {
    const config = await configOf(entries);
    return (await compile({ model, output: join(folder, 'out'), planOnly: true, globalBatch: 4, config, training }))
      .plan;
  };
  const stages = { 'parallel_config.pipeline_stage': '2', 'parallel_config.micro_batch_num': '4' };
  const staged = await planWith({
    ...stages,
    'parallel.pipeline_config.pipeline_scheduler': 'zero_bubble_v',
    'recompute_config.recompute': '[[0, 0], [1, 0]]',
  });
  t.like(staged.schedule, { kind: 'zbv', microBatches: 4 });
  t.is(staged.requested?.recompute, 'full:1');
  t.true(Object.values(staged.operators).some(({ recompute }) => recompute));
  t.deepEqual(
    staged.layerClasses.map(({ instances, recompute }) => [instances, recompute]),
    [
      [
        ['model.layers.0', 'model.layers.1'],
        [false, true],
      ],
    ],
  );
  const alone = await planWith({
    'parallel_config.data_parallel': '2',
    'parallel.comm_fusion': '{allreduce: {mode: size, config: 1}}',
    'runner_config.gradient_accumulation_steps': '2',
  });
  t.like(alone.schedule, { kind: 'single', microBatches: 2, bucketBytes: 2 ** 20 });
  const error = await refused(t, () => planWith({ ...stages, 'recompute_config.recompute': '[2, 0]' }));
  t.regex(error.message, /recompute \[2, 0\] exceeds the layers of a part: the model has 2, in 2 parts of at most 1/);
  await rm(folder, { recursive: true });
});

/** Entries that are refused: with where and how. */
const BAD: readonly (readonly [title: string, text: string, line: number, says: RegExp])[] = [
  [
    'an unknown key of parallel',
    'parallel:\n  full_bach: True',
    2,
    /parallel has no key 'full_bach'.*did you mean full_batch/s,
  ],
  [
    'an unknown key of parallel_config',
    'parallel_config:\n  data_parallel: 1\n  modelparallel: 2',
    3,
    /did you mean model_parallel/,
  ],
  ['a key in the wrong section', 'parallel:\n  data_parallel: 2', 2, /it belongs in parallel_config/],
  [
    'an unknown key of an inner section',
    'parallel:\n  strategy_ckpt_config:\n    savefile: a',
    3,
    /strategy_ckpt_config has no key 'savefile'.*save_file/s,
  ],
  ['a misspelt section', 'use_parallel: True\nparalel_config: {}', 2, /did you mean parallel_config/],
  ['a misspelt key at the top', 'use_paralel: True\nparallel: {}', 1, /did you mean use_parallel/],
  ['a section that is none', 'parallel: 1', 1, /parallel is not a mapping/],
  ['no key of parallelism', 'model: {}', 1, /none of the keys use_parallel/],
];

for (const [title, text, line, says] of BAD)
  test(`refused: ${title}`, async (t) => {
    const file = await fileOf(text);
    const error = await refused(t, () => readParallelConfig(file));
    t.is(error.code, 'bad-config');
    t.is(error.where.line, line);
    t.regex(`${error.message}\n${error.hint}`, says);
  });

test('sections about other things are left alone, whatever they hold', async (t) => {
  const config = await readParallelConfig(
    await fileOf('parallel: {}\nmy_own_section: {paralel: 1}\nmodel: {data_parallel: x}\n'),
  );
  t.deepEqual(config.remarks, []);
});

test('setParallelConfig is the same, typed', async (t) => {
  const config = setParallelConfig({ dataParallel: 2, modelParallel: 2, pipelineStage: 1, microBatchNum: 1 });
  t.like(optionsOf(config, 4), { mode: 'semi-auto', degrees: { dp: 2, tp: 2, pp: 1, sp: 1 }, devices: 4 });
  const broken = await refused(t, () => setParallelConfig({ pipelineStage: 4, microBatchNum: 2 }));
  t.is(broken.code, 'config-rule');
  const misspelt = { dataParalel: 2 } as unknown as Parameters<typeof setParallelConfig>[0];
  const error = await refused(t, () => setParallelConfig(misspelt));
  t.regex(`${error.message} ${error.hint}`, /unknown setting 'dataParalel' did you mean dataParallel/);
  for (const wrong of [
    { modelParallel: 0 },
    { modelParallel: 1.5 },
    { useSeqParallel: 'yes' },
    { parallelMode: 'semi' },
    { optimizerLevel: 4 },
  ])
    t.is((await refused(t, () => setParallelConfig(wrong as never))).code, 'bad-config');
  t.is(
    optionsOf(setParallelConfig({ parallelMode: 'auto', searchMode: 'dynamic_programming' })).searchMode,
    'dynamic_programming',
  );
});
