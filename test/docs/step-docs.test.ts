/**
 * @file The table of docs/reference/constants.md is that of the source.
 */
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import test from 'ava';
import { STEP_CONSTANTS } from '../../src/cost-model/step/constants.js';
import { ROOT } from '../cli/autopar.js';

test('docs/reference/constants.md lists every constant with its value', (t) => {
  const text = readFileSync(join(ROOT, 'docs/reference/constants.md'), 'utf8');
  const check = (name: string, value: unknown): void => {
    if (typeof value === 'number') t.true(text.includes(`| \`${name}\` | ${value} |`), `${name} ${value}`);
    else for (const [inner, item] of Object.entries(value as object)) check(`${name}.${inner}`, item);
  };
  for (const [name, value] of Object.entries(STEP_CONSTANTS)) check(name, value);
});
