/**
 * @file The statements of operators, and of sums with products that are one pass over memory.
 */
import { AutoparError } from '../../ir/error.js';
import { elementCount, type TensorType } from '../../ir/graph.js';
import { numbersOf } from '../../ir/ops/constants.js';
import type { ComputeNode } from '../../partition/sharded-graph.js';
import { layoutText } from '../../sharding-propagation/layout-text.js';
import type { Statement } from './body.js';
import { expressionStatements } from './expression.js';
import type { JoinedPass } from './joined-passes.js';
import type { MethodNaming } from './naming.js';
import { torchOperatorOf } from './operators/index.js';
import { isFloat, number } from './operators/operator.js';
import { type TorchTensors, tensorOf } from './tensors.js';
import { inPlace } from './written-over.js';

/** Statements with their targets, and the first tensor that they compute. */
export interface MadeStatements {
  readonly statements: readonly Statement[];
  readonly targets: readonly string[];
  readonly first: string;
}

export function layoutOf(name: string, { sharded }: TorchTensors): string {
  return layoutText(tensorOf(sharded, name).layout, sharded.mesh);
}

export function localType(name: string, { sharded }: TorchTensors): TensorType {
  const { dtype, localShape } = tensorOf(sharded, name);
  return { dtype, shape: localShape };
}

/** What torch calls the factor of a product. */
const SCALES = { add: 'alpha', addcdiv: 'value', addcmul: 'value' } as const;

/** A sum of a tensor and a product. */
export function passStatement(
  { outputs }: ComputeNode,
  { name, to, factors, value }: JoinedPass,
  tensors: TorchTensors,
  naming: MethodNaming,
  over: string | undefined,
): Statement {
  const result = outputs[0] as string;
  const given = factors.map((factor) => naming.read(factor));
  const scale = number(value, localType(result, tensors).dtype);
  const scaled = name === 'lerp' ? [...given, scale] : value === 1 ? given : [...given, `${SCALES[name]}=${scale}`];
  const from = naming.read(to);
  const written = over === undefined ? undefined : naming.over(result, over);
  const text = written
    ? `${written}.${name}_(${scaled.join(', ')})`
    : `${naming.make(result, name)} = torch.${name}(${[from, ...scaled].join(', ')})`;
  return { text, comment: '' };
}

/** The value of a constant of one element that is part of the code. */
export function numberIn(name: string, { inline, sharded }: TorchTensors): number | null {
  const data = inline.get(name);
  if (!data) return null;
  const { dtype, localShape: shape } = tensorOf(sharded, name);
  if (!dtype.includes('float') || elementCount(shape) !== 1) return null;
  const [value = Number.NaN] = numbersOf({ dtype, shape, data });
  return Number.isFinite(value) ? value : null;
}

export function isHosted(name: string | null, { sharded }: TorchTensors): boolean {
  return name !== null && sharded.tensors.get(name)?.place === 'host';
}

/** The first result, and all up to the last one that is used. */
export function usedResults({ outputs }: ComputeNode, tensors: TorchTensors): readonly (string | null)[] {
  const last = outputs.findLastIndex((name) => name !== null && isUsed(name, tensors));
  return outputs.slice(0, Math.max(1, last + 1));
}

export function operatorStatements(
  node: ComputeNode,
  tensors: TorchTensors,
  naming: MethodNaming,
  over?: string,
): MadeStatements {
  const outputs = usedResults(node, tensors);
  const { op, domain, attributes } = node;
  const inputs = node.inputs.map((name) => (name === null ? null : typeIn(name, tensors)));
  const results = outputs.map((name) => (name === null ? null : typeIn(name, tensors)));
  const entry = torchOperatorOf(op, domain);
  const hosted = outputs.some((name) => isHosted(name, tensors));
  const operands = node.inputs.map((name, index) => {
    if (name === null) return null;
    const plain = entry?.takesNumbers ? numberOf(name, index, inputs, results[0] ?? null, tensors) : null;
    return plain ?? (hosted ? naming.onHost(name) : undefined) ?? naming.read(name);
  });
  const made: string[] = [];
  const targets = outputs.map((name) =>
    name === null
      ? null
      : (base: string) => {
          const target = (over === undefined ? undefined : naming.over(name, over)) ?? naming.make(name, base);
          made.push(target);
          return target;
        },
  );
  const [first] = outputs;
  const comment = first ? layoutOf(first, tensors) : '';
  const operator = { op, domain, attributes, inputs, outputs: results, operands };
  const statements = expressionStatements(operator, targets, naming.local, comment);
  if (statements === null) throw lacksOperator(node, entry !== undefined);
  const written = over === undefined ? statements : statements.map(inPlace);
  return { statements: written, targets: made, first: node.outputs.find((name) => name !== null) as string };
}

/**
 * Whether anything but some operators reads a result: an operator may name results that nothing does. What the last micro-batch
 * runs in an operator's place is the same operator, of the same name.
 */
export function isUsed(
  name: string,
  { readIn, readAtStepEnd, stored, readers }: TorchTensors,
  but: ReadonlySet<ComputeNode> = NONE,
): boolean {
  if (readIn.has(name) || readAtStepEnd.has(name) || stored.has(name)) return true;
  const names = new Set([...but].map((node) => node.name));
  return (readers.get(name) ?? []).some((node) => !names.has(node.name));
}

const NONE: ReadonlySet<ComputeNode> = new Set();

export function typeIn(name: string, tensors: TorchTensors): TensorType {
  const isCoordinate = tensors.sharded.coordinates.some((coordinate) => coordinate.name === name);
  return isCoordinate && !tensors.sharded.tensors.has(name) ? { dtype: 'int64', shape: [1] } : localType(name, tensors);
}

/** A constant of one element as a Python number, where that gives the result the same type and shape. */
function numberOf(
  name: string,
  index: number,
  inputs: readonly (TensorType | null)[],
  result: TensorType | null,
  { inline, sharded }: TorchTensors,
): string | null {
  const data = inline.get(name);
  const [own, other] = [inputs[index], inputs[1 - index]];
  if (!data || !own || !other || !result || elementCount(own.shape) !== 1 || !isFloat(own)) return null;
  const isResult = own.dtype === other.dtype && inputs.length === 2 && inlineIndex(inputs, index);
  if (!isResult || String(broadcastShape(own.shape, other.shape)) !== String(other.shape)) return null;
  const [value = 0] = numbersOf({ dtype: own.dtype, shape: tensorOf(sharded, name).localShape, data });
  return Number.isFinite(value) && value >= 0 ? number(value, own.dtype) : null;
}

/** The other operand is a tensor: of two numbers Python would make a number. */
function inlineIndex(inputs: readonly (TensorType | null)[], index: number): boolean {
  return elementCount(inputs[1 - index]?.shape ?? []) > 1 || (inputs[1 - index]?.shape.length ?? 0) > 0;
}

function broadcastShape(a: readonly number[], b: readonly number[]): readonly number[] {
  const rank = Math.max(a.length, b.length);
  return Array.from({ length: rank }, (_, axis) =>
    Math.max(a[axis - rank + a.length] ?? 1, b[axis - rank + b.length] ?? 1),
  );
}

function lacksOperator({ op, domain, origin }: ComputeNode, isForm: boolean): AutoparError {
  const name = domain === '' ? op : `${domain}.${op}`;
  return new AutoparError(
    'target-lacks-operator',
    'backendAbsent',
    isForm ? `--target torch does not cover this form of ${name}` : `--target torch has no function for ${name}`,
    { node: origin },
    'docs/reference/torch-operators.md lists the supported operators; the bundled runtime runs the others.',
  );
}
