/**
 * @file A stage's lists in runs: consecutive steps of one layer, which become one method of the layer's module.
 *
 * A wait for another layer's collective that stands between two steps of a layer moves behind the layer's run, so that a layer's
 * methods do not refer to its neighbours and equal layers have equal methods. Starts of collectives keep their order.
 */
import { passOf } from '../../ir/graph.js';
import type { OrderedStep } from '../../partition/order.js';
import type { ShardedGraph } from '../../partition/sharded-graph.js';
import type { StageWalk, WalkedStep } from '../../partition/stage-walk.js';

/** `layer` is null for steps outside of layers: they stand in the stage's own method. */
export interface LayerSteps {
  readonly list: string;
  readonly layer: string | null;
  /** The name of the layer's method. */
  readonly method: string;
  readonly steps: readonly WalkedStep[];
  /** For a micro-batch in halves: the method yields where it waits, so that the other half runs. */
  readonly takesTurns: boolean;
}

/** The runs of all lists of a stage, in order. */
export function runsOf(
  { lists }: StageWalk,
  { interleave = 1 }: Pick<ShardedGraph, 'interleave'>,
): readonly LayerSteps[] {
  const grouped = lists.flatMap(({ name, runs, steps }) =>
    groups(steps).map((group) => ({
      ...{ list: name, ...group },
      takesTurns: interleave > 1 && runs === 'micro' && group.steps.some(({ step }) => step.kind === 'wait'),
    })),
  );
  return withMethods(grouped);
}

/** The layer of a step; null where it has none. */
function layerOf(step: OrderedStep): string | null {
  if (step.kind === 'segment') return step.nodes[0]?.layer ?? null;
  return step.kind === 'send' || step.kind === 'recv' ? null : step.node.layer;
}

interface OpenRun {
  readonly layer: string | null;
  readonly pass: string;
  readonly steps: WalkedStep[];
}

function groups(steps: readonly WalkedStep[]): readonly OpenRun[] {
  const runs: OpenRun[] = [];
  let open: OpenRun | undefined;
  let held: WalkedStep[] = [];
  const close = () => {
    if (held.length > 0) runs.push({ layer: null, pass: '', steps: held });
    held = [];
    open = undefined;
  };
  for (const walked of steps) {
    const { step } = walked;
    const layer = layerOf(step);
    const own = open?.layer === layer ? open.pass : undefined;
    const pass = step.kind === 'segment' ? passOf(step.nodes[0]?.phase ?? 'forward') : (own ?? firstPass(step));
    if (open && open.layer !== null && layer !== open.layer && step.kind === 'wait') {
      held.push(walked);
      continue;
    }
    const isRead = held.some(({ makes }) => makes.some((name) => readsOfStep(step).includes(name)));
    const isSame = open?.layer === layer && pass === open?.pass;
    if (!isSame || isRead) {
      close();
      open = { layer, pass, steps: [] };
      runs.push(open);
    }
    open?.steps.push(walked);
  }
  close();
  return joined(runs);
}

/** Runs that only wait belong to the stage: which waits stand together depends on a layer's neighbours. */
function joined(runs: readonly OpenRun[]): readonly OpenRun[] {
  const result: OpenRun[] = [];
  for (const run of runs) {
    const layer = run.steps.every(({ step }) => step.kind === 'wait') ? null : run.layer;
    const last = result.at(-1);
    if (layer === null && last?.layer === null) last.steps.push(...run.steps);
    else result.push({ ...run, layer, pass: layer === null ? '' : run.pass });
  }
  return result;
}

function firstPass(step: OrderedStep): string {
  return step.kind === 'send' || step.kind === 'recv' || step.kind === 'segment' ? 'forward' : passOf(step.node.phase);
}

/** Tensors that a step needs to begin. */
export function readsOfStep(step: OrderedStep): readonly string[] {
  switch (step.kind) {
    case 'segment': {
      const made = new Set(step.nodes.flatMap(({ outputs }) => outputs));
      return step.nodes.flatMap(({ inputs }) => inputs.filter((name) => name !== null && !made.has(name))) as string[];
    }
    case 'send':
      return [step.transfer.tensor];
    case 'recv':
    case 'wait':
      return [];
    case 'accumulate':
      return [step.node.inputs[0] as string];
    default:
      return [step.node.input];
  }
}

/** The first run of a layer's pass has the pass's name, others a number behind it. */
function withMethods(runs: readonly (Omit<LayerSteps, 'method'> & { readonly pass: string })[]): readonly LayerSteps[] {
  const counts = new Map<string, number>();
  return runs.map(({ pass, ...run }) => {
    const key = `${run.layer}\u0000${pass}`;
    const count = counts.get(key) ?? 0;
    counts.set(key, count + 1);
    return { ...run, method: count === 0 ? pass : `${pass}_${count}` };
  });
}
