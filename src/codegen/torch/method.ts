/**
 * @file The statements of instructions: operators, collectives, sums over micro-batches, and deletions behind them.
 */
import { AutoparError } from '../../ir/error.js';
import { elementCount, type OuterMemory, type TensorType } from '../../ir/graph.js';
import { numbersOf } from '../../ir/ops/constants.js';
import {
  type CommunicationNode,
  type ComputeNode,
  readsOf,
  resultsOf,
  type ShardedGraph,
} from '../../partition/sharded-graph.js';
import { layoutText } from '../../sharding-propagation/layout-text.js';
import { type Header, type Statement, StatementBody } from './body.js';
import { expressionStatements } from './expression.js';
import { callText, type GradientCall, gradientCalls } from './gradient-calls.js';
import { type JoinedPass, joinedPasses } from './joined-passes.js';
import { torchOperatorOf } from './operators/index.js';
import { dtypeText, isFloat, number, tuple } from './operators/operator.js';
import { functionBody, type UpdateGroup, UpdateNames, updateGroups } from './optimizer-file.js';
import type { LayerInstructions } from './runs.js';
import { type TorchTensors, tensorOf } from './tensors.js';
import { inPlace, writtenOver } from './written-over.js';

/** Which end of a transfer a rank is. */
export type ChannelEnd = 'send' | 'recv';

/** The names of tensors in the lines of a method. */
export interface MethodNaming {
  /** The expression of a tensor that is there. */
  readonly read: (tensor: string) => string;
  /** That of a constant or coordinate in the host's memory; undefined for other tensors. */
  readonly onHost: (tensor: string) => string | undefined;
  /** The target of an assignment of a tensor, which is like `base` where it has no name yet. */
  readonly make: (tensor: string, base: string) => string;
  /** The variable of an operand, which the tensor that is written over it has from then on; undefined where it has none. */
  readonly over: (tensor: string, operand: string) => string | undefined;
  /** A variable of the method that does not stand for a tensor of the graph. */
  readonly local: (base: string) => string;
  /** The expression of the group of ranks on some axes. */
  readonly group: (axes: readonly string[]) => string;
  /** Names to delete once a tensor has been read for the last time. */
  readonly holders: (tensor: string) => readonly string[];
  /** Whether a collective is waited for in the same method. */
  readonly waitsHere: (tensor: string) => boolean;
  /** The statement that ends a collective that another method started. */
  readonly wait: (tensor: string) => string;
  /** The namespace and the name in it of a sum over micro-batches. */
  readonly sum: (tensor: string) => readonly [namespace: string, name: string];
  /** The expression of the device that this rank computes on. */
  readonly device: () => string;
  /** The expression of whether this rank is the first on some axes. */
  readonly lead: (axes: readonly string[]) => string;
  /** The expression of this rank's channel to or from another stage. */
  readonly channel: (end: ChannelEnd, stage: number) => string;
}

