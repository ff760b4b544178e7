/**
 * @file Tensors that the first rank of some axes alone holds, as plan.json writes them: ` + first(dp)` behind their layout. It
 * follows from the plan's `server`, and is repeated for the reader and so that an edit that contradicts itself is found.
 */
import type { Graph } from '../ir/graph.js';
import { leadersOf } from '../ir/layers.js';
import type { LoweredStage } from '../partition/lower-stages.js';
import { shortNames } from '../sharding-propagation/layout-text.js';
import { subAxes } from '../sharding-propagation/mesh.js';
import type { Plan } from './plan.js';
import { unfit } from './unfit.js';

const WRITTEN = / \+ first\([^()]*\)$/;

/** A layout as it is written, without it. */
export function withoutFirst(text: string): string {
  return text.replace(WRITTEN, '');
}

/** The text after the layout of each of some tensors of a graph; empty where all ranks hold the tensor. */
export function firstTexts(tensors: readonly string[], lowered: readonly LoweredStage[]): (tensor: string) => string {
  const texts = new Map<string, string>();
  for (const { sharded } of lowered)
    for (const name of tensors) {
      const { first } = sharded.tensors.get(name) ?? {};
      if (!first) continue;
      const axes = subAxes(sharded.mesh).flatMap((sub) => (first.includes(sub.name) ? [sub.name] : []));
      texts.set(name, ` + first(${shortNames(axes, sharded.mesh).join(',')})`);
    }
  return (tensor) => texts.get(tensor) ?? '';
}

/** @throws AutoparError (input) `plan-contradicts-itself` where the plan's text of a tensor does not follow from its `server` */
export function checkFirst(plan: Plan, graph: Graph, lowered: readonly LoweredStage[]): void {
  const state = graph.state.map(({ input }) => input);
  const follows = firstTexts(state, lowered);
  const leaders = leadersOf(graph, plan.layerClasses);
  for (const tensor of graph.tensors.keys()) {
    if (leaders.tensors.has(tensor)) continue;
    const text = plan.tensors[tensor] ?? '';
    const stated = WRITTEN.exec(text)?.[0] ?? '';
    if (stated === follows(tensor)) continue;
    const where = (part: string) => (part === '' ? 'on all ranks' : part.slice(' + '.length));
    throw unfit(
      'plan-contradicts-itself',
      `tensor ${tensor} is ${where(stated)} in the plan, and ${where(follows(tensor))} by its server`,
      { tensor },
    );
  }
}
