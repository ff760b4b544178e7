/**
 * @file A training step in several micro-batches. Forward and backward run once per micro-batch, on its samples alone; tensors
 * that the update reads from them are accumulated (gradient accumulation; GPipe, Huang et al. 2019). The step computes the same
 * as one batch of all samples; a graph for which that does not hold is refused: an operator that mixes samples (statistics over
 * the batch, a sort or a running sum along it) would see those of one micro-batch only.
 */
import { followBatch } from '../batch.js';
import { AutoparError } from '../error.js';
import type { FactorRule } from '../factor-rule.js';
import type { DimensionMark, DimensionMarks } from '../follow-dimensions.js';
import { type Graph, type MicroBatches, type Node, type TensorType, typeOf, type Weight } from '../graph.js';
import { appendTo } from '../group-by.js';
import { inPlaceOf } from '../in-place-of.js';
import { makersOf } from '../makers-and-readers.js';
import { operatorOf } from '../operator-of.js';
import { accumulator } from '../ops/accumulate.js';
import { constant, constantWeight } from '../ops/constants.js';
import { entryOf, ruleOf } from '../ops/index.js';
import { unusedName } from '../unused-name.js';
import { withOperands } from '../with-operands.js';

/** How a batch is cut into micro-batches. */
export interface BatchCut extends MicroBatches {
  /** Operators that number samples, and the factor that is the batch: in a micro-batch they begin where the one before ended. */
  readonly numbering: ReadonlyMap<string, string>;
}

/**
 * How a forward graph's inputs and outputs are cut into `count` micro-batches. Only the operator that makes the loss may sum over
 * samples.
 * @param graph at the size of the whole batch, with its loss and without gradients
 * @param sums tensors that are known to add up over micro-batches: the sums whose quotient is the loss, and tensors they need
 * @throws AutoparError (input) `no-batch`; (usage) `micro-batches-uneven`; (input) `mixes-samples`, naming the operator
 */
export function cutMicroBatches(graph: Graph, count: number, loss: string, sums: ReadonlySet<string>): BatchCut {
  const marks = followBatch(graph, { digits: true });
  if (marks.size === null)
    throw new AutoparError(
      'no-batch',
      'input',
      'the model has no input with a batch dimension, and cannot be cut into micro-batches',
      {},
      'leave --micro-batches out',
    );
  if (marks.size % count !== 0) throw uneven(marks.size, count);
  const numbering = new Map<string, string>();
  const adding = graph.nodes.filter(({ outputs }) => outputs.some((name) => name !== null && sums.has(name)));
  const [first] = adding;
  if (first && adding.every((node) => marks.factorMarks(node).size === 0)) throw countedAgain(first);
  const isAdding = new Set(adding);
  for (const node of graph.nodes) {
    if (node.phase === 'update' || isAdding.has(node)) continue;
    const numbered = numberedFactor(graph, node, marks);
    if (numbered === null) checkApart(graph, node, marks, loss, marks.size / count);
    else numbering.set(node.name, numbered);
  }
  const cut = new Map<string, number>();
  for (const name of [...graph.inputs, ...graph.outputs]) {
    const { shape } = typeOf(graph, name);
    const axis = marks.dimensionMarks(name).findIndex((mark) => mark !== null);
    const mark = marks.dimensionMarks(name)[axis];
    if (!mark) continue;
    if (mark.minor * mark.size !== shape[axis])
      throw new AutoparError(
        'mixes-samples',
        'input',
        `the samples of '${name}' [${shape.join(', ')}] are not contiguous along a dimension, and it ` +
          'cannot be cut into micro-batches',
        { tensor: name },
        'train with --micro-batches 1, or export the model with the batch as the first dimension',
      );
    cut.set(name, axis);
  }
  return { count, cut, numbering };
}

/** @throws AutoparError (usage) where micro-batches would be of different sizes */
function uneven(batch: number, count: number): AutoparError {
  return new AutoparError(
    'micro-batches-uneven',
    'usage',
    `a batch of ${batch} cannot be cut into ${count} equal micro-batches`,
    {},
    `take a number that divides ${batch}, or another --global-batch`,
  );
}

