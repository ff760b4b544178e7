/**
 * @file `--report` and `plot`: a page holds what `--json` prints, its timeline ends when the step does, its parts add up to it,
 * and its memory over time is fullest where the predicted peak is.
 */
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import test, { type ExecutionContext } from 'ava';
import type { ScheduledPipeline } from '../../src/api/index.js';
import type { Picture } from '../../src/pictures/picture.js';
import { slowTests } from '../selection.js';
import { autopar } from './autopar.js';

const slow = slowTests(test);

interface Read {
  readonly json: Readonly<Record<string, unknown>>;
  readonly pictures: readonly Picture[];
}

/** Runs a command with `--report`, and reads the page. */
async function reported(t: ExecutionContext, words: readonly string[]): Promise<Read> {
  const folder = mkdtempSync(join(tmpdir(), 'autopar-test-'));
  t.teardown(() => rmSync(folder, { recursive: true, force: true }));
  const file = join(folder, 'page.html');
  const { code, stdout, stderr } = await autopar([...words, '--report', file, '--json']);
  t.is(code, 0, stderr);
  const html = readFileSync(file, 'utf8');
  const jsonIn = (id: string) =>
    JSON.parse(new RegExp(`id="${id}">(.*?)</script>`, 's').exec(html)?.[1] ?? 'null') as unknown;
  t.deepEqual(jsonIn('report'), JSON.parse(stdout));
  return { json: JSON.parse(stdout) as Read['json'], pictures: jsonIn('pictures') as Read['pictures'] };
}

interface TraceEvent {
  readonly name: string;
  readonly ph: string;
  readonly cat?: string;
  readonly args: Readonly<Record<string, unknown>>;
}

interface Predicted {
  readonly stepSeconds: number;
  /** Per stage. */
  readonly peakBytes: readonly number[];
}

function endOf({ pictures }: Read): number {
  const [timeline] = pictures.flatMap((picture) => (picture.kind === 'timeline' ? [picture] : []));
  return Math.max(...(timeline?.spans ?? []).map(({ until }) => until));
}

function milliseconds({ pictures }: Read): number {
  const [parts] = pictures.flatMap((picture) => (picture.kind === 'bars' && picture.unit === 'ms' ? [picture] : []));
  return (parts?.parts ?? []).reduce((sum, { amounts: [own = 0] }) => sum + own, 0);
}

/** The most of each stage's memory over time. */
function peaksOf({ pictures }: Read): readonly number[] {
  const curves = pictures.flatMap((picture) => (picture.kind === 'memory' ? picture.curves : []));
  return curves.map(({ points }) => Math.max(...points.map(([, bytes]) => bytes)));
}

function reasonsOf({ json }: Read): readonly unknown[] {
  const operators = json['operators'] as readonly { readonly operator: string; readonly why: unknown }[];
  return operators.map(({ operator, why }) => [operator, why]);
}

const near = (a: number, b: number) => Math.abs(a - b) <= 1e-6 * Math.max(a, b);

slow('of a plan in stages, of the same folder explained, and of a run', async (t) => {
  const output = join(mkdtempSync(join(tmpdir(), 'autopar-test-')), 'out');
  t.teardown(() => rmSync(join(output, '..'), { recursive: true, force: true }));
  const words = ['models/gpt-tiny.onnx', '--train', '--pp', '2', '--global-batch', '4', '--micro-batches', '4'];
  const compiled = await reported(t, ['compile', ...words, '--schedule', '1f1b', '-o', output]);
  const { stepSeconds, peakBytes } = compiled.json['predicted'] as Predicted;
  t.deepEqual(peaksOf(compiled), peakBytes);
  t.true(near(milliseconds(compiled), stepSeconds * 1e3));
  t.true(endOf(compiled) > 0.5 * stepSeconds && endOf(compiled) <= stepSeconds);
  const explained = await reported(t, ['explain', output]);
  t.deepEqual(
    explained.pictures.filter(({ kind }) => kind !== 'choices'),
    compiled.pictures.filter(({ kind }) => kind !== 'choices'),
  );
  t.true((compiled.json['operators'] as readonly unknown[]).length > 50);
  t.deepEqual(reasonsOf(explained), reasonsOf(compiled));
  const ran = await reported(t, ['run', output]);
  const [timeline] = ran.pictures;
  t.true(timeline?.kind === 'timeline' && timeline.spans.some(({ kind }) => kind === 'backward'));
  const ranks = ran.json['ranks'] as readonly { readonly peakBytes: number }[];
  // Each rank waits for the other stage: the first for gradients, the second for results.
  const waiting = timeline?.kind === 'timeline' ? timeline.spans.filter(({ kind }) => kind === 'bubble') : [];
  t.deepEqual([...new Set(waiting.map(({ line }) => line))].sort(), [0, 2]);
  t.deepEqual(
    peaksOf(ran),
    ranks.map((rank) => rank.peakBytes),
  );
});

slow(
  'of a plan in one stage with micro-batches: what ranks do one after the other takes no longer than the step',
  async (t) => {
    const words = [
      'models/gpt-tiny.onnx',
      '--train',
      '--dp',
      '2',
      '--tp',
      '2',
      '--global-batch',
      '4',
      '--micro-batches',
      '2',
    ];
    const page = await reported(t, [
      'compile',
      ...words,
      '-o',
      join(mkdtempSync(join(tmpdir(), 'autopar-test-')), 'out'),
    ]);
    const { stepSeconds, peakBytes } = page.json['predicted'] as Predicted;
    t.deepEqual(peaksOf(page), peakBytes);
    t.true(near(milliseconds(page), stepSeconds * 1e3));
    t.true(endOf(page) > 0.5 * stepSeconds && endOf(page) <= stepSeconds * (1 + 1e-9));
  },
);