/** The statements of a run's instructions. */
export function statementsOf(
  { instructions, takesTurns }: LayerInstructions,
  tensors: TorchTensors,
  naming: MethodNaming,
): StatementBody {
  const body = new StatementBody();
  const ended = new Set<string>();
  const { sharded } = tensors;
  const within = (name: string): readonly Header[] => [...leading([name], sharded, naming), ...onHost(name, sharded)];
  for (const [index, { instruction, frees, makes }] of instructions.entries()) {
    const next = instructions[index + 1]?.instruction;
    switch (instruction.kind) {
      case 'segment':
        for (const { statements, targets, first } of segmentStatements(
          instruction.nodes,
          makes,
          frees,
          tensors,
          naming,
        ))
          body.add(statements, within(first), targets);
        break;
      case 'start': {
        const { input, output } = instruction.node;
        const isAtOnce = !takesTurns && next?.kind === 'wait' && next.id === instruction.id;
        if (isAtOnce) ended.add(output);
        const { made, target } = collectiveStatement(instruction.node, isAtOnce, tensors, naming);
        const last = instruction.last ? [{ text: 'if progress.is_last' }] : [];
        const headers = [...leading([input, output], sharded, naming), ...last, ...onHost(output, sharded)];
        body.add([made], headers, [target]);
        break;
      }
      case 'wait': {
        const { input, output } = instruction.node;
        if (ended.has(output)) break;
        if (takesTurns && instructions[index - 1]?.instruction.kind !== 'wait')
          body.add([{ text: 'yield', comment: '' }]);
        const text = naming.waitsHere(output)
          ? `${naming.read(output)} = ${naming.read(output)}.wait()`
          : naming.wait(output);
        body.add([{ text, comment: '' }], leading([input, output], sharded, naming), [naming.read(output)]);
        break;
      }
      case 'accumulate': {
        const [input, output] = [instruction.node.inputs[0] as string, instruction.node.outputs[0] as string];
        const [namespace, name] = naming.sum(output);
        const { place } = tensorOf(sharded, output);
        const given = [namespace, `"${name}"`, naming.read(input), ...(place ? [`place="${PLACES[place]}"`] : [])];
        const text = `accumulate(${given.join(', ')})`;
        body.add([{ text, comment: layoutOf(output, tensors) }], leading([output], sharded, naming));
        break;
      }
      case 'move': {
        const { input, output } = instruction.node;
        const target = naming.make(output, 'moved');
        const { place } = tensorOf(sharded, output);
        const given = naming.read(input);
        const moved =
          place === 'disk' ? `to_disk(${given})` : `${given}.to(${place ? `"${PLACES[place]}"` : naming.device()})`;
        const made = { text: `${target} = ${moved}`, comment: layoutOf(output, tensors) };
        body.add([made], leading([output], sharded, naming), [target]);
        break;
      }
      case 'send': {
        const { tensor, stage } = instruction.transfer;
        const text = `send(${naming.read(tensor)}, ${naming.channel('send', stage)})`;
        body.add([{ text, comment: layoutOf(tensor, tensors) }], leading([tensor], sharded, naming));
        break;
      }
      case 'recv': {
        const { tensor, stage } = instruction.transfer;
        const { dtype, shape } = localType(tensor, tensors);
        const target = naming.make(tensor, 'received');
        const channel = naming.channel('recv', stage);
        const text = `${target} = receive(${tuple(shape)}, ${dtypeText(dtype)}, ${channel})`;
        body.add([{ text, comment: layoutOf(tensor, tensors) }], leading([tensor], sharded, naming), [target]);
        break;
      }
    }
    const isLast = index === instructions.length - 1;
    const made = instruction.kind === 'segment' ? instruction.nodes.flatMap(resultsOf) : [];
    const inside = made.filter((name) => !makes.includes(name));
    const gone = [...frees, ...(isLast ? [] : inside)];
    // A tensor that only the first rank holds is None on the others.
    for (const name of gone) body.delete(naming.holders(name), leading([name], sharded, naming));
  }
  return body;
}

/** As torch and `declare` name places. */
export const PLACES: Readonly<Record<OuterMemory, string>> = { host: 'cpu', disk: 'disk' };

/** The line that tests for the first rank of some axes, where only that rank holds any of these tensors. */
export function leading(
  names: readonly string[],
  sharded: ShardedGraph,
  naming: Pick<MethodNaming, 'lead'>,
): readonly Header[] {
  const lists = names.map((name) => sharded.tensors.get(name)?.first ?? []);
  const axes = (lists[0] ?? []).filter((axis) => lists.every((list) => list.includes(axis)));
  return axes.length > 0 ? [{ text: `if ${naming.lead(axes)}`, otherwise: true }] : [];
}

/** Results on the host are computed there. */
function onHost(name: string, { tensors }: ShardedGraph): readonly Header[] {
  return tensors.get(name)?.place === 'host' ? [{ text: 'with torch.device("cpu")' }] : [];
}

function layoutOf(name: string, { sharded }: TorchTensors): string {
  return layoutText(tensorOf(sharded, name).layout, sharded.mesh);
}

function localType(name: string, { sharded }: TorchTensors): TensorType {
  const { dtype, localShape } = tensorOf(sharded, name);
  return { dtype, shape: localShape };
}

/** Statements with their targets, and the first tensor that they compute. */
interface MadeStatements {
  readonly statements: readonly Statement[];
  readonly targets: readonly string[];
  readonly first: string;
}

