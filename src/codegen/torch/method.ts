/**
 * @file The lines of steps: operators, collectives, sums over micro-batches, and what is deleted behind them.
 */
import { AutoparError } from '../../ir/error.js';
import { elementCount, type TensorType } from '../../ir/graph.js';
import { numbersOf } from '../../ir/ops/constants.js';
import { type CommunicationNode, type ComputeNode, resultsOf } from '../../partition/sharded-graph.js';
import type { WalkedStep } from '../../partition/stage-walk.js';
import { layoutText } from '../../sharding-propagation/layout-text.js';
import { lacksPlan } from '../target-lacks.js';
import { expressionLines, INDENT } from './expression.js';
import { torchOperatorOf } from './operators/index.js';
import { dtypeText, isFloat, number, tuple } from './operators/operator.js';
import { deletion, statement } from './python.js';
import { type Tensors, tensorOf } from './tensors.js';

/** What the lines of a method call their tensors. */
export interface Naming {
  /** The expression of a tensor that is there. */
  readonly read: (tensor: string) => string;
  /** The target of an assignment of a tensor, which is like `base` where it has no name yet. */
  readonly make: (tensor: string, base: string) => string;
  /** A variable of the method that does not stand for a tensor of the graph. */
  readonly local: (base: string) => string;
  /** The expression of the group of ranks on some axes. */
  readonly group: (axes: readonly string[]) => string;
  /** What to delete once a tensor has been read for the last time. */
  readonly holders: (tensor: string) => readonly string[];
  /** Whether a collective is waited for in the same method. */
  readonly waitsHere: (tensor: string) => boolean;
  /** The statement that ends a collective that another method started. */
  readonly wait: (tensor: string) => string;
  /** The namespace and the name in it of a sum over micro-batches. */
  readonly sum: (tensor: string) => readonly [namespace: string, name: string];
  /** The expression of the device that this rank computes on. */
  readonly device: () => string;
  /** The expression of the number of this rank's peer in another stage. */
  readonly peer: (stage: number) => string;
}

/** The lines of the steps of one method. */
export function linesOf(steps: readonly WalkedStep[], tensors: Tensors, naming: Naming): readonly string[] {
  const lines: string[] = [];
  const ended = new Set<string>();
  for (const [index, { step, frees, makes }] of steps.entries()) {
    switch (step.kind) {
      case 'segment':
        for (const node of step.nodes) lines.push(...operatorLines(node, tensors, naming));
        break;
      case 'start': {
        const next = steps[index + 1]?.step;
        const isAtOnce = next?.kind === 'wait' && next.id === step.id;
        if (isAtOnce) ended.add(step.node.output);
        const started = collectiveLines(step.node, isAtOnce, tensors, naming);
        if (step.last) lines.push(`${INDENT}if progress.is_last:`, ...started.map((line) => `    ${line}`));
        else lines.push(...started);
        break;
      }
      case 'wait': {
        const { output } = step.node;
        if (ended.has(output)) break;
        const text = naming.waitsHere(output)
          ? `${naming.read(output)} = ${naming.read(output)}.wait()`
          : naming.wait(output);
        lines.push(...statement(text, INDENT));
        break;
      }
      case 'accumulate': {
        const [input, output] = [step.node.inputs[0] as string, step.node.outputs[0] as string];
        const [namespace, name] = naming.sum(output);
        lines.push(
          ...statement(`accumulate(${namespace}, "${name}", ${naming.read(input)})`, INDENT, layoutOf(output, tensors)),
        );
        break;
      }
      case 'move': {
        const { input, output } = step.node;
        const target = naming.make(output, 'moved');
        const place = tensorOf(tensors.sharded, output).place ? '"cpu"' : naming.device();
        lines.push(...statement(`${target} = ${naming.read(input)}.to(${place})`, INDENT, layoutOf(output, tensors)));
        break;
      }
      case 'send': {
        const { tensor, stage } = step.transfer;
        lines.push(
          ...statement(`send(${naming.read(tensor)}, ${naming.peer(stage)})`, INDENT, layoutOf(tensor, tensors)),
        );
        break;
      }
      case 'recv': {
        const { tensor, stage } = step.transfer;
        const { dtype, shape } = localType(tensor, tensors);
        const target = naming.make(tensor, 'received');
        const text = `${target} = receive(${tuple(shape)}, ${dtypeText(dtype)}, ${naming.peer(stage)})`;
        lines.push(...statement(text, INDENT, layoutOf(tensor, tensors)));
        break;
      }
    }
    const isLast = index === steps.length - 1;
    const made = step.kind === 'segment' ? step.nodes.flatMap(resultsOf) : [];
    const inside = made.filter((name) => !makes.includes(name));
    const gone = [...frees, ...(isLast ? [] : inside)].flatMap((name) => naming.holders(name));
    lines.push(...deletion(gone, INDENT));
  }
  return lines;
}