slow('of a configuration that is priced, and of a search over whole steps', async (t) => {
  const degrees = ['--dp', '2', '--tp', '2', '--pp', '2', '--global-batch', '16'];
  const trace = join(mkdtempSync(join(tmpdir(), 'autopar-test-')), 'trace.json');
  const priced = await reported(t, [
    'simulate',
    '--trace',
    trace,
    '--model',
    'gpt',
    '--cluster',
    '1x8:a100-sxm-80',
    '--train',
    ...degrees,
  ]);
  t.true(near(milliseconds(priced), (priced.json['stepSeconds'] as number) * 1e3));
  const stages = priced.json['stages'] as readonly { readonly totalBytes: number }[];
  t.deepEqual(
    peaksOf(priced),
    stages.map(({ totalBytes }) => totalBytes),
  );
  const { traceEvents } = JSON.parse(readFileSync(trace, 'utf8')) as { readonly traceEvents: readonly TraceEvent[] };
  t.true(traceEvents.some(({ cat }) => cat === 'send(pp)'));
  for (const [stage, { totalBytes }] of stages.entries()) {
    const counted = traceEvents.filter(({ ph, name }) => ph === 'C' && name === `memory of stage ${stage}`);
    t.is(Math.max(...counted.map(({ args }) => args['bytes'] as number)), Math.round(totalBytes));
  }
  const output = join(mkdtempSync(join(tmpdir(), 'autopar-test-')), 'out');
  const cluster = ['--cluster', '1x4:a100-sxm-80', '--train', '--global-batch', '16', '--plan-only', '-o', output];
  const { pictures } = await reported(t, ['compile', '--model', 'gpt:layers=4', ...cluster]);
  const [choices] = pictures.flatMap((picture) => (picture.kind === 'choices' ? [picture] : []));
  t.is(choices?.choices.filter(({ isTaken }) => isTaken).length, 1);
  t.true((choices?.choices.length ?? 0) > 1);
  await reported(t, ['explain', output]);
});

test('bubbles of a timeline are the time in which a stage neither runs actions nor updates', async (t) => {
  const output = join(mkdtempSync(join(tmpdir(), 'autopar-test-')), 'out');
  t.teardown(() => rmSync(join(output, '..'), { recursive: true, force: true }));
  const words = ['models/mlp.onnx', '--train', '--loss', 'mse', '--pp', '2', '--micro-batches', '4'];
  const compiled = await autopar(['compile', ...words, '--plan-only', '-o', output]);
  t.is(compiled.code, 0, compiled.stderr);
  const page = await reported(t, ['explain', output]);
  const spans = page.pictures.flatMap((picture) => (picture.kind === 'timeline' ? picture.spans : []));
  const { stdout } = await autopar(['explain', output, '--schedule', '--json']);
  const { pipeline } = JSON.parse(stdout) as { readonly pipeline: ScheduledPipeline };
  for (const { stage, busySeconds, actions } of pipeline.stages) {
    const of = (kind: string) =>
      spans
        .filter((span) => span.line === stage && span.kind === kind)
        .reduce((sum, { from, until }) => sum + until - from, 0);
    t.true(of('bubble') > 0);
    t.true(near(of('bubble') + busySeconds + of('update'), endOf(page)));
    const waits = spans.filter(({ line, kind }) => line === stage && kind === 'bubble');
    t.true(
      waits.every(({ from, until }) =>
        actions.every(({ startSeconds, endSeconds }) => endSeconds <= from || startSeconds >= until),
      ),
    );
  }
});

test('a report beside a question of explain is refused', async (t) => {
  const { code, stderr } = await autopar(['explain', 'nowhere', '--mesh', '--report', 'page.html']);
  t.is(code, 2);
  t.regex(stderr, /--report applies to the plan, and cannot be combined with the other views/);
});

test('plot draws the losses that runs left, and refuses a folder without any', async (t) => {
  const folder = mkdtempSync(join(tmpdir(), 'autopar-test-'));
  t.teardown(() => rmSync(folder, { recursive: true, force: true }));
  const line = (step: number) =>
    `${JSON.stringify({ step, loss: 4 / step, ...(step === 3 ? { evalLoss: 2 } : {}) })}\n`;
  writeFileSync(join(folder, 'metrics.jsonl'), [1, 2, 3].map(line).join(''));
  const file = join(folder, 'both.svg');
  const drawn = await autopar(['plot', folder, `again=${folder}`, '-o', file, '--json']);
  t.is(drawn.code, 0, drawn.stderr);
  const { runs } = JSON.parse(drawn.stdout) as { readonly runs: readonly { readonly name: string }[] };
  t.like(runs[1], { name: 'again', steps: 3, firstLoss: 4, lastLoss: 4 / 3 });
  const svg = readFileSync(file, 'utf8');
  t.true(svg.startsWith('<svg') && svg.includes('>again<') && svg.includes('>again, evaluation<'));
  const none = await autopar(['plot', 'models']);
  t.is(none.code, 3);
  t.regex(none.stderr, /error\[no-metrics\]/);
});
