/**
 * @file Samples of fused matmuls whose activation has kinks: values that are far enough from all of them, so that differences
 * do not cross one.
 */
import { operatorOfCase } from '../ops/cases.js';
import { makeRun } from '../ops/one-node.js';
import type { Case } from '../ops/sample.js';
import { operandsOf } from './sample-gradient.js';

const run = makeRun();

/** Further than a step of differences moves a sum of products of values in [-1, 1). */
const MARGIN = 0.06;

const SEEDS = 400;

/** Where an activation has kinks; none for smooth ones. */
function kinksOf({ attributes }: Case): readonly number[] {
  const parameters = attributes['activation_params'];
  const [low = 0, high = 0] = Array.isArray(parameters) ? parameters.map(Number) : [];
  const alpha = Number(attributes['activation_alpha'] ?? (low || 0.2));
  const beta = Number(attributes['activation_beta'] ?? (high || 0.5));
  switch (attributes['activation']) {
    case 'Relu':
    case 'LeakyRelu':
      return [0];
    case 'Clip':
      return [low, high];
    case 'HardSigmoid':
      return [-beta / alpha, (1 - beta) / alpha];
    default:
      return [];
  }
}

/**
 * A seed under which no sum is near a kink; 1 for smooth activations.
 * @throws Error where no seed is found: the sample has too many results
 */
export async function seedAwayFromKinks(sample: Case): Promise<number> {
  const kinks = kinksOf(sample);
  if (kinks.length === 0) return 1;
  const kept = Object.entries(sample.attributes).filter(([name]) => !name.startsWith('activation'));
  const plain: Case = {
    ...sample,
    op: sample.op.replace('Fused', ''),
    domain: '',
    attributes: Object.fromEntries(kept),
  };
  const { outputs } = operatorOfCase(plain);
  for (let seed = 1; seed <= SEEDS; seed++) {
    const [sums] = await run(plain, operandsOf(plain, seed), outputs);
    if (sums?.data.every((value) => kinks.every((kink) => Math.abs(value - kink) > MARGIN))) return seed;
  }
  throw new Error(`${sample.op}: of ${SEEDS} seeds none keeps all sums away from ${kinks.join(' and ')}`);
}

/** Whether differences of a sample cross kinks whatever its values are: it has that many results. */
export function crossesKinks(sample: Case): boolean {
  const [result] = operatorOfCase(sample).outputs;
  return kinksOf(sample).length > 0 && (result?.shape ?? []).reduce((product, size) => product * size, 1) > 32;
}
