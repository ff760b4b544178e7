/**
 * @file A stage's lists in runs: consecutive instructions of one layer, which become one method of the layer's module.
 *
 * A wait for another layer's collective that stands between two instructions of a layer moves behind the layer's run, so that a
 * layer's methods do not refer to its neighbours and equal layers have equal methods. Starts of collectives keep their order.
 */
import { passOf } from '../../ir/graph.js';
import type { OrderedInstruction } from '../../partition/ordered-list.js';
import type { ShardedGraph } from '../../partition/sharded-graph.js';
import type { StageWalk, WalkedInstruction } from '../../partition/stage-walk.js';

/** `layer` is null for instructions outside of layers: they stand in the stage's own method. */
export interface LayerInstructions {
  readonly list: string;
  readonly layer: string | null;
  /** The name of the layer's method. */
  readonly method: string;
  readonly instructions: readonly WalkedInstruction[];
  /** For a micro-batch in halves: the method yields where it waits, so that the other half runs. */
  readonly takesTurns: boolean;
}

/** The runs of all lists of a stage, in order. */
export function runsOf(
  { lists }: StageWalk,
  { interleave = 1 }: Pick<ShardedGraph, 'interleave'>,
): readonly LayerInstructions[] {
  const grouped = lists.flatMap(({ name, runs, instructions }) =>
    groups(instructions).map((group) => ({
      ...{ list: name, ...group },
      takesTurns:
        interleave > 1 && runs === 'micro' && group.instructions.some(({ instruction }) => instruction.kind === 'wait'),
    })),
  );
  return withMethods(grouped);
}

/** The layer of an instruction; null where it has none. */
function layerOf(instruction: OrderedInstruction): string | null {
  if (instruction.kind === 'segment') return instruction.nodes[0]?.layer ?? null;
  return instruction.kind === 'send' || instruction.kind === 'recv' ? null : instruction.node.layer;
}

interface OpenRun {
  readonly layer: string | null;
  readonly pass: string;
  readonly instructions: WalkedInstruction[];
}

function groups(instructions: readonly WalkedInstruction[]): readonly OpenRun[] {
  const runs: OpenRun[] = [];
  let open: OpenRun | undefined;
  let held: WalkedInstruction[] = [];
  const close = () => {
    if (held.length > 0) runs.push({ layer: null, pass: '', instructions: held });
    held = [];
    open = undefined;
  };
  for (const walked of instructions) {
    const { instruction } = walked;
    const layer = layerOf(instruction);
    const own = open?.layer === layer ? open.pass : undefined;
    const pass =
      instruction.kind === 'segment'
        ? passOf(instruction.nodes[0]?.phase ?? 'forward')
        : (own ?? firstPass(instruction));
    if (open && open.layer !== null && layer !== open.layer && instruction.kind === 'wait') {
      held.push(walked);
      continue;
    }
    const isRead = held.some(({ makes }) => makes.some((name) => readsOfInstruction(instruction).includes(name)));
    const isSame = open?.layer === layer && pass === open?.pass;
    if (!isSame || isRead) {
      close();
      open = { layer, pass, instructions: [] };
      runs.push(open);
    }
    open?.instructions.push(walked);
  }
  close();
  return joined(runs);
}

/** Runs that only wait belong to the stage: which waits stand together depends on a layer's neighbours. */
function joined(runs: readonly OpenRun[]): readonly OpenRun[] {
  const result: OpenRun[] = [];
  for (const run of runs) {
    const layer = run.instructions.every(({ instruction }) => instruction.kind === 'wait') ? null : run.layer;
    const last = result.at(-1);
    if (layer === null && last?.layer === null) last.instructions.push(...run.instructions);
    else result.push({ ...run, layer, pass: layer === null ? '' : run.pass });
  }
  return result;
}

function firstPass(instruction: OrderedInstruction): string {
  return instruction.kind === 'send' || instruction.kind === 'recv' || instruction.kind === 'segment'
    ? 'forward'
    : passOf(instruction.node.phase);
}

/** Tensors that an instruction needs to begin. */
export function readsOfInstruction(instruction: OrderedInstruction): readonly string[] {
  switch (instruction.kind) {
    case 'segment': {
      const made = new Set(instruction.nodes.flatMap(({ outputs }) => outputs));
      return instruction.nodes.flatMap(({ inputs }) =>
        inputs.filter((name) => name !== null && !made.has(name)),
      ) as string[];
    }
    case 'send':
      return [instruction.transfer.tensor];
    case 'recv':
    case 'wait':
      return [];
    case 'accumulate':
      return [instruction.node.inputs[0] as string];
    default:
      return [instruction.node.input];
  }
}

/** The first run of a layer's pass has the pass's name, others a number behind it. */
function withMethods(
  runs: readonly (Omit<LayerInstructions, 'method'> & { readonly pass: string })[],
): readonly LayerInstructions[] {
  const counts = new Map<string, number>();
  return runs.map(({ pass, ...run }) => {
    const key = `${run.layer}\u0000${pass}`;
    const count = counts.get(key) ?? 0;
    counts.set(key, count + 1);
    return { ...run, method: count === 0 ? pass : `${pass}_${count}` };
  });
}
