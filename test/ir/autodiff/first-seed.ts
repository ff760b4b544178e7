/**
 * @file Samples whose operands must have some property that a range of random values does not give: the first seed that does.
 */
import type { Values } from '../ops/one-node.js';
import type { Case } from '../ops/sample.js';
import { operandsOf } from './sample-gradient.js';

const SEEDS = 1000;

/** @throws Error where none of a thousand seeds will do */
export function firstSeed(sample: Case, accepts: (operands: readonly (Values | null)[]) => boolean): number {
  for (let seed = 1; seed <= SEEDS; seed++) if (accepts(operandsOf(sample, seed))) return seed;
  throw new Error(`${sample.op}: no seed gives operands that the sample needs`);
}
