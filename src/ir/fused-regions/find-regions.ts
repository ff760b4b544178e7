/**
 * @file The regions of a graph: every matcher is tried at the operators that its region must contain. Where two matches overlap,
 * the larger kind of region wins.
 */
import type { Graph, Node } from '../graph.js';
import { ATTENTION_ANCHORS, findAttention } from './attention.js';
import { CROSS_ENTROPY_ANCHORS, findCrossEntropy } from './cross-entropy.js';
import type { RegionMatch } from './fused-region.js';
import { findGelu, GELU_ANCHORS } from './gelu.js';
import { closed, type DraftMatch, type GraphIndex, indexGraph, isOp, positionOf } from './matching.js';
import { findNormalisation, NORMALISATION_ANCHORS } from './normalisation.js';
import { findRotary, ROTARY_ANCHORS } from './rotary.js';
import { findSwiGLU, SWIGLU_ANCHORS } from './swiglu.js';

type Matcher = (index: GraphIndex, anchor: Node) => DraftMatch | null;

/** Matchers in the order in which they may claim nodes, with the operators they start at. */
const MATCHERS: readonly { readonly anchors: readonly string[]; readonly find: Matcher }[] = [
  { anchors: ATTENTION_ANCHORS, find: findAttention },
  { anchors: CROSS_ENTROPY_ANCHORS, find: findCrossEntropy },
  { anchors: NORMALISATION_ANCHORS, find: findNormalisation },
  { anchors: ROTARY_ANCHORS, find: findRotary },
  { anchors: GELU_ANCHORS, find: findGelu },
  { anchors: SWIGLU_ANCHORS, find: findSwiGLU },
];

/**
 * The fused regions of a graph, in the order of their last nodes. No node is in two of them. Recognised by structure
 * alone, in time linear in the nodes; standard operators that are such a region by themselves are not included.
 */
export function findRegions(graph: Graph): readonly RegionMatch[] {
  const index = indexGraph(graph);
  const claimed = new Set<Node>();
  const matches: RegionMatch[] = [];
  for (const { anchors, find } of MATCHERS) {
    for (const node of graph.nodes) {
      if (claimed.has(node) || !isOp(node, ...anchors)) continue;
      const draft = find(index, node);
      const match = draft && closed(index, draft);
      if (!match || match.nodes.some((inner) => claimed.has(inner))) continue;
      for (const inner of match.nodes) claimed.add(inner);
      matches.push(match);
    }
  }
  const last = (match: RegionMatch): number => Math.max(...match.nodes.map((node) => positionOf(index, node)));
  return matches.sort((a, b) => last(a) - last(b));
}