/** The factor of an operator without operands whose positions are samples, major to everything else in it (a Range). */
function numberedFactor(graph: Graph, node: Node, marks: DimensionMarks): string | null {
  const operator = operatorOf(graph, node);
  const entry = entryOf(node.op, node.domain);
  if (!entry?.indexed || node.inputs.length > 0) return null;
  const { factors } = ruleOf(operator);
  const [only, ...others] = [...marks.factorMarks(node)];
  if (!only || others.length > 0) return null;
  const [name, { minor, size }] = only;
  const factor = factors.get(name);
  return factor?.kind === 'indexed' && minor * size === factor.size ? name : null;
}

/**
 * The forward of one micro-batch, in which operators that number samples begin at the micro-batch's first sample: at its number
 * times its size.
 * @throws AutoparError (input) `mixes-samples` where an operator that numbers samples is not found again
 */
export function atTheirPositions(graph: Graph, { numbering, ...microBatches }: BatchCut): Graph {
  if (numbering.size === 0) return { ...graph, microBatches };
  const tensors = new Map<string, TensorType>(graph.tensors);
  const weights = new Map<string, Weight>(graph.weights);
  const index = unusedName(tensors, 'micro-batch');
  tensors.set(index, NUMBER);
  const found = new Set<string>();
  const nodes = graph.nodes.flatMap((node): readonly Node[] => {
    const factor = numbering.get(node.name);
    const entry = factor === undefined ? undefined : entryOf(node.op, node.domain);
    if (factor === undefined || !entry?.indexed) return [node];
    found.add(node.name);
    const operator = operatorOf(graph, node);
    const partSize = ruleOf(operator).factors.get(factor)?.size ?? 1;
    const [offset, each] = [unusedName(tensors, `${node.name}/offset`), unusedName(tensors, `${node.name}/block`)];
    tensors.set(offset, NUMBER).set(each, NUMBER);
    weights.set(each, constantWeight(constant('int64', [partSize], NUMBER.shape)));
    const first: Node = {
      ...node,
      name: offset,
      group: offset,
      op: 'Mul',
      domain: '',
      attributes: {},
      inputs: [index, each],
      outputs: [offset],
    };
    const expansion = entry.indexed(operator, { [factor]: 'offset' }, { [factor]: partSize });
    return [first, ...inPlaceOf(node, expansion, { tensors, weights }, { offset }).nodes];
  });
  const lost = [...numbering.keys()].find((name) => !found.has(name));
  if (lost !== undefined)
    throw new AutoparError(
      'mixes-samples',
      'input',
      `node '${lost}' numbers the samples of a batch inside a fused region, and micro-batches would renumber them`,
      { node: lost },
      'train with --micro-batches 1',
    );
  return {
    ...graph,
    nodes,
    tensors,
    weights,
    inputs: [...graph.inputs, index],
    microBatches: { ...microBatches, index },
  };
}

const NUMBER: TensorType = { dtype: 'int64', shape: [1] };

/** @param samples of one micro-batch: a digit of the batch below that is inside of each */
function checkApart(graph: Graph, node: Node, marks: DimensionMarks, loss: string, samples: number): void {
  const isInside = ({ size, samples: step = 1 }: DimensionMark) =>
    step * size <= samples && samples % (step * size) === 0;
  const crossing = [...marks.factorMarks(node)].flatMap(([name, mark]) => (isInside(mark) ? [] : [name]));
  const isCut = marks.conflicts.includes(node.name);
  if (crossing.length === 0 && node.outputs[0] === loss) throw countedAgain(node);
  if (crossing.length === 0 && !isCut) return;
  const rule = ruleOf(operatorOf(graph, node));
  const addsUp = node.outputs[0] === loss;
  const mixing = isCut
    ? 'the batch cannot be followed through it'
    : crossing
        .map((name) => mixes(rule, name) ?? (addsUp || staysIn(rule, name) ? undefined : 'it sums them'))
        .find(Boolean);
  if (!mixing) return;
  throw new AutoparError(
    'mixes-samples',
    'input',
    `node '${node.name}' (${node.op}) mixes the samples of a batch (${mixing}), and micro-batches would change the result`,
    { node: node.name },
    'train with --micro-batches 1; BatchNormalization may take statistics of each micro-batch (--batch-statistics ' +
      'micro-batch), ' +
      'or use its running ones (--freeze-batch-statistics)',
  );
}

