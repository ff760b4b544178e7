/**
 * @file Corruptions of every shipped model's lowered graphs (partition/graph-corruptions.ts), drawn evenly from each kind, are
 * refused by the checker of sharded graphs; no corruption of its program (corruptions.ts) passes the check of types.
 */
import test from 'ava';
import { checkProgram } from '../../src/program/check-program.js';
import { refused } from '../partition/graph-corruptions.js';
import { thinned } from '../selection.js';
import { corruptionsOf } from './corruptions.js';
import { SHIPPED } from './shipped-programs.js';

/** Most corruptions of each kind and stage. The programs are many: their layouts differ, and so the places that are drawn. */
const MOST = 6;

for (const { name, lowered: made } of thinned(SHIPPED, 5))
  test.serial(`corruptions are refused: ${name}`, async (t) => {
    const { lowered, generated } = await made();
    const { tried, passed } = refused(lowered, MOST);
    t.log([...tried].map(([kind, count]) => `${kind} ${count}`).join('; '));
    t.deepEqual(passed, []);

    const { program } = generated;
    t.is(checkProgram(program), null);
    const counts = new Map<string, number>();
    const unseen: string[] = [];
    for (const { kind, where, program: wrong } of corruptionsOf(program)) {
      counts.set(kind, (counts.get(kind) ?? 0) + 1);
      if (checkProgram(wrong) === null) unseen.push(`${kind}: ${where}`);
    }
    t.log([...counts].map(([kind, count]) => `${kind} ${count}`).join('; '));
    t.deepEqual(unseen, []);
  });
