/**
 * @file The check that a program of the torch target computed what another run of the same model did.
 */
import type { ExecutionContext } from 'ava';
import { numbersOf } from '../../../src/ir/ops/constants.js';
import { difference } from '../../pipelines/difference.js';
import type { Ran } from './emitted.js';

/** How many steps of training there were, 0 for inference, and the largest difference as a share of the largest element. */
export interface RunLimits {
  readonly steps: number;
  readonly tolerance: number;
}

/**
 * All outputs and all state are there, and differ by rounding; in training also the losses of all steps, and after the first
 * step the momentum: the gradients, scaled by their norm.
 */
export function checkRun(t: ExecutionContext, wanted: Ran, got: Ran, { steps, tolerance }: RunLimits): void {
  t.is(Object.keys(wanted.state).length > 0, steps > 0);
  t.is(wanted.losses.length, steps);
  const off = new Map([['losses', steps > 0 ? difference(wanted.losses, got.losses) : 0]]);
  for (const part of ['outputs', 'first', 'state'] as const)
    for (const [name, tensor] of Object.entries(wanted[part])) {
      const other = got[part][name];
      off.set(
        `${part} ${name}`,
        other ? difference(numbersOf(tensor).map(Number), numbersOf(other).map(Number)) : Number.POSITIVE_INFINITY,
      );
    }
  const worst = [...off].sort(([, a], [, b]) => b - a);
  t.log(
    worst
      .slice(0, 3)
      .map(([name, value]) => `${name} ${value.toExponential(1)}`)
      .join(', '),
  );
  t.deepEqual(
    worst.filter(([, value]) => !(value <= tolerance)),
    [],
  );
}
