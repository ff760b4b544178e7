import test, { type ExecutionContext } from 'ava';
import { orderedGraph, refuseIdleOrder } from '../../../src/api/requests/sequence-order.js';
import { AutoparError } from '../../../src/ir/error.js';
import type { SpMethod } from '../../../src/sharding-propagation/roles.js';
import { MODELS } from '../../pipelines/models.js';

const refused = (ask: () => unknown, t: ExecutionContext) => t.throws(ask, { instanceOf: AutoparError }).message;

test('an order is of a ring, and of a causal sequence that its pieces divide', (t) => {
  const graph = MODELS['encoder-decoder']();
  const idle = (sp: number, spMethod?: SpMethod) =>
    refused(() => refuseIdleOrder(sp, { ...(spMethod ? { spMethod } : {}), spOrder: 'zigzag' }), t);
  t.regex(idle(2, 'gather'), /sets the position order of a ring, .*--sp-method is gather/);
  t.regex(idle(2), /--sp-method is auto/);
  t.regex(idle(1, 'ring'), /sp is 1/);
  t.notThrows(() => refuseIdleOrder(2, { spMethod: 'ring', spOrder: 'zigzag' }));
  t.regex(
    refused(() => orderedGraph(graph, 2, { spMethod: 'ring', spOrder: 'zigzag' }), t),
    /no attention of the model has only a causal mask/,
  );
  t.is(orderedGraph(graph, 2, { spMethod: 'ring' }).sequence?.order, 'contiguous');
});
