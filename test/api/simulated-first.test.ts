/**
 * @file Runners-up that the closed form calls faster than what is taken: each action of their schedules says that they are not.
 */
import test from 'ava';
import { prepareStep, type StepSearchOptions, searchPrepared } from '../../src/api/search-step.js';
import { reasonText } from '../../src/cli/step-report.js';
import { STEP_CONSTANTS } from '../../src/cost-model/step/constants.js';
import { priceStepExactly } from '../../src/cost-model/step/step-price.js';

test('what was not taken although its closed form is less says what its schedule takes when simulated', async (t) => {
  const options: StepSearchOptions = {
    generate: 'gpt:layers=6,hidden=512,heads=16,seq=1024,vocab=1000',
    ...{ cluster: '8x1:l40s', globalBatch: 6, memory: 2.5e9, pp: 2, precision: 'fp32' },
  };
  const prepared = await prepareStep(options);
  const search = await searchPrepared(prepared);
  const { verdicts, simulation } = search;
  const passed = verdicts.flatMap((verdict) =>
    verdict.kind === 'priced' && verdict.best.seconds < simulation.stepSeconds ? [verdict] : [],
  );
  t.true(passed.length > 0);
  for (const verdict of passed) {
    const { configuration, simulatedSeconds = 0 } = verdict.best;
    const work = prepared.works(configuration.degrees.tp, configuration.microBatch);
    const exact = priceStepExactly(work, configuration, prepared.cluster, STEP_CONSTANTS);
    t.is(simulatedSeconds, exact.stepSeconds);
    t.true(simulatedSeconds > simulation.stepSeconds);
    t.regex(reasonText(verdict, search), /^1\.\d+ times as long: .*, its schedule simulated; .* in closed form$/);
  }
});
