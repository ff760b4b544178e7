/**
 * @file What stages wait for at least, interleaved or with few micro-batches, against the price of drawn ones: any stage may have any
 * share.
 */
import test from 'ava';
import fc from 'fast-check';
import { pipelineSeconds } from '../../../src/schedule/closed-form.js';
import { interleavedFill, passesBeside } from '../../../src/search/configurations/variant-bound.js';
import { draws } from '../../selection.js';

const seconds = fc.oneof(fc.constantFrom(0, 1), fc.double({ min: 0, max: 2, noNaN: true }));

const pipelines = fc
  .record({
    p: fc.integer({ min: 2, max: 9 }),
    times: fc.integer({ min: 1, max: 4 }),
    v: fc.integer({ min: 2, max: 5 }),
    hop: fc.constantFrom(0, 0.1, 1),
    blocks: fc.boolean(),
  })
  .chain((drawn) => {
    const each = (length: number) => fc.array(seconds, { minLength: length, maxLength: length });
    return fc.record({ pipeline: fc.constant(drawn), forwards: each(drawn.p), backwards: each(drawn.p) });
  });

test('however stages share their work, they wait for the fill at least', (t) => {
  fc.assert(
    fc.property(pipelines, ({ pipeline: { p, times, v, hop, blocks }, forwards, backwards }) => {
      const m = times * p;
      const stages = forwards.map((forward, index) => ({
        forward,
        backward: backwards[index] as number,
        weightGradient: 0,
      }));
      const price = pipelineSeconds(
        { kind: 'interleaved-1f1b', stages: p, microBatches: m, virtualStages: v },
        stages,
        { seconds: hop, blocks },
      );
      const mean = (all: readonly number[]) => all.reduce((sum, own) => sum + own, 0) / p;
      const [forward, backward] = [mean(forwards), mean(backwards)];
      const least = m * (forward + backward) + interleavedFill(p, m, v, forward, backward);
      // Seconds near the least number there is have no digits to be near by.
      t.true(least <= price * (1 + 1e-12) + 1e-300, `${least} of ${price}`);
    }),
    { numRuns: draws(1000) },
  );
});

test('of equal stages it is half of what they wait, and the longer pass of it where there are as few micro-batches', (t) => {
  const stages = Array.from({ length: 4 }, () => ({ forward: 1, backward: 2, weightGradient: 1 }));
  const waits = (m: number) =>
    pipelineSeconds({ kind: 'interleaved-1f1b', stages: 4, microBatches: m, virtualStages: 2 }, stages, {
      seconds: 0,
      blocks: false,
    }) -
    m * 3;
  t.is(interleavedFill(4, 8, 2, 1, 2), waits(8) / 2);
  t.is(interleavedFill(4, 4, 2, 1, 2), (waits(4) * 2) / 3);
});

test('with no more micro-batches than stages 1F1B waits for one through all of them, and for its share of the others', (t) => {
  fc.assert(
    fc.property(pipelines, fc.double({ min: 0, max: 1, noNaN: true }), ({ pipeline, forwards, backwards }, share) => {
      const { p, hop, blocks } = pipeline;
      const m = 1 + Math.floor(share * (p - 1));
      const stages = forwards.map((forward, index) => ({
        forward,
        backward: backwards[index] as number,
        weightGradient: 0,
      }));
      const price = pipelineSeconds({ kind: '1f1b', stages: p, microBatches: m }, stages, { seconds: hop, blocks });
      const whole = [...forwards, ...backwards].reduce((sum, own) => sum + own, 0);
      const least = whole + whole / passesBeside(p, m) + 2 * (p - 1) * hop;
      t.true(least <= price * (1 + 1e-12) + 1e-300, `${least} of ${price}`);
    }),
    { numRuns: draws(1000) },
  );
  // By hand: nothing beside a single micro-batch; of two through two stages, half a pass and a whole one.
  t.is(passesBeside(4, 1), Number.POSITIVE_INFINITY);
  t.is(passesBeside(2, 2), 3);
});
