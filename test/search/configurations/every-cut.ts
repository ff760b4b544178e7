/**
 * @file Small models of drawn parts, and every way to cut them into stages and to recompute, for comparison with the bound and
 * the cutter.
 */
import fc from 'fast-check';
import { type Cluster, parseCluster } from '../../../src/cost-model/cluster.js';
import { clusterOfDescription } from '../../../src/cost-model/cluster-file.js';
import type { MeshOrder, Offload, StepConfiguration } from '../../../src/cost-model/step/configuration.js';
import { STEP_CONSTANTS } from '../../../src/cost-model/step/constants.js';
import { priceParts } from '../../../src/cost-model/step/part-price.js';
import { placesIn, stageLayers } from '../../../src/cost-model/step/stages.js';
import { stageMemory } from '../../../src/cost-model/step/step-memory.js';
import { priceStep } from '../../../src/cost-model/step/step-price.js';
import type { ModelWork, PartWork } from '../../../src/cost-model/step/work.js';
import { fewestChunks, interleaves, SCHEDULE_KINDS, splitsBackward } from '../../../src/schedule/schedule.js';
import { isMixable, pricingOf } from '../../../src/search/configurations/step-pricing.js';
import { BASE, drawnFactors, unlikeNodes } from './base.js';

/** A drawn problem: a bound and cuts are asked for it, and every cut of it can be priced. */
export interface CutProblem {
  readonly model: ModelWork;
  readonly configuration: StepConfiguration;
  readonly cluster: Cluster;
  /** Between what the smallest and the largest configuration need; null for no limit. */
  readonly limit: number | null;
  readonly isMixed: boolean;
}

const powers = (from: number, to: number) => fc.integer({ min: from, max: to }).map((exponent) => 2 ** exponent);

/** @param weights powers of two of parameters: with few, what a step pays once does not hide what its stages take */
function parts(layer: boolean, weights: number, experienced: boolean): fc.Arbitrary<PartWork> {
  return fc
    .record({
      rows: powers(6, 12),
      columns: powers(6, 13),
      depth: powers(6, 12),
      elements: powers(14, 26),
      parameters: powers(Math.min(14, weights), weights),
      saved: powers(14, 27),
      repeated: fc.constantFrom(0, 0.5, 1),
      products: fc.integer({ min: layer ? 1 : 0, max: 3 }),
      heads: fc.constantFrom(0, layer ? 8 : 0),
      exchanged: powers(12, 26),
      exchanges: fc.integer({ min: 0, max: 2 }),
      hasExperts: fc.boolean(),
    })
    .map(({ rows, columns, depth, elements, parameters, saved, repeated, products, heads, ...drawn }) => {
      const experts = drawn.hasExperts && layer && experienced;
      const product = { kind: 'matmul' as const, batch: experts ? EXPERTS : 1, experts, rows, columns, depth };
      const routed = experts ? { routed: 1024 } : {};
      const moved = { kind: 'memory' as const, elements, repeated: repeated > 0, norm: false, loss: false };
      const exchange = { kind: 'exchange' as const, collective: 'all-reduce' as const, elements: drawn.exchanged };
      const exchanges = Array.from({ length: drawn.exchanges }, (_, index) => ({
        ...exchange,
        ...{ activation: index === 0, loss: false },
      }));
      const each = Array.from({ length: products }, () => product);
      const attention = (backward: boolean) => ({
        ...{ kind: 'attention' as const, backward, batch: 1, heads, keyHeads: heads, causal: true },
        ...{ queries: rows, keys: rows, width: 64, valueWidth: 64 },
      });
      const attentions = (backward: boolean) => (heads > 0 ? [attention(backward)] : []);
      return {
        forward: [
          ...each.map((one) => ({ ...one, ...routed, tokens: 'rows' as const })),
          ...attentions(false),
          moved,
          ...exchanges,
        ],
        backward: [
          ...each.flatMap((one) => [
            { ...one, ...routed, tokens: 'rows' as const },
            { ...one, rows: depth, depth: rows, tokens: 'depth' as const },
          ]),
          ...attentions(true),
          moved,
          ...exchanges,
        ],
        parameters,
        expertParameters: experts ? parameters * repeated : 0,
        saved,
        savedRepeated: repeated * saved,
        buffers: 0,
        savedMasks: 0,
        live: saved,
        liveShared: saved,
      };
    });
}

const models = (classes: number, weights: number): fc.Arbitrary<ModelWork> =>
  fc
    .record({
      first: parts(false, weights, false),
      last: parts(false, weights, false),
      layers: fc.array(parts(true, weights, true), { minLength: classes, maxLength: classes }),
      order: fc.array(fc.integer({ min: 0, max: classes - 1 }), { minLength: 4, maxLength: 8 }),
      boundary: powers(12, 26),
      tied: fc.boolean(),
    })
    .map(({ first, last, layers, order, boundary, tied }) => {
      const used = layers.map((part, index) => ({ part, count: order.filter((own) => own === index).length }));
      return { first, last, layers: used, order, boundary, tied: tied ? first.parameters : 0, chosen: 2 };
    });

