/**
 * @file Figures that `explain` gives for other plans, compared with those plans: prices of pins against planning again with the
 * pins. The model is imported and planned as by compile; the pins are annotations as a user writes them.
 */

import { compile, type NestedCompileOptions } from '../../src/api/compile.js';
import { type AddedSeconds, explainPins, type PinsExplanation } from '../../src/api/explanations/explain-pins.js';
import { plan } from '../../src/api/plan.js';
import { openReplanning } from '../../src/api/planning/replan.js';
import { annotationsOf, type PinRecord } from '../../src/api/requests/annotations.js';
import { AutoparError } from '../../src/ir/error.js';
import { exactly } from '../../src/strategy/pin-document.js';

/** Plans again with pins; whole nanoseconds of a step, Infinity where nothing fits the memory. */
export type Again = (pins: readonly PinRecord[]) => Promise<number>;

/** Compiles into a folder, explains its pins, and says how to plan again with more of them. */
export async function explained(
  options: NestedCompileOptions & { readonly output: string },
  top = 1000,
): Promise<{ readonly found: PinsExplanation; readonly again: Again; readonly nanoseconds: number }> {
  const { plan: made } = await compile({ axes: 'roles', ...options, planOnly: true, force: true });
  const { imported } = await openReplanning(options.output);
  const given = options.annotations?.pins ?? [];
  const again: Again = async (pins) => {
    const annotations = annotationsOf({ version: 1, pins: [...given, ...pins] });
    try {
      return (await plan(imported, { ...options, annotations })).found.costNanoseconds;
    } catch (error) {
      if (error instanceof AutoparError && error.code === 'nothing-fits') return Infinity;
      throw error;
    }
  };
  const nanoseconds = Math.round(made.search.costSeconds * 1e9);
  return { found: await explainPins(options.output, { top }), again, nanoseconds };
}

/** Differences, in words, between the cost that a pin adds when planning again and the cost that was reported for it. */
export async function differences(
  { found, again, nanoseconds }: Awaited<ReturnType<typeof explained>>,
  count = Infinity,
): Promise<readonly string[]> {
  const wrong: string[] = [];
  for (const { operator, alike, pin, alone, together } of found.operators.slice(0, count)) {
    const compared = async (said: AddedSeconds, names: readonly string[]) => {
      const pins = names.map((name) => ({ match: { node: exactly(name) }, factors: pin.factors }));
      const added = (await again(pins)) - nanoseconds;
      const [least, most] = [said.atLeastSeconds, said.seconds ?? Infinity].map((seconds) => Math.round(seconds * 1e9));
      if (least === undefined || most === undefined || added < least || added > most)
        wrong.push(`${operator} on ${names.length}: ${added} ns, said ${least} to ${most}`);
    };
    await compared(alone, [operator]);
    if (together) await compared(together, alike);
  }
  return wrong;
}

/** Whole nanoseconds of a step, with axes by their roles unless the options say otherwise; null where nothing fits. */
export async function stepTime(options: NestedCompileOptions): Promise<number | null> {
  try {
    return Math.round(
      (await compile({ axes: 'roles', ...options, planOnly: true, force: true })).plan.predicted.stepSeconds * 1e9,
    );
  } catch (error) {
    if (error instanceof AutoparError && error.code === 'nothing-fits') return null;
    throw error;
  }
}
