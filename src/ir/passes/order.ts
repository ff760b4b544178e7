/**
 * @file Well-formedness of a source graph: every value is defined once, every value that is read is defined, and the
 * nodes have an order. Returns the nodes in topological order, the file's order where it is one.
 */
import { AutoparError } from '../error.js';
import { isSourceGraph, type SourceGraph, type SourceNode } from '../onnx/model.js';
import { duplicate } from '../onnx/reader.js';

/**
 * Orders `nodes` (a graph's, after functions are inlined) and checks their names against the graph's inputs and initializers.
 * Throws `bad-name`, `no-outputs`, `duplicate-name`, `undefined-tensor`, `cyclic-graph`.
 */
export function orderNodes(graph: SourceGraph, nodes: readonly SourceNode[], file: string): readonly SourceNode[] {
  if (graph.outputs.length === 0) throw withoutOutputs(file);
  const given = checkInputs(graph, file);
  const producer = new Map<string, number>();
  nodes.forEach((node, index) => {
    for (const output of node.outputs) {
      if (output === null) continue;
      checkName(output, file);
      if (given.has(output) || producer.has(output)) throw duplicate(output, file);
      producer.set(output, index);
    }
  });
  const reads = nodes.map((node) => {
    const free = freeNames(node);
    return free.length === 0 ? node.inputs : [...node.inputs, ...free];
  });
  nodes.forEach((node, index) => {
    for (const input of reads[index] ?? []) {
      if (input !== null && !given.has(input) && !producer.has(input))
        throw undefinedTensor(input, `node '${node.name || node.op}' reads`, node.name, file);
    }
  });
  for (const output of graph.outputs) {
    if (!given.has(output.name) && !producer.has(output.name))
      throw undefinedTensor(output.name, 'the graph returns', '', file);
  }
  if (isOrdered(reads, producer)) return nodes;
  return sorted(nodes, reads, producer, file);
}

function checkInputs(graph: SourceGraph, file: string): ReadonlySet<string> {
  const given = new Set<string>();
  for (const input of graph.inputs) {
    if (given.has(input.name)) throw duplicate(input.name, file);
    given.add(input.name);
  }
  // Up to IR 3 every initializer is an input as well.
  for (const name of graph.initializers.keys()) given.add(name);
  for (const name of given) checkName(name, file);
  return given;
}

/** Plans and programs are keyed by names: names that every JavaScript object has are refused. */
function checkName(name: string, file: string): void {
  if (name !== '' && !(name in Object.prototype)) return;
  throw new AutoparError(
    'bad-name',
    'input',
    name === '' ? 'an input of the graph has no name' : `a tensor has the name '${name}', which JavaScript reserves`,
    { file, tensor: name },
    'rename it, and export the model again',
  );
}

function withoutOutputs(file: string): AutoparError {
  return new AutoparError(
    'no-outputs',
    'input',
    'the graph has no outputs',
    { file },
    'declare its results as outputs of the graph, and export the model again',
  );
}

/** Names that the subgraphs of a node read from outside. */
function freeNames(node: SourceNode): readonly string[] {
  const values = Object.values(node.attributes);
  return values.some(isSourceGraph) ? values.flatMap((value) => (isSourceGraph(value) ? freeOf(value) : [])) : [];
}

function freeOf(graph: SourceGraph): readonly string[] {
  const own = new Set<string | null>([
    ...graph.inputs.map((value) => value.name),
    ...graph.initializers.keys(),
    ...graph.nodes.flatMap((node) => node.outputs),
  ]);
  const read = graph.nodes.flatMap((node) => [...node.inputs, ...freeNames(node)]);
  return [...read, ...graph.outputs.map((value) => value.name)].filter(
    (name): name is string => name !== null && !own.has(name),
  );
}

/** The names that each node reads, perhaps repeated. */
type Reads = readonly (readonly (string | null)[])[];

function isOrdered(reads: Reads, producer: ReadonlyMap<string, number>): boolean {
  return reads.every((names, index) => names.every((name) => name === null || (producer.get(name) ?? -1) < index));
}

/** Kahn's algorithm; ready nodes are taken in the file's order. */
function sorted(
  nodes: readonly SourceNode[],
  reads: Reads,
  producer: ReadonlyMap<string, number>,
  file: string,
): readonly SourceNode[] {
  const readers = nodes.map((): number[] => []);
  const waiting = new Int32Array(nodes.length);
  const sources = reads.map((names) => {
    const found = new Set<number>();
    for (const name of names) {
      const source = name === null ? undefined : producer.get(name);
      if (source !== undefined) found.add(source);
    }
    return found;
  });
  sources.forEach((found, index) => {
    waiting[index] = found.size;
    for (const source of found) readers[source]?.push(index);
  });
  const queue = nodes.flatMap((_, index) => (waiting[index] === 0 ? [index] : []));
  for (let position = 0; position < queue.length; position++) {
    for (const reader of readers[queue[position] ?? 0] ?? []) {
      const left = (waiting[reader] ?? 0) - 1;
      waiting[reader] = left;
      if (left === 0) queue.push(reader);
    }
  }
  if (queue.length < nodes.length) throw cyclic(nodes, sources, new Set(queue), file);
  return queue.flatMap((index) => nodes[index] ?? []);
}

/** A node that is never ready waits for another such node: going from each to one it waits for ends in a cycle. */
function cyclic(
  nodes: readonly SourceNode[],
  sources: readonly ReadonlySet<number>[],
  done: ReadonlySet<number>,
  file: string,
): AutoparError {
  const path: number[] = [];
  const places = new Map<number, number>();
  let index = nodes.findIndex((_, at) => !done.has(at));
  while (!places.has(index)) {
    places.set(index, path.length);
    path.push(index);
    index = [...(sources[index] ?? [])].find((source) => !done.has(source)) ?? index;
  }
  const cycle = path.slice(places.get(index)).reverse();
  const names = cycle.map((at) => nodes[at]?.name || nodes[at]?.op || '?');
  const shown = names.length > 6 ? [...names.slice(0, 5), '…', names.at(-1) ?? ''] : names;
  return new AutoparError(
    'cyclic-graph',
    'input',
    `nodes form a cycle: ${[...shown, shown[0] ?? ''].join(' → ')}`,
    { file, node: names[0] ?? '' },
    'an ONNX graph has no cycles; loops over time are Loop or Scan operators',
  );
}

function undefinedTensor(tensor: string, reader: string, node: string, file: string): AutoparError {
  return new AutoparError(
    'undefined-tensor',
    'input',
    `${reader} '${tensor}', which no input, initializer or node defines`,
    { file, tensor, ...(node === '' ? {} : { node }) },
    'the file is damaged or was edited; export the model again',
  );
}