/** The first so many layers of a model. */
function cutTo(model: ModelWork, most: number): ModelWork {
  const order = (model.order ?? []).slice(0, most);
  const layers = model.layers.map(({ part }, index) => ({
    part,
    count: order.filter((own) => own === index).length,
  }));
  return { ...model, layers, order };
}

const described = (node: object): Cluster =>
  clusterOfDescription({
    version: 1,
    device: 'a100-sxm-80',
    levels: [
      { name: 'node', size: 4, bandwidth: '12GB/s', ...node },
      { name: 'network', size: 2, bandwidth: '50GB/s', cards: 4, latency: '2us' },
    ],
  });

/** Nodes that are alike, or of which some are slower; links that are slower in a node than outside, or pass data round. */
const clusters = fc.constantFrom<Cluster>(
  parseCluster('2x4:a100-sxm-80', undefined),
  parseCluster('8x4:v100-sxm2-32', undefined),
  described({}),
  described({ topology: 'ring', bandwidth: '100GB/s' }),
  unlikeNodes(4, [{ count: 1 }, { count: 1, speed: 0.6 }]),
  unlikeNodes(2, [{ count: 1, device: 'h100-sxm-80' }, { count: 2 }, { count: 1, device: 'v100-sxm2-32', speed: 0.5 }]),
);

const EXPERTS = 4;

const AXES: MeshOrder = ['pp', 'dp', 'sp', 'tp'];

const problems = (model: fc.Arbitrary<ModelWork>): fc.Arbitrary<CutProblem> =>
  fc
    .record({
      model,
      cluster: clusters,
      schedule: fc.constantFrom(...SCHEDULE_KINDS),
      pp: fc.constantFrom(2, 2, 4),
      dp: fc.constantFrom(1, 2, 4),
      tp: fc.constantFrom(1, 1, 2),
      sp: fc.constantFrom(1, 1, 2),
      ep: fc.constantFrom(1, 2, 4),
      m: fc.constantFrom(1, 2, 3, 4, 5, 6, 8, 12, 16, 32),
      microBatch: fc.constantFrom(1, 2),
      tpSequence: fc.boolean(),
      zero: fc.constantFrom(0 as const, 1 as const, 2 as const, 3 as const),
      recompute: fc.constantFrom('full' as const, 'full' as const, 'none' as const, 'selective' as const),
      inference: fc.integer({ min: 0, max: 9 }).map((drawn) => drawn === 0),
      mixed: fc.boolean(),
      software: fc.constantFrom('megatron-core' as const, 'megatron-core' as const, 'eager' as const),
      offload: fc.constantFrom<Offload>('none', 'none', 'optimizer', 'activations', 'all'),
      meshOrder: fc.option(fc.shuffledSubarray([...AXES], { minLength: 4 })),
      share: fc.option(fc.double({ min: -0.05, max: 1, noNaN: true })),
      factors: fc.option(fc.integer({ min: 1, max: 1000 })),
    })
    .filter(({ cluster, pp, dp, tp, sp }) => !cluster.kinds || pp * dp * tp * sp === 8)
    .map(({ model: whole, cluster: alike, schedule, pp, dp, tp, inference, mixed, meshOrder, share, ...drawn }) => {
      const cluster = drawn.factors === null ? alike : { ...alike, layerFactors: drawnFactors(drawn.factors) };
      const { sp, m, microBatch } = drawn;
      const layers = whole.order?.length ?? 0;
      const v = pp === 2 && layers >= 6 && drawn.tpSequence ? 3 : 2;
      const isV = schedule === 'zbv' && 2 * pp <= layers;
      const isInterleaved = interleaves(schedule) && m % pp === 0 && pp * v <= layers;
      const isChunked = isV || isInterleaved;
      const plain = splitsBackward(schedule) ? 'zero-bubble' : '1f1b';
      const model = isChunked && pp === 4 ? whole : cutTo(whole, 6);
      const hasExperts = model.layers.some(({ part }) =>
        part.forward.some((one) => one.kind === 'matmul' && one.experts),
      );
      const ep = hasExperts && (dp * sp) % drawn.ep === 0 ? drawn.ep : 1;
      const offload = inference ? 'none' : drawn.offload;
      const configuration: StepConfiguration = {
        ...BASE,
        attention: drawn.recompute === 'selective' || mixed ? 'parts' : 'fused',
        software: drawn.software,
        degrees: { pp, dp, tp, sp, ep },
        ...(meshOrder ? { meshOrder } : {}),
        schedule: fewestChunks(schedule) > 1 && !isChunked ? plain : schedule,
        virtualStages: isV ? 2 : isInterleaved ? v : 1,
        microBatch,
        globalBatch: m * dp * microBatch,
        tpSequence: tp > 1 && drawn.tpSequence,
        zero: drawn.zero,
        recompute: drawn.recompute,
        ...(offload === 'none' ? {} : { offload }),
        ...(inference ? { inference } : {}),
      };
      const isMixed = mixed && drawn.recompute !== 'none' && isMixable(configuration);
      const problem = { model, configuration, cluster, limit: null, isMixed };
      if (share === null) return problem;
      const bytes = everyCut(problem).map((own) => bytesOf(problem, own));
      const [least, most] = [Math.min(...bytes), Math.max(...bytes)];
      return { ...problem, limit: least + share * (most - least) };
    });

