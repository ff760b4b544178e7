/**
 * @file Shared by the benchmarks: medians, and plain ONNX Runtime as the baseline.
 */
import type * as Ort from 'onnxruntime-node';
import type { ConstantTensor } from '../src/ir/graph.js';

/** The middle one of an odd count, the upper middle one of an even count. */
export function median(values: readonly number[]): number {
  const sorted = [...values].sort((left, right) => left - right);
  return sorted[Math.floor(sorted.length / 2)] ?? Number.NaN;
}

/** Seconds of each of `steps` runs of a model in one onnxruntime-node session, after `warmup` uncounted ones. */
export async function plainSeconds(
  model: string,
  inputs: Readonly<Record<string, ConstantTensor>>,
  { threads, steps, warmup }: { readonly threads: number; readonly steps: number; readonly warmup: number },
): Promise<readonly number[]> {
  const ort = await import('onnxruntime-node');
  const session = await ort.InferenceSession.create(model, {
    intraOpNumThreads: threads,
    interOpNumThreads: 1,
    executionMode: 'sequential',
    graphOptimizationLevel: 'all',
    logSeverityLevel: 3,
  });
  const feeds = Object.fromEntries(Object.entries(inputs).map(([name, array]) => [name, tensorOf(ort, array)]));
  const seconds: number[] = [];
  for (let step = -warmup; step < steps; step++) {
    const start = performance.now();
    await session.run(feeds);
    if (step >= 0) seconds.push((performance.now() - start) / 1000);
  }
  await session.release();
  return seconds;
}

function tensorOf(ort: typeof Ort, { dtype, shape, data }: ConstantTensor): Ort.Tensor {
  const buffer = data.buffer.slice(data.byteOffset, data.byteOffset + data.byteLength);
  if (dtype === 'float32') return new ort.Tensor('float32', new Float32Array(buffer), shape);
  if (dtype === 'int64') return new ort.Tensor('int64', new BigInt64Array(buffer), shape);
  throw new Error(`the benchmark feeds no ${dtype}`);
}
