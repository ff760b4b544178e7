/**
 * @file Profiles: measured through the runtime, written, read for `--cluster local`, refused on another machine.
 */
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { homedir, tmpdir } from 'node:os';
import { join } from 'node:path';
import test from 'ava';
import { measure } from '../../../src/api/profile/measured-program.js';
import { defaultProfileFile, readProfile, thisMachine } from '../../../src/api/profile/profile-file.js';
import { type PlannedMeasurement, sweep } from '../../../src/api/profile/sweep.js';
import { profile } from '../../../src/api/profile.js';
import { clusterSources } from '../../../src/api/requests/cluster-sources.js';
import { clusterSize, parseCluster } from '../../../src/cost-model/cluster.js';
import type { MeasuredSubject } from '../../../src/cost-model/fit-profile.js';
import { AutoparError } from '../../../src/ir/error.js';

const folder = mkdtempSync(join(tmpdir(), 'autopar-profile-test-'));
test.after.always(() => rmSync(folder, { recursive: true, force: true }));

/** A second for every FLOP, byte or operator: a clock that never waits. */
async function fakeClock({ subject, ranks }: PlannedMeasurement): Promise<number> {
  const speed = ranks === 1 ? 2 : 1;
  if (subject.kind === 'matmul')
    return (subject.operators * 1e-10 * subject.rows * subject.side * (2 * subject.side + 20) + 1e-5) / speed;
  if (subject.kind === 'chain') return 1e-5 + 1e-6 * subject.operators;
  if (subject.kind === 'wide') return 1e-5 + subject.tensors * (1e-6 + 1e-9 * subject.elements);
  return 1e-5 * ranks + 1e-9 * subject.elements;
}

test('every kind of measurement runs through the runtime', async (t) => {
  const subjects: readonly MeasuredSubject[] = [
    { kind: 'matmul', rows: 8, side: 8, operators: 2 },
    { kind: 'matmul', rows: 8, side: 8, operators: 2, stored: true },
    { kind: 'chain', operators: 3 },
    { kind: 'wide', tensors: 3, elements: 2 },
    { kind: 'collective', collective: 'reduce-scatter', elements: 64 },
    { kind: 'collective', collective: 'all-to-all', elements: 64 },
    { kind: 'collective', collective: 'permute', elements: 64 },
  ];
  for (const subject of subjects) {
    const seconds = await measure(subject, 2, { repeats: 2, steps: 1 });
    t.true(seconds > 0 && seconds < 10, JSON.stringify(subject));
  }
  const aborted = AbortSignal.abort();
  await t.throwsAsync(measure({ kind: 'add', elements: 64, operators: 2 }, 2, { repeats: 1, steps: 1 }, aborted), {
    code: 'interrupted',
  });
});

test('where a profile cannot be written nothing is measured', async (t) => {
  const file = join(folder, 'a-file');
  writeFileSync(file, '');
  let measured = 0;
  const made = profile({
    output: join(file, 'deeper', 'profile.json'),
    measure: async () => {
      measured++;
      return 1;
    },
  });
  const error = await t.throwsAsync(made, { instanceOf: AutoparError });
  t.is(error.exit, 'cannotWrite');
  t.is(measured, 0);
});

test('the sweep covers all kinds and group sizes, quick a tenth of it', (t) => {
  const groups = (quick: boolean) => [
    ...new Set(sweep(8, quick).flatMap(({ subject, ranks }) => (subject.kind === 'collective' ? [ranks] : []))),
  ];
  // Twice as many ranks as cores too: they have to share them.
  t.deepEqual(groups(false), [2, 4, 8, 16]);
  t.deepEqual(groups(true), [2, 16]);
  t.true(sweep(8, true).length < sweep(8, false).length / 3);
  for (const { subject, ranks } of sweep(8, false))
    if (subject.kind === 'collective') t.is(subject.elements % (ranks * ranks), 0);
});

