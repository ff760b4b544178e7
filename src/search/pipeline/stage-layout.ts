/**
 * @file A layout of stages as text: `E t*3 | t*2 | t*3 H`, a letter for each unit of the model and a bar between parts. With
 * several chunks a stage the parts are in the model's order.
 */
import { AutoparError } from '../../ir/error.js';
import type { Graph } from '../../ir/graph.js';
import { lettersOf, type StageUnit, stageUnits } from './units.js';

/** The text of units on parts. */
export function layoutOfStages(units: readonly StageUnit[], sizes: readonly number[]): string {
  let next = 0;
  return sizes
    .map((size) => {
      const own = units.slice(next, next + size);
      next += size;
      return lettersOf(own);
    })
    .join(' | ');
}

/**
 * The text of a plan's stages, by the part of each forward operator: in layers, or else in single operators; null where the
 * parts hold the units of the model in another order.
 */
export function layoutOfParts(
  graph: Graph,
  parts: number,
  partOf: (operator: string) => number | undefined,
): string | null {
  for (const units of [stageUnits(graph, parts), stageUnits(graph, Number.POSITIVE_INFINITY)]) {
    const placed: number[] = [];
    for (const { operators } of units) {
      const before = placed.at(-1) ?? 0;
      const [part = before, ...others] = new Set(operators.flatMap((name) => partOf(name) ?? []));
      placed.push(others.length > 0 || part < before ? Number.NaN : part);
    }
    if (placed.includes(Number.NaN)) continue;
    const sizes = Array.from({ length: parts }, (_, part) => placed.filter((at) => at === part).length);
    return layoutOfStages(units, sizes);
  }
  return null;
}

/** Whether a layout is in single operators, not in layers. */
export function isInOperators(layout: string): boolean {
  return /^[o*\d\s|]+$/.test(layout);
}

/**
 * How many units each part has.
 * @throws AutoparError (usage) `bad-stages` for a text of another form, of other units, or of another number of parts
 */
export function readStageLayout(text: string, units: readonly StageUnit[], parts: number): readonly number[] {
  const found = text.split('|').map((part) => {
    const letters = part.replace(/\s+/g, '');
    if (!/^([A-Za-z](\*\d{1,6})?)+$/.test(letters))
      throw refused(
        text,
        `${part.trim() === '' ? 'a stage has no units' : `"${part.trim()}" is not a row of letters`}`,
        units,
      );
    return [...letters.matchAll(/([A-Za-z])(?:\*(\d+))?/g)].map(([, letter = '', count = '1']) => ({
      letter,
      count: Number(count),
    }));
  });
  if (found.length !== parts)
    throw refused(text, `it has ${found.length} parts, and --pp · --virtual-stages is ${parts}`, units);
  let next = 0;
  return found
    .map((rows) => {
      const from = next;
      for (const { letter, count } of rows) {
        for (let index = 0; index < count; index++, next++) {
          const unit = units[next];
          if (unit?.letter === letter) continue;
          const there = unit ? `the model has ${unit.letter} (${unit.name})` : `the model has ${units.length} units`;
          throw refused(text, `unit ${next} of it is ${letter}, and ${there}`, units);
        }
      }
      if (next === from) throw refused(text, 'a stage has no units', units);
      return next - from;
    })
    .map((size, index, all) => {
      if (index === all.length - 1 && next < units.length)
        throw refused(text, `it leaves out ${lettersOf(units.slice(next))}`, units);
      return size;
    });
}

function refused(text: string, why: string, units: readonly StageUnit[]): AutoparError {
  return new AutoparError(
    'bad-stages',
    'usage',
    `--stages "${text}": ${why}`,
    {},
    `place all units of the model in their order, with a bar between stages: ${lettersOf(units)}`,
  );
}
