/**
 * @file The checker of sharded graphs: corruptions of every shipped model's lowered graphs (graph-corruptions.ts), drawn evenly
 * from each kind, are refused.
 */
import test from 'ava';
import { SHIPPED } from '../program/shipped-programs.js';
import { refused } from './graph-corruptions.js';

const MOST = 24;

for (const { name, lowered } of SHIPPED)
  test(`corruptions are refused: ${name}`, async (t) => {
    const { tried, passed } = refused((await lowered()).lowered, MOST);
    t.log([...tried].map(([kind, count]) => `${kind} ${count}`).join('; '));
    t.deepEqual(passed, []);
  });
