/**
 * @file The redistributions of an assignment in words, as plan.json and `explain` show them.
 */
import { dtypeBits } from '../ir/dtype.js';
import { type Graph, typeOf } from '../ir/graph.js';
import type { Assignment } from '../partition/assignment.js';
import type { Mesh, SubAxis } from '../sharding-propagation/mesh.js';
import type { Redistributor } from '../sharding-propagation/redistribution.js';
import { producedLayouts } from '../strategy/produced-layouts.js';

/** Per view: the steps from the produced layout to the view's, such as `all-gather(tp)`. */
export function viewSteps(
  graph: Graph,
  assignment: Assignment,
  redistributor: Redistributor,
): readonly (readonly string[])[] {
  const produced = producedLayouts(graph, assignment);
  return assignment.views.map(({ tensor, layout }) => {
    const from = produced.get(tensor);
    if (!from) return [];
    const { dtype, shape } = typeOf(graph, tensor);
    return redistributor
      .steps(from, layout, shape, dtypeBits(dtype))
      .map((step) => `${step.kind}(${axisNames(assignment.mesh, step.axes).join(',')})`);
  });
}

/** Sub-axes as axes where all of an axis's are there, else as they are. */
function axisNames(mesh: Mesh, axes: readonly SubAxis[]): readonly string[] {
  return mesh.axes.flatMap((axis) => {
    const used = axis.subAxes.filter((sub) => axes.includes(sub.name)).map((sub) => sub.name);
    return used.length > 0 && used.length === axis.subAxes.length ? [axis.name] : used;
  });
}
