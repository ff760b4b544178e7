/**
 * @file The gates of experts: the choice of the best k among a token's scores.
 */
import { type Graph, type Node, typeOf } from '../graph.js';
import { makersOf } from '../makers-and-readers.js';
import { expertEntries } from '../ops/experts.js';
import { type ExpertMixture, expertCounts } from './find-experts.js';

export interface Router {
  /** [..., experts]: the scores that experts are chosen by. */
  readonly scores: string;
  readonly experts: number;
  /** Experts of a token. */
  readonly chosen: number;
  /** How gates are computed: they are the scores, their softmax, or their share of the sum (of sigmoids). */
  readonly gates: 'scores' | 'softmax' | 'share';
}

/** How many experts a token is sent to: the k of the nearest choice before the gate; null where every expert gets every token. */
export function chosenPerToken(graph: Graph, { gate, root, experts }: ExpertMixture): number | null {
  const makers = makersOf(graph.nodes);
  const seen = new Set<string>([root]);
  const queue = [gate.tensor];
  for (let at = 0; at < queue.length; at++) {
    const maker = makers.get(queue[at] ?? '');
    if (!maker) continue;
    const k = choice(graph, maker, new Set([experts]))?.chosen ?? null;
    if (k !== null) return k < experts ? k : null;
    for (const input of maker.inputs)
      if (input !== null && !seen.has(input)) {
        seen.add(input);
        queue.push(input);
      }
  }
  return null;
}

/** Every choice of the top k among as many scores as the graph has experts. */
export function routersOf(graph: Graph): readonly Router[] {
  const makers = makersOf(graph.nodes);
  const counts = expertCounts(graph);
  return graph.nodes.flatMap((node) => {
    const found = node.phase === 'forward' ? (choice(graph, node, counts) ?? chosenInside(graph, node)) : null;
    if (!found || found.chosen >= found.experts) return [];
    const maker = makers.get(found.scores)?.op;
    return [{ ...found, gates: maker === 'Softmax' ? 'scores' : maker === 'Sigmoid' ? 'share' : 'softmax' }];
  });
}

type RouterChoice = Omit<Router, 'gates'>;

/** The k of an operator that chooses among experts; null for any other. */
function choice(
  graph: Graph,
  { op, domain, inputs, attributes }: Node,
  counts: ReadonlySet<number>,
): RouterChoice | null {
  const [scores] = inputs;
  if (domain !== '' || !scores || !['TopK', 'ArgMax'].includes(op)) return null;
  const { shape } = typeOf(graph, scores);
  const experts = shape.at(-1) ?? 1;
  const axis = typeof attributes['axis'] === 'number' ? attributes['axis'] : op === 'TopK' ? -1 : 0;
  if (!counts.has(experts) || ![-1, shape.length - 1].includes(axis)) return null;
  const [k] = op === 'TopK' ? [attributes['k']].flat() : [1];
  return typeof k === 'number' ? { scores, experts, chosen: k } : null;
}

/** The choice inside of ONNX Runtime's operators. */
function chosenInside(graph: Graph, { op, domain, inputs, attributes }: Node): RouterChoice | null {
  const isOne = expertEntries.some((entry) => entry.op === op && entry.domain === domain);
  const [, scores] = inputs;
  if (!isOne || !scores) return null;
  const { k = 1 } = attributes;
  return typeof k === 'number' ? { scores, experts: typeOf(graph, scores).shape.at(-1) ?? 1, chosen: k } : null;
}
