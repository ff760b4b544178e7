/**
 * @file Programs of the shipped models, generated and not written: inference and training, over dp, tp and both, in
 * micro-batches, and as pipelines.
 */
import { importModel } from '../../src/api/models/import.js';
import { type Training, trainedModel } from '../../src/api/models/training.js';
import { plan } from '../../src/api/plan.js';
import { type GeneratedProgram, programOf } from '../../src/codegen/program-of.js';
import { parseCluster } from '../../src/cost-model/cluster.js';
import { withClones } from '../../src/ir/autodiff/recompute.js';
import { operatorsOfKind, repeatedLayers } from '../../src/ir/autodiff/recompute-kinds.js';
import type { LoweredStage } from '../../src/partition/lower-stages.js';
import { plan as search } from '../../src/search/plan.js';
import type { PlanRequest } from '../../src/strategy/request.js';
import { generate, type Pipeline, trainingStep } from '../pipelines/staged-training.js';

export interface ShippedProgram {
  readonly name: string;
  readonly lowered: () => Promise<{ readonly lowered: readonly LoweredStage[]; readonly generated: GeneratedProgram }>;
}

const MODELS = ['mlp', 'cnn-tiny', 'gpt-tiny', 'llama-tiny'] as const;
const DEGREES = [
  { dp: 2, tp: 1 },
  { dp: 1, tp: 2 },
  { dp: 2, tp: 2 },
] as const;
const TRAININGS: Readonly<Record<string, Training | null>> = {
  inference: null,
  training: { loss: { kind: 'cross_entropy' }, optimizer: { kind: 'adamw', learningRate: 0.01, clipNorm: 0.5 } },
  'training in micro-batches': {
    loss: { kind: 'cross_entropy' },
    optimizer: { kind: 'sgd', momentum: 0.9, learningRate: 0.1, clipNorm: 0.5 },
    microBatches: 2,
  },
};
/** Further requests, for training in micro-batches where an axis has such collectives. */
const WORDS: readonly (PlanRequest & { readonly name: string; readonly over: 'dp' | 'tp' | null })[] = [
  { name: '', over: null },
  { name: ', in buckets', over: 'dp', bucket: 20_000 },
  { name: ', in halves', over: 'tp', interleave: 2 },
];
const PIPELINES: readonly Pipeline[] = [
  { kind: '1f1b', stages: 2, microBatches: 2, dp: 2, tp: 2 },
  { kind: 'interleaved-1f1b', stages: 2, microBatches: 2, chunks: 2, tp: 2 },
  { kind: 'zero-bubble', stages: 2, microBatches: 2, dp: 2 },
  { kind: '1f1b', stages: 2, microBatches: 2, meshes: 'dp2 tp2 | tp4' },
  { kind: 'f-then-b', stages: 2, microBatches: 2, dp: 2, tp: 2, recompute: 'full' },
];

/** Requests for training in micro-batches on two replicas. */
const ASKED = [
  { offload: 'all:disk' },
  { offload: 'optimizer,parameters', zero: 3 },
  { zero: 3, bucket: 20_000 },
] as const satisfies readonly PlanRequest[];
/** Images sharded in space. */
const HALOS = ['cnn-tiny, training in micro-batches, sp 2', 'cnn-tiny, training in micro-batches, sp 4'];
/** With a parameter server. */
const SERVED = [
  { what: 'training', dp: 2, tp: 2, bucket: undefined },
  { what: 'training', dp: 4, tp: 1, bucket: 20_000 },
] as const;

/** Trained without stages, every second matmul and cheap operators recomputed. */
const RECOMPUTED = 'operators';

/** All of them; most are of several seconds. */
export const SHIPPED: readonly ShippedProgram[] = MODELS.flatMap((model) => [
  ...Object.entries(TRAININGS).flatMap(([what, training]) =>
    (['roles', 'free'] as const).flatMap((axes) =>
      DEGREES.flatMap((degrees) => WORDS.map((words) => [degrees, words] as const))
        .filter(([degrees, { over }]) => over === null || (training?.microBatches !== undefined && degrees[over] > 1))
        .map(([{ dp, tp }, { name, over: _, ...words }]) => ({
          name: `${model}, ${what}, dp ${dp}, tp ${tp}, axes ${axes}${name}`,
          lowered: async () => {
            const file = `models/${model}.onnx`;
            const imported = await importModel(file, {});
            const at = (globalBatch: number | undefined) =>
              importModel(file, globalBatch === undefined ? {} : { globalBatch });
            const trained = training ? await trainedModel(imported, training, at) : imported;
            const { found } = await plan(trained, {
              ...{ devices: dp * tp, degrees: { dp, tp }, axes },
              ...words,
            });
            const { lowered } = found;
            return { lowered, generated: programOf(lowered, { name: model, fingerprint: '0' }) };
          },
        })),
    ),
  ),
  ...SERVED.map(({ dp, tp, bucket, what }) => ({
    name: `${model}, ${what}, dp ${dp}, tp ${tp}, parameter server${bucket === undefined ? '' : ', in buckets'}`,
    lowered: async () => {
      const file = `models/${model}.onnx`;
      const at = (globalBatch: number | undefined) =>
        importModel(file, globalBatch === undefined ? {} : { globalBatch });
      const trained = await trainedModel(await at(undefined), TRAININGS[what] as Training, at);
      const { found } = await plan(trained, {
        ...{ devices: dp * tp, degrees: { dp, tp }, gradientSync: 'parameter-server' },
        ...(bucket === undefined ? {} : { bucket }),
      });
      return { lowered: found.lowered, generated: programOf(found.lowered, { name: model, fingerprint: '0' }) };
    },
  })),
  {
    name: `${model}, training in micro-batches, dp 2, tp 2, recompute ${RECOMPUTED}`,
    lowered: async () => {
      const { graph } = await trainingStep(model, 2);
      const degrees = { dp: 2, tp: 2 };
      const layers = repeatedLayers(graph);
      const operators = operatorsOfKind(graph, RECOMPUTED, new Set(layers.length === 0 ? [null] : layers));
      const again = { operators, acrossLayers: false, exceptLast: false };
      const { lowered } = await search(withClones(graph, again), parseCluster(undefined, 4), { degrees, axes: 'free' });
      return { lowered, generated: programOf(lowered, { name: model, fingerprint: '0' }) };
    },
  },
  ...ASKED.map((asked) => ({
    name: `${model}, training in micro-batches, ${JSON.stringify(asked)}`,
    lowered: async () => {
      const { graph } = await trainingStep(model, 2);
      const degrees = { dp: 2, tp: 1 };
      const { lowered } = await search(graph, parseCluster(undefined, 2), { degrees, request: asked });
      return { lowered, generated: programOf(lowered, { name: model, fingerprint: '0' }) };
    },
  })),
  ...HALOS.filter((name) => name.startsWith(model)).map((name) => ({
    name,
    lowered: async () => {
      const { graph } = await trainingStep(model, 2);
      const sp = Number(name.at(-1));
      const { lowered } = await search(graph, parseCluster(undefined, sp), { degrees: { dp: 1, tp: 1, sp } });
      return { lowered, generated: programOf(lowered, { name: model, fingerprint: '0' }) };
    },
  })),
  ...PIPELINES.map((pipeline) => ({
    name: `${model}, ${JSON.stringify(pipeline)}`,
    lowered: async () => {
      const { graph } = await trainingStep(model, pipeline.microBatches);
      return generate(graph, pipeline);
    },
  })),
]);
