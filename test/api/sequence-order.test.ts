import test from 'ava';
import { bestMethod, orderedGraph } from '../../src/api/sequence-order.js';
import { AutoparError } from '../../src/ir/error.js';
import { NothingFits } from '../../src/search/plan.js';
import type { SpMethod } from '../../src/sharding-propagation/roles.js';
import type { Plan } from '../../src/strategy/plan.js';
import { MODELS } from '../pipelines/models.js';

type Answers = Readonly<Partial<Record<SpMethod, number | AutoparError>>>;

/** A plan of so many seconds by each method, or its refusal. */
function answering(answers: Answers): (method: SpMethod) => Promise<{ readonly plan: Plan }> {
  return async (method) => {
    const answer = answers[method];
    if (answer instanceof AutoparError) throw answer;
    const predicted = { stepSeconds: answer, peakBytes: [2e9, 3e9] };
    return { plan: { sequence: { method, order: 'contiguous', positions: 8 }, predicted } as unknown as Plan };
  };
}

const unfit = (bytes: number) =>
  new NothingFits(`needs ${bytes}`, '', { rejected: [], leastBytes: bytes, limitBytes: 1 });
const undivided = new AutoparError('degree-does-not-fit', 'usage', '3 heads', {}, '');

test('of the methods that have a plan the fastest is taken, and the plan says why', async (t) => {
  const { plan } = await bestMethod(answering({ gather: 0.3, ulysses: undivided, ring: 0.2 }));
  t.is(plan.sequence?.method, 'ring');
  t.is(
    plan.sequence?.why,
    'ring takes 200 ms and 3.00 GB of memory per rank; gather 300 ms and 3.00 GB of memory per rank; ulysses: 3 heads',
  );
});

test('where no method fits the error is that of the one that needs least', async (t) => {
  const error = await t.throwsAsync(bestMethod(answering({ gather: unfit(9), ulysses: undivided, ring: unfit(7) })));
  t.is(error?.message, 'needs 7');
  await t.throwsAsync(bestMethod(answering({ gather: new AutoparError('bad-option', 'usage', 'x', {}, '') })), {
    message: 'x',
  });
});

test('an order is of a ring, and of a causal sequence that its pieces divide', (t) => {
  const refused = (...[graph, sp, request]: Parameters<typeof orderedGraph>) =>
    t.throws(() => orderedGraph(graph, sp, request), { instanceOf: AutoparError }).message;
  const graph = MODELS['encoder-decoder']();
  t.regex(
    refused(graph, 2, { spMethod: 'gather', spOrder: 'zigzag' }),
    /how|order a ring has .* --sp-method is gather/,
  );
  t.regex(refused(graph, 1, { spMethod: 'ring', spOrder: 'zigzag' }), /sp is 1/);
  t.regex(
    refused(graph, 2, { spMethod: 'ring', spOrder: 'zigzag' }),
    /no attention of the model has a causal mask alone/,
  );
  t.is(orderedGraph(graph, 2, { spMethod: 'ring' }).sequence?.order, 'contiguous');
});
