/**
 * @file Mixtures that gather the weights of each token's chosen experts (chosen-weights.ts), as sums over all experts:
 *
 *     Σⱼ w[t, j] · f(W[e(t, j)], x[t])  →  Σₑ gate[t, e] · f(W[e], x[t])        gate[t, e] = Σ of the w[t, j] with e(t, j) = e
 *
 * Dispatch recognises this form, and the weights can be sharded over experts: a gather of matrices would need them all.
 */
import { elementCount, type Graph, type Node, typeOf } from '../graph.js';
import { ForwardWriter } from '../passes/forward-writer.js';
import { ExpertWriter } from './expert-writer.js';
import { type ExpertMixture, findExperts } from './find-experts.js';

/** The graph with sums over experts in place of gathered weights; the graph itself if none. */
export function sumGatheredWeights(graph: Graph): Graph {
  const mixtures = findExperts(graph).filter(({ choice }) => choice !== null);
  if (mixtures.length === 0) return graph;
  const writer = new ForwardWriter(graph);
  const made = new Map<Node, readonly Node[]>();
  for (const mixture of mixtures) {
    writeSum(graph, writer, mixture);
    made.set(mixture.end, writer.take());
    for (const tensor of mixture.tensors) writer.tensors.delete(tensor);
  }
  const gone = new Set(mixtures.flatMap(({ nodes }) => [...nodes]));
  return writer.neededGraph(graph.nodes.flatMap((node) => made.get(node) ?? (gone.has(node) ? [] : [node])));
}

function writeSum(graph: Graph, writer: ForwardWriter, mixture: ExpertMixture): void {
  const { experts, root, end } = mixture;
  const write = new ExpertWriter(graph, writer, mixture, 'summed');
  const { shape } = write.typeOf(root);
  const [width, tokens] = [shape.at(-1) ?? 1, elementCount(shape.slice(0, -1))];
  const results = write.results(write.reshape(root, [1, tokens, width]));
  const choice = mixture.choice ?? '';
  const chosen = write.typeOf(choice).shape.at(-1) ?? 1;
  const shares = write.reshape(write.gate(), [tokens, chosen]);
  const gate = write.add(
    'ScatterElements',
    [write.zeros(shares, [tokens, experts]), write.reshape(choice, [tokens, chosen]), shares],
    { axis: 1, reduction: 'add' },
  );
  const column = write.add('Unsqueeze', [write.add('Transpose', [gate], { perm: [1, 0] })], { axes: [2] });
  const summed = write.add('ReduceSum', [write.add('Mul', [results, column])], { axes: [0], keepdims: 0 });
  const [result] = end.outputs;
  write.into(result ?? '', 'Reshape', [summed], { shape: typeOf(graph, result ?? '').shape, allowzero: 0 });
}