/** The error where the operator that computes the loss, or the first that does, has no samples. */
function countedAgain({ name, op }: Node): AutoparError {
  return new AutoparError(
    'mixes-samples',
    'input',
    `node '${name}' (${op}) computes a loss without samples, and micro-batches would count it several times`,
    { node: name },
    'train with --micro-batches 1',
  );
}

/** Why an operator with the batch on this factor computes something else on a part of it; undefined where it does not. */
function mixes(rule: FactorRule, name: string): string | undefined {
  const factor = rule.factors.get(name);
  if (!factor) return undefined;
  if (factor.kind === 'whole' || factor.kind === 'halo') return 'it needs all of them at once';
  if (factor.kind === 'indexed') return "its result depends on a sample's position";
  if (factor.kind === 'expanded') return "a sample's result depends on the others";
  return factor.reduction === 'sum' ? undefined : 'it takes the largest or smallest of them';
}

function staysIn(rule: FactorRule, name: string): boolean {
  return rule.outputs.every((dims) => dims === null || dims.some((names) => names.includes(name)));
}

/**
 * The training graph with an accumulator wherever an operator of the step reads a tensor that is made per micro-batch, and after
 * a loss that is a sum over samples.
 * @param graph at the size of one micro-batch (`atTheirPositions`), gradients and updates in it
 */
export function withAccumulators(graph: Graph, loss: string): Graph {
  const makers = makersOf(graph.nodes);
  const tensors = new Map<string, TensorType>(graph.tensors);
  const held = new Map<string, string>();
  const accumulators = new Map<Node, Node[]>();
  const hold = (tensor: string, maker: Node) => {
    const known = held.get(tensor);
    if (known !== undefined) return known;
    const name = unusedName(tensors, `${tensor}/sum`);
    tensors.set(name, typeOf(graph, tensor));
    appendTo(accumulators, maker, accumulator(tensor, name, maker));
    held.set(tensor, name);
    return name;
  };
  const updates = graph.nodes.flatMap((node) => {
    if (node.phase !== 'update') return [];
    const inputs = node.inputs.map((name) => {
      const maker = name === null ? undefined : makers.get(name);
      return name !== null && maker && maker.phase !== 'update' ? hold(name, maker) : name;
    });
    return [withOperands(node, inputs)];
  });
  const summed: Graph = {
    ...graph,
    // Directly after the operator whose result they add up: it is freed before the next gradient is made.
    nodes: [
      ...graph.nodes.flatMap((node) => (node.phase === 'update' ? [] : [node, ...(accumulators.get(node) ?? [])])),
      ...updates,
    ],
    tensors,
  };
  const lossMaker = makers.get(loss);
  return lossMaker && lossMaker.phase !== 'update' ? summedLoss(summed, loss, lossMaker) : summed;
}

/** A loss that is a sum over samples is the sum of the micro-batches' losses, and keeps its name. */
function summedLoss(graph: Graph, loss: string, maker: Node): Graph {
  const part = unusedName(graph.tensors, `${loss}/part`);
  const renamed = (name: string | null) => (name === loss ? part : name);
  const micro = graph.nodes
    .filter(({ phase }) => phase !== 'update')
    .map((node) => ({ ...node, inputs: node.inputs.map(renamed), outputs: node.outputs.map(renamed) }));
  const nodes = [...micro, accumulator(part, loss, maker), ...graph.nodes.filter(({ phase }) => phase === 'update')];
  return { ...graph, nodes, tensors: new Map([...graph.tensors, [part, typeOf(graph, loss)]]) };
}
