/**
 * @file ZeRO levels of one task under given degrees against one rank: properties that `zero.test.ts` and `zero.slow.ts` check.
 */
import type { ExecutionContext } from 'ava';
import { alone, type Task, type Trained, train } from './compiled-training.js';
import { difference, worstDifference } from './difference.js';
import { gatheredBytes, keptBytes } from './kept-bytes.js';

/** Relative to the largest element of a tensor. */
export const TOLERANCE = 1e-5;
export const STEPS = 20;
export const LEVELS = [0, 1, 2, 3] as const;

export type Degrees = Omit<NonNullable<Parameters<typeof train>[2]>, 'zero'>;
export type Level = (typeof LEVELS)[number];

/**
 * Losses over 20 steps with clipping active, every gradient (momentum after the first step) and state are those of one rank;
 * bytes and peaks that ranks count are those predicted; memory on ranks falls by the tensors that each level shards.
 */
export async function checkLevels(
  t: ExecutionContext,
  task: Task,
  degrees: Degrees,
  levels: readonly Level[] = LEVELS,
): Promise<void> {
  const one = await alone(task, STEPS);
  const kept = new Map<Level, ReturnType<typeof keptBytes>>();
  for (const zero of levels) {
    const all = await train(task, STEPS, { ...degrees, zero });
    t.true(worstDifference(one.first, all.first) <= TOLERANCE, `zero ${zero}, first step`);
    t.true(difference(one.losses, all.losses) <= TOLERANCE, `zero ${zero}, losses`);
    checkCounted(t, all, `zero ${zero}`);
    t.is(all.plan.requested?.zero, zero);
    kept.set(zero, keptBytes(all.lowered));
    const { most, layer } = gatheredBytes(all.lowered);
    // Outside of layers, each operator counts as a layer: its operands are there while gathers of the next two are under way.
    const atOnce = all.plan.layerClasses.length > 0 ? 2 : 3;
    t.true(zero < 3 || most <= atOnce * layer, `zero ${zero}, ${most} B of whole parameters, ${layer} B a layer`);
  }
  for (const part of ['state', 'accumulator', 'parameter'] as const) {
    const of = (isCut: boolean) =>
      levels.filter((level) => level >= CUT_FROM[part] === isCut).map((level) => kept.get(level)?.[part] ?? 0);
    // A tiny tensor stays whole, or is sharded over another axis.
    const [whole, cut] = [of(false), of(true)];
    for (const bytes of cut) for (const other of whole) t.true(bytes <= 0.6 * other, `${part}: ${bytes} of ${other} B`);
    for (const same of [whole, cut]) t.true(Math.max(0, ...same) <= 1.15 * Math.min(...same), `${part}: ${same} B`);
  }
}

/** The level from which on a part is sharded. */
const CUT_FROM = { state: 1, accumulator: 2, parameter: 3 } as const;

export function checkCounted(t: ExecutionContext, { sent, peaks }: Trained, what: string): void {
  t.deepEqual(sent.counted, sent.predicted, `${what}, bytes`);
  t.deepEqual(peaks.counted, peaks.predicted, `${what}, peak`);
}
