/**
 * @file A twelfth of over a hundred verdicts of a search recomputed one by one by `simulate`, which knows nothing of it.
 */
import test, { type ExecutionContext } from 'ava';
import { prepareStep, searchStep } from '../../../src/api/planning/search-step.js';
import { type SimulateOptions, simulate } from '../../../src/api/simulate.js';
import { parseCluster } from '../../../src/cost-model/cluster.js';
import type { StepConfiguration } from '../../../src/cost-model/step/configuration.js';
import { STEP_CONSTANTS } from '../../../src/cost-model/step/constants.js';
import { stageMemory } from '../../../src/cost-model/step/step-memory.js';
import { priceStep, priceStepExactly } from '../../../src/cost-model/step/step-price.js';
import type { ModelWork } from '../../../src/cost-model/step/work.js';
import { thinned } from '../../selection.js';
import { FASTEST } from './base.js';

const MODEL = 'gpt:layers=16,hidden=4096,heads=32,seq=2048,vocab=51200';
const CLUSTER = '16x8:a100-sxm-80';

const optionsOf = (configuration: StepConfiguration): SimulateOptions => ({
  generate: MODEL,
  cluster: CLUSTER,
  loss: { kind: 'cross_entropy' },
  ...configuration.degrees,
  globalBatch: configuration.globalBatch,
  microBatch: configuration.microBatch,
  zero: configuration.zero,
  recompute: configuration.recompute,
  ...(configuration.schedule ? { schedule: configuration.schedule } : {}),
  virtualStages: configuration.virtualStages,
  tpSequence: configuration.tpSequence ? 'on' : 'off',
  ...(configuration.meshOrder ? { meshOrder: configuration.meshOrder } : {}),
  ...(configuration.offload ? { offload: configuration.offload } : {}),
});

const PRICES = { estimate: priceStep, simulated: priceStepExactly } as const;

const cluster = parseCluster(CLUSTER, undefined);

async function workOf({ degrees, microBatch, globalBatch }: StepConfiguration): Promise<ModelWork> {
  const { works } = await prepareStep({
    generate: MODEL,
    cluster: CLUSTER,
    loss: { kind: 'cross_entropy' },
    ...degrees,
    globalBatch,
    microBatch,
  });
  return works(degrees.tp, microBatch);
}

for (const offload of [undefined, 'none'] as const) {
  test(`every twelfth verdict of a search is what simulate says of it: offload ${offload ?? 'searched'}`, (t) =>
    recompute(t, offload));
}

async function recompute(t: ExecutionContext, offload: 'none' | undefined): Promise<void> {
  // With every micro-batch, more combinations are ruled out by seconds before memory does: less of it leaves some that nothing
  // holds.
  const memory = offload === 'none' ? 12e9 : 24e9;
  const found = await searchStep({
    ...FASTEST,
    generate: MODEL,
    cluster: CLUSTER,
    loss: { kind: 'cross_entropy' },
    globalBatch: 192,
    memory,
    zero: 1,
    top: 12,
    ...(offload ? { offload } : {}),
  });
  const { meshOrder: _, offload: __, schedule: ___, ...usual } = found.simulation.configuration;
  const kinds = new Map<string, number>();
  let checked = 0;
  for (const { kind } of found.verdicts) kinds.set(kind, (kinds.get(kind) ?? 0) + 1);
  for (const verdict of thinned(found.verdicts, 12)) {
    const { degrees } = verdict;
    checked++;
    switch (verdict.kind) {
      case 'priced': {
        const { configuration, seconds, bytes, priceLevel } = verdict.best;
        if (configuration.stageLayers || configuration.recomputedLayers) {
          // Options of `simulate` have no cuts: the same prices without what a search shares between configurations.
          const work = await workOf(configuration);
          t.is(PRICES[priceLevel](work, configuration, cluster, STEP_CONSTANTS).stepSeconds, seconds);
          t.is(Math.max(...stageMemory(work, configuration).map(({ total }) => total)), bytes);
          t.true(bytes <= memory);
          break;
        }
        const { stepSeconds, fits } = await simulate({ ...optionsOf(configuration), memory });
        t.true(fits);
        // Configurations that cannot be the best are not simulated.
        if (priceLevel === 'simulated') t.is(stepSeconds, seconds);
        else t.is(priceStep(await workOf(configuration), configuration, cluster, STEP_CONSTANTS).stepSeconds, seconds);
        break;
      }
      case 'too-large': {
        const { fits, stages } = await simulate({ ...optionsOf(verdict.least.configuration), memory });
        t.false(fits);
        t.is(Math.max(...stages.map(({ total }) => total)), verdict.least.bytes);
        break;
      }
      case 'slower': {
        t.true(verdict.atLeastSeconds >= (found.best[0]?.seconds ?? 0));
        for (const microBatch of [1, 2]) {
          if ((192 / degrees.dp) % microBatch !== 0) continue;
          const { stepSeconds, fits } = await simulate({
            ...optionsOf({ ...usual, degrees, microBatch }),
            ...(degrees.pp > 1 ? { schedule: '1f1b' as const } : {}),
            virtualStages: 1,
            zero: 1,
            recompute: 'full',
            memory,
          });
          // The bound is that of what fits.
          if (fits) t.true(stepSeconds >= verdict.atLeastSeconds, `${JSON.stringify(degrees)} ${stepSeconds}`);
        }
        break;
      }
      case 'impossible': {
        const { pp, dp, tp, sp } = degrees;
        t.true(pp > 16 || 192 % dp !== 0 || tp > 8 || 2048 % sp !== 0, verdict.reason);
        break;
      }
    }
  }
  t.true(checked >= 8, `${checked} ${JSON.stringify([...kinds])}`);
  // Hosts may hold configurations that are too large for devices.
  const kept = offload === 'none' ? ['too-large'] : [];
  t.deepEqual([...kinds.keys()].sort(), ['impossible', 'priced', 'slower', ...kept]);
}
