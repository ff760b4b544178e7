/**
 * @file The search over configurations: brute force over whole spaces under random prices.
 */
import test from 'ava';
import fc from 'fast-check';
import type { StepConfiguration } from '../../../src/cost-model/step/configuration.js';
import {
  bestConfigurations,
  type DegreesVerdict,
  inOrder,
} from '../../../src/search/configurations/best-configurations.js';
import type { Pricing } from '../../../src/search/configurations/pricing.js';
import {
  type Combination,
  combinations,
  type SpaceOptions,
  variants,
} from '../../../src/search/configurations/space.js';
import { draws } from '../../selection.js';
import { BASE } from './base.js';

const spaces = fc
  .record({
    devices: fc.constantFrom(1, 2, 4, 6, 8, 12, 16),
    perNode: fc.constantFrom(2, 4, 8),
    globalBatch: fc.constantFrom(4, 8, 12, 32),
    layers: fc.integer({ min: 1, max: 12 }),
    sequence: fc.constantFrom(1, 64),
    experts: fc.constantFrom(1, 4),
    decided: fc.record(
      {
        zero: fc.constantFrom(0 as const, 1 as const, 3 as const),
        recompute: fc.constantFrom('none' as const, 'full' as const),
        microBatch: fc.constantFrom(1, 2),
        pp: fc.constantFrom(1, 2),
      },
      { requiredKeys: [] },
    ),
  })
  .map(
    ({ devices, perNode, globalBatch, layers, sequence, experts, decided }): SpaceOptions => ({
      devices,
      perNode,
      globalBatch,
      facts: { layers, sequence, heads: 8, experts },
      decided,
      base: { ...BASE, globalBatch },
    }),
  );

/** A number that looks drawn and depends on the text alone. */
function drawn(text: string): number {
  let state = 2166136261;
  for (let index = 0; index < text.length; index++) state = Math.imul(state ^ text.charCodeAt(index), 16777619);
  return ((state >>> 0) % 1000) / 1000;
}

const textOf = ({ degrees, microBatch, zero, recompute, schedule, virtualStages }: StepConfiguration) =>
  JSON.stringify([degrees, microBatch, zero, recompute, schedule ?? null, virtualStages]);

/**
 * Prices without any order but that recomputing takes longer, with a bound that holds and is sometimes tight; exact prices are
 * closed forms, or more.
 */
/** The most by which closed forms exceed simulated steps. */
const HIDDEN = 0.1;

function randomPricing(seed: number, space: SpaceOptions): Pricing {
  const seconds = (configuration: StepConfiguration) =>
    1 +
    drawn(`${seed} s ${textOf({ ...configuration, recompute: 'none' })}`) +
    (configuration.recompute === 'none' ? 0 : drawn(`${seed} r ${textOf(configuration)}`));
  // Waiting of stages for each other, whatever they recompute, less the communication that is hidden.
  const waiting = (configuration: StepConfiguration) =>
    Math.max(-HIDDEN, drawn(`${seed} e ${textOf({ ...configuration, recompute: 'none' })}`) - 0.5);
  const least = (configuration: StepConfiguration) => seconds(configuration) - HIDDEN;
  return {
    ...{ seconds, least },
    exactly: (configuration) => ({
      seconds: seconds(configuration) + waiting(configuration),
      priceLevel: 'simulated',
    }),
    fitted: (configuration) => configuration,
    balanced: (configuration) => configuration,
    bytes: (configuration) => ({ stage: 0, bytes: drawn(`${seed} b ${textOf(configuration)}`) }),
    atLeast: (configuration) => {
      const { degrees, microBatch, schedule, virtualStages } = configuration;
      const alike = [...variants({ degrees, microBatches: [microBatch], reason: null }, microBatch, space)].filter(
        (own) => own.schedule === schedule && own.virtualStages === virtualStages,
      );
      return Math.min(...alike.map(least)) - drawn(`${seed} l ${textOf(configuration)}`) * 0.5;
    },
  };
}

test('the best is that of all configurations that fit, and each verdict is what brute force says', (t) => {
  fc.assert(
    fc.property(spaces, fc.nat(), fc.constantFrom(null, 0.1, 0.5, 0.9), (space, seed, limitBytes) => {
      const pricing = randomPricing(seed, space);
      const found = bestConfigurations(space, pricing, { objective: 'time', limitBytes, top: 3 });
      const all = combinations(space).map((combination) => ({
        combination,
        configurations: combination.microBatches.flatMap((size) => [...variants(combination, size, space)]),
      }));
      const fitting = (configurations: readonly StepConfiguration[]) =>
        configurations.filter((one) => limitBytes === null || pricing.bytes(one).bytes <= limitBytes);
      const exactly = (one: StepConfiguration) => pricing.exactly(one).seconds;
      const best = Math.min(...all.flatMap(({ configurations }) => fitting(configurations)).map(exactly));
      t.is(found.best[0]?.seconds ?? Number.POSITIVE_INFINITY, best);
      t.is(found.bound, best);
      t.is(found.verdicts.length, all.length);
      for (const verdict of found.verdicts) {
        const own =
          all.find(({ combination }) => combination.degrees === verdict.degrees) ??
          all.find(({ combination }) => JSON.stringify(combination.degrees) === JSON.stringify(verdict.degrees));
        const configurations = own?.configurations ?? [];
        if (verdict.kind === 'impossible') t.deepEqual(configurations, []);
        if (verdict.kind === 'slower') {
          t.true(Math.min(...fitting(configurations).map(exactly)) >= verdict.atLeastSeconds);
          t.true(verdict.atLeastSeconds >= best);
        }
        if (verdict.kind === 'too-large') {
          t.deepEqual(fitting(configurations), []);
          t.is(verdict.least.bytes, Math.min(...configurations.map((one) => pricing.bytes(one).bytes)));
        }
        if (verdict.kind === 'priced') {
          const { configuration, priceLevel } = verdict.best;
          const price = priceLevel === 'simulated' ? exactly(configuration) : pricing.seconds(configuration);
          t.is(verdict.best.seconds, price);
          t.true(price >= best);
        }
      }
    }),
    { numRuns: draws(150) },
  );
});

