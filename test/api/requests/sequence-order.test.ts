import test from 'ava';
import { orderedGraph } from '../../../src/api/requests/sequence-order.js';
import { AutoparError } from '../../../src/ir/error.js';
import { MODELS } from '../../pipelines/models.js';

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
