/**
 * @file Fused regions become nodes: each match of fused-regions/find-regions.ts is replaced by one node of domain `autopar` whose
 * body is the operators that it replaces. A match that cannot be one node (its operators split a dimension in ways that do not
 * nest) stays as the exporter wrote it.
 */

import { findRegions } from '../fused-regions/find-regions.js';
import { REGION_DOMAIN, type RegionMatch } from '../fused-regions/fused-region.js';
import { rememberedRule } from '../fused-regions/remembered-rule.js';
import { elementCount, type Graph, type Node, type TensorType, type Weight } from '../graph.js';
import { appendTo } from '../group-by.js';
import { operatorEntry } from '../ops/index.js';

const ruleOfBody = rememberedRule((op, domain) => operatorEntry({ op, domain }));

/** The graph with its regions as nodes, named after the last operator that each replaces. */
export function recogniseRegions(graph: Graph, matches: readonly RegionMatch[] = findRegions(graph)): Graph {
  const regionOf = new Map<Node, Node>();
  const last = new Map<Node, Node>();
  for (const match of matches) {
    const region = regionNode(graph, match);
    const end = match.nodes.at(-1);
    if (!region || !end) continue;
    for (const node of match.nodes) regionOf.set(node, region);
    last.set(end, region);
  }
  if (regionOf.size === 0) return graph;
  const nodes = graph.nodes.flatMap((node) => {
    const region = regionOf.get(node);
    if (!region) return [node];
    const ends = last.get(node);
    return ends ? [ends] : [];
  });
  return withoutInside({ ...graph, nodes: ordered(graph, nodes) });
}

function regionNode(graph: Graph, match: RegionMatch): Node | null {
  const end = match.nodes.at(-1);
  const body = bodyOf(graph, match);
  if (!end || !ruleOfBody(match.kind, body)) return null;
  return {
    name: end.name,
    op: match.kind,
    domain: REGION_DOMAIN,
    attributes: match.attributes,
    inputs: match.inputs,
    outputs: match.outputs,
    module: commonPath(match.nodes.map((node) => node.module)),
    layer: null,
    phase: end.phase,
    forward: end.forward,
    group: end.name,
    body,
  };
}

function bodyOf(graph: Graph, { kind, nodes, inputs, outputs }: RegionMatch): Graph {
  const tensors = new Map<string, TensorType>();
  const weights = new Map<string, Weight>();
  const given = new Set(inputs);
  for (const node of nodes) {
    for (const name of [...node.inputs, ...node.outputs]) {
      if (name === null) continue;
      const type = graph.tensors.get(name);
      if (!type) throw new Error(`tensor ${name} of fused region ${node.name} has no type`);
      tensors.set(name, type);
      const weight = graph.weights.get(name);
      if (!weight || given.has(name)) continue;
      if (elementCount(weight.shape) !== 1)
        throw new Error(`fused region ${node.name} does not name weight ${name} as an input`);
      weights.set(name, weight);
    }
  }
  return { name: kind, nodes, tensors, inputs, outputs, weights, state: [], batch: [] };
}

/** Tensors and constants that only bodies have left the graph. */
function withoutInside(graph: Graph): Graph {
  const named = new Set([
    ...graph.inputs,
    ...graph.outputs,
    ...graph.nodes.flatMap((node) => [...node.inputs, ...node.outputs].filter((name) => name !== null)),
  ]);
  const inside = new Set(graph.nodes.flatMap((node) => [...(node.body?.tensors.keys() ?? [])]));
  const stays = (name: string) => named.has(name) || !inside.has(name);
  return {
    ...graph,
    tensors: new Map([...graph.tensors].filter(([name]) => stays(name))),
    weights: new Map([...graph.weights].filter(([name]) => stays(name))),
  };
}

/**
 * The nodes in topological order again: a region is at its last operator's place, which is after all that it reads; a
 * reader of another of its results may be before that and moves after it.
 */
function ordered(graph: Graph, nodes: readonly Node[]): readonly Node[] {
  const made = new Set([...graph.inputs, ...graph.weights.keys()]);
  const waiting = new Map<string, Node[]>();
  const result: Node[] = [];
  const place = (first: Node): void => {
    for (const stack = [first]; stack.length > 0; ) {
      const node = stack.pop() as Node;
      const missing = node.inputs.find((name) => name !== null && !made.has(name));
      if (missing) {
        appendTo(waiting, missing, node);
        continue;
      }
      result.push(node);
      for (const name of node.outputs) {
        if (name === null) continue;
        made.add(name);
        stack.push(...(waiting.get(name) ?? []).reverse());
        waiting.delete(name);
      }
    }
  };
  for (const node of nodes) place(node);
  if (result.length !== nodes.length) throw new Error('fused regions do not leave the graph in an order');
  return result;
}

/** The modules that all paths begin with. */
function commonPath(paths: readonly (readonly string[])[]): readonly string[] {
  const [first = [], ...others] = paths;
  const length = first.findIndex((part, depth) => others.some((path) => path[depth] !== part));
  return length < 0 ? first : first.slice(0, length);
}
