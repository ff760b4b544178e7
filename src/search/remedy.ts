/**
 * @file The cheapest change that makes a plan fit where nothing does: other degrees, where some were given; else micro-batches,
 * where the memory that they save is enough.
 */
import type { Cluster } from '../cost-model/cluster.js';
import { memoryOf } from '../cost-model/predict.js';
import { type Graph, isBackward } from '../ir/graph.js';
import { type TensorKind, tensorKinds } from '../partition/tensor-kinds.js';
import { chooseDegrees, lowered, type SolvedDegrees } from './choose-degrees.js';
import { batchSize } from './degrees.js';
import { bytesWritten, timeWritten } from './figures.js';

/**
 * The remedy in words; null where neither helps.
 * @param tried combinations that do not fit `limit` bytes per device
 * @param others further combinations, solved
 */
export async function remedyOf(
  graph: Graph,
  cluster: Cluster,
  limit: number,
  tried: readonly SolvedDegrees[],
  others: readonly SolvedDegrees[],
): Promise<string | null> {
  const [fastest] = (await chooseDegrees(graph, cluster, others, limit, 1)).ranked;
  if (fastest) {
    const { dp, tp } = fastest.solved.degrees;
    return `--dp ${dp} --tp ${tp} fits, at ${timeWritten(fastest.prediction.stepSeconds * 1e9)} a step`;
  }
  if (graph.microBatches || !graph.nodes.some(({ phase }) => isBackward(phase))) return null;
  const samples = batchSize(graph) ?? 1;
  for (const solved of tried) {
    const { dp, tp } = solved.degrees;
    const sharded = lowered(graph, cluster, solved);
    const { peakBytes, bytesByTensor: held } = memoryOf(sharded, cluster);
    const kinds = tensorKinds(sharded);
    const shrinking = [...held()].reduce((sum, [name, bytes]) => sum + (BY_SAMPLE.has(kinds.get(name)) ? bytes : 0), 0);
    const counts = [2, 4, 8, 16].filter((count) => samples % (dp * count) === 0);
    const times = counts.find((count) => peakBytes - shrinking * (1 - 1 / count) <= limit);
    if (times === undefined) continue;
    return (
      `--dp ${dp} --tp ${tp} --micro-batches ${times} may fit: ${bytesWritten(shrinking)} grow with the ` +
      'samples taken at once'
    );
  }
  return null;
}

/** Kinds whose bytes follow the samples of a micro-batch. */
const BY_SAMPLE: ReadonlySet<TensorKind | undefined> = new Set<TensorKind>(['activation', 'temporary', 'input']);
