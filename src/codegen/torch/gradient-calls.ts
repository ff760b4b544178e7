/**
 * @file Gradients of operators that torch makes by autograd: the nodes of one are one call, for whose backward torch has a kernel
 * (attention, normalisations). The call reads what autograd kept of the operator, or runs it once more where nothing was kept
 * (recorded.ts).
 */
import type { TensorType } from '../../ir/graph.js';
import {
  type ComputeNode,
  type GradientOperand,
  type LocalGradient,
  readsOf,
  resultsOf,
} from '../../partition/sharded-graph.js';
import { torchOperatorOf } from './operators/index.js';
import { dtypeText, tuple } from './operators/operator.js';
import { type GradientCall, type TorchTensors, tensorOf } from './tensors.js';

/**
 * By the node in whose place it stands: gradients that a segment's nodes make, nothing of which is read but the gradients
 * themselves, and that torch has a function for.
 * @param isRead whether others than these nodes read a tensor
 */
export function gradientCalls(
  nodes: readonly ComputeNode[],
  { sharded, inline }: Pick<TorchTensors, 'sharded' | 'inline'>,
  isRead: (name: string, by: ReadonlySet<ComputeNode>) => boolean,
): ReadonlyMap<ComputeNode, GradientCall> {
  const calls = new Map<ComputeNode, GradientCall>();
  const places = new Map(nodes.flatMap((node, place) => resultsOf(node).map((name) => [name, place] as const)));
  for (const origin of new Set(nodes.map((node) => node.origin))) {
    const gradient = sharded.gradients?.get(origin);
    if (!gradient) continue;
    const own = nodes.filter(({ name }) => gradient.nodes.has(name));
    const members = new Set(own);
    const made = new Set(own.flatMap(resultsOf));
    const given = own.flatMap(readsOf).filter((name) => !made.has(name) && !inline.has(name));
    const known = new Set([gradient.resultGradient, ...gradient.operands.map(({ tensor }) => tensor)]);
    const gradients = gradient.operands.map((operand) => operand.gradient);
    const left = [...made].filter((name) => isRead(name, members));
    const isWhole = given.every((name) => known.has(name)) && left.every((name) => gradients.includes(name));
    const wanted = [...gradients.keys()].filter((index) => left.includes(gradients[index] ?? ''));
    const ready = Math.max(-1, ...given.map((name) => places.get(name) ?? -1));
    const at = own.find((node) => nodes.indexOf(node) > ready);
    const first = nodes.findIndex((node) => !members.has(node) && readsOf(node).some((name) => made.has(name)));
    const isInTime = at !== undefined && (first < 0 || nodes.indexOf(at) < first);
    if (isWhole && isInTime && isWorthCall(gradient, wanted, sharded)) calls.set(at, { gradient, nodes: own, wanted });
  }
  return calls;
}

/** Whether a call can take the place of all that makes these gradients, where nothing but the gradients is read. */
export function isCallable(gradient: LocalGradient, sharded: TorchTensors['sharded']): boolean {
  const wanted = [...gradient.operands.keys()].filter((index) => gradient.operands[index]?.gradient);
  return isWorthCall(gradient, wanted, sharded);
}

function isWorthCall(gradient: LocalGradient, wanted: readonly number[], sharded: TorchTensors['sharded']): boolean {
  // The gradient of a linear operator is known without running it.
  const isLinear = wanted.every((index) => gradient.operands[index]?.tensor === null);
  return !isLinear && isOnDevice(gradient, wanted, sharded) && functionText(gradient, () => 'x') !== null;
}

/** Whether the gradients have the types of their operands, and all is in the device's memory, on every rank. */
function isOnDevice(
  { operands, resultGradient }: LocalGradient,
  wanted: readonly number[],
  sharded: TorchTensors['sharded'],
): boolean {
  const isThere = (name: string | null) => {
    const tensor = name === null ? undefined : tensorOf(sharded, name);
    return tensor === undefined || (tensor.place === undefined && tensor.first === undefined);
  };
  return (
    isThere(resultGradient) &&
    operands.every(({ tensor, gradient }) => isThere(tensor) && isThere(gradient)) &&
    wanted.every((index) => {
      const { type, gradient } = operands[index] ?? {};
      return gradient && type?.dtype === tensorOf(sharded, gradient).dtype;
    })
  );
}

/** Parameters of the function. */
const LETTERS = 'abcdefghijklmnopqrstuvwxyz';

/**
 * The expression that runs an operator and keeps what its gradients need: `recorded(lambda a, b, c: f(a, b, c), (queries, keys),
 * mask)`. All operands of the function are arguments.
 * @param operandText an operand's expression
 * @param results types of its results, the last one that is read being the last
 */
export function recordingText(
  { gradient, wanted }: GradientCall,
  operandText: (index: number) => string,
  results: readonly (TensorType | null)[] = [gradient.result],
): string {
  const { operands } = gradient;
  const others = [...operands.keys()].filter((index) => operands[index]?.type && !wanted.includes(index));
  const order = [...wanted, ...others];
  const text = functionText(gradient, (index) => LETTERS[order.indexOf(index)] as string, results);
  const own = wanted.map(operandText);
  const given = [`(${own.join(', ')}${own.length === 1 ? ',' : ''})`, ...others.map(operandText)];
  const parameters = order.map((_, place) => LETTERS[place]).join(', ');
  return `recorded(lambda ${parameters}: ${text}, ${given.join(', ')})`;
}

/**
 * The expression of the gradients: `gradients(record, slope)`.
 * @param record that of what was kept of the operator; undefined where it is run once more
 * @param read the expression of a tensor
 */
export function callText(
  call: GradientCall,
  record: string | undefined,
  sharded: TorchTensors['sharded'],
  read: (tensor: string) => string,
): string {
  const { result, resultGradient, operands } = call.gradient;
  const cast = tensorOf(sharded, resultGradient).dtype === result.dtype ? '' : `.to(${dtypeText(result.dtype)})`;
  const again = () => `${recordingText(call, (index) => operandText(operands[index], read))}[-1]`;
  return `gradients(${record ?? again()}, ${read(resultGradient)}${cast})`;
}

/** The operator's expression, its operands being named; null where torch has no function. */
export function functionText(
  { op, domain, attributes, operands, result }: LocalGradient,
  nameOf: (index: number) => string,
  outputs: readonly (TensorType | null)[] = [result],
): string | null {
  const texts = operands.map(({ type }, index) => (type === null ? null : nameOf(index)));
  const inputs = operands.map(({ type }) => type);
  return torchOperatorOf(op, domain)?.text({ op, attributes, operands: texts, inputs, outputs }) ?? null;
}

/** An operand on whose value no gradient depends is zero. */
function operandText(operand: GradientOperand | undefined, read: (tensor: string) => string): string {
  if (operand?.tensor) return read(operand.tensor);
  const { shape = [], dtype = 'float32' } = operand?.type ?? {};
  return `torch.zeros(${tuple(shape)}, dtype=${dtypeText(dtype)})`;
}