test('where the time is over, what was found is there, and no configuration beats the bound', (t) => {
  let [cut, first] = [0, 0];
  fc.assert(
    fc.property(spaces, fc.nat(), fc.integer({ min: 0, max: 60 }), (space, seed, asks) => {
      const pricing = randomPricing(seed, space);
      let left = asks;
      const isOver = () => left-- <= 0;
      const found = bestConfigurations(space, pricing, { objective: 'time', limitBytes: 0.9, top: 3, isOver });
      const all = combinations(space);
      t.is(found.verdicts.length, all.length);
      const secondsOf = (combination: Combination) =>
        combination.microBatches
          .flatMap((size) => [...variants(combination, size, space)])
          .filter((one) => pricing.bytes(one).bytes <= 0.9)
          .flatMap((one) => [pricing.seconds(one), pricing.exactly(one).seconds]);
      const exact = all.flatMap(secondsOf).filter((_, index) => index % 2 === 1);
      const least = Math.min(...exact);
      t.true(found.bound <= least);
      if (!found.isCutOff) t.is(found.best[0]?.seconds ?? Number.POSITIVE_INFINITY, least);
      else cut++;
      // However early the time is over: a plan that fits is found if there is one.
      t.is(found.best.length > 0, least < Number.POSITIVE_INFINITY);
      if (found.isUncompared) {
        first++;
        t.true(found.isCutOff && found.best.length === 1);
      }
      for (const verdict of found.verdicts) {
        const own = all.find(({ degrees }) => JSON.stringify(degrees) === JSON.stringify(verdict.degrees));
        const seconds = own ? secondsOf(own) : [];
        // The bound is that of exact prices: the estimate of what was simulated may be below it.
        if (verdict.kind === 'unseen' || verdict.kind === 'slower')
          t.true(Math.min(...seconds.filter((_, index) => index % 2 === 1)) >= verdict.atLeastSeconds);
        if (verdict.kind === 'unseen') t.true(found.isCutOff);
        if (verdict.kind === 'priced') t.true(seconds.includes(verdict.best.seconds));
      }
    }),
    // Some of the draws must be cut off before anything is compared.
    { numRuns: draws(100), seed: 3 },
  );
  t.true(cut > 0 && first > 0, `${cut} ${first}`);
});

test('the least memory is found where that is asked for', (t) => {
  fc.assert(
    fc.property(spaces, fc.nat(), (space, seed) => {
      const pricing = randomPricing(seed, space);
      const found = bestConfigurations(space, pricing, { objective: 'memory', limitBytes: null, top: 1 });
      const all = combinations(space).flatMap((combination) =>
        combination.microBatches.flatMap((size) => [...variants(combination, size, space)]),
      );
      const least = Math.min(...all.map((one) => pricing.bytes(one).bytes));
      t.is(found.best[0]?.bytes ?? Number.POSITIVE_INFINITY, least);
    }),
    { numRuns: draws(60) },
  );
});

test('combinations are told by their time, whichever was found first; those without a price come last', (t) => {
  const degrees = { dp: 1, tp: 1, pp: 1, sp: 1, ep: 1 };
  const priced = (seconds: number): DegreesVerdict => ({
    ...{ kind: 'priced', degrees },
    best: { configuration: BASE as StepConfiguration, seconds, priceLevel: 'simulated', bytes: 1 / seconds, stage: 0 },
  });
  const verdicts: readonly DegreesVerdict[] = [
    { kind: 'impossible', degrees, reason: 'no' },
    ...[priced(1.14), priced(1.05)],
    ...[1.3, 1.2].map((atLeastSeconds) => ({ kind: 'slower', degrees, atLeastSeconds }) as const),
  ];
  const placesIn = (objective: 'time' | 'memory') =>
    inOrder(verdicts, objective).map((verdict) => verdicts.indexOf(verdict));
  t.deepEqual(placesIn('time'), [2, 1, 4, 3, 0]);
  t.deepEqual(placesIn('memory'), [1, 2, 4, 3, 0]);
});
