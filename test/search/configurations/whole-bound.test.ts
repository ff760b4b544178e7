/**
 * @file The bound that needs one micro-batch alone, against every cut and even stages, where parts differ in what they take.
 */
import test from 'ava';
import fc from 'fast-check';
import { parseCluster } from '../../../src/cost-model/cluster.js';
import { clusterOfDescription } from '../../../src/cost-model/cluster-file.js';
import type { StepConfiguration } from '../../../src/cost-model/step/configuration.js';
import { STEP_CONSTANTS } from '../../../src/cost-model/step/constants.js';
import { priceStep } from '../../../src/cost-model/step/step-price.js';
import { type ModelWork, NO_WORK, type PartWork } from '../../../src/cost-model/step/work.js';
import { wholeBound } from '../../../src/search/configurations/whole-bound.js';
import { draws } from '../../selection.js';
import { BASE } from './base.js';
import { boundsOf, fastest, fastestEven, weightless } from './every-cut.js';

test('parts that differ in what they compute leave no cut faster than the bound', (t) => {
  fc.assert(
    fc.property(weightless, (problem) => {
      const least = Math.min(fastest(problem), fastestEven(problem));
      const { cuts: _, ...bounds } = boundsOf(problem, Number.POSITIVE_INFINITY);
      for (const [name, bound] of Object.entries(bounds)) t.true(bound <= least, `${name} ${bound} of ${least}`);
    }),
    { numRuns: draws(100) },
  );
});

const product = (depth: number): PartWork => {
  const work = { kind: 'matmul' as const, batch: 1, experts: false, rows: 8192, columns: 8192, depth };
  const forward = depth === 0 ? [] : [{ ...work, tokens: 'rows' as const }];
  return { ...NO_WORK, forward, backward: [...forward, ...forward] };
};

const model = (first: number, heavy: number, light: number): ModelWork => ({
  first: product(first),
  last: product(0),
  layers: [
    { count: 1, part: product(heavy) },
    { count: 7, part: product(light) },
  ],
  order: [0, 1, 1, 1, 1, 1, 1, 1],
  boundary: 1,
  tied: 0,
  chosen: 1,
});

test('an even stage has a part of a layer that is as heavy as all others, and the bound knows', (t) => {
  const cluster = parseCluster('1x4:a100-sxm-80', undefined);
  const configuration: StepConfiguration = {
    ...BASE,
    ...{ microBatch: 1, globalBatch: 32, tpSequence: false, zero: 0, recompute: 'none', virtualStages: 1 },
    degrees: { pp: 4, dp: 1, tp: 1, sp: 1, ep: 1 },
  };
  for (const own of [model(0, 7 * 8192, 8192), model(7 * 8192, 4096, 4096)]) {
    const bound = wholeBound(cluster, () => own).atLeast(configuration);
    const seconds = (stageLayers?: readonly number[]) =>
      priceStep(own, stageLayers ? { ...configuration, stageLayers } : configuration, cluster, STEP_CONSTANTS)
        .stepSeconds;
    const least = Math.min(seconds(), seconds([0, 3, 3, 2]), seconds([1, 2, 2, 3]));
    t.true(bound <= least, `${bound} of ${least}`);
    t.true(bound > 0.75 * least, `${bound} of ${least}`);
  }
});

test('experts whose ranks have links to each other are the faster the more there are, and the bound knows', (t) => {
  const cluster = parseCluster('1x4:v100-sxm2-32', undefined);
  const own = model(8192, 8192, 8192);
  const experts = own.layers.map(({ count, part }) => {
    const forward = part.forward.map((work) => ({ ...work, batch: 4, experts: true, routed: 8192 }));
    return { count, part: { ...part, forward } };
  });
  const configuration: StepConfiguration = {
    ...BASE,
    ...{ microBatch: 1, globalBatch: 2, tpSequence: false, zero: 0, recompute: 'none', virtualStages: 1 },
    degrees: { pp: 1, dp: 2, tp: 1, sp: 2, ep: 4 },
    inference: true,
  };
  const work = { ...own, layers: experts, chosen: 2 };
  const bound = wholeBound(cluster, () => work).atLeast(configuration);
  const { stepSeconds } = priceStep(work, configuration, cluster, STEP_CONSTANTS);
  t.true(bound <= stepSeconds, `${bound} of ${stepSeconds}`);
  t.true(bound > 0.9 * stepSeconds, `${bound} of ${stepSeconds}`);
});

test('where the network is faster than the links in a node, stages across nodes are no slower than the bound', (t) => {
  const level = { name: 'network', size: 2, bandwidth: '100GB/s', cards: 4, latency: '2us' };
  const cluster = clusterOfDescription({
    version: 1,
    device: 'a100-sxm-80',
    levels: [{ name: 'node', size: 4, bandwidth: '2GB/s' }, level],
  });
  const own = { ...model(64, 64, 64), boundary: 2 ** 28 };
  const configuration: StepConfiguration = {
    ...BASE,
    ...{ microBatch: 1, globalBatch: 20, tpSequence: false, zero: 0, recompute: 'none', virtualStages: 1 },
    degrees: { pp: 2, dp: 4, tp: 1, sp: 1, ep: 1 },
    schedule: '1f1b',
  };
  const bound = wholeBound(cluster, () => own).atLeast(configuration);
  const { stepSeconds } = priceStep(own, configuration, cluster, STEP_CONSTANTS);
  t.true(bound <= stepSeconds, `${bound} of ${stepSeconds}`);
});
