/**
 * @file The types of a program: corruptions of shipped programs (corruptions.ts), the first few of each kind, are refused. The
 * slow suite tries all of them on all programs.
 */
import test from 'ava';
import { checkProgram } from '../../src/program/check-program.js';
import { slowTests } from '../selection.js';
import { corruptionsOf } from './corruptions.js';
import { SHIPPED } from './shipped-programs.js';

const SAMPLE = [
  'mlp, training in micro-batches, dp 2, tp 2, axes free',
  'mlp, training in micro-batches, dp 2, tp 1, axes roles, in buckets',
  'gpt-tiny, training in micro-batches, dp 1, tp 2, axes roles, in halves',
  'mlp, training, dp 2, tp 2, parameter server',
  'gpt-tiny, training, dp 4, tp 1, parameter server, in buckets',
  'cnn-tiny, inference, dp 2, tp 2, axes roles',
  'cnn-tiny, training in micro-batches, sp 2',
  'gpt-tiny, {"kind":"1f1b","stages":2,"microBatches":2,"meshes":"dp2 tp2 | tp4"}',
  'mlp, training in micro-batches, {"offload":"all:disk"}',
  'gpt-tiny, training in micro-batches, {"zero":3,"bucket":20000}',
  'mlp, {"kind":"f-then-b","stages":2,"microBatches":2,"dp":2,"tp":2,"recompute":"full"}',
  'llama-tiny, {"kind":"interleaved-1f1b","stages":2,"microBatches":2,"chunks":2,"tp":2}',
];
const MOST = 2;

for (const { name, lowered } of SHIPPED.filter((shipped) => SAMPLE.includes(shipped.name)))
  slowTests(test, SAMPLE.indexOf(name) % 3 > 0)(`corruptions are refused: ${name}`, async (t) => {
    const { program } = (await lowered()).generated;
    t.is(checkProgram(program), null);
    const counts = new Map<string, number>();
    for (const { kind, where, program: wrong } of corruptionsOf(program)) {
      const count = counts.get(kind) ?? 0;
      counts.set(kind, count + 1);
      if (count < MOST) t.not(checkProgram(wrong), null, `${kind}: ${where}`);
    }
    t.true(counts.size >= 14, [...counts.keys()].join('; '));
  });

test('the sample is of shipped programs', (t) => {
  t.is(SHIPPED.filter(({ name }) => SAMPLE.includes(name)).length, SAMPLE.length);
});
