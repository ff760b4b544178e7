/**
 * @file An operator's plain form as a graph that gradients are propagated through, and those gradients as operators. Tensors of
 * the form that they read are computed again: none of them is stored between forward and backward.
 */
import { AutoparError } from '../error.js';
import { type Graph, type Node, type TensorType, typeOf, type Weight } from '../graph.js';
import { needed } from '../needed.js';
import type { DifferentiatedOperator, WrittenOperator, WrittenOperators } from '../operator.js';
import { constant, constantWeight } from '../ops/constants.js';
import { operatorEntry } from '../ops/index.js';
import { plainNode } from '../plain-node.js';
import { givenNames, gradientNames, operandNames, resultNames } from '../written-names.js';

/** The form as a graph, in which the gradients of results that have one are known: `in0`, …, `out0`, …, `grad0`, …. */
export function plainGraph(operator: DifferentiatedOperator, { nodes, constants }: WrittenOperators): Graph {
  const tensors = new Map<string, TensorType>();
  const weights = new Map<string, Weight>();
  const note = (name: string, type: TensorType | null | undefined) => {
    if (type) tensors.set(name, { dtype: type.dtype, shape: type.shape });
  };
  const [operands, results] = [operandNames(operator.inputs), resultNames(operator.outputs)];
  for (const [index, name] of operands.entries()) note(name, operator.inputs[index]);
  for (const [index, name] of givenNames(operator.outputs).entries())
    if (operator.given[index]) note(name, operator.outputs[index]);
  for (const [name, value] of Object.entries(constants)) {
    note(name, value);
    weights.set(name, constantWeight(value));
  }
  const typed = nodes.map(({ op, domain = '', attributes = {}, inputs, outputs }, index): Node => {
    const name = `${operator.name}/${index}`;
    const types = operatorEntry({ op, domain }).infer({
      ...{ name, op, domain, attributes, outputs: [], outputCount: outputs.length },
      inputs: inputs.map((operand) => (operand === null ? null : (tensors.get(operand) ?? null))),
    });
    for (const [at, output] of outputs.entries()) note(output, types[at]);
    return plainNode({ name, op, domain, attributes, inputs, outputs });
  });
  const [inputs = [], outputs = []] = [operands, results].map((names) => names.filter((name) => tensors.has(name)));
  return { name: operator.name, nodes: typed, tensors, weights, inputs, outputs, state: [], batch: [] };
}

/** The gradients to compute in a form: from which seeds, and of which tensors. */
interface PlainFormRequest {
  /** By result: the tensor that holds its gradient. */
  readonly seeds: ReadonlyMap<string, string>;
  readonly wanted: readonly string[];
}

/** @throws AutoparError (input) `no-gradient` where a result has a gradient and the form does not make it */
export function plainFormRequest(operator: DifferentiatedOperator, { outputs }: Graph): PlainFormRequest {
  const [results, gradients] = [resultNames(operator.given), givenNames(operator.given)];
  const unmade = results.findIndex((name, index) => operator.given[index] && !outputs.includes(name));
  if (unmade >= 0)
    throw new AutoparError(
      'no-gradient',
      'input',
      `${operator.op} ${operator.name}: there is no gradient from its result ${unmade}`,
      { node: operator.name },
      'remove the readers of this result, or freeze the parameters before it (--frozen)',
    );
  const seeds = results.flatMap((name, index) =>
    operator.given[index] ? [[name, gradients[index] as string] as const] : [],
  );
  return { seeds: new Map(seeds), wanted: wantedOf(operator) };
}

/** The gradients computed in a form. */
interface PlainGradients extends Pick<Graph, 'nodes' | 'weights'> {
  /** By wanted operand: the tensor that holds its gradient. */
  readonly gradients: ReadonlyMap<string, string>;
}

/** The operators that make the form's gradients as `d0`, …, and the operators of the form itself that they need. */
export function gradientsOfPlain(
  operator: DifferentiatedOperator,
  graph: Graph,
  made: PlainGradients,
): WrittenOperators {
  const nodes = needed([...graph.nodes, ...made.nodes], made.gradients.values());
  const results = nodes.flatMap(({ outputs }) => outputs);
  const names = new Map(results.map((name, place) => [name, `t${place}`]));
  const copies: WrittenOperator[] = [];
  const unnamed = new Set(results);
  const operands = operandNames(operator.inputs);
  for (const [index, own] of gradientNames(operator.inputs).entries()) {
    if (!operator.wanted[index]) continue;
    const operand = operands[index] as string;
    const found = made.gradients.get(operand);
    if (found === undefined) copies.push(zeros(typeOf(graph, operand), own));
    else if (unnamed.delete(found)) names.set(found, own);
    else copies.push({ op: 'Identity', inputs: [names.get(found) ?? found], outputs: [own] });
  }
  const read = new Set(nodes.flatMap(({ inputs }) => inputs));
  const constants = [...made.weights].flatMap(([name, { dtype, shape, source }], place) => {
    if (!read.has(name) || source.kind !== 'inline') return [];
    names.set(name, `c${place}`);
    return [[`c${place}`, { dtype, shape, data: source.data }] as const];
  });
  const named = (name: string | null) => (name === null ? null : (names.get(name) ?? name));
  const written = nodes.map(({ op, domain, attributes, inputs, outputs }) => ({
    ...{ op, domain, attributes },
    inputs: inputs.map(named),
    outputs: outputs.map((name) => named(name) ?? ''),
  }));
  return { nodes: [...written, ...copies], constants: Object.fromEntries(constants) };
}

function wantedOf({ wanted }: DifferentiatedOperator): readonly string[] {
  return operandNames(wanted).filter((_, index) => wanted[index]);
}

/** The gradient of an operand that no result depends on. */
function zeros({ dtype, shape }: TensorType, name: string): WrittenOperator {
  const value = constant(dtype, [0], [1]);
  return { op: 'ConstantOfShape', attributes: { shape, value }, inputs: [], outputs: [name] };
}
