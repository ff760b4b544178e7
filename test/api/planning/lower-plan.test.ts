import test from 'ava';
import { clusterOf } from '../../../src/api/planning/lower-plan.js';
import type { Plan } from '../../../src/strategy/plan.js';

test('a plan for devices that there are not is refused as a plan, not as an option', (t) => {
  const of = (nodes: number, device: string) => ({ cluster: { nodes, perNode: 8, device } }) as Plan;
  t.is(clusterOf(of(2, 'h100-sxm-80')).device.id, 'h100-sxm-80');
  const refusal = { code: 'plan-invalid', exit: 'input' };
  const unknown = t.throws(() => clusterOf(of(2, 'h100-smx-80')));
  t.like(unknown, { ...refusal, message: 'the plan\'s cluster: no device "h100-smx-80" in the catalogue' });
  t.like(
    t.throws(() => clusterOf(of(1e9, 'h100-sxm-80'))),
    refusal,
  );
});
