/**
 * @file Checks the recompute and place fields of operators and layers in plan.json against the plan's effect on them.
 */
import { clonedOperators } from '../../ir/autodiff/recompute.js';
import type { Graph } from '../../ir/graph.js';
import { leadersOf } from '../../ir/layers.js';
import { expertDimensions } from '../../search/factor-families.js';
import type { Plan } from '../../strategy/plan.js';
import { planPlaces } from '../../strategy/plan-places.js';
import { unfit } from '../../strategy/unfit.js';

/** @throws AutoparError (input) `plan-contradicts-itself` where a field of an operator or a layer is not what it does */
export function checkOperators(plan: Plan, graph: Graph): void {
  if (plan.degrees.ep > 1 && expertDimensions(graph).length === 0)
    throw contradiction(`ep is ${plan.degrees.ep}, and the model has no experts`);
  const leaders = leadersOf(graph, plan.layerClasses).operators;
  const entryOf = (name: string) => leaders.get(name) ?? name;
  const clones = clonedOperators(graph);
  const cloned = new Set([...clones].map(entryOf));
  const hosted = new Set([...planPlaces(plan, graph).hosted].map(entryOf));
  const recomputing = new Set(graph.nodes.flatMap(({ name, layer }) => (clones.has(name) ? [layer] : [])));
  for (const [node, { recompute, place }] of Object.entries(plan.operators)) {
    if (recompute && !cloned.has(node))
      throw contradiction(`operator ${node} is recomputed, and the backward reads nothing of it`, node);
    if (place === 'host' && !hosted.has(node))
      throw contradiction(`operator ${node} runs on the host, and its forward operator runs on the device`, node);
  }
  for (const { instances, recompute = [] } of plan.layerClasses)
    for (const [index, layer] of instances.entries()) {
      const own = recomputing.has(layer);
      if ((recompute[index] ?? own) === own) continue;
      throw contradiction(
        own
          ? `layer ${layer} recomputes nothing, and its operators are recomputed`
          : `layer ${layer} recomputes, and none of its operators is recomputed`,
      );
    }
}

function contradiction(stated: string, node?: string): ReturnType<typeof unfit> {
  return unfit(
    'plan-contradicts-itself',
    `the plan contradicts its model: ${stated}`,
    node === undefined ? {} : { node },
  );
}