export const cutProblems: fc.Arbitrary<CutProblem> = problems(
  fc.oneof(
    { weight: 3, arbitrary: models(1, 30) },
    { weight: 1, arbitrary: models(2, 30) },
    { weight: 1, arbitrary: models(2, 10) },
  ),
);

/** Every cut into chunks with every choice of layers that recompute: embedding and head are parts too. */
export function everyCut({ model, configuration, isMixed }: CutProblem): readonly StepConfiguration[] {
  const { degrees, virtualStages } = configuration;
  const chunks = degrees.pp * virtualStages;
  const placeOf = placesIn(configuration);
  const layers = model.layers.reduce((sum, { count }) => sum + count, 0);
  return cutsInto(layers, chunks, chunks).flatMap((stageLayers) => {
    if (!isMixed) return [{ ...configuration, stageLayers }];
    const own = Array.from({ length: degrees.pp }, (_, stage) =>
      stageLayers.reduce((sum, count, part) => sum + (placeOf(part).stage === stage ? count : 0), 0),
    );
    return [
      { ...configuration, stageLayers, recompute: 'none' as const },
      ...choices(own).map((recomputedLayers) => ({ ...configuration, stageLayers, recomputedLayers })),
    ];
  });
}

function cutsInto(layers: number, left: number, chunks: number): readonly (readonly number[])[] {
  const least = left === chunks || left === 1 ? 0 : 1;
  if (left === 1) return layers >= least ? [[layers]] : [];
  return Array.from({ length: Math.max(0, layers - least + 1) }, (_, index) => index + least).flatMap((own) =>
    cutsInto(layers - own, left - 1, chunks).map((rest) => [own, ...rest]),
  );
}

function choices(counts: readonly number[]): readonly (readonly number[])[] {
  return counts.reduce<readonly (readonly number[])[]>(
    (before, count) => before.flatMap((start) => Array.from({ length: count + 1 }, (_, index) => start.concat(index))),
    [[]],
  );
}

function bytesOf({ model }: CutProblem, configuration: StepConfiguration): number {
  return Math.max(...stageMemory(model, configuration).map(({ total }) => total));
}

/** The fastest of all cuts that fit; infinite where none does. */
export function fastest(problem: CutProblem): number {
  return fastestOf(problem, everyCut(problem));
}

/** The same of even stages, which may have parts of layers of several classes. */
export function fastestEven(problem: CutProblem): number {
  const { model, configuration, isMixed } = problem;
  const own = stageLayers(model, configuration).map(({ stored: kept, recomputed }) =>
    Math.round([...kept, ...recomputed].reduce((sum, count) => sum + count, 0)),
  );
  const mixed = choices(own).map((recomputedLayers) => ({ ...configuration, recomputedLayers }));
  return fastestOf(problem, isMixed ? [{ ...configuration, recompute: 'none' }, ...mixed] : [configuration]);
}

function fastestOf(problem: CutProblem, all: readonly StepConfiguration[]): number {
  const { model, cluster, limit } = problem;
  const known = new Map<string, ReturnType<typeof priceParts>>();
  return all.reduce((least, configuration) => {
    if (limit !== null && bytesOf(problem, configuration) > limit) return least;
    const parts = (own: Cluster) => {
      const key = `${configuration.recompute} ${own.device.id} ${own.device.memoryBandwidth} ${JSON.stringify(own.levels)}`;
      const found = known.get(key) ?? priceParts(model, configuration, own, STEP_CONSTANTS);
      known.set(key, found);
      return found;
    };
    return Math.min(least, priceStep(model, configuration, cluster, STEP_CONSTANTS, parts).stepSeconds);
  }, Number.POSITIVE_INFINITY);
}

/** The fastest of the cutter's cuts that fit; infinite where none does. */
export function fastestCut(problem: CutProblem): number {
  const { model, configuration, cluster, limit, isMixed } = problem;
  return fastestOf(problem, pricingOf(cluster, () => model, isMixed).cuts(configuration, limit));
}

/** Seconds that no cut takes less than, as the search asks for them. */
export function boundOf({ model, configuration, cluster, isMixed }: CutProblem): number {
  return pricingOf(cluster, () => model, isMixed).atLeast(configuration);
}
