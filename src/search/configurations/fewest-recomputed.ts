/**
 * @file Layer-by-layer recomputation: of each stage as few layers as memory needs, since each one more takes longer.
 */
import type { StepConfiguration } from '../../cost-model/step/configuration.js';
import { stageLayers } from '../../cost-model/step/stages.js';
import { stageMemory } from '../../cost-model/step/step-memory.js';
import type { ModelWork } from '../../cost-model/step/work.js';

/**
 * The configuration with the fewest layers recomputed that fits: exact for the stages it has, whose bytes fall with every layer. As
 * it is where all layers together do not fit, or nothing limits it.
 */
export function fewestRecomputed(
  work: ModelWork,
  configuration: StepConfiguration,
  limitBytes: number | null,
): StepConfiguration {
  if (limitBytes === null || configuration.recompute === 'none') return configuration;
  const bytesWith = (recomputedLayers: readonly number[]) =>
    stageMemory(work, { ...configuration, recomputedLayers }).map(({ total }) => total);
  const layers = stageLayers(work, configuration).map(({ kept, recomputed }) =>
    Math.round([...kept, ...recomputed].reduce((sum, count) => sum + count, 0)),
  );
  const all = stageMemory(work, configuration).map(({ total }) => total);
  if (all.some((bytes) => bytes > limitBytes)) return configuration;
  const none = bytesWith(layers.map(() => 0));
  const counts = layers.map((count, stage) => {
    const [most = 0, least = 0] = [none[stage], all[stage]];
    return most <= limitBytes
      ? 0
      : Math.min(count, Math.max(1, Math.floor((count * (most - limitBytes)) / (most - least))));
  });
  // What is live while a layer runs does not fall in proportion: the estimate may be some layers off, in either direction.
  for (let stage = 0; stage < counts.length; stage++) {
    const fits = (count: number) =>
      (bytesWith(counts.map((own, other) => (other === stage ? count : own)))[stage] ?? 0) <= limitBytes;
    let count = counts[stage] ?? 0;
    const total = layers[stage] ?? 0;
    while (count < total && !fits(count)) count = Math.min(total, count + 1);
    while (count > 0 && fits(count - 1)) count--;
    counts[stage] = count;
  }
  return counts.every((count, stage) => count >= (layers[stage] ?? 0))
    ? configuration
    : { ...configuration, recomputedLayers: counts };
}
