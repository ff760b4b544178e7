/**
 * @file The table of what was compared, and the file that keeps it: every combination of degrees is in one row or counted, a page
 * of `explain` has the plot of `compile`, and folders without the file, or with that of another plan, are searched again.
 */
import { copyFileSync, readFileSync, renameSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import test, { type ExecutionContext } from 'ava';
import type { PlanComparison, VerdictRecord } from '../../src/api/index.js';
import { comparedLines, rejectedReasons } from '../../src/cli/compared-report.js';
import { degreesText } from '../../src/cli/degrees.js';
import { autopar, workplace } from './autopar.js';

const degrees = (own: Partial<VerdictRecord['degrees']>) => ({ dp: 1, tp: 1, pp: 1, sp: 1, ep: 1, ...own });
const configuration = (own: Partial<VerdictRecord['degrees']>) =>
  ({
    ...{ degrees: degrees(own), microBatch: 1, globalBatch: 16, tpSequence: false },
    ...{ virtualStages: 1, zero: 2, recompute: 'none' },
  }) as const;
const priced = (own: Partial<VerdictRecord['degrees']>, stepSeconds: number) =>
  ({
    ...{ configuration: configuration(own), stepSeconds, priceLevel: 'simulated', peakBytes: 6e10, fullestStage: 0 },
  }) as const;

/** Two lowered plans, one that does not fit, an estimate, bounds and an impossible one. */
const COMPARISON = {
  compared: [
    {
      ...{ degrees: degrees({ dp: 8 }), microBatches: 2, proposed: { virtualStages: 1, zero: 2, recompute: 'none' } },
      ...{ estimate: { stepSeconds: 2, peakBytes: 6e10 }, stepSeconds: 2.2, peakBytes: 6.1e10, reason: null },
    },
    {
      ...{ degrees: degrees({ tp: 8 }), microBatches: 16, stepSeconds: 4, peakBytes: 5e10 },
      reason: '1.82 times as long',
    },
    {
      ...{ degrees: degrees({ dp: 4, tp: 2 }), microBatches: 4, stepSeconds: null, peakBytes: 9e10 },
      reason: 'needs 90.0 GB of 74.3 GB as lowered',
    },
  ],
  proposals: {
    ...{ objective: 'time', combinations: 7, priced: 100, gap: 0, with: ['evenly cut stages'], leavesHeadroom: true },
    preferences: { prefer: 'simple', headroom: 0.1, headroomCost: 1.05, near: 1.02 },
    first: priced({ dp: 8 }, 2),
    fastest: { ...priced({ sp: 8 }, 1.98), because: 'is less simple' },
    fewerDevices: null,
    verdicts: [
      { kind: 'priced', degrees: degrees({ sp: 8 }), ...priced({ sp: 8 }, 1.98), timesAsLong: 0.99 },
      { kind: 'priced', degrees: degrees({ dp: 8 }), ...priced({ dp: 8 }, 2), timesAsLong: 1 },
      { kind: 'slower', degrees: degrees({ dp: 4, tp: 2 }), atLeastSeconds: 2.001 },
      { kind: 'slower', degrees: degrees({ dp: 4, sp: 2 }), atLeastSeconds: 2.001 },
      { kind: 'slower', degrees: degrees({ tp: 8 }), atLeastSeconds: 3 },
      { kind: 'slower', degrees: degrees({ dp: 2, tp: 4 }), atLeastSeconds: 3 },
      { kind: 'impossible', degrees: degrees({ pp: 8 }), reason: 'pp 8 needs 8 layers, and the model has 4' },
    ],
  },
  ...{ top: [], rejected: [{ degrees: { dp: 2, tp: 4 }, reason: '1.50 times as long' }] },
} as unknown as PlanComparison;

const squeezed = (lines: readonly string[]) => lines.map((line) => line.trim().replaceAll(/ {2,}/g, ' | '));

test('a row per combination of degrees: plans as lowered, estimates, bounds; the others are counted', (t) => {
  const search =
    'search | 7 combinations of degrees, 100 configurations priced; by the estimate, none is better, with evenly cut stages';
  t.deepEqual(squeezed(comparedLines(COMPARISON, 'out', true, 4)), [
    'degrees | with | estimate | step | memory | because',
    'dp 8 | 2 micro-batches, ZeRO 2, nothing recomputed | 2 s | 2.2 s | 61 GB | chosen',
    'tp 8 | 16 micro-batches, operator search, axis roles | 4 s | 50 GB | 1.82 times as long',
    'dp 4 · tp 2 | 4 micro-batches, operator search, axis roles | 90 GB | needs 90.0 GB of 74.3 GB as lowered; ' +
      'otherwise takes 2 s at least, as long as the plan',
    'sp 8 | 16 micro-batches, ZeRO 2, nothing recomputed | 1.98 s | 60 GB | 0.990 times as long by the estimate',
    'dp 4 · sp 2 | takes 2 s at least, as long as the plan',
    'and 2 more: 1 planned, 1 impossible (explain out --rejected)',
    search,
    'fastest | by the estimate sp 8, ZeRO 2, nothing recomputed: 1.98 s, 1 % less, 60 GB; is less simple',
  ]);
  const fewer = (perNode: number) => {
    const proposals = { ...COMPARISON.proposals, fewerDevices: { nodes: 1, perNode, stepSeconds: 2 } };
    return squeezed(comparedLines({ ...COMPARISON, proposals } as PlanComparison, 'out', true, 4)).at(-1);
  };
  t.is(fewer(1), 'fewer | by the estimate 1 device takes 2 s per step (1x1)');
  t.is(fewer(4), 'fewer | by the estimate 4 devices take 2 s per step (1x4)');
  const all = squeezed(comparedLines(COMPARISON, 'out', true, 9));
  t.deepEqual(all.slice(6, 9), [
    'dp 2 · tp 4 | 1.50 times as long',
    'pp 8 | pp 8 needs 8 layers, and the model has 4',
    search,
  ]);
});

test('explain --rejected has all that rules a combination out, the table no more than its cell holds', (t) => {
  t.deepEqual(
    [...rejectedReasons(COMPARISON, true)],
    [
      ['sp 8', '0.990 times as long: 1.98 s'],
      ['dp 8', 'as long as the plan: 2 s'],
      ['dp 4 · tp 2', 'needs 90.0 GB of 74.3 GB as lowered; otherwise takes 2 s at least, as long as the plan'],
      ['dp 4 · sp 2', 'takes 2 s at least, as long as the plan'],
      ['tp 8', 'takes 3 s at least, 1.50 times as long; as lowered 4 s, 1.82 times as long'],
      ['dp 2 · tp 4', 'takes 3 s at least, 1.50 times as long'],
      ['pp 8', 'pp 8 needs 8 layers, and the model has 4'],
    ],
  );
  const reason = `no plan: ${'an operator has no strategy, '.repeat(4)}and so on to the end`;
  const [chosen, first] = COMPARISON.compared ?? [];
  const compared = [chosen, { ...first, stepSeconds: null, reason }] as PlanComparison['compared'];
  const long = { ...COMPARISON, compared } as PlanComparison;
  t.is(rejectedReasons(long, true).get('tp 8'), `${reason}; otherwise takes 3 s at least, 1.50 times as long`);
  const [, , row = ''] = squeezed(comparedLines(long, 'out', true, 1));
  t.regex(row, /no plan: (an operator has no strategy, )+an operator has no…$/);
});

const STEP =
  'compile --model gpt:layers=2,hidden=64,heads=4,seq=32,vocab=64 --cluster 1x4:a100-sxm-80 --train --global-batch 8 ' +
  '--plan-only -o out';

async function choicesOn(t: ExecutionContext, folder: string, line: string): Promise<unknown> {
  const { code, stderr } = await autopar([...line.split(' '), '--report', 'page.html'], { cwd: folder });
  t.is(code, 0, stderr);
  const [, text = ''] = /id="pictures">(.*?)<\/script>/s.exec(readFileSync(join(folder, 'page.html'), 'utf8')) ?? [];
  return (JSON.parse(text) as readonly { readonly kind: string }[]).find(({ kind }) => kind === 'choices');
}

test('compared.json keeps what was compared for explain; without it explain searches again', async (t) => {
  const { folder, remove } = workplace();
  t.teardown(remove);
  const [file, plan] = ['compared.json', 'plan.json'].map((name) => join(folder, 'out', name)) as [string, string];
  const verdicts = async () => {
    const { code, stdout, stderr } = await autopar(['explain', 'out', '--rejected', '--json'], { cwd: folder });
    t.is(code, 0, stderr);
    const read = JSON.parse(stdout) as Record<'combinations' | 'verdicts', readonly VerdictRecord[]>;
    return read;
  };
  const shown = await choicesOn(t, folder, STEP);
  t.truthy(shown);
  t.deepEqual(await choicesOn(t, folder, 'explain out'), shown);
  const kept = await verdicts();
  const { proposals } = JSON.parse(readFileSync(file, 'utf8')) as PlanComparison;
  t.deepEqual<unknown, unknown>(kept.verdicts, proposals?.verdicts);

  copyFileSync(plan, join(folder, 'plan.json'));
  writeFileSync(plan, readFileSync(plan, 'utf8').replace('"name": "gpt"', '"name": "another"'));
  t.is(await choicesOn(t, folder, 'explain out'), undefined, 'it is of another plan');
  renameSync(join(folder, 'plan.json'), plan);

  writeFileSync(file, readFileSync(file, 'utf8').replace('"objective": "time"', '"objective": "cost"'));
  const edited = await autopar(['explain', 'out', '--rejected'], { cwd: folder });
  t.is(edited.code, 3);
  t.regex(edited.stderr, /error\[bad-source\]: compared\.json is truncated or was edited/);

  rmSync(file);
  t.is(await choicesOn(t, folder, 'explain out'), undefined);
  const again = await verdicts();
  const sorted = (all: typeof again.verdicts) => all.map((one) => degreesText(one.degrees)).sort();
  t.deepEqual(sorted(again.verdicts), sorted(kept.verdicts));
});

test('explain reads a folder of recompute from what enters a stage, for which layers have no price of their own', async (t) => {
  const { folder, remove } = workplace();
  t.teardown(remove);
  const compiled = await autopar([...STEP.split(' '), '--recompute', 'stage', '--json'], { cwd: folder });
  t.is(compiled.code, 0, compiled.stderr);
  const explained = await autopar(['explain', 'out', '--json'], { cwd: folder });
  t.is(explained.code, 0, explained.stderr);
  const [made, read] = [compiled, explained].map(({ stdout }) => JSON.parse(stdout) as { predicted: unknown });
  t.deepEqual(read?.predicted, made?.predicted);
});
