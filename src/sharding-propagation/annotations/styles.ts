/**
 * @file Styles of modules, as PyTorch's tp_plan and parallelize_module have them, over the axis tp:
 *
 *     colwise     operators with a weight shard its columns over tp, and so does the bias that follows
 *     rowwise     they sum over tp, and the sum is reduced before anything else is done with it
 *     pairwise    for an MLP or an attention: the first such operators colwise, those that read them rowwise, and so on in turn
 *     sequence    norms and elementwise operators shard the sequence over tp
 *     replicate   nothing is sharded over tp
 *
 * A style leaves everything else free (dp, other operators). It applies to operators of the forward: gradients follow them.
 */
import type { Graph, Node } from '../../ir/graph.js';
import { weightTensors } from '../../ir/of-weights.js';
import { operatorOf } from '../../ir/operator-of.js';
import { operatorFamily, ruleOf } from '../../ir/ops/index.js';
import { axesSize, type Mesh, type SubAxis } from '../mesh.js';
import type { OperatorPin, PinSource } from '../pin.js';
import { pieceName } from '../refine.js';
import { weightAxis } from '../roles.js';
import type { Style } from './annotation.js';
import { doesNotFit } from './pin-error.js';
import { sequenceFactors } from './sequence-factors.js';
import { type WeightOperator, weightOperator } from './weight-operators.js';

/** Facts about the graph that styles need, computed on first use. */
export interface StyleContext {
  readonly graph: Graph;
  readonly mesh: Mesh;
  readonly weights: () => ReadonlySet<string>;
  readonly sequence: () => ReturnType<typeof sequenceFactors>;
}

export function styleContext(graph: Graph, mesh: Mesh): StyleContext {
  return {
    graph,
    mesh,
    weights: once(() => weightTensors(graph)),
    sequence: once(() => sequenceFactors(graph)),
  };
}

/**
 * The pins that a style means for the nodes of one module. None on a mesh without tp.
 * @throws AutoparError `pin-does-not-fit` where the style applies to nothing in the module, or to too little of it for tp
 */
export function stylePins(
  style: Style,
  module: string,
  nodes: readonly Node[],
  context: StyleContext,
  source: PinSource,
): readonly OperatorPin[] {
  const tp = weightAxis(context.mesh)?.subAxes.map(({ name }) => name) ?? [];
  if (tp.length === 0) return [];
  return MEANINGS[style]({ module, nodes, context, source, tp });
}

interface Styling {
  readonly module: string;
  readonly nodes: readonly Node[];
  readonly context: StyleContext;
  readonly source: PinSource;
  readonly tp: readonly SubAxis[];
}

const MEANINGS: Readonly<Record<Style, (styling: Styling) => readonly OperatorPin[]>> = {
  colwise: (styling) => weightOperatorsOf(styling).flatMap((weighted) => colwise(weighted, styling)),
  rowwise: (styling) => weightOperatorsOf(styling).flatMap((weighted) => rowwise(weighted, styling)),
  pairwise,
  sequence,
  replicate: ({ nodes, source, tp }) =>
    nodes.map((node): OperatorPin => ({ kind: 'operator', node: node.name, source, without: tp })),
};

function weightOperatorsOf({ module, nodes, context, source }: Styling): readonly WeightOperator[] {
  const forward = nodes.filter(({ phase }) => phase === 'forward');
  const weightOperators = forward.flatMap((node) => weightOperator(context.graph, node, context.weights()) ?? []);
  if (weightOperators.length > 0) return weightOperators;
  throw doesNotFit(
    source,
    `${module} has no matmul, convolution or lookup with a weight`,
    'put the style on the module with the weight, or pin operators by factors',
  );
}

function colwise(weighted: WeightOperator, styling: Styling): readonly OperatorPin[] {
  const { node, rule, column } = weighted;
  const { source, tp, nodes } = styling;
  if (column === null) throw nothingToCut(weighted, 'columns', source);
  checkEnough(rule.factors.get(column)?.size ?? 1, `the ${column} of ${node.name}`, styling);
  const axis = rule.outputs[0]?.findIndex((names) => names.includes(column)) ?? -1;
  const [result] = node.outputs;
  const biases = nodes.flatMap((reader) => biasPin(reader, result ?? '', axis, styling));
  return [{ kind: 'operator', node: node.name, source, axes: { [column]: tp }, eitherPiece: [column] }, ...biases];
}

