/**
 * @file Calibrating on the command line: all commands plan with the written file alike, and unusable runs are reported.
 */
import { existsSync, mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import test from 'ava';
import { slowTests } from '../selection.js';
import { autopar, workplace } from './autopar.js';

const slow = slowTests(test);

interface Scored {
  readonly mape: number;
}

interface Calibrated {
  readonly rows: number;
  readonly runs: number;
  readonly configurations: number;
  readonly skipped: Readonly<Record<string, number>>;
  readonly scores: Readonly<Record<'before' | 'after', Scored>> & {
    readonly given: Scored | null;
    readonly otherShapes: Scored | null;
  };
  readonly layers: readonly { readonly factor: number; readonly runs: number }[];
}

const HEADER =
  'device,devices,model,layers,hidden,heads,ffn,vocab,seq,tp,pp,dp,micro_batch,global_batch,seconds,recompute,precision';
const RUN = 'a100-sxm-80,4,gpt-x,4,512,8,2048,50304,512,2,1,2,2,32,0.06,none,bf16'.split(',');

/** A table of a run, some fields of which are others. */
const table = (...changes: readonly Readonly<Record<string, string>>[]): string => {
  const names = HEADER.split(',');
  const rows = changes.map((change) => names.map((name, index) => change[name] ?? RUN[index]).join(','));
  return `${[HEADER, ...rows].join('\n')}\n`;
};

slow('what runs taught is kept, and simulate prices with it', async (t) => {
  const { folder, remove } = workplace();
  t.teardown(remove);
  const run = (line: string) => autopar(line.split(' '), { cwd: folder });
  const calibrated = await run('calibrate models/pilot-runs.csv --cluster 8x8:h100-sxm-80 -o my.yaml --json');
  t.is(calibrated.code, 0, calibrated.stderr);
  const { scores, layers, runs } = JSON.parse(calibrated.stdout) as Calibrated;
  t.is(runs, 8);
  t.true(scores.after.mape < 0.02 && scores.before.mape > 3 * scores.after.mape, calibrated.stdout);
  t.is(scores.given, null);
  t.true(layers.every(({ factor }) => factor < 1 && factor > 0.85));

  // The file has it: scored again nothing is left to learn, and the same is written, as YAML and as JSON.
  const again = await run('calibrate models/pilot-runs.csv --cluster my.yaml -o again.yaml --json');
  t.is((JSON.parse(again.stdout) as Calibrated).scores.given?.mape, scores.after.mape);
  t.is(readFileSync(join(folder, 'again.yaml'), 'utf8'), readFileSync(join(folder, 'my.yaml'), 'utf8'));
  await run('calibrate models/pilot-runs.csv --cluster my.yaml -o my.json');

  const choice =
    '--model llama:layers=16,hidden=4096,heads=32,kv_heads=8,ffn=14336,seq=8192,vocab=128256 --train ' +
    '--dp 32 --sp 2 --micro-batch 1 --global-batch 64 --json';
  const seconds = async (cluster: string) => {
    const { code, stdout, stderr } = await run(`simulate --cluster ${cluster} ${choice}`);
    t.is(code, 0, stderr);
    return (JSON.parse(stdout) as { readonly stepSeconds: number }).stepSeconds;
  };
  const learned = await seconds('my.yaml');
  t.is(await seconds('my.json'), learned);
  t.true(learned < 0.98 * (await seconds('8x8:h100-sxm-80')));
});

test(
  'one run is learned from, runs of one configuration are one that is known better, and rows that are ' +
    'none are said',
  async (t) => {
    const { folder, remove } = workplace();
    t.teardown(remove);
    const calibrated = async (text: string): Promise<Calibrated> => {
      writeFileSync(join(folder, 'runs.csv'), text);
      const ended = await autopar(['calibrate', 'runs.csv', '--cluster', '1x8:a100-sxm-80', '--json'], { cwd: folder });
      t.is(ended.code, 0, ended.stderr);
      return JSON.parse(ended.stdout) as Calibrated;
    };
    const one = await calibrated(table({}));
    t.deepEqual([one.rows, one.runs, one.layers.length, one.scores.otherShapes], [1, 1, 1, null]);
    const many = await calibrated(table(...Array.from({ length: 2000 }, () => ({}))));
    t.deepEqual([many.rows, many.runs, many.configurations], [2000, 2000, 1]);
    t.is(many.layers[0]?.runs, 2000);
    t.true(many.scores.after.mape <= one.scores.after.mape);

    const mixed = await calibrated(
      table(
        {},
        { seconds: '0' },
        { seconds: '-1' },
        { seconds: '' },
        { seconds: '60 ms' },
        { seconds: '900' },
        { device: 'H100' },
        { device: 'h100-sxm-80' },
        { devices: '16', dp: '8' },
        { dp: '3' },
        { layers: '' },
        { recompute: 'uniform' },
      ),
    );
    t.deepEqual([mixed.rows, mixed.runs], [12, 1]);
    t.is(
      Object.values(mixed.skipped).reduce((sum, count) => sum + count, 0),
      11,
    );
    t.deepEqual(mixed.layers, one.layers);
    const reasons = Object.keys(mixed.skipped).join('\n');
    for (const reason of [
      /seconds is 0, where a number above 0 is expected/,
      /seconds is -1/,
      /no time/,
      /seconds is 60 ms/,
      /more than 10 times/,
      /device H100 is not in the catalogue/,
      /ran on h100/,
      /ran on 16 devices/,
      /do not multiply/,
      /layers is not stated/,
      /recompute is uniform, where one of none, selective, operators, full is expected/,
    ])
      t.regex(reasons, reason);

    const { stdout } = await autopar(['calibrate', 'runs.csv', '--cluster', '1x8:a100-sxm-80'], { cwd: folder });
    t.regex(stdout, /1 of 12 runs used/);
    t.regex(stdout, /unknown from one shape/);
    t.regex(stdout, /nothing is written/);
  },
);

test('what cannot be calibrated is refused with the reason, and nothing is written', async (t) => {
  const { folder, remove } = workplace();
  t.teardown(remove);
  const put = (name: string, text: string | Buffer) => writeFileSync(join(folder, name), text);
  put('runs.csv', table({}));
  put('none.csv', `${HEADER}\n`);
  put('other.csv', table({ device: 'V100' }, { seconds: '' }));
  put('columns.csv', 'a,b\n1,2\n');
  put('quote.csv', `${HEADER}\n"1,2\n`);
  put('raw.csv', Buffer.from(Array.from({ length: 4000 }, (_, index) => (index * 167) % 256)));
  put('empty.csv', '');
  mkdirSync(join(folder, 'folder.csv'));
  put(
    'unlike.yaml',
    'version: 1\ndevice: a100-sxm-80\nlevels:\n  - {name: node, size: 4}\n  - {name: net, size: 2}\nnodes: ' +
      '[{count: 1}, {count: 1, speed: 0.5}]\n',
  );
  const usual = '--cluster 1x8:a100-sxm-80';
  for (const [line, code, says] of [
    [`absent.csv ${usual}`, 3, /error\[file-missing\]: there is no such file\n {2}in absent.csv/],
    [`folder.csv ${usual}`, 3, /error\[bad-runs\]: the file is a folder/],
    [`empty.csv ${usual}`, 3, /error\[bad-runs\]: the file is not a table of training runs/],
    [`raw.csv ${usual}`, 3, /error\[bad-runs\]/],
    [`columns.csv ${usual}`, 3, /lacks the columns device, devices/],
    [`quote.csv ${usual}`, 3, /the quote that line 2 opens is never closed/],
    [`none.csv ${usual}`, 3, /no run can be used: the table has no rows/],
    [`other.csv ${usual}`, 3, /no run can be used; 1 of 2: .*\(and 1 other reasons?\)/],
    [`runs.csv absent.csv ${usual}`, 3, /error\[file-missing\]/],
    ['runs.csv', 2, /error\[missing-argument\]: calibrate needs the cluster/],
    [usual, 2, /error\[missing-argument\]/],
    ['runs.csv --cluster local', 2, /error\[bad-calibration\]: cluster local consists of ranks of this machine/],
    ['runs.csv --cluster unlike.yaml', 2, /error\[bad-calibration\]: the nodes of unlike.yaml differ/],
    ['runs.csv --cluster 1x8:a100', 2, /error\[unknown-device\]/],
    [`runs.csv ${usual} -o my-cluster`, 2, /error\[bad-option\].*does not name a cluster file/],
    [`runs.csv ${usual} -o runs.csv/x.yaml`, 7, /error\[/],
  ] as const) {
    const ended = await autopar(['calibrate', ...line.split(' '), ...(line.includes('-o') ? [] : ['-o', 'my.yaml'])], {
      cwd: folder,
    });
    t.is(ended.code, code, `${line}: ${ended.stderr}`);
    t.regex(ended.stderr, says, line);
    t.notRegex(ended.stderr, /\bat .*\.js|internal error of autopar/, line);
    t.false(existsSync(join(folder, 'my.yaml')), line);
  }
});

test('measured layers that a cluster file cannot have are refused with their line', async (t) => {
  const { folder, remove } = workplace();
  t.teardown(remove);
  const layer =
    '{software: eager, precision: bf16, attention: fused, tpSequence: false, tp: 1, sp: 1, ep: 1, tokens: 8, ' +
    'products: 16, scores: 1, exchanged: 0, factor: 1.5, runs: 2}';
  const cluster = (...layers: readonly string[]) =>
    [
      'version: 1',
      'device: a100-sxm-80',
      'levels:',
      '  - {name: node, size: 8}',
      'measuredLayers:',
      ...layers.map((one) => `  - ${one}`),
      '',
    ].join('\n');
  for (const [text, says, line] of [
    [cluster(layer, layer), /measuredLayers\[1\] is the same layer as measuredLayers\[0\]/, 7],
    [cluster(layer, layer.replace('1.5', '0')), /measuredLayers\[1\].*factor/, 7],
    [cluster(layer.replace('1.5', '.nan')), /factor/, 6],
    [cluster(layer.replace('tokens: 8', 'tokens: -8')), /tokens/, 6],
    [cluster(layer.replace('eager', 'eagre')), /software/, 6],
    [cluster(layer.replace('tokens: 8, ', '')), /tokens/, 6],
    [cluster(layer.replace('tokens', 'token')), /token/, 6],
  ] as const) {
    writeFileSync(join(folder, 'c.yaml'), text);
    const { code, stderr } = await autopar('simulate --model gpt --cluster c.yaml --train'.split(' '), { cwd: folder });
    t.is(code, 3, stderr);
    t.regex(stderr, says);
    t.regex(stderr, new RegExp(`in c\\.yaml:${line}\\n`), text);
  }
});
