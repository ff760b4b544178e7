/**
 * @file Types of an operator's results: from the registry; for operators it does not know from the file (value_info), else
 * from a trial run in ONNX Runtime; otherwise the operator is refused by name.
 */

import { byteLength } from '../dtype.js';
import { AutoparError } from '../error.js';
import type { FactorRule } from '../factor-rule.js';
import {
  type Attributes,
  type ConstantTensor,
  elementCount,
  type Graph,
  MOST_DIMENSIONS,
  type TensorType,
  type Weight,
} from '../graph.js';
import { writeOnnx } from '../onnx/writer.js';
import type { Operator, OperatorEntry } from '../operator.js';
import { mismatch } from '../ops/operands.js';
import { plainNode } from '../plain-node.js';
import type { Evaluate } from './fold.js';

/** Known facts of an operator that is not in the registry. */
interface UnknownOperator {
  readonly operator: Operator;
  /** Declared types of the results, null where the file states none completely. */
  readonly declared: readonly (TensorType | null)[];
  /** Names of the results; null where one is not used. */
  readonly outputs: readonly (string | null)[];
  /** Values of the operands that are constants. */
  readonly constants: readonly (ConstantTensor | null)[];
  readonly evaluate: Evaluate;
  readonly file: string;
  /** Versions of the operator sets other than ONNX's own. */
  readonly domains: ReadonlyMap<string, number>;
}

/** Types by an operator's entry. Throws the errors of the entry on operands that do not fit. */
export function inferByEntry(entry: OperatorEntry, operator: Operator, file: string): readonly TensorType[] {
  return locating(operator, file, () => {
    const types = entry.infer(operator);
    for (const type of types) checkSizes(operator, type);
    // Rules are bound when a plan is made; nodes that they would refuse are refused here, where the file is known.
    checkCounts(operator, entry.rule({ ...operator, outputs: types }), types.length);
    return types;
  });
}

/** An operator's attributes in full, as its entry completes them; the types of its operands must be known. */
export function attributesInFull(entry: OperatorEntry, operator: Operator, file: string): Attributes {
  return locating(operator, file, () => entry.complete?.(operator) ?? operator.attributes);
}

/** The errors of an entry get the place in the file. */
function locating<Value>(operator: Operator, file: string, ask: () => Value): Value {
  try {
    return ask();
  } catch (error) {
    if (!(error instanceof AutoparError)) throw error;
    throw new AutoparError(
      error.code,
      error.exit,
      error.message,
      { file, node: operator.name, ...error.where },
      error.hint,
    );
  }
}

/** A rule names the dimensions of every operand that an operator can have. */
function checkCounts(operator: Operator, { inputs }: FactorRule, results: number): void {
  const excess = operator.inputs.findIndex((type, index) => type !== null && !inputs[index]);
  if (excess >= 0)
    throw mismatch(operator, `it has ${operator.inputs.length} operands, and ${operator.op} has no operand ${excess}`);
  if (operator.outputCount > results)
    throw mismatch(operator, `it has ${operator.outputCount} results, and ${operator.op} makes ${results} at most`);
}

function checkSizes(operator: Operator, { dtype, shape }: TensorType): void {
  if (shape.length > MOST_DIMENSIONS)
    throw mismatch(operator, `its result would have ${shape.length} dimensions, and ${MOST_DIMENSIONS} is the maximum`);
  if (shape.every((size) => Number.isSafeInteger(size) && size >= 0)) return;
  throw mismatch(operator, `its result would be ${dtype}[${shape.join(', ')}]`);
}

/** The error for a node that needs to know, before the run, something that depends on the data of `inputs`. */
export function dataDependent(
  name: string,
  op: string,
  what: string,
  inputs: readonly string[],
  file: string,
): AutoparError {
  const given = inputs.slice(0, 3).map((input) => `--const ${input}=FILE.npy`);
  const more = inputs.length > 3 ? ` and so on for ${inputs.slice(3).join(', ')}` : '';
  return new AutoparError(
    'data-dependent-shape',
    'input',
    `node '${name}' (${op}): ${what} depends on the data, which a static plan cannot follow`,
    { file, node: name },
    given.length > 0
      ? `fix its inputs: ${given.join(' ')}${more}; or export with fixed sizes`
      : 'make it a constant: bind dimensions with --dim, give the weights their values, or export with fixed sizes',
  );
}

/** Types of an unknown operator's results. */
export async function inferUnknown(unknown: UnknownOperator): Promise<readonly (TensorType | null)[]> {
  const { operator, declared, outputs } = unknown;
  if (outputs.every((name, index) => name === null || declared[index])) return declared;
  try {
    return await trialRun(unknown);
  } catch (error) {
    const reason = error instanceof Error ? (error.message.split('\n')[0] ?? '') : String(error);
    throw new AutoparError(
      'unknown-operator',
      'input',
      `node '${operator.name}' is ${operator.domain ? `${operator.domain}.` : ''}${operator.op}, an unknown operator; the ` +
        `file does not state the shapes of its results, and ONNX Runtime does not run it: ${reason}`,
      { file: unknown.file, node: operator.name },
      'state its result shapes in the file (value_info), or export without this operator',
    );
  }
}

/** Runs the operator alone on zeros (constants as they are) and returns the types of its results. */
async function trialRun({
  operator,
  outputs,
  constants,
  evaluate,
  domains,
}: UnknownOperator): Promise<readonly (TensorType | null)[]> {
  const names = operator.inputs.map((type, index) => (type ? `in${index}` : null));
  const results = outputs.map((name, index) => (name === null ? null : `out${index}`));
  const tensors = new Map<string, TensorType>();
  const weights = new Map<string, Weight>();
  const feeds: Record<string, ConstantTensor> = {};
  operator.inputs.forEach((type, index) => {
    const name = names[index];
    if (!type || !name) return;
    tensors.set(name, type);
    const value = constants[index];
    if (value) weights.set(name, { ...type, source: { kind: 'inline', data: value.data }, role: 'constant' });
    else feeds[name] = { ...type, data: new Uint8Array(byteLength(type.dtype, elementCount(type.shape))) };
  });
  const { name, op, domain, attributes } = operator;
  const node = plainNode({ name, op, domain, attributes, inputs: names, outputs: results });
  const graph: Graph = {
    name: 'trial',
    nodes: [node],
    tensors,
    inputs: Object.keys(feeds),
    outputs: results.filter((name) => name !== null),
    weights,
    state: [],
    batch: [],
    domains,
  };
  const found = await evaluate(writeOnnx(graph), feeds);
  return results.map((name) => {
    const value = name === null ? undefined : found[name];
    return value ? { dtype: value.dtype, shape: value.shape } : null;
  });
}
