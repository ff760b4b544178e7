/**
 * @file Operators that a program records as it runs them: those whose gradients are made by autograd, where the operator runs on
 * the tensors that the gradients are of. What autograd keeps lasts from operator to gradients, which need not run it again.
 */
import type { Lifetime } from '../../ir/graph.js';
import { groupBy } from '../../ir/group-by.js';
import { attributesKey } from '../../ir/passes/attributes-key.js';
import type { ComputeNode } from '../../partition/sharded-graph.js';
import { gradientCalls } from './gradient-calls.js';
import { isUsed, localType } from './operator-statements.js';
import type { LayerInstructions } from './runs.js';
import type { GradientCall, Recording, TorchTensors } from './tensors.js';

/** A node of a segment, with the run that the segment is in and its place in it. */
interface PlacedNode {
  readonly node: ComputeNode;
  readonly run: LayerInstructions;
  readonly place: number;
}

/** The tensors of a stage, with the gradients that are calls, and the operators that are recorded for them. */
export function withGradientCalls(tensors: TorchTensors): TorchTensors {
  const { runs } = tensors;
  const calls = new Map<ComputeNode, GradientCall>();
  const placed: PlacedNode[] = [];
  for (const run of runs)
    for (const { instruction } of run.instructions) {
      if (instruction.kind !== 'segment') continue;
      const { nodes } = instruction;
      for (const [at, call] of gradientCalls(nodes, tensors, (name, by) => isUsed(name, tensors, by)))
        calls.set(at, call);
      for (const node of nodes) placed.push({ node, run, place: placed.length });
    }
  return recorded({ ...tensors, calls }, placed);
}

function recorded(tensors: TorchTensors, placed: readonly PlacedNode[]): TorchTensors {
  const recordOf = new Map<ComputeNode, string>();
  const recordings = new Map<ComputeNode, Recording>();
  const [madeIn, makers, readIn] = [new Map(tensors.madeIn), new Map(tensors.makers), new Map(tensors.readIn)];
  const lifetimes = new Map<string, Lifetime>();
  const { walk } = tensors;
  const byKey = groupBy(placed, ({ node }) => keyOf(node));
  const byNode = groupBy(placed, ({ node }) => node);
  for (const [at, call] of tensors.calls) {
    const callers = byNode.get(at) ?? [];
    // The last is the one that runs again in the backward pass, where one does.
    const operator = (byKey.get(keyOf(call.gradient)) ?? []).findLast(
      ({ node }) =>
        !recordings.has(node) && isOperatorOf(node, call, tensors) && isAhead(byNode.get(node) ?? [], callers, tensors),
    );
    if (!operator) continue;
    const { node, run } = operator;
    const name = `${node.name}\u0000recorded`;
    recordings.set(node, { name, call });
    recordOf.set(at, name);
    madeIn.set(name, run);
    makers.set(name, new Set((byNode.get(node) ?? []).map((one) => one.run)));
    readIn.set(name, [...new Set(callers.map((caller) => caller.run))]);
    lifetimes.set(
      name,
      walk.lists.some(({ name: list, runs }) => list === run.list && runs === 'micro') ? 'micro' : 'step',
    );
  }
  return {
    ...{ ...tensors, madeIn, makers, readIn, recordOf, recordings },
    walk: { ...walk, lifetimeOf: (name) => lifetimes.get(name) ?? walk.lifetimeOf(name) },
  };
}

function keyOf({ op, domain, attributes }: Pick<ComputeNode, 'op' | 'domain' | 'attributes'>): string {
  return `${domain} ${op} ${attributesKey(attributes)}`;
}

/** Whether an operator runs on the tensors that gradients are of, and only its one result is read. */
function isOperatorOf(node: ComputeNode, { gradient }: GradientCall, tensors: TorchTensors): boolean {
  const { operands, result } = gradient;
  const [output, ...others] = node.outputs;
  if (!output || others.some((name) => name !== null && isUsed(name, tensors))) return false;
  const made = localType(output, tensors);
  const isResult = made.dtype === result.dtype && String(made.shape) === String(result.shape);
  const count = Math.max(operands.length, node.inputs.length);
  const isOperand = (_: unknown, index: number) => {
    const [own, operand] = [node.inputs[index] ?? null, operands[index]];
    return (own === null) === ((operand?.type ?? null) === null) && own === (operand?.tensor ?? own);
  };
  return isResult && node.phase !== 'update' && Array.from({ length: count }).every(isOperand);
}

/** Whether an operator runs before its gradients, for the same micro-batch. */
function isAhead(own: readonly PlacedNode[], callers: readonly PlacedNode[], { walk }: TorchTensors): boolean {
  const runsOfList = ({ list }: LayerInstructions) => walk.lists.find(({ name }) => name === list)?.runs;
  return callers.every((caller) => {
    const same = own.filter(({ run }) => run.list === caller.run.list);
    return same.length > 0
      ? same.some(({ place }) => place < caller.place)
      : own.every(({ node, run }) => node.phase === 'forward' && runsOfList(run) === runsOfList(caller.run));
  });
}
