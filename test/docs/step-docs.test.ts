/**
 * @file The tables of docs/cost-model.md and docs/simulate.md are those of the source.
 */
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import test from 'ava';
import { families } from '../../models/families.js';
import { STEP_CONSTANTS } from '../../src/cost-model/step/constants.js';
import { ROOT } from '../cli/autopar.js';

const page = (file: string): string => readFileSync(join(ROOT, file), 'utf8');

test('docs/simulate.md lists every family with its keys', (t) => {
  const text = page('docs/simulate.md');
  for (const { name, says, keys } of families()) t.true(text.includes(`| \`${name}\` | ${says} | ${keys} |`), name);
});

test('docs/cost-model.md lists every constant with its value', (t) => {
  const text = page('docs/cost-model.md');
  const check = (name: string, value: unknown): void => {
    if (typeof value === 'number') t.true(text.includes(`| \`${name}\` | ${value} |`), `${name} ${value}`);
    else for (const [inner, item] of Object.entries(value as object)) check(`${name}.${inner}`, item);
  };
  for (const [name, value] of Object.entries(STEP_CONSTANTS)) check(name, value);
});