test('what is measured is written, and is what local means here', async (t) => {
  const file = join(folder, 'deep', 'profile.json');
  const steps: number[] = [];
  const made = await profile({
    output: file,
    quick: true,
    measure: fakeClock,
    onProgress: ({ done, of }) => steps.push(done / of),
  });
  t.is(made.file, file);
  t.is(steps.length, sweep(2, true).length);
  t.true(Math.abs((made.profile.errors.matmul as number) - 0) < 0.01);
  const local = await readProfile(file);
  const cluster = parseCluster('local', 2, { local });
  t.is(clusterSize(cluster), 2);
  t.true(cluster.local);
  t.true(Math.abs((cluster.device.peakFlops.fp32 ?? 0) / 1e10 - 1) < 0.05, `${cluster.device.peakFlops.fp32}`);
  t.truthy(cluster.description, 'plan.json keeps what prices depend on');
  t.deepEqual(Object.keys(await clusterSources(file)), ['local']);

  // Ranks beyond the cores share them; a rank that is alone has the machine to itself.
  const { cores } = thisMachine();
  const rate = (ranks: number) => local(ranks).device.peakFlops.fp32 ?? 0;
  if (cores > 1) t.true(Math.abs(rate(1) / rate(cores) - 2) < 1e-6);
  const crowded = local(4 * cores);
  t.true(Math.abs((rate(4 * cores) * 4) / rate(cores) / made.profile.crowded.speed - 1) < 1e-6);
  const [once, twice] = [local(2 * cores), crowded].map(({ levels }) => levels[0]?.latencySeconds ?? 0);
  t.true(Math.abs((twice as number) / (once as number) - 2) < 1e-6);
});

test('a profile of another machine is refused by what differs; damaged ones by name', async (t) => {
  const file = join(folder, 'mine.json');
  await profile({ output: file, quick: true, measure: fakeClock });
  const here = thisMachine();
  await t.throwsAsync(readProfile(file, { ...here, cores: here.cores + 6, processor: 'Abacus 3' }), {
    code: 'profile-of-another-machine',
    message:
      `the profile was made on another machine: ${here.processor} there, Abacus 3 here; ${here.cores} ` +
      `cores there, ${here.cores + 6} cores here`,
  });
  const other = join(folder, 'other.json');
  writeFileSync(other, readFileSync(file, 'utf8').replace('"cores": ', '"cores": 9'));
  await t.throwsAsync(clusterSources(other), { code: 'profile-of-another-machine' });
  const newer = join(folder, 'newer.json');
  writeFileSync(newer, readFileSync(file, 'utf8').replace('"version": 2\n}', '"version": 3\n}'));
  await t.throwsAsync(clusterSources(newer), { code: 'bad-profile', message: /not a profile of this version/ });
  const torn = join(folder, 'torn.json');
  writeFileSync(torn, readFileSync(file, 'utf8').slice(0, 200));
  await t.throwsAsync(clusterSources(torn), { code: 'bad-yaml' });
  const edits: readonly (readonly [string, string, RegExp])[] = [
    ['"compute": ', '"compute": -', /the profile was edited: alone\.compute is -/],
    ['"memorySpeed"', '"x"', /edited: crowded (has no key 'x'|lacks the key 'memorySpeed')/],
    ['"cores": ', '"cores": "9", "x": ', /edited: machine/],
    ['"levels": [', '"levels": [{}, ', /edited: cluster\.levels is/],
  ];
  for (const [from, to, message] of edits) {
    const edited = join(folder, 'edited.json');
    writeFileSync(edited, readFileSync(file, 'utf8').replace(from, to));
    await t.throwsAsync(clusterSources(edited), { code: 'bad-profile', message });
  }
  const unwritable = profile({ output: join(file, 'below'), quick: true, measure: fakeClock });
  t.like(await t.throwsAsync(unwritable), { exit: 'cannotWrite' });
});

test("the profile lies in the user's cache folder, as each system has it", (t) => {
  const cache = join(folder, 'cache');
  t.is(defaultProfileFile({ XDG_CACHE_HOME: cache }, 'linux'), join(cache, 'autopar', 'profile.json'));
  t.is(defaultProfileFile({}, 'linux'), join(homedir(), '.cache', 'autopar', 'profile.json'));
  t.is(
    defaultProfileFile({ XDG_CACHE_HOME: 'relative' }, 'linux'),
    join(homedir(), '.cache', 'autopar', 'profile.json'),
  );
  t.is(defaultProfileFile({}, 'darwin'), join(homedir(), 'Library', 'Caches', 'autopar', 'profile.json'));
  t.is(defaultProfileFile({ LOCALAPPDATA: cache }, 'win32'), join(cache, 'autopar', 'profile.json'));
});