/** A plan that the target has no code for. */
export function lacks(subject: string, node: string): AutoparError {
  return lacksPlan('torch', subject, node);
}

function layoutOf(name: string, { sharded }: Tensors): string {
  return layoutText(tensorOf(sharded, name).layout, sharded.mesh);
}

function localType(name: string, { sharded }: Tensors): TensorType {
  const { dtype, localShape } = tensorOf(sharded, name);
  return { dtype, shape: localShape };
}

function operatorLines(node: ComputeNode, tensors: Tensors, naming: Naming): readonly string[] {
  const last = node.outputs.findLastIndex((name) => name !== null && isUsed(name, tensors));
  const outputs = node.outputs.slice(0, Math.max(1, last + 1));
  const { op, domain, attributes } = node;
  const inputs = node.inputs.map((name) => (name === null ? null : typeIn(name, tensors)));
  const results = outputs.map((name) => (name === null ? null : typeIn(name, tensors)));
  const entry = torchOperatorOf(op, domain);
  const operands = node.inputs.map((name, index) => {
    if (name === null) return null;
    const plain = entry?.takesNumbers ? numberOf(name, index, inputs, results[0] ?? null, tensors) : null;
    return plain ?? naming.read(name);
  });
  const targets = outputs.map((name) => (name === null ? null : (base: string) => naming.make(name, base)));
  const [first] = outputs;
  const comment = first ? layoutOf(first, tensors) : '';
  const view = { op, domain, attributes, inputs, outputs: results, operands };
  const lines = expressionLines(view, targets, naming.local, comment);
  if (lines === null) throw lacksOperator(node, entry !== undefined);
  return lines;
}

/** Whether anything reads a result: an operator may name results that nothing does. */
function isUsed(name: string, { readIn, asked, runs, stores }: Tensors): boolean {
  if (readIn.has(name) || asked.has(name) || [...stores.values()].flat().some(({ from }) => from === name)) return true;
  return runs.some(({ steps }) =>
    steps.some(({ step }) => step.kind === 'segment' && step.nodes.some(({ inputs }) => inputs.includes(name))),
  );
}

function typeIn(name: string, tensors: Tensors): TensorType {
  const isCoordinate = tensors.sharded.coordinates.some((coordinate) => coordinate.name === name);
  return isCoordinate && !tensors.sharded.tensors.has(name) ? { dtype: 'int64', shape: [1] } : localType(name, tensors);
}

/** A constant of one element as a Python number, where that gives the result the same type and shape. */
function numberOf(
  name: string,
  index: number,
  inputs: readonly (TensorType | null)[],
  result: TensorType | null,
  { inline, sharded }: Tensors,
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
    'docs/torch.md lists the operators that it has; the bundled runtime runs the others.',
  );
}

/** Collectives of a parameter server, which the target has no code for (emit-torch.ts). */
type ServerKind = 'reduce' | 'broadcast';

const RESULTS: Readonly<Record<Exclude<CommunicationNode['collective']['kind'], ServerKind>, string>> = {
  'all-reduce': 'reduced',
  'all-gather': 'gathered',
  'reduce-scatter': 'scattered',
  'all-to-all': 'exchanged',
  permute: 'permuted',
};

function collectiveLines(
  { collective, axes, input, output }: CommunicationNode,
  isAtOnce: boolean,
  tensors: Tensors,
  naming: Naming,
): readonly string[] {
  const { kind } = collective;
  if (kind === 'reduce' || kind === 'broadcast') throw new Error(`${kind} has no function`);
  const shape = tuple(tensorOf(tensors.sharded, output).localShape);
  const operation =
    'reduction' in collective && collective.reduction !== 'sum' ? [`operation="${collective.reduction}"`] : [];
  const parts = ((): readonly string[] => {
    switch (collective.kind) {
      case 'all-reduce':
        return operation;
      case 'all-gather':
      case 'reduce-scatter':
        return [`outer=${collective.outer}`, `shape=${shape}`, ...operation];
      case 'all-to-all':
        return [`outer=${collective.split.outer}`, `joined_outer=${collective.concat.outer}`, `shape=${shape}`];
      case 'permute':
        return [`to=[${collective.to.join(', ')}]`];
    }
  })();
  const name = kind.replaceAll('-', '_');
  const given = [naming.read(input), naming.group(axes), ...parts, ...(isAtOnce ? [] : ['wait=False'])];
  const target = naming.make(output, RESULTS[kind]);
  return statement(`${target} = ${name}(${given.join(', ')})`, INDENT, layoutOf(output, tensors));
}
