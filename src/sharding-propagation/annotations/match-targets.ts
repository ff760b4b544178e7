/**
 * @file The targets of a pin's glob in a graph: nodes, tensors, modules with the nodes inside, or operators by type. A glob that
 * matches nothing is an error, whose hint names near matches.
 */
import { AutoparError } from '../../ir/error.js';
import { fileTensorOf, type Graph, type Node } from '../../ir/graph.js';
import { appendTo, groupBy } from '../../ir/group-by.js';
import { nearest, offer } from '../../ir/nearest.js';
import { moduleText } from '../../ir/onnx/module-path.js';
import type { PinSource } from '../pin.js';
import type { MatchKind, PinAnnotation } from './annotation.js';
import { globMatcher, isGlob, loosened } from './name-glob.js';
import { pinPlace } from './pin-error.js';

/** Nodes that one module, or one glob over nodes, covers. */
export interface NodeGroup {
  /** In words: `module h.0.mlp`, `node fc`. */
  readonly says: string;
  readonly nodes: readonly Node[];
}

export type Targets =
  | { readonly kind: 'nodes'; readonly groups: readonly NodeGroup[] }
  | { readonly kind: 'tensors'; readonly tensors: readonly string[] };

/** Names of a graph, gathered once for all pins. */
export interface GraphNames {
  readonly graph: Graph;
  readonly nodes: ReadonlyMap<string, Node>;
  readonly operators: readonly string[];
  /** Tensors by name: by the graph's, and weights by the file's as well. */
  readonly tensors: ReadonlyMap<string, readonly string[]>;
  /** Path of every module with the nodes inside. */
  readonly modules: ReadonlyMap<string, readonly Node[]>;
  /** Per node the paths of the modules that it is in, outermost first. */
  readonly pathsOf: ReadonlyMap<Node, readonly string[]>;
  /** Operators and tensors inside of fused regions, by the region's node. */
  readonly insideRegions: ReadonlyMap<string, Node>;
}

export function graphNames(graph: Graph): GraphNames {
  const modules = new Map<string, Node[]>();
  const pathsOf = new Map<Node, readonly string[]>();
  const insideRegions = new Map<string, Node>();
  for (const node of graph.nodes) {
    const paths = node.module.map((_, depth) => moduleText(node.module.slice(0, depth + 1)));
    pathsOf.set(node, paths);
    for (const path of paths) {
      appendTo(modules, path, node);
    }
    for (const inner of node.body?.nodes ?? [])
      for (const name of [inner.name, ...inner.outputs]) if (name !== null) insideRegions.set(name, node);
  }
  return {
    graph,
    nodes: new Map(graph.nodes.map((node) => [node.name, node])),
    operators: [...new Set(graph.nodes.map((node) => node.op))],
    tensors: tensorNames(graph),
    modules,
    pathsOf,
    insideRegions,
  };
}

function tensorNames(graph: Graph): ReadonlyMap<string, readonly string[]> {
  const names = new Map<string, string[]>([...graph.tensors.keys()].map((name) => [name, [name]]));
  for (const name of graph.tensors.keys()) {
    const file = fileTensorOf(graph, name);
    if (file && file.name !== name) appendTo(names, file.name, name);
  }
  return names;
}

/** The targets of a pin. @throws AutoparError `pin-matches-nothing` */
export function targetsOf({ target: { kind, glob } }: PinAnnotation, names: GraphNames, source: PinSource): Targets {
  const fits = globMatcher(glob);
  const found = FINDERS[kind](fits, glob, names);
  const empty = found.kind === 'nodes' ? found.groups.length === 0 : found.tensors.length === 0;
  if (empty) throw matchesNothing(kind, glob, names, source);
  return found;
}

type Finder = (fits: (name: string) => boolean, glob: string, names: GraphNames) => Targets;

const FINDERS: Readonly<Record<MatchKind, Finder>> = {
  node: (fits, glob, { nodes }) => {
    const exact = nodes.get(glob);
    const found = exact ? [exact] : [...nodes.values()].filter((node) => fits(node.name));
    return { kind: 'nodes', groups: found.map((node) => ({ says: `node ${node.name}`, nodes: [node] })) };
  },
  tensor: (fits, glob, { tensors }) => {
    const found = tensors.get(glob) ?? [...tensors].flatMap(([name, own]) => (fits(name) ? own : []));
    return { kind: 'tensors', tensors: [...new Set(found)] };
  },
  op: (fits, _glob, { graph, operators }) => {
    const wanted = new Set(operators.filter(fits));
    const found = graph.nodes.filter((node) => wanted.has(node.op));
    return { kind: 'nodes', groups: found.map((node) => ({ says: `node ${node.name}`, nodes: [node] })) };
  },
  module: (fits, _glob, names) => ({ kind: 'nodes', groups: moduleGroups(fits, names) }),
};

/** A group per module that fits and is in no other that does: `**` over nested modules covers each node once. */
function moduleGroups(fits: (name: string) => boolean, { graph, modules, pathsOf }: GraphNames): readonly NodeGroup[] {
  const wanted = new Set([...modules.keys()].filter(fits));
  const groups = groupBy(graph.nodes, (node) => pathsOf.get(node)?.find((candidate) => wanted.has(candidate)) ?? null);
  return [...groups].map(([path, nodes]) => ({ says: `module ${path}`, nodes }));
}

const NAMED: Readonly<Record<MatchKind, string>> = {
  node: 'node has a name',
  tensor: 'tensor has a name',
  module: 'module has a path',
  op: 'operator is of a type',
};

function matchesNothing(kind: MatchKind, glob: string, names: GraphNames, source: PinSource): AutoparError {
  const candidates: Readonly<Record<MatchKind, readonly string[]>> = {
    node: [...names.nodes.keys()],
    tensor: [...names.tensors.keys()],
    module: [...names.modules.keys()],
    op: names.operators,
  };
  const all = candidates[kind];
  return new AutoparError(
    'pin-matches-nothing',
    'input',
    `${source.text}: no ${NAMED[kind]} that fits '${glob}'`,
    pinPlace(source),
    hidden(glob, names) ?? looser(glob, all) ?? nearGlob(glob, all),
  );
}

/** The hint for a name of an operator or tensor inside a region. */
function hidden(glob: string, { insideRegions }: GraphNames): string | null {
  const fits = globMatcher(glob);
  for (const [name, region] of insideRegions)
    if (fits(name))
      return (
        `${name} is inside the fused region ${region.name} (${region.op}): pin the region by its factors ` +
        '(docs/using.md)'
      );
  return null;
}

/** The hint with matches of a glob that has fewer borders. */
function looser(glob: string, names: readonly string[]): string | null {
  for (const candidate of [loosened(glob), `**.${glob}`, `**${loosened(glob)}**`]) {
    const found = names.filter(globMatcher(candidate));
    if (candidate !== glob && found.length > 0)
      return (
        `* ends at dots and slashes, ** does not: '${candidate}' fits ` +
        `${found.length === 1 ? '' : `${found.length} names, such as `}${found[0]}`
      );
  }
  return null;
}

/** The nearest name; for names that differ in numbers only, their pattern. */
function nearGlob(glob: string, names: readonly string[]): string {
  const found = nearest(glob, names);
  if (found !== undefined || !isGlob(glob)) return offer(glob, names);
  return offer(glob, [...new Set(names.map((name) => name.replace(/\d+/g, '*')))]);
}
