/**
 * @file The memory where a plan keeps tensors that leave the devices.
 */
import type { Graph } from '../ir/graph.js';
import { leadersOf } from '../ir/layers.js';
import { hostedWith, type OffloadPlaces } from '../partition/offload.js';
import type { Plan } from './plan.js';

/** By the plan's `places`, and its operators that run on the host. */
export function planPlaces(plan: Plan, graph: Graph): OffloadPlaces {
  const leaders = leadersOf(graph, plan.layerClasses);
  const stated = (name: string) => plan.operators[leaders.operators.get(name) ?? name];
  return { parts: plan.places ?? {}, hosted: hostedWith(graph, ({ name }) => stated(name)?.place === 'host') };
}