/** The pin of an elementwise operator that adds a weight along the sharded dimension; none for any other reader. */
function biasPin(
  reader: Node,
  weighted: string,
  axis: number,
  { context, source, tp }: Styling,
): readonly OperatorPin[] {
  const operand = reader.inputs.indexOf(weighted);
  if (operand < 0 || operatorFamily(reader) !== 'elementwise') return [];
  const rule = ruleOf(operatorOf(context.graph, reader));
  const [factor, ...others] = rule.inputs[operand]?.[axis] ?? [];
  if (factor === undefined || others.length > 0) return [];
  const bias = reader.inputs.some(
    (name, index) => context.weights().has(name ?? '') && (rule.inputs[index]?.flat() ?? []).includes(factor),
  );
  if (!bias) return [];
  return [{ kind: 'operator', node: reader.name, source, axes: { [factor]: tp }, eitherPiece: [factor] }];
}

function rowwise(weighted: WeightOperator, styling: Styling): readonly OperatorPin[] {
  const { node, rule, row } = weighted;
  const { source, tp } = styling;
  if (row === null) throw nothingToCut(weighted, 'rows', source);
  checkEnough(rule.factors.get(row)?.size ?? 1, `the ${row} of ${node.name}`, styling);
  return [{ kind: 'operator', node: node.name, source, axes: { [row]: tp }, eitherPiece: [row], reduced: true }];
}

/** Products by the number of others before them in the module: even ones colwise, odd ones rowwise. */
function pairwise(styling: Styling): readonly OperatorPin[] {
  const { module, nodes, source } = styling;
  const weightOperators = new Map(weightOperatorsOf(styling).map((weighted) => [weighted.node, weighted]));
  const depthOf = new Map<string, number>();
  const depths = new Map<WeightOperator, number>();
  for (const node of nodes) {
    const before = Math.max(0, ...node.inputs.map((name) => depthOf.get(name ?? '') ?? 0));
    const weighted = weightOperators.get(node);
    if (weighted) depths.set(weighted, before);
    for (const output of node.outputs) if (output !== null) depthOf.set(output, before + (weighted ? 1 : 0));
  }
  const levels = Math.max(...depths.values()) + 1;
  if (levels % 2 !== 0)
    throw doesNotFit(
      source,
      `${module} has ${levels === 1 ? 'one operator with a weight' : `${levels} consecutive operators with weights`}, and ` +
        'pairwise needs an even number',
      'put pairwise on an MLP or an attention, or give its modules colwise and rowwise one by one',
    );
  return [...depths].flatMap(([product, depth]) =>
    depth % 2 === 0 ? colwise(product, styling) : rowwise(product, styling),
  );
}

const ALONG_THE_SEQUENCE: ReadonlySet<string | undefined> = new Set(['normalisation', 'elementwise']);

function sequence(styling: Styling): readonly OperatorPin[] {
  const { module, nodes, context, source, tp } = styling;
  const { graph } = context;
  const pins = nodes.flatMap((node): readonly OperatorPin[] => {
    const activation = node.inputs.some((name) => name !== null && !context.weights().has(name));
    if (!activation || !ALONG_THE_SEQUENCE.has(operatorFamily(node))) return [];
    const rule = ruleOf(operatorOf(graph, node));
    const found = context.sequence()(node, rule);
    if (!found) return [];
    const { factor, before, size } = found;
    checkEnough(size, `the sequence in ${node.name}`, styling);
    const pin = { kind: 'operator', node: node.name, source } as const;
    if (before === 1) return [{ ...pin, axes: { [factor]: tp } }];
    return [{ ...pin, axes: { [pieceName(factor, 1)]: tp }, pieces: { [factor]: [before, size] } }];
  });
  if (pins.length > 0) return pins;
  throw doesNotFit(
    source,
    `${module} has no norm or pointwise operator along a sequence`,
    'the sequence is dimension 1 of the inputs; put the style on norms, or pin tensors by layout',
  );
}

function checkEnough(size: number, what: string, { context, source, tp }: Styling): void {
  const ranks = axesSize(context.mesh, tp);
  if (size >= ranks) return;
  throw doesNotFit(
    source,
    `tp shards into ${ranks} parts, and ${what} has ${size} elements`,
    'choose another tp, or leave this module out',
  );
}

function nothingToCut({ node, rule }: WeightOperator, what: string, source: PinSource) {
  return doesNotFit(
    source,
    `${node.name} has no ${what} that can be sharded: its rule is ${rule.text}`,
    'pin it by factors or layouts instead',
  );
}

function once<Value>(make: () => Value): () => Value {
  let made: { readonly value: Value } | null = null;
  return () => {
    made ??= { value: make() };
    return made.value;
  };
}
