/**
 * @file The reshardings of an assignment in words, as plan.json and `explain` show them.
 */

import { dtypeBits } from '../ir/dtype.js';
import { type Graph, typeOf } from '../ir/graph.js';
import type { Assignment, SharedReshard } from '../partition/assignment.js';
import { cutStages, stageOfOperators } from '../partition/cut-stages.js';
import type { LoweredStage, PipelineLayout } from '../partition/lower-stages.js';
import type { Layout } from '../sharding-propagation/layout.js';
import { namesInMeshOrder } from '../sharding-propagation/layout-text.js';
import type { Resharder } from '../sharding-propagation/resharding.js';
import { producedLayouts } from '../strategy/produced-layouts.js';

/**
 * Per shared reshard: the ops from the produced layout to its own, such as `all-gather(tp)`; on a stage whose mesh differs from
 * that of the tensor's maker, from the layout in which the tensor is sent.
 */
export function reshardOpTexts(
  graph: Graph,
  assignment: Assignment,
  resharder: Resharder,
  layout?: PipelineLayout,
): readonly (readonly string[])[] {
  const produced = producedLayouts(graph, assignment);
  const arriving = layout?.meshes ? arrivingLayouts(graph, assignment, layout) : () => undefined;
  return assignment.sharedReshards.map((reshard) => {
    const { tensor, layout } = reshard;
    const from = arriving(reshard) ?? produced.get(tensor);
    if (!from) return [];
    const { dtype, shape } = typeOf(graph, tensor);
    return resharder
      .ops(from, layout, shape, dtypeBits(dtype))
      .map((op) => `${op.kind}(${namesInMeshOrder(op.axes, assignment.mesh).join(',')})`);
  });
}

/** The layout in which a reshard's tensor comes to its readers' stage, where another stage sends it. */
export function arrivingLayouts(
  graph: Graph,
  { sharedReshards }: Assignment,
  { placeOf, stages }: PipelineLayout,
): (reshard: SharedReshard) => Layout | undefined {
  const stageOf = stageOfOperators(cutStages(graph, placeOf, stages));
  const home = new Map(
    graph.nodes.flatMap(({ name, outputs }) => outputs.map((output) => [output, stageOf.get(name)] as const)),
  );
  const sent = new Map(
    sharedReshards.flatMap(({ tensor, readers, layout }) =>
      readers.some(({ kind }) => kind === 'output') ? [[tensor, layout] as const] : [],
    ),
  );
  return ({ tensor, readers: [first] }) =>
    first?.kind === 'operator' && home.has(tensor) && stageOf.get(first.name) !== home.get(tensor)
      ? sent.get(tensor)
      : undefined;
}

/**
 * The ops of reshards where only the first rank of some axes updates: over these axes, an all-reduce of the update's operands
 * is a reduce to that rank.
 * @param lowered the stages in that case
 */
export function servedOpTexts(
  ops: readonly (readonly string[])[],
  { sharedReshards, mesh }: Pick<Assignment, 'sharedReshards' | 'mesh'>,
  lowered: readonly Pick<LoweredStage, 'sharded'>[],
): readonly (readonly string[])[] {
  const served = new Map(
    lowered.flatMap(({ sharded }) =>
      sharded.nodes.flatMap((node) =>
        node.kind === 'communicate' && node.collective.kind === 'reduce' ? [[node.origin, node.axes] as const] : [],
      ),
    ),
  );
  return ops.map((own, index) => {
    const axes = served.get(sharedReshards[index]?.readers[0]?.name ?? '');
    if (!axes) return own;
    const data = namesInMeshOrder(axes, mesh);
    return own.flatMap((op) => {
      const over = /^all-reduce\((.*)\)$/.exec(op)?.[1]?.split(',') ?? [];
      if (!data.every((name) => over.includes(name))) return [op];
      const rest = over.filter((name) => !data.includes(name));
      return [`reduce(${data.join(',')})`, ...(rest.length > 0 ? [`all-reduce(${rest.join(',')})`] : [])];
    });
  });
}