/** The operators of a segment, which leaves some tensors; an update of a parameter and a gradient by autograd are one call. */
function* segmentStatements(
  nodes: readonly ComputeNode[],
  left: readonly string[],
  frees: readonly string[],
  tensors: TorchTensors,
  naming: MethodNaming,
): Generator<MadeStatements> {
  const groups = updateGroups(
    nodes,
    (name) => elementCount(localType(name, tensors).shape) === 1,
    (name, by) => isUsed(name, tensors, by),
  );
  const calls = gradientCalls(nodes, tensors, (name, by) => isUsed(name, tensors, by));
  const inGroups = new Set([...groups.values(), ...calls.values()].flatMap((group) => group.nodes));
  const alone = nodes.filter((node) => !inGroups.has(node));
  const leaves = new Set([...left, ...[...inGroups].flatMap(readsOf)]);
  const over = writtenOver(alone, leaves, (name) => localType(name, tensors));
  for (const node of nodes) {
    const group = groups.get(node);
    const call = calls.get(node);
    if (group) yield callOf(group, nextOf(group, nodes, frees, tensors), tensors, naming);
    else if (call) yield gradientStatements(call, tensors, naming);
    else if (!inGroups.has(node)) yield operatorStatements(node, tensors, naming, over.get(node));
  }
}

/** State whose next value a group makes, and that nothing reads once the group has: the value may be written over it. */
function nextOf(
  { nodes, results }: UpdateGroup,
  segment: readonly ComputeNode[],
  frees: readonly string[],
  { sharded }: TorchTensors,
): readonly string[] {
  const own = new Set(nodes);
  const others = new Set(segment.filter((node) => !own.has(node)).flatMap(readsOf));
  return sharded.state.flatMap(({ from, to }) =>
    results.includes(from) &&
    frees.includes(to) &&
    !others.has(to) &&
    !sharded.outputs.some(({ tensor }) => tensor === to)
      ? [to]
      : [],
  );
}

/** The call of a function that runs the operators of a group, and may write over some of its operands. */
function callOf(
  group: UpdateGroup,
  owned: readonly string[],
  tensors: TorchTensors,
  naming: MethodNaming,
): MadeStatements {
  const { nodes, results } = group;
  const names = new UpdateNames();
  const { passes, joined } = joinedPasses(
    nodes,
    new Set(results),
    (name) => numberIn(name, tensors),
    (name, result) => String(localType(name, tensors).shape) === String(localType(result, tensors).shape),
  );
  // A joined pass may overwrite the tensor that it adds to, as a subtraction may overwrite its first operand.
  const order = nodes.flatMap((node) => {
    const pass = passes.get(node);
    if (joined.has(node)) return [];
    return [{ pass, node: pass ? { ...node, op: 'Sub', inputs: [pass.to, ...pass.factors] } : node }];
  });
  const run = order.map(({ node }) => node);
  const over = writtenOver(run, new Set(results), (name) => localType(name, tensors), owned);
  const hosted = nodes.some(({ outputs }) => outputs.some((name) => isHosted(name, tensors)));
  const outside = (name: string) => (hosted ? naming.onHost(name) : undefined) ?? naming.read(name);
  const statements = order.flatMap(({ node, pass }) => {
    const inside: MethodNaming = {
      ...naming,
      read: (name) => names.read(name, outside, typeIn(name, tensors) ?? { shape: [] }),
      onHost: () => undefined,
      make: (name, base) => names.make(name, base),
      over: (name, operand) => names.over(name, operand),
      local: (base) => names.local(base),
    };
    return pass
      ? [passStatement(node, pass, tensors, inside, over.get(node))]
      : operatorStatements(node, tensors, inside, over.get(node)).statements;
  });
  const body = functionBody(
    statements,
    results.map((name) => names.nameOf(name)),
  );
  const called = tensors.optimizer.nameOf(names.parameters, body);
  const targets = results.map((name) => naming.make(name, 'updated'));
  const text = `${targets.join(', ')} = ${called}(${names.given.join(', ')})`;
  const [first = ''] = results;
  return { statements: [{ text, comment: layoutOf(first, tensors) }], targets, first };
}

/** The call that makes the gradients of an operator. */
function gradientStatements(call: GradientCall, tensors: TorchTensors, naming: MethodNaming): MadeStatements {
  const text = callText(call, tensors.sharded, naming.read);
  const results = call.wanted.flatMap((index) => call.gradient.operands[index]?.gradient ?? []);
  const targets = results.map((name) => naming.make(name, 'gradient'));
  const left = targets.length === 1 ? `(${targets[0]},)` : targets.join(', ');
  const [first = ''] = results;
  return { statements: [{ text: `${left} = ${text}`, comment: layoutOf(first, tensors) }], targets, first };
}

