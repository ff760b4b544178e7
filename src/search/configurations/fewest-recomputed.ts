/**
 * @file Layer-by-layer recomputation: each stage recomputes as few layers as memory requires, since each further one costs time.
 */
import type { StepConfiguration } from '../../cost-model/step/configuration.js';
import { offloadsActivations } from '../../cost-model/step/offload.js';
import type { PartsBytes } from '../../cost-model/step/part-bytes.js';
import { cutOf } from '../../cost-model/step/stages.js';
import { stageMemory } from '../../cost-model/step/step-memory.js';
import type { ModelWork } from '../../cost-model/step/work.js';

/**
 * The configuration with the fewest layers recomputed that fits: exact for the stages it has, whose bytes fall with every layer.
 * Unchanged where all layers together do not fit, or nothing limits it; without recomputation where no layer has to recompute.
 * @param parts the bytes of the model's parts, where the caller has them
 */
export function fewestRecomputed(
  work: ModelWork,
  configuration: StepConfiguration,
  limitBytes: number | null,
  parts?: PartsBytes,
): StepConfiguration {
  // Offloaded activations take no device memory: recomputation then only reduces transfers, and all layers do it or none.
  if (limitBytes === null || configuration.recompute === 'none' || offloadsActivations(configuration))
    return configuration;
  const cut = cutOf(work, configuration);
  const bytesWith = (recomputedLayers: readonly number[]) =>
    stageMemory(work, { ...configuration, recomputedLayers }, parts, cut).map(({ total }) => total);
  const all = stageMemory(work, configuration, parts, cut).map(({ total }) => total);
  if (all.some((bytes) => bytes > limitBytes)) return configuration;
  const layers = cut.totals;
  const none = bytesWith(layers.map(() => 0));
  if (none.every((bytes) => bytes <= limitBytes)) return { ...configuration, recompute: 'none' };
  let counts = layers.map((count, stage) => {
    const [most = 0, least = 0] = [none[stage], all[stage]];
    const share = (most - limitBytes) / (most - least);
    return most <= limitBytes ? 0 : Math.min(count, Math.max(1, Math.floor(count * share)));
  });
  // Memory that is live while a layer runs does not fall in proportion: the estimate may be off by some layers, either way.
  // Stages do not depend on one another, so all are looked at together.
  for (let isOver = true; isOver; ) {
    const over = bytesWith(counts).map(
      (bytes, stage) => bytes > limitBytes && (counts[stage] ?? 0) < (layers[stage] ?? 0),
    );
    isOver = over.includes(true);
    counts = counts.map((count, stage) => (over[stage] ? count + 1 : count));
  }
  for (let isUnder = true; isUnder; ) {
    const fewer = counts.map((count) => Math.max(0, count - 1));
    const under = bytesWith(fewer).map((bytes, stage) => bytes <= limitBytes && (counts[stage] ?? 0) > 0);
    isUnder = under.includes(true);
    counts = counts.map((count, stage) => (under[stage] ? count - 1 : count));
  }
  return counts.every((count, stage) => count >= (layers[stage] ?? 0))
    ? configuration
    : { ...configuration, recomputedLayers: counts };
}
