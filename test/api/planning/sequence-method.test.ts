/**
 * @file The method of sequence parallelism: its order by figures against the bytes that docs/parallelism.md counts, and
 * which plan is taken.
 */
import test from 'ava';
import { llama } from '../../../models/llama.js';
import { firstMethod, methodsInOrder } from '../../../src/api/planning/sequence-method.js';
import { parseCluster } from '../../../src/cost-model/cluster.js';
import { AutoparError } from '../../../src/ir/error.js';
import { recogniseBlocks } from '../../../src/ir/passes/recognise-blocks.js';
import { NothingFits } from '../../../src/search/plan.js';
import type { SpMethod } from '../../../src/sharding-propagation/roles.js';
import type { Plan } from '../../../src/strategy/plan.js';

type Answers = Readonly<Partial<Record<SpMethod, AutoparError | null>>>;

/** A plan by each method, or its refusal. */
function answering(answers: Answers): (method: SpMethod) => Promise<{ readonly plan: Plan }> {
  return async (method) => {
    const answer = answers[method];
    if (answer) throw answer;
    return { plan: { sequence: { method, order: 'contiguous', positions: 8 } } as unknown as Plan };
  };
}

const FIGURES = [
  { method: 'ulysses', seconds: 0.002 },
  { method: 'gather', seconds: 0.003 },
  { method: 'ring', seconds: 0.001 },
] as const;

const unfit = (bytes: number) =>
  new NothingFits(`needs ${bytes}`, '', { rejected: [], leastBytes: bytes, limitBytes: 1 });
const undivided = new AutoparError('degree-does-not-fit', 'usage', '3 heads', {}, '');

test('the first method that has a plan is taken, no other is planned, and the plan says why', async (t) => {
  const asked: SpMethod[] = [];
  const { plan } = await firstMethod(FIGURES, (method) => {
    asked.push(method);
    return answering({ ulysses: undivided })(method);
  });
  t.deepEqual(asked, ['ulysses', 'gather']);
  t.is(plan.sequence?.method, 'gather');
  t.is(plan.sequence?.why, 'attention by gather takes 3.00 ms a micro-batch; by ring 1.00 ms; ulysses: 3 heads');
});

test('where no method fits the error is that of the one that needs least', async (t) => {
  const answers = { gather: unfit(9), ulysses: undivided, ring: unfit(7) };
  const error = await t.throwsAsync(firstMethod(FIGURES, answering(answers)));
  t.is(error?.message, 'needs 7');
  const badOption = new AutoparError('bad-option', 'usage', 'x', {}, '');
  await t.throwsAsync(firstMethod(FIGURES, answering({ ulysses: badOption })), { message: 'x' });
});

test('heads are exchanged where that, with attention itself, takes less than keys and values gathered; a ring comes last', (t) => {
  const order = (keyHeads: number, sp: number, sequence: number) => {
    const sizes = { batch: 1, sequence, width: 2048, heads: 16, keyHeads, feedForward: 4096, vocabulary: 64 };
    const graph = recogniseBlocks(llama('llama', { ...sizes, layers: 1 }, 1, 'absent'));
    const figures = methodsInOrder(graph, { sp, tp: 1, ranks: sp }, parseCluster(`1x${sp}:h100-sxm-80`, undefined));
    return figures.map(({ method }) => method);
  };
  // Keys and values of all heads against an eighth of four tensors of all heads; of two heads of sixteen.
  t.deepEqual(order(16, 8, 2048), ['ulysses', 'gather', 'ring']);
  t.deepEqual(order(2, 2, 512), ['gather', 'ulysses', 'ring']);
  // Of more positions the second rank's queries see three quarters of the keys, where both ranks' heads see half of them.
  t.deepEqual(order(2, 2, 2048), ['ulysses', 'gather', 'ring']);
});
