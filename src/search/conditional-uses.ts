/**
 * @file Memory that depends on several variables, in a problem whose uses depend on one each.
 *
 * Bytes are taken unless one of several conditions (ways out) holds. Each such use is one more variable, whose states are the
 * ways out and "taken"; a way out is forbidden together with the states that contradict it. The variable costs nothing, and
 * takes its bytes where no way out is left.
 *
 *     a weight is also held in layout l     unless no other reader has it so · the first reader has
 *     memory of resharding x for a reader   unless the reader has another strategy · x has another layout
 */
import type { CostFactor, MemoryUse } from '../solver/problem.js';

export interface ConditionalUse {
  /** Alive from `start` up to, not including, `end`. */
  readonly start: number;
  readonly end: number;
  readonly bytes: number;
  readonly unless: readonly WayOut[];
}

/** Holds where every variable that it names has one of the states given: 1 by state. */
export type WayOut = ReadonlyMap<number, Uint8Array>;

/** Conditional uses as variables of a problem, behind its own. */
export interface ConditionalVariables {
  readonly sizes: readonly number[];
  readonly factors: readonly CostFactor[];
  readonly uses: readonly MemoryUse[];
}

/** @param first the number of the first variable that is added */
export function aidsOf(conditional: readonly ConditionalUse[], first: number): ConditionalVariables {
  const factors: CostFactor[] = [];
  const uses = conditional.map(({ start, end, bytes, unless }, index): MemoryUse => {
    const [variable, width] = [first + index, unless.length + 1];
    for (const other of new Set(unless.flatMap((way) => [...way.keys()]))) {
      const size = unless.find((way) => way.has(other))?.get(other)?.length ?? 0;
      const values = new Float64Array(size * width);
      unless.forEach((way, column) => {
        way.get(other)?.forEach((allowed, state) => {
          if (!allowed) values[state * width + column] = Infinity;
        });
      });
      factors.push({ variables: [other, variable], table: { sizes: [size, width], values } });
    }
    const taken = new Float64Array(width);
    taken[width - 1] = bytes;
    return { variable, start, end, bytes: taken };
  });
  return { sizes: conditional.map(({ unless }) => unless.length + 1), factors, uses };
}

/** States of a problem's own variables, with those of its aids: a way out wherever one holds. */
export function withAids(states: readonly number[], conditional: readonly ConditionalUse[]): readonly number[] {
  return [
    ...states,
    ...conditional.map(({ unless }) => {
      const open = unless.findIndex((way) =>
        [...way].every(([variable, allowed]) => allowed[states[variable] as number]),
      );
      return open < 0 ? unless.length : open;
    }),
  ];
}
