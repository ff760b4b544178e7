/**
 * @file Where tensors are freed: behind their last reader, sends included, in whichever list that is.
 */
import type { PhaseList } from '../partition/order.js';
import type { ShardedGraph } from '../partition/sharded-graph.js';
import type { Instruction, ProgramAction } from '../program/program.js';

/** A list with its instructions. */
export interface WrittenList extends PhaseList {
  readonly instructions: readonly Instruction[];
}

/**
 * Adds a `free` behind the last reader of every tensor, in the order in which the stage runs its lists. What a micro-batch makes
 * is freed in a list of micro-batches; what its lists must leave behind is what the next micro-batch reads again (the state),
 * what it adds to, and what the step's own operators read.
 * @param schedule of the stage
 */
export function withFrees(
  lists: readonly WrittenList[],
  schedule: readonly ProgramAction[],
  sharded: ShardedGraph,
): Readonly<Record<string, readonly Instruction[]>> {
  const always = new Set([
    ...sharded.outputs.map((output) => output.tensor),
    ...sharded.coordinates.map((coordinate) => coordinate.name),
  ]);
  const orders = ordersOf(lists, schedule);
  const given = sharded.inputs.map(({ tensor }) => tensor);
  if (!sharded.microBatches) return Object.fromEntries(freed(lists, orders, always, given));
  const micro = lists.filter(({ runs }) => runs === 'micro');
  const step = lists.filter(({ runs }) => runs === 'step');
  const sums = micro.flatMap(({ instructions }) =>
    instructions.flatMap((instruction) => (instruction.kind === 'accumulate' ? [instruction.output] : [])),
  );
  const leftBehind = new Set([
    ...always,
    ...sharded.state.map(({ to }) => to),
    ...sums,
    ...step.flatMap(({ instructions }) => instructions.flatMap(readBy)),
    ...receivedAtFirst(sharded),
  ]);
  const ofStep = new Set([...always, ...receivedAtFirst(sharded), ...sentAtFirst(sharded, micro)]);
  const ofMicroBatch = orders.filter(([first]) => first?.runs === 'micro');
  return Object.fromEntries([
    ...freed(micro, ofMicroBatch, leftBehind, []),
    ...freed(
      step,
      orders.filter(([first]) => first?.runs === 'step'),
      ofStep,
      [],
    ),
  ]);
}

/** The orders in which micro-batches run through the lists, each once; and that of the lists that run once a step. */
function ordersOf(
  lists: readonly WrittenList[],
  schedule: readonly ProgramAction[],
): readonly (readonly WrittenList[])[] {
  const byName = new Map(lists.map((list) => [list.phase, list]));
  const orders = new Map<number | null, WrittenList[]>();
  for (const { phase, microBatch } of schedule) {
    const list = byName.get(phase);
    if (list) orders.set(microBatch, [...(orders.get(microBatch) ?? []), list]);
  }
  const distinct = new Map([...orders.values()].map((order) => [order.map(({ phase }) => phase).join('\n'), order]));
  return [...distinct.values()];
}

/** What every micro-batch reads of what another stage sends before the first. */
function receivedAtFirst({ pipeline }: ShardedGraph): readonly string[] {
  return (pipeline?.receives ?? []).flatMap(({ tensor, when }) => (when === 'begin' ? [tensor] : []));
}

/** What a stage sends before the first micro-batch, and its own micro-batches read afterwards. */
function sentAtFirst({ pipeline }: ShardedGraph, micro: readonly WrittenList[]): readonly string[] {
  const read = new Set(micro.flatMap(({ instructions }) => instructions.flatMap(readBy)));
  const sent = (pipeline?.sends ?? []).filter(({ when }) => when === 'begin').map(({ tensor }) => tensor);
  return sent.filter((tensor) => read.has(tensor));
}

function readBy(instruction: Instruction): readonly string[] {
  if (instruction.kind === 'compute') return instruction.inputs;
  if (instruction.kind === 'send') return [instruction.tensor];
  return instruction.kind === 'start' || instruction.kind === 'accumulate' ? [instruction.input] : [];
}

/**
 * Lists with frees of all that they make but what is `kept`, and of what is `given` to them. A tensor whose last reader is not
 * the same in all `orders` of the lists goes with its micro-batch.
 */
function freed(
  lists: readonly WrittenList[],
  orders: readonly (readonly WrittenList[])[],
  kept: ReadonlySet<string>,
  given: readonly string[],
): readonly (readonly [string, readonly Instruction[]])[] {
  const [first = new Map<string, Instruction | null>(), ...others] = orders.map((order) => lastUses(order, given));
  const frees = new Map<Instruction | null, string[]>();
  for (const [tensor, at] of first) {
    if (kept.has(tensor) || others.some((last) => last.get(tensor) !== at)) continue;
    frees.set(at, [...(frees.get(at) ?? []), tensor]);
  }
  const free = (at: Instruction | null): readonly Instruction[] => {
    const tensors = frees.get(at);
    return tensors ? [{ kind: 'free', tensors }] : [];
  };
  const begins = orders[0]?.find(({ instructions }) => instructions.length > 0)?.phase;
  return lists.map(({ phase, instructions }) => [
    phase,
    [
      ...(phase === begins ? free(null) : []),
      ...instructions.flatMap((instruction) => [instruction, ...free(instruction)]),
    ],
  ]);
}

/** By tensor: the last instruction that uses it in lists that run one after the other; null for an input that none reads. */
function lastUses(order: readonly WrittenList[], given: readonly string[]): ReadonlyMap<string, Instruction | null> {
  const last = new Map<string, Instruction | null>(given.map((tensor) => [tensor, null]));
  for (const { instructions } of order) {
    const operandOf = new Map<number, { readonly input: string; readonly output: string }>();
    const use = (tensors: readonly string[], at: Instruction) => {
      for (const tensor of tensors) last.set(tensor, at);
    };
    for (const instruction of instructions) {
      if (instruction.kind === 'compute') use([...instruction.inputs, ...instruction.outputs], instruction);
      else if (instruction.kind === 'accumulate') use([instruction.input, instruction.output], instruction);
      else if (instruction.kind === 'send' || instruction.kind === 'recv') use([instruction.tensor], instruction);
      else if (instruction.kind === 'start') operandOf.set(instruction.id, instruction);
      else if (instruction.kind === 'wait') {
        // A collective's operand is held until its wait.
        const operand = operandOf.get(instruction.id);
        if (operand) use([operand.input, operand.output], instruction);
      }
    }
  }
  return last;
}
