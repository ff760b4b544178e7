/**
 * @file Tensors that are live at once while a part's forward runs, from the sharded graph: all that a model needs beside its
 * parameters where no activations are stored. A group of operators is one kernel, as in `read-work.ts`: tensors inside it (the
 * scores of attention) are not counted, and a view shares its operand's memory.
 */
import { isFloating } from '../../ir/dtype.js';
import { elementCount } from '../../ir/graph.js';
import { appendTo } from '../../ir/group-by.js';
import { readsOf, resultsOf, type ShardedNode } from '../../partition/sharded-graph.js';
import { deviceCount } from '../../sharding-propagation/mesh.js';
import { isView, type StepGraph } from './step-graph.js';

/** Elements of one rank at a part's peak; `shared`: where ranks shard the tensors that each of them would hold whole. */
export interface LiveElements {
  readonly elements: number;
  readonly shared: number;
}

/**
 * Live elements of each part that runs in the forward, by its name. Results of a scan's elementwise work that only the scan
 * reads stay inside its matmuls' kernels.
 */
export function liveTensors(
  graph: StepGraph,
  partOf: (group: string) => string,
  inScan: (group: string) => boolean,
): ReadonlyMap<string, LiveElements> {
  const steps = forwardGroupNames(graph);
  const at = new Map(steps.map((group, index) => [group, index]));
  const fullest = new Map<string, LiveElements>();
  const begins = new Map<number, LiveSpan[]>();
  for (const span of spansOf(graph, at, inScan)) appendTo(begins, span.from, span);
  let open: readonly LiveSpan[] = [];
  for (const [index, group] of steps.entries()) {
    open = [...open.filter(({ to }) => to >= index), ...(begins.get(index) ?? [])];
    const part = partOf(group);
    const before = fullest.get(part) ?? { elements: 0, shared: 0 };
    const most = (of: keyof LiveElements) =>
      Math.max(
        before[of],
        open.reduce((sum, span) => sum + span[of], 0),
      );
    fullest.set(part, { elements: most('elements'), shared: most('shared') });
  }
  return fullest;
}

/** A tensor from the group that makes it to the last that reads it. */
interface LiveSpan extends LiveElements {
  readonly from: number;
  readonly to: number;
}

/** Groups of the forward in their order. */
function forwardGroupNames(graph: StepGraph): readonly string[] {
  const forward = graph.sharded.nodes.filter((node) => node.phase === 'forward');
  return [...new Set(forward.map((node) => graph.group(node)))];
}

function* spansOf(
  graph: StepGraph,
  at: ReadonlyMap<string, number>,
  inScan: (group: string) => boolean,
): Generator<LiveSpan> {
  const made = new Map<string, { from: number; to: number }>();
  for (const node of graph.sharded.nodes) {
    const index = node.phase === 'forward' ? at.get(graph.group(node)) : undefined;
    if (index === undefined) continue;
    for (const name of readsOf(node)) {
      if (graph.weights.has(name)) continue;
      const root = rootOf(graph, name);
      // A tensor that no operator makes is live from its first reader on.
      const span = made.get(root) ?? { from: index, to: index };
      made.set(root, { from: span.from, to: Math.max(span.to, index) });
    }
    for (const name of resultsOf(node)) {
      const isLast = graph.outputs.has(name);
      const root = rootOf(graph, name);
      const span = made.get(root) ?? { from: index, to: index };
      made.set(root, { from: span.from, to: isLast ? Number.POSITIVE_INFINITY : span.to });
    }
  }
  const ranks = deviceCount(graph.sharded.mesh);
  for (const [name, span] of made) {
    const maker = graph.makerOf(name);
    const isWithin =
      maker !== undefined &&
      ((span.from === span.to && graph.readersOf(name).length > 0) || staysInScan(graph, name, maker, inScan));
    const { dtype, localShape, shape } = graph.tensor(name);
    if (isWithin || graph.weights.has(name) || !isFloating(dtype)) continue;
    const elements = elementCount(localShape);
    yield { ...span, elements, shared: elements === elementCount(shape) ? elements / ranks : elements };
  }
}

/** Whether a tensor is made inside a scan by an operator that is not a matmul, and read only inside the scan. */
function staysInScan(graph: StepGraph, name: string, maker: ShardedNode, inScan: (group: string) => boolean): boolean {
  const group = graph.group(maker);
  return (
    inScan(group) &&
    graph.family(group) !== 'contraction' &&
    graph.readersOf(name).every((reader) => inScan(graph.group(reader)))
  );
}

/** The tensor whose memory a view shares: kernels read strided operands, so that moved and sliced ones need no copy either. */
function rootOf(graph: StepGraph, name: string): string {
  let root = name;
  for (let source = sourceOf(graph, root); source !== null; source = sourceOf(graph, root)) root = source;
  return root;
}

function sourceOf(graph: StepGraph, name: string): string | null {
  const maker = graph.makerOf(name);
  if (maker?.kind !== 'compute') return null;
  const [source, ...others] = maker.inputs.filter((input) => input !== null && isFloating(graph.tensor(input).dtype));
  if (!source || others.length > 0) return null;
  if (isView(maker)) return source;
  const isMoved = graph.family(graph.group(maker)) === 'view';
  const count = (tensor: string) => elementCount(graph.tensor(tensor).localShape);
  return isMoved && count(name) <= count(source) ? source : null;
}
