/**
 * @file The statements of instructions: operators, collectives, sums over micro-batches, and deletions behind them.
 */
import { elementCount, type OuterMemory } from '../../ir/graph.js';
import {
  type CommunicationNode,
  type ComputeNode,
  readsOf,
  resultsOf,
  type ShardedGraph,
} from '../../partition/sharded-graph.js';
import { type Header, type Statement, StatementBody } from './body.js';
import { callText, recordingText } from './gradient-calls.js';
import type { MethodNaming } from './naming.js';
import {
  isUsed,
  layoutOf,
  localType,
  type MadeStatements,
  numberIn,
  operatorStatements,
  typeIn,
  usedResults,
} from './operator-statements.js';
import { dtypeText, tuple } from './operators/operator.js';
import { updateGroups } from './optimizer-file.js';
import { withPairs } from './pairs.js';
import { snakeCase } from './python.js';
import type { LayerInstructions } from './runs.js';
import {
  type GradientCall,
  type PlacedSegment,
  type Recording,
  type SegmentGradients,
  type TorchTensors,
  tensorOf,
} from './tensors.js';
import { ownedBy, UpdateCalls } from './update-calls.js';
import { writtenOver } from './written-over.js';

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
          instruction,
          makes,
          frees,
          tensors,
          naming,
          within,
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

const NO_GRADIENTS: SegmentGradients = { calls: new Map(), recordings: new Map(), recordOf: new Map() };

/** The operators of a segment, which leaves some tensors; updates of parameters and a gradient by autograd are one call. */
function* segmentStatements(
  segment: PlacedSegment,
  left: readonly string[],
  frees: readonly string[],
  tensors: TorchTensors,
  naming: MethodNaming,
  headersOf: (tensor: string) => readonly Header[],
): Generator<MadeStatements> {
  const { nodes } = segment;
  const { calls, recordings, recordOf } = tensors.gradients.get(segment) ?? NO_GRADIENTS;
  const groups = updateGroups(
    nodes,
    (name) => elementCount(localType(name, tensors).shape) === 1,
    (name, by) => isUsed(name, tensors, by),
  );
  const inGroups = new Set([...groups.values(), ...calls.values()].flatMap((group) => group.nodes));
  const joined = withPairs(
    nodes,
    (node) => !inGroups.has(node) && !recordings.has(node),
    { typeOf: (name) => typeIn(name, tensors), numberOf: (name) => numberIn(name, tensors) },
    (name, but) => isUsed(name, tensors, but),
  );
  const alone = joined.filter((node) => !inGroups.has(node));
  // Autograd keeps operands and results of the operators that it records.
  const kept = alone.filter((node) => recordings.has(node)).flatMap((node) => [...readsOf(node), ...resultsOf(node)]);
  const leaves = new Set([...left, ...[...inGroups].flatMap(readsOf), ...kept]);
  const over = writtenOver(alone, leaves, (name) => localType(name, tensors));
  const updates = new UpdateCalls(tensors, naming, headersOf);
  for (const node of joined) {
    const group = groups.get(node);
    const call = calls.get(node);
    const recording = recordings.get(node);
    const isAlone = !inGroups.has(node);
    if (group) yield* updates.add(group, ownedBy(group, nodes, frees, tensors));
    else if (isAlone) yield* updates.before(node);
    if (call) yield gradientStatements(call, recordOf.get(node), tensors, naming);
    else if (isAlone && recording) yield recordedStatements(node, recording, tensors, naming);
    else if (isAlone) yield operatorStatements(node, tensors, naming, over.get(node));
  }
  yield* updates.end();
}

/** An operator, and what autograd keeps of it. */
function recordedStatements(
  node: ComputeNode,
  { name, call }: Recording,
  tensors: TorchTensors,
  naming: MethodNaming,
): MadeStatements {
  const results = usedResults(node, tensors).flatMap((output) => output ?? []);
  const [first = ''] = results;
  const types = results.map((output) => localType(output, tensors));
  const text = recordingText(call, (index) => naming.read(node.inputs[index] as string), types);
  const base = snakeCase(node.op);
  const targets = [...results.map((output) => naming.make(output, base)), naming.make(name, `${base}_record`)];
  const statement = { text: `${targets.join(', ')} = ${text}`, comment: layoutOf(first, tensors) };
  return { statements: [statement], targets, first };
}

/** The call that makes the gradients of an operator; what was kept of the operator goes with it. */
function gradientStatements(
  call: GradientCall,
  record: string | undefined,
  tensors: TorchTensors,
  naming: MethodNaming,
): MadeStatements {
  const text = callText(call, record && naming.read(record), tensors.sharded, naming.read);
  const results = call.wanted.flatMap((index) => call.gradient.operands[index]?.gradient ?? []);
  const targets = results.map((name) => naming.make(name, 'gradient'));
  const left = targets.length === 1 ? `(${targets[0]},)` : targets.join(', ');
  const [first = ''] = results;
  const made = { text: `${left} = ${text}`, comment: layoutOf(first, tensors) };
  const gone = record === undefined ? [] : naming.holders(record).map((held) => ({ text: `del ${held}`, comment: '' }));
  return { statements: [made, ...gone], targets, first };
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