function passStatement(
  { outputs }: ComputeNode,
  { to, factors, value }: JoinedPass,
  tensors: TorchTensors,
  naming: MethodNaming,
  over: string | undefined,
): Statement {
  const result = outputs[0] as string;
  const [name, scale] = factors.length === 1 ? ['add', 'alpha'] : ['addcmul', 'value'];
  const given = factors.map((factor) => naming.read(factor));
  const scaled = value === 1 ? given : [...given, `${scale}=${number(value, localType(result, tensors).dtype)}`];
  const from = naming.read(to);
  const written = over === undefined ? undefined : naming.over(result, over);
  const text = written
    ? `${written}.${name}_(${scaled.join(', ')})`
    : `${naming.make(result, name)} = torch.${name}(${[from, ...scaled].join(', ')})`;
  return { text, comment: '' };
}

/** The value of a constant of one element that is part of the code. */
function numberIn(name: string, { inline, sharded }: TorchTensors): number | null {
  const data = inline.get(name);
  if (!data) return null;
  const { dtype, localShape: shape } = tensorOf(sharded, name);
  if (!dtype.includes('float') || elementCount(shape) !== 1) return null;
  const [value = Number.NaN] = numbersOf({ dtype, shape, data });
  return Number.isFinite(value) ? value : null;
}

function isHosted(name: string | null, { sharded }: TorchTensors): boolean {
  return name !== null && sharded.tensors.get(name)?.place === 'host';
}

function operatorStatements(
  node: ComputeNode,
  tensors: TorchTensors,
  naming: MethodNaming,
  over?: string,
): MadeStatements {
  const last = node.outputs.findLastIndex((name) => name !== null && isUsed(name, tensors));
  const outputs = node.outputs.slice(0, Math.max(1, last + 1));
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

/** Whether anything but some operators reads a result: an operator may name results that nothing does. */
function isUsed(
  name: string,
  { readIn, readAtStepEnd: asked, runs, stores }: TorchTensors,
  but: ReadonlySet<ComputeNode> = NONE,
): boolean {
  if (readIn.has(name) || asked.has(name) || [...stores.values()].flat().some(({ from }) => from === name)) return true;
  const isReader = (node: ComputeNode) => node.inputs.includes(name) && !but.has(node);
  return runs.some(({ instructions }) =>
    instructions.some(({ instruction }) => instruction.kind === 'segment' && instruction.nodes.some(isReader)),
  );
}

const NONE: ReadonlySet<ComputeNode> = new Set();

function typeIn(name: string, tensors: TorchTensors): TensorType {
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

const RESULTS: Readonly<Record<CommunicationNode['collective']['kind'], string>> = {
  'all-reduce': 'reduced',
  'all-gather': 'gathered',
  'reduce-scatter': 'scattered',
  'all-to-all': 'exchanged',
  permute: 'permuted',
  reduce: 'reduced',
  broadcast: 'broadcasted',
};

function collectiveStatement(
  { collective, axes, input, output }: CommunicationNode,
  isAtOnce: boolean,
  tensors: TorchTensors,
  naming: MethodNaming,
): { readonly made: Statement; readonly target: string } {
  const { kind } = collective;
  const { localShape, dtype } = tensorOf(tensors.sharded, output);
  const shape = tuple(localShape);
  const operation =
    'reduction' in collective && collective.reduction !== 'sum' ? [`operation="${collective.reduction}"`] : [];
  const parts = ((): readonly string[] => {
    switch (collective.kind) {
      case 'all-reduce':
      case 'reduce':
        return operation;
      case 'all-gather':
      case 'reduce-scatter':
        return [`outer=${collective.outer}`, `shape=${shape}`, ...operation];
      case 'all-to-all':
        return [`outer=${collective.split.outer}`, `joined_outer=${collective.concat.outer}`, `shape=${shape}`];
      case 'permute':
        return [`to=[${collective.to.join(', ')}]`];
      case 'broadcast':
        return [`shape=${shape}`, `dtype=${dtypeText(dtype)}`];
    }
  })();
  const name = kind.replaceAll('-', '_');
  const given = [naming.read(input), naming.group(axes), ...parts, ...(isAtOnce ? [] : ['wait=False'])];
  const target = naming.make(output, RESULTS[kind]);
  return { made: { text: `${target} = ${name}(${given.join(', ')})`, comment: layoutOf(output, tensors) }, target };
}
