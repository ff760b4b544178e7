/**
 * @file The training step that is taken, against searches of its own: the fastest that fits, the fastest with headroom, and the
 * same on half of the devices.
 */
import test from 'ava';
import { type StepSearchOptions, searchStep } from '../../../src/api/planning/search-step.js';
import { slowTests } from '../../selection.js';

const slow = slowTests(test);

const STEP: StepSearchOptions = {
  generate: 'gpt:layers=4,hidden=256,heads=4,seq=128,vocab=1000',
  cluster: '1x4:a100-sxm-80',
  globalBatch: 64,
  loss: { kind: 'cross_entropy' },
};
const FASTEST = { ...STEP, prefer: 'fastest', headroom: 0 } as const;

slow('what is taken is within 2 % of the fastest with headroom, no less simple, and says what is faster', async (t) => {
  const [taken, fastest] = [await searchStep(STEP), await searchStep(FASTEST)];
  const kinds = ({ simulation }: typeof taken) =>
    Object.values(simulation.configuration.degrees).filter((degree) => degree > 1).length;
  t.true(kinds(taken) <= kinds(fastest));
  t.true(taken.simulation.stepSeconds <= 1.02 * fastest.simulation.stepSeconds);
  t.is(fastest.passed, null);
  if (taken.simulation.stepSeconds > fastest.simulation.stepSeconds)
    t.is(taken.passed?.priced.seconds, fastest.simulation.stepSeconds);
  else t.is(taken.passed, null);
});

slow('headroom chooses: a plan with it before a faster one without, and none where no plan leaves it', async (t) => {
  const fastest = await searchStep(FASTEST);
  const [{ bytes = 0 } = {}] = fastest.best;
  const least = Math.min(...(await searchStep({ ...STEP, objective: 'memory' })).best.map((own) => own.bytes));
  t.true(least < bytes);
  const memory = Math.ceil(bytes * 1.01);
  // Between what the fastest and the smallest plan use.
  const headroom = 1 - (least + bytes) / 2 / memory;
  const roomy = await searchStep({ ...FASTEST, memory, headroom });
  t.is(roomy.tight, null);
  t.true((roomy.best[0]?.bytes ?? 0) <= (least + bytes) / 2);
  t.is(roomy.passed?.priced.seconds, fastest.simulation.stepSeconds);
  t.regex(roomy.passed?.because ?? '', /leaves 0\.99 % of the memory free, less than .* % \(--headroom\)/);
  const tight = await searchStep({ ...STEP, memory: Math.ceil(least * 1.01), headroom: 0.5 });
  t.is(tight.tight, Math.floor(Math.ceil(least * 1.01) * 0.5));
});

test('fewer devices that are as fast are as fast when they are searched alone', async (t) => {
  const small = { ...STEP, generate: 'mlp:layers=2,hidden=64', loss: { kind: 'mse' }, globalBatch: 8 } as const;
  const { fewer, simulation } = await searchStep(small);
  t.truthy(fewer);
  const { nodes = 0, perNode = 0, stepSeconds = 0 } = fewer ?? {};
  const alone = await searchStep({ ...small, cluster: `${nodes}x${perNode}:a100-sxm-80`, prefer: 'fastest' });
  t.is(alone.simulation.stepSeconds, stepSeconds);
  t.true(stepSeconds <= 1.02 * simulation.stepSeconds);
});
