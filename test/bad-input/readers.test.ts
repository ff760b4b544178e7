/**
 * @file Readers bound numbers and lengths before any work: small valid files of every kind with one place changed (huge numbers,
 * negative ones, long lists) are read or refused, soon and without an internal error. A thread reads them, ended if it hangs.
 */
import { cpSync, mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { Worker } from 'node:worker_threads';
import test, { type ExecutionContext } from 'ava';
import { zipSync } from 'fflate';
import { compile } from '../../src/api/compile.js';
import { convertStrategy, showStrategy } from '../../src/api/strategy.js';
import { decodeModel, encodeModel } from '../../src/ir/onnx/schema.js';
import { constant } from '../../src/ir/ops/constants.js';
import { writeNpy } from '../../src/program/arrays/npy.js';
import { openSafetensors } from '../../src/program/safetensors.js';
import { EVERYTHING, slowTests } from '../selection.js';
import type { Read, Reading } from './reader-thread.js';
import { workplace } from './refusal.js';

const slow = slowTests(test);

/** Milliseconds that no reading of a small file takes, however busy the machine is. */
const HANG = 120_000;

/** Values that are put in the place of a number; as many entries as a long list has are put in the place of a list. */
const NUMBERS = [2 ** 31 - 1, 1e300, -1, 2 ** 53 - 1, 0, 1.5, 2 ** 20, 2 ** 20 + 7];
const LONG = 2000;

/** Numbers for a place: all of them, or one after the other in `npm test`. */
const numbers = ((): (() => readonly number[]) => {
  let turn = 0;
  return () => (EVERYTHING ? NUMBERS : [NUMBERS[turn++ % NUMBERS.length] ?? 0]);
})();

/** Everything that one change of a number or a list makes of a JSON value. */
function* mutants(value: unknown): Generator<unknown> {
  if (typeof value === 'number') yield* numbers();
  if (Array.isArray(value)) {
    yield Array.from({ length: LONG }, (_, index) => value[index % Math.max(1, value.length)] ?? 2);
    for (const [index, item] of value.slice(0, MOST_ENTRIES).entries())
      for (const mutant of mutants(item)) yield value.with(index, mutant);
  } else if (typeof value === 'object' && value !== null) {
    for (const [key, item] of Object.entries(value).slice(0, MOST_ENTRIES))
      for (const mutant of mutants(item)) yield { ...value, [key]: mutant };
  }
}

/** Entries of a list or mapping that are changed: others of it are alike. */
const MOST_ENTRIES = EVERYTHING ? 24 : 8;

/** Reads files on a thread; fails for the first that hangs, or ends in an internal error. */
async function read(t: ExecutionContext, reading: Reading): Promise<void> {
  const worker = new Worker(new URL('./reader-thread.js', import.meta.url), { workerData: reading });
  const waiting = [...reading.files];
  const problem = await new Promise<string | null>((resolve) => {
    const hangs = () =>
      resolve(`reading ${waiting[0]} hangs: ${readFileSync(waiting[0] ?? '').toString('utf8', 0, 2000)}`);
    let timer = setTimeout(hangs, HANG);
    worker.on('message', ({ file, fault }: Read) => {
      clearTimeout(timer);
      timer = setTimeout(hangs, HANG);
      waiting.shift();
      if (fault !== null) resolve(`${fault}\n${readFileSync(file).toString('utf8', 0, 2000)}`);
    });
    worker.on('error', (error) => resolve(`${error.stack}`));
    worker.on('exit', () => {
      clearTimeout(timer);
      resolve(waiting.length === 0 ? null : `the thread ended before ${waiting[0]}`);
    });
  });
  await worker.terminate();
  t.is(problem, null);
}

/** Writes what changes make of a document, a file each. */
function written(folder: string, name: string, value: unknown): readonly string[] {
  return [...mutants(value)].map((mutant, index) => {
    const file = join(folder, `${index}-${name}`);
    writeFileSync(file, JSON.stringify(mutant));
    return file;
  });
}

slow('plan.json, and MindSpore checkpoints in JSON', async (t) => {
  const folder = workplace(t);
  const { plan } = await compile({
    model: join(folder, 'models/mlp.onnx'),
    degrees: { dp: 2, tp: 2 },
    axes: 'roles',
    output: join(folder, 'd'),
  });
  await read(t, { reader: 'plan', files: written(folder, 'plan.json', plan) });
  await convertStrategy({ from: join(folder, 'd'), output: join(folder, 'm.json') });
  const document: unknown = JSON.parse(readFileSync(join(folder, 'm.json'), 'utf8'));
  await read(t, { reader: 'mindspore', files: written(folder, 'm.json', document) });
});

test('MindSpore checkpoints, byte by byte', async (t) => {
  const folder = workplace(t);
  await compile({
    model: join(folder, 'models/mlp.onnx'),
    degrees: { dp: 2, tp: 2 },
    axes: 'roles',
    output: join(folder, 'd'),
  });
  await convertStrategy({ from: join(folder, 'd'), output: join(folder, 'm.ckpt') });
  const bytes = readFileSync(join(folder, 'm.ckpt'));
  const between = EVERYTHING ? 3 : 11;
  const places = Array.from({ length: bytes.length }, (_, index) => index).filter((index) => index % between === 0);
  const files = places.flatMap((place) =>
    [0x0a, 0x7f, 0xff].map((value) => {
      const file = join(folder, `${place}-${value}.ckpt`);
      const copy = Buffer.from(bytes);
      copy[place] = value;
      writeFileSync(file, copy);
      return file;
    }),
  );
  await read(t, { reader: 'mindspore', files });
  const device = { dev_matrix: Array.from({ length: 112 }, () => 2), tensor_map: [0], field: 0 };
  const layout = { ...device, opt_weight_shard_step: 0, opt_weight_shard_size: 0 };
  writeFileSync(join(folder, 'many.json'), JSON.stringify({ current_stage: 1, parallel_layout_item: { w: layout } }));
  await t.throwsAsync(showStrategy(join(folder, 'many.json')), {
    message: /is for 5\.19\S+ devices, more than the 1048576/,
  });
});

slow('annotations, configurations, cluster files', async (t) => {
  const folder = workplace(t);
  const map = { device_matrix: [2, 2], tensor_map: [1, -1] };
  const annotations = {
    version: 1,
    mesh: { dp: 2, tp: 2 },
    pins: [
      {
        match: { node: 'a' },
        split: [
          [2, 1],
          [1, 2],
        ],
        stage: 1,
        priority: 3,
      },
      { match: { tensor: 'w' }, map },
    ],
  };
  const config = {
    parallel: { dataset_strategy: [[2, 1]] },
    parallel_config: { data_parallel: 2, model_parallel: 2, pipeline_stage: 1, micro_batch_num: 1 },
  };
  const level = { name: 'node', size: 8, bandwidth: 1e11, latency: 1e-6, dimensions: 2, topology: 'torus' };
  const cluster = {
    version: 1,
    device: { like: 'a100-sxm-80', memory: 8e10 },
    levels: [level, { name: 'net', size: 2, bandwidth: 1e10, latency: 1e-5 }],
    nodes: [{ count: 2, speed: 0.5 }],
  };
  await read(t, { reader: 'annotations', files: written(folder, 'a.json', annotations) });
  await read(t, { reader: 'config', files: written(folder, 'c.json', config) });
  await read(t, { reader: 'cluster', files: written(folder, 'k.json', cluster) });
});

slow('programs and arrays', async (t) => {
  const folder = workplace(t);
  const from = join(folder, 'd');
  await compile({ model: join(folder, 'models/mlp.onnx'), degrees: { dp: 1, tp: 2 }, axes: 'roles', output: from });
  const program: unknown = JSON.parse(readFileSync(join(from, 'program/program.json'), 'utf8'));
  const copy = join(folder, 'copy');
  cpSync(from, copy, { recursive: true });
  const all = [...mutants(program)];
  const files = all
    .filter((_, index) => index % Math.ceil(all.length / 60) === 0)
    .map((mutant, index) => {
      const place = join(folder, `p${index}`);
      mkdirSync(join(place, 'program'), { recursive: true });
      writeFileSync(join(place, 'program/program.json'), JSON.stringify(mutant));
      return place;
    });
  await read(t, { reader: 'program', files });
  const header = (shape: string) => {
    const text = `{'descr': '<f4', 'fortran_order': False, 'shape': ${shape}, }\n`;
    return Buffer.concat([
      Buffer.from('\x93NUMPY\x01\x00', 'latin1'),
      Buffer.from([text.length, 0]),
      Buffer.from(text),
    ]);
  };
  const arrays = [
    '(4,)',
    '(2147483647,)',
    '(9007199254740991, 9007199254740991)',
    '(-1,)',
    `(${'1,'.repeat(90)})`,
    `(${'9007199254740991,'.repeat(30)}0)`,
  ].map((shape, index) => {
    const file = join(folder, `${index}.npy`);
    writeFileSync(file, header(shape));
    return file;
  });
  await read(t, { reader: 'arrays', files: arrays });
});

test('archives of arrays', async (t) => {
  const folder = workplace(t);
  const archive = zipSync({ 'x.npy': writeNpy(constant('float32', new Array(4000).fill(1), [4000])) });
  // Sizes that the directory and the member say are replaced, and each byte of both.
  const places = Array.from({ length: archive.length }, (_, index) => index);
  const files = places.flatMap((place) =>
    [0x7f, 0xff].map((value) => {
      const file = join(folder, `${place}-${value}.npz`);
      const copy = Uint8Array.from(archive);
      copy[place] = value;
      writeFileSync(file, copy);
      return file;
    }),
  );
  await read(t, { reader: 'arrays', files });
});

test('safetensors', async (t) => {
  const folder = workplace(t);
  const tensor = (from: number) => ({ dtype: 'F32', shape: [2, 3], data_offsets: [from, from + 24] });
  const header = { a: tensor(0), b: tensor(24), c: { dtype: 'F32', shape: [0, 7], data_offsets: [48, 48] } };
  const file = (name: string, value: unknown, length?: bigint) => {
    const text = Buffer.from(JSON.stringify(value));
    const size = Buffer.alloc(8);
    size.writeBigUInt64LE(length ?? BigInt(text.length));
    const path = join(folder, name);
    writeFileSync(path, Buffer.concat([size, text, Buffer.alloc(48)]));
    return path;
  };
  const overlapping = { a: tensor(0), b: tensor(12), c: { dtype: 'U8', shape: [12], data_offsets: [36, 48] } };
  const sizes = [1n << 28n, 1n << 53n, (1n << 64n) - 1n, 0n, 1n];
  const whole = file('whole', header);
  const files = [
    whole,
    file('overlapping', overlapping),
    file('empty', { a: { dtype: 'F32', shape: [...new Array(40).fill(2 ** 53 - 1), 0], data_offsets: [0, 48] } }),
    file('list', [tensor(0), tensor(24)]),
    ...sizes.map((size) => file(`long-${size}`, header, size)),
    ...[...mutants(header)].map((mutant, index) => file(`${index}`, mutant)),
  ];
  await read(t, { reader: 'safetensors', files });
  const opened = await openSafetensors(whole);
  t.deepEqual([...opened.entries.keys()], ['a', 'b', 'c']);
  await opened.close();
  await t.throwsAsync(openSafetensors(join(folder, 'overlapping')), {
    message: /data of b from byte 12 on, where byte 24 comes next/,
  });
});

test('inputs in folders', async (t) => {
  const folder = workplace(t);
  const listing = { inputs: [{ name: 'x', dtype: 'float32', shape: [2, 2], file: 'x.bin' }] };
  const files = [...mutants(listing)].map((mutant, index) => {
    const place = join(folder, `${index}`);
    mkdirSync(place);
    writeFileSync(join(place, 'x.bin'), new Uint8Array(16));
    writeFileSync(join(place, 'io.json'), JSON.stringify(mutant));
    return join(place, 'io.json');
  });
  await read(t, { reader: 'inputs', files });
});

test('tables of runs', async (t) => {
  const folder = workplace(t);
  const row = {
    ...{
      gpu_type: 'A100-80GB',
      gpus: 8,
      gpus_per_node: 8,
      model: 'GPT',
      layers: 4,
      hidden: 512,
      heads: 8,
      kv_heads: 8,
    },
    ...{
      ffn: 2048,
      vocab: 50304,
      seq: 512,
      tp: 2,
      pp: 2,
      cp: 1,
      dp: 2,
      ep: 1,
      vpp: 1,
      microbatch: 1,
      global_batch: 16,
    },
    ...{ iteration_time_s: 0.1, mem_gb: 10, params_b: 0.1, internode_gbps_per_gpu: 200 },
  };
  const columns = Object.keys(row);
  const changed = Object.entries(row).flatMap(([column, value]) =>
    typeof value === 'number' ? NUMBERS.map((number) => ({ ...row, [column]: number })) : [],
  );
  // Each column with some of the numbers: a table takes a while to learn from.
  const some = changed.filter((_, index) => index % (EVERYTHING ? 3 : 7) === 0);
  const files = some.map((run, index) => {
    const file = join(folder, `${index}.csv`);
    // Beside a run that is good, so that there is something to learn.
    const lines = [columns, Object.values(row), Object.values(run)].map((fields) => fields.join(','));
    writeFileSync(file, `${lines.join('\n')}\n`);
    return file;
  });
  await read(t, { reader: 'runs', files });
});

test('multi-device annotations of models', async (t) => {
  const folder = workplace(t);
  const model = decodeModel(readFileSync(join(folder, 'models/mlp.onnx')));
  const [first, ...others] = model.graph?.node ?? [];
  const annotations = {
    configuration: [{ name: 'c', num_devices: 4 }],
    own: [
      {
        configuration_id: 'c',
        pipeline_stage: 1,
        sharding_spec: [
          {
            tensor_name: first?.input?.[0] ?? '',
            device: [-1, -2],
            index_to_device_group_map: [
              { key: -1, value: [0, 2] },
              { key: -2, value: [1, 3] },
            ],
            sharded_dim: [{ axis: 0, simple_sharding: [{ dim_value: 8, num_shards: 2 }] }],
          },
        ],
      },
    ],
  };
  const file = (name: string, { configuration, own }: typeof annotations) => {
    const node = [{ ...first, device_configurations: own }, ...others];
    const path = join(folder, `${name}.onnx`);
    writeFileSync(path, encodeModel({ ...model, configuration, graph: { ...model.graph, node } } as typeof model));
    return path;
  };
  /** Numbers that a field of the file can hold; the format has no other. */
  const fits = (mutant: unknown) => !/[.e]/.test(JSON.stringify(mutant).replaceAll(/"[^"]*"/g, ''));
  const changed = [...mutants(annotations)].filter(fits) as (typeof annotations)[];
  const whole = file('whole', annotations);
  t.is((await showStrategy(whole)).form, 'onnx');
  // One long group that is named many times.
  const [{ sharding_spec: [spec] = [], ...rest } = {}] = annotations.own;
  const group = { key: -1, value: Array.from({ length: 2 ** 14 }, (_, device) => device) };
  const many = { ...spec, device: new Array(2 ** 14).fill(-1), index_to_device_group_map: [group] };
  const named = { configuration: annotations.configuration, own: [{ ...rest, sharding_spec: [many] }] };
  const files = [whole, file('many', named as typeof annotations)];
  await read(t, {
    reader: 'annotated',
    files: [...files, ...changed.map((mutant, index) => file(`${index}`, mutant))],
  });
  await t.throwsAsync(showStrategy(files[1] ?? ''), { message: /its groups list 268435456 devices/ });
});

test('contest files', async (t) => {
  const folder = workplace(t);
  const problem = {
    name: 'two',
    nodes: {
      intervals: [
        [0, 2],
        [1, 3],
      ],
      costs: [
        [1, 2],
        [3, 4],
      ],
      usages: [
        [5, 6],
        [7, 8],
      ],
    },
    edges: { nodes: [[0, 1]], costs: [[1, 2, 3, 4]] },
    usage_limit: 20,
  };
  await read(t, { reader: 'contest', files: written(folder, 'p.json', { problem }) });
});
