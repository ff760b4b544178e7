/**
 * @file The types of a program: of every corruption of every shipped program (corruptions.ts) none passes the check.
 */
import test from 'ava';
import { checkProgram } from '../../src/program/check-program.js';
import { corruptionsOf } from './corruptions.js';
import { SHIPPED } from './shipped-programs.js';

for (const { name, lowered } of SHIPPED)
  test(`every corruption is refused: ${name}`, async (t) => {
    const { program } = (await lowered()).generated;
    t.is(checkProgram(program), null);
    const counts = new Map<string, number>();
    const passed: string[] = [];
    for (const { kind, where, program: wrong } of corruptionsOf(program)) {
      counts.set(kind, (counts.get(kind) ?? 0) + 1);
      if (checkProgram(wrong) === null) passed.push(`${kind}: ${where}`);
    }
    t.log([...counts].map(([kind, count]) => `${kind} ${count}`).join('; '));
    t.deepEqual(passed, []);
  });
