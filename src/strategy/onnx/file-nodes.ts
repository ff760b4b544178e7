/**
 * @file Which operators of the graph a node of the file became: import folds some, splits others (`gemm` into `gemm` and
 * `gemm/add`), inlines calls of functions and joins nodes to regions.
 */
import type { Graph, Node } from '../../ir/graph.js';
import type { NodeProto } from '../../ir/onnx/schema.js';

/** Finds them by result, by name, by a name that was derived from it, and by the region around it. */
export class OperatorsOfFile {
  private readonly byName = new Map<string, Node[]>();
  private readonly byResult = new Map<string, Node>();

  constructor(graph: Pick<Graph, 'nodes'>) {
    for (const node of graph.nodes) {
      for (const name of namesOf(node)) this.add(name, node);
      for (const output of node.outputs) if (output !== null) this.byResult.set(output, node);
    }
  }

  /** The one that makes its result first; none for a node that was folded away. */
  of(node: NodeProto): readonly Node[] {
    const made = (node.output ?? []).flatMap((output) => this.byResult.get(output) ?? []);
    const named = node.name ? (this.byName.get(node.name) ?? []) : [];
    return [...new Set([...made, ...named])];
  }

  private add(name: string, node: Node): void {
    const known = this.byName.get(name);
    if (known) known.push(node);
    else this.byName.set(name, [node]);
  }
}

/** Its own name, those it was derived from (`gemm` for `gemm/add`, calls of functions), and those of the nodes in its body. */
function namesOf(node: Node): ReadonlySet<string> {
  const outer = [...node.name.matchAll(/\//g)].flatMap(({ index }) => (index > 0 ? [node.name.slice(0, index)] : []));
  return new Set([node.name, ...outer, ...(node.body ? node.body.nodes.flatMap((inner) => [...namesOf(inner)]) : [])]);
}
