/**
 * @file The load-balancing loss of routers (GShard; Switch Transformer, Fedus et al. 2022), added to the loss of a step:
 *
 *     W · experts · Σ over experts of (share of choices that fall on it) · (its mean gate)
 *
 * for each sample separately, then the mean over samples and the sum over layers. A loss over all tokens of a rank or a
 * micro-batch would depend on the number of ranks and micro-batches, as a product of means does. Choices have no gradient; gates
 * have one.
 */
import { onnxOfDtype } from '../dtype.js';
import { AutoparError } from '../error.js';
import { type Attributes, type Graph, type Node, typeOf } from '../graph.js';
import { constant } from '../ops/constants.js';
import { ForwardWriter } from '../passes/forward-writer.js';
import { type Router, routersOf } from './routers.js';
import { type Samples, samplesIn } from './samples.js';

const PLACE = { module: ['loss'], layer: null };

/** A graph whose loss is known, and the sums whose quotient it is, where it is a quotient. */
interface LossGraph {
  readonly graph: Graph;
  readonly loss: string;
  readonly ratio: { readonly numerator: string; readonly denominator: string; readonly samples: number } | null;
}

/**
 * The same with W times the balance of every router added. Where the loss is a quotient of sums, the balance is added to the
 * numerator once for each label, ignored ones included, as in Megatron-LM's per-token loss.
 * @throws AutoparError (usage) `no-experts` where no router chooses among experts
 */
export function addBalance<Loss extends LossGraph>(scored: Loss, weight: number): Loss {
  const { graph, loss, ratio } = scored;
  const samplesOf = samplesIn(graph);
  const routers = routersOf(graph).flatMap((router) => {
    const samples = samplesOf(router.scores);
    return samples ? [{ router, samples }] : [];
  });
  if (routers.length === 0)
    throw new AutoparError(
      'no-experts',
      'usage',
      `--moe-balance ${weight} needs experts with top-k routing, and ${graph.name} has none`,
      {},
      'leave it out',
    );
  const write = new ForwardWriter(graph);
  const add = (op: string, inputs: readonly string[], attributes: Attributes = {}) =>
    write.add(`loss/balance/${op}`, PLACE, op, inputs, attributes);
  const terms = routers.map(({ router, samples }) => balanceOf(write, add, router, samples));
  const sum = terms.reduce((all, term) => add('Add', [all, term]));
  const scaled = add('Mul', [
    sum,
    write.value('loss/balance/weight', constant('float32', [weight * (ratio?.samples ?? 1)])),
  ]);
  const target = ratio?.numerator ?? loss;
  const { dtype } = typeOf(graph, target);
  const own = dtype === 'float32' ? scaled : add('Cast', [scaled], { to: onnxOfDtype(dtype) });
  if (ratio) {
    const numerator = add('Add', [ratio.numerator, own]);
    return { ...scored, graph: insert(graph, write, ratio, numerator), ratio: { ...ratio, numerator } };
  }
  const plain = write.tensor(`${loss}/without-balance`, typeOf(graph, loss));
  write.into(loss, PLACE, 'Add', [plain, own], {});
  const rename = (names: readonly (string | null)[]) => names.map((name) => (name === loss ? plain : name));
  const nodes = graph.nodes.map((node) => ({ ...node, inputs: rename(node.inputs), outputs: rename(node.outputs) }));
  return { ...scored, graph: write.graph([...nodes, ...write.take()]) };
}

/** Makes the division of the sums read the new numerator. */
function insert(graph: Graph, write: ForwardWriter, ratio: NonNullable<LossGraph['ratio']>, numerator: string): Graph {
  const made = write.take();
  const isQuotient = ({ op, inputs }: Node) =>
    op === 'Div' && inputs[0] === ratio.numerator && inputs[1] === ratio.denominator;
  const nodes = graph.nodes.flatMap((node) =>
    isQuotient(node) ? [...made, { ...node, inputs: [numerator, ratio.denominator] }] : [node],
  );
  return write.graph(nodes);
}

type Add = (op: string, inputs: readonly string[], attributes?: Attributes) => string;

/** A scalar: experts · the mean over samples of Σ share · mean gate. */
function balanceOf(write: ForwardWriter, add: Add, router: Router, { groups, tokens }: Samples): string {
  const { scores, experts, chosen, gates } = router;
  const dtype = write.tensors.get(scores)?.dtype ?? 'float32';
  const rows = add('Reshape', [scores], { shape: [groups, tokens, experts], allowzero: 0 });
  const exact = dtype === 'float32' ? rows : add('Cast', [rows], { to: onnxOfDtype('float32') });
  const best = write.addAll(
    'loss/balance/TopK',
    PLACE,
    'TopK',
    [rows],
    { k: [chosen], axis: 2, largest: 1, sorted: 1 },
    '',
    2,
  );
  const places = add('Unsqueeze', [best[1] ?? ''], { axes: [3] });
  const numbers = Array.from({ length: experts }, (_, expert) => expert);
  const all = write.value('loss/balance/experts', constant('int64', numbers, [1, 1, 1, experts]));
  const isChosen = add('Cast', [add('Equal', [places, all])], { to: onnxOfDtype('float32') });
  const choices = add('ReduceSum', [isChosen], { axes: [1, 2], keepdims: 0 });
  const probabilities = GATES[gates](add, exact);
  const gate = add('ReduceSum', [probabilities], { axes: [1], keepdims: 0 });
  const products = add('ReduceSum', [add('Mul', [choices, gate])], { axes: [0, 1], keepdims: 0 });
  const factor = experts / (chosen * tokens * tokens * groups);
  return add('Mul', [products, write.value('loss/balance/mean', constant('float32', [factor]))]);
}

/** Gates of a token, which add up to one, from the router's scores. */
const GATES: Readonly<Record<Router['gates'], (add: Add, scores: string) => string>> = {
  scores: (_, scores) => scores,
  softmax: (add, scores) => add('Softmax', [scores], { axis: -1 }),
  share: (add, scores) => add('Div', [scores, add('ReduceSum', [scores], { axes: [2], keepdims: 1 })]),
};
