/**
 * @file Operators that a program records as it runs them: those whose gradients are made by autograd, where the operator runs on
 * the tensors that the gradients are of. What autograd keeps lasts from operator to gradients, which need not run it again.
 */
import type { Lifetime } from '../../ir/graph.js';
import { groupBy } from '../../ir/group-by.js';
import { attributesKey } from '../../ir/passes/attributes-key.js';
import { lastForm } from '../../partition/except-last.js';
import { usualList } from '../../partition/program-phases.js';
import type { ComputeNode } from '../../partition/sharded-graph.js';
import { functionText, gradientCalls } from './gradient-calls.js';
import { isUsed, localType, usedResults } from './operator-statements.js';
import type { LayerInstructions } from './runs.js';
import type { GradientCall, PlacedSegment, Recording, SegmentGradients, TorchTensors } from './tensors.js';

/** The gradients of a segment, which get their records. */
interface OpenGradients extends SegmentGradients {
  readonly recordings: Map<ComputeNode, Recording>;
  readonly recordOf: Map<ComputeNode, string>;
}

/** A node in a segment: the last micro-batch may run it in a segment of its own, with other gradients. */
interface PlacedNode {
  readonly node: ComputeNode;
  readonly run: LayerInstructions;
  readonly gradients: OpenGradients;
  readonly place: number;
}

/** The tensors of a stage, with the gradients that are calls, and the operators that are recorded for them. */
export function withGradientCalls(tensors: TorchTensors): TorchTensors {
  const { runs, sharded } = tensors;
  const gradients = new Map<PlacedSegment, OpenGradients>();
  const placed: PlacedNode[] = [];
  for (const run of runs)
    for (const { instruction } of run.instructions) {
      if (instruction.kind !== 'segment') continue;
      const { nodes } = instruction;
      const form = isOfLast(run) ? lastForm(sharded) : sharded;
      const calls = gradientCalls(nodes, { ...tensors, sharded: form }, (name, by) => isUsed(name, tensors, by));
      const own = { calls, recordings: new Map(), recordOf: new Map() };
      gradients.set(instruction, own);
      for (const node of nodes) placed.push({ node, run, gradients: own, place: placed.length });
    }
  return recorded({ ...tensors, gradients }, placed);
}

function recorded(tensors: TorchTensors, placed: readonly PlacedNode[]): TorchTensors {
  const [madeIn, makers, readIn] = [new Map(tensors.madeIn), new Map(tensors.makers), new Map(tensors.readIn)];
  const lifetimes = new Map<string, Lifetime>();
  const { walk } = tensors;
  const byKey = groupBy(placed, ({ node }) => keyOf(node));
  for (const caller of placed) {
    const call = caller.gradients.calls.get(caller.node);
    if (!call) continue;
    // The last is the one that runs again in the backward pass, where one does.
    const operator = (byKey.get(keyOf(call.gradient)) ?? []).findLast(
      (one) =>
        !one.gradients.recordings.has(one.node) &&
        isOperatorOf(one.node, call, tensors) &&
        isAhead(one, caller, tensors),
    );
    if (!operator) continue;
    const { node, run } = operator;
    const name = `${node.name}\u0000recorded`;
    operator.gradients.recordings.set(node, { name, call });
    caller.gradients.recordOf.set(caller.node, name);
    madeIn.set(name, run);
    makers.set(name, new Set([...(makers.get(name) ?? []), run]));
    readIn.set(name, [...new Set([...(readIn.get(name) ?? []), caller.run])]);
    lifetimes.set(name, runsOf(run, tensors) === 'micro' ? 'micro' : 'step');
  }
  return {
    ...{ ...tensors, madeIn, makers, readIn },
    walk: { ...walk, lifetimeOf: (name) => lifetimes.get(name) ?? walk.lifetimeOf(name) },
  };
}

function keyOf({ op, domain, attributes }: Pick<ComputeNode, 'op' | 'domain' | 'attributes'>): string {
  return `${domain} ${op} ${attributesKey(attributes)}`;
}

/** Whether an operator runs on the tensors that gradients are of. */
function isOperatorOf(node: ComputeNode, { gradient }: GradientCall, tensors: TorchTensors): boolean {
  const { operands, result } = gradient;
  const [output, ...others] = usedResults(node, tensors);
  if (!output || others.includes(null)) return false;
  const made = localType(output, tensors);
  const types = [made, ...others.flatMap((name) => (name === null ? [] : localType(name, tensors)))];
  if (functionText(gradient, () => 'x', types) === null) return false;
  const isResult = made.dtype === result.dtype && String(made.shape) === String(result.shape);
  const count = Math.max(operands.length, node.inputs.length);
  const isOperand = (_: unknown, index: number) => {
    const [own, operand] = [node.inputs[index] ?? null, operands[index]];
    return (own === null) === ((operand?.type ?? null) === null) && own === (operand?.tensor ?? own);
  };
  return isResult && node.phase !== 'update' && Array.from({ length: count }).every(isOperand);
}

/** Whether an operator runs before its gradients, for the same micro-batch. */
function isAhead(own: PlacedNode, caller: PlacedNode, tensors: TorchTensors): boolean {
  if (own.run.list === caller.run.list) return own.place < caller.place;
  const isSame = isOfLast(own.run) === isOfLast(caller.run) && runsOf(own.run, tensors) === runsOf(caller.run, tensors);
  return isSame && own.node.phase === 'forward';
}

/** Whether only the last micro-batch runs it, in place of what the others run. */
function isOfLast({ list }: LayerInstructions): boolean {
  return usualList(list) !== list;
}

function runsOf({ list }: LayerInstructions, { walk }: TorchTensors) {
  return walk.lists.find(({ name }) => name === list)?.runs;
}
