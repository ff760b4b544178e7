/**
 * @file explain pins: the cost of pinning operators to other placements than those of the plan, and the cost of each existing
 * pin. Every figure is the difference of two plans' step times in the cost model.
 */
import { memoryOf, priceGraph, usableBytes } from '../../cost-model/predict.js';
import { AutoparError } from '../../ir/error.js';
import { groupBy } from '../../ir/group-by.js';
import { leadersOf } from '../../ir/layers.js';
import type { Assignment } from '../../partition/assignment.js';
import { meshOfOperators } from '../../partition/lower-stages.js';
import { partition } from '../../partition/partition.js';
import { fitProblem } from '../../search/fit-memory.js';
import { type MeshProblem, meshProblem } from '../../search/mesh-problem.js';
import { operatorFactsOf } from '../../search/operator-facts.js';
import { type AlikeOperators, type PinnedAssignment, PinPricing } from '../../search/pin-prices.js';
import { searchPins } from '../../search/pinned.js';
import { stagePins } from '../../search/pipeline/stage-pins.js';
import { requestedZero } from '../../search/zero.js';
import type { PinRecord } from '../../sharding-propagation/annotations/annotation.js';
import { shownStrategy } from '../../sharding-propagation/layout-text.js';
import type { Mesh } from '../../sharding-propagation/mesh.js';
import { REPLICATED, type Strategy } from '../../sharding-propagation/strategy.js';
import { Deadline } from '../../solver/deadline.js';
import { exactly } from '../../strategy/pin-document.js';
import { type PlacedOperator, placePlan } from '../../strategy/placed-operators.js';
import { factorsOf } from '../../strategy/plan-pins.js';
import { endedBy } from '../options/in-javascript.js';
import {
  callback,
  checkArguments,
  countOrAll,
  options as optionsOf,
  signal as signalKind,
  text,
} from '../options/kinds.js';
import { assignedPlan, lowerUncut } from '../planning/lower-plan.js';
import { openReplanning, type Replanning } from '../planning/replan.js';
import { type DroppedPin, droppedPins } from './dropped-pins.js';

/** Seconds by which a step is longer with a pin; negative if the plan is not optimal. */
export interface AddedSeconds {
  /** Added seconds of the best plan found with the pin; null if none was found within the memory limit. */
  readonly seconds: number | null;
  /** Lower bound of the added seconds of any plan with the pin. Equal to `seconds` if that is proven optimal. */
  readonly atLeastSeconds: number;
}

export interface OperatorPinPrice {
  /** The operator, the first of the corresponding ones. */
  readonly operator: string;
  readonly op: string;
  /** The corresponding operators of equal layers, itself included. */
  readonly alike: readonly string[];
  /** Axes by factor as in annotations: the current placement, and the cheapest of the other placements. */
  readonly now: NonNullable<PinRecord['factors']>;
  readonly pin: Pick<PinRecord, 'match'> & { readonly factors: NonNullable<PinRecord['factors']> };
  /** The same for people, with axes in place of sub-axes: `n: tp 2 of 8`. */
  readonly shown: { readonly now: string; readonly pin: string };
  readonly alone: AddedSeconds;
  /** With the same pin on all corresponding operators; null if there is only one, or if they have no such strategy. */
  readonly together: AddedSeconds | null;
}

export interface PinsExplanation {
  /** The predicted step of the plan. Costs are of operators and collectives, in which communication is not hidden. */
  readonly stepSeconds: number;
  /** The number format that most of the step is priced in; null in plans of earlier versions. */
  readonly precision: string | null;
  /** Memory limit in bytes that plans with pins must fit; null if no limit applies. */
  readonly memoryBytes: number | null;
  /** Most expensive first. */
  readonly operators: readonly OperatorPinPrice[];
  /** Number of operators that have only one possible placement. */
  readonly without: number;
  /** Existing pins, those that would save most first. */
  readonly pins: readonly DroppedPin[];
}

export interface ExplainPinsOptions {
  readonly model?: string;
  /** Number of most expensive pins that are searched again within the memory limit, if it matters. */
  readonly top?: number;
  readonly signal?: AbortSignal;
  readonly onProgress?: (text: string) => void;
}

const OPTIONS = optionsOf<ExplainPinsOptions>({
  model: text,
  top: countOrAll,
  signal: signalKind,
  onProgress: callback,
});

/** Prices of pins of a compiled folder's plan of operators. @throws AutoparError as `openReplanning` */
export async function explainPins(directory: string, options: ExplainPinsOptions = {}): Promise<PinsExplanation> {
  checkArguments('explainPins', { directory: [directory, text], options: [options, OPTIONS] });
  return endedBy(options.signal, 'explainPins', async () => {
    const replanning = await openReplanning(directory, options.model);
    const { plan, options: given, cluster } = replanning;
    const limit = given.memoryBytes ?? usableBytes(cluster);
    const { operators, without } = await operatorPrices(replanning, limit, options);
    return {
      stepSeconds: plan.predicted.stepSeconds,
      precision: plan.predicted.precision ?? null,
      memoryBytes: limit ?? null,
      operators,
      without,
      pins: await droppedPins(replanning, options.signal, options.onProgress ?? (() => undefined)),
    };
  });
}

async function operatorPrices(
  { plan, imported, cluster, options }: Replanning,
  limit: number | undefined,
  { top = TOP, signal, onProgress = () => undefined }: ExplainPinsOptions,
): Promise<Pick<PinsExplanation, 'operators' | 'without'>> {
  const placed = placePlan(plan, imported.graph);
  const { graph } = placed;
  const { mesh } = placed.assignment;
  const assigned = assignedPlan(plan, imported.graph);
  const { layout } = assigned.staged.pipeline ?? {};
  const meshOf = layout && meshOfOperators(graph, layout);
  // Stages with different meshes have reshards of their own, which are chosen after the search.
  const planned = meshOf
    ? Math.round(plan.search.costSeconds * 1e9)
    : checkedCost(plan.search.costSeconds, priceGraph(lowerUncut(assigned), cluster));
  const deadline = new Deadline(undefined, signal);
  const problem = meshProblem(graph, mesh, cluster, {
    axes: options.axes ?? 'roles',
    pinned: new Set(Object.keys(options.degrees ?? {})),
    factsOf: operatorFactsOf(graph, { ...plan.degrees, ...plan.requested }),
    allToAll: options.allToAll ?? true,
    pins: searchPins(graph, stagePins(graph, layout, mesh, options.operatorPins ?? (() => []))),
    ...requestedZero(options.request),
    ...(meshOf ? { meshOf } : {}),
  });
  const alikeByOperator = alikeOperators(placed.operators, leadersOf(graph, plan.layerClasses).operators);
  const pricing = new PinPricing(problem, [...alikeByOperator.values()], deadline);
  await pricing.begin();
  const mode = options.mode === undefined || options.mode === 'sharding_propagation' ? 'auto' : options.mode;
  const memory = new WithinMemory({ deadline, mode, solver: options.solver ?? 'highs' }, limit);
  const all: PricedPin[] = [];
  let without = 0;
  for (const [placed, alike] of alikeByOperator) {
    onProgress(`pins: operator ${all.length + without + 1} of ${alikeByOperator.size}`);
    const alone = memory.look(await pricing.alone(alike), alike);
    await deadline.pause();
    if (!alone) without += 1;
    else
      all.push({
        placed,
        alike,
        alone,
        together: memory.look(await pricing.together(alike, alone.strategy), alike),
      });
  }
  all.sort(dearestFirst);
  for (const [index, priced] of all.slice(0, top).entries()) {
    const { alone, together, alike } = priced;
    if (alone.cost !== null && together?.cost !== null) continue;
    onProgress(`pins: within the memory limit, ${index + 1} of ${Math.min(top, all.length)}`);
    priced.alone = await memory.search(alone, alike);
    // Within the memory limit another placement may be the cheapest.
    const like = memory.look(await pricing.together(alike, priced.alone.strategy), alike);
    priced.together = like && (await memory.search(like, alike));
  }
  all.sort(dearestFirst);
  // A lower bound of the plan is also a lower bound of every plan with one more pin.
  const least = Math.round(plan.search.boundSeconds * 1e9);
  const added = ({ cost, bound }: PinnedOptimum): AddedSeconds => ({
    seconds: cost === null ? null : (cost + problem.fixed - planned) / 1e9,
    atLeastSeconds: (Math.max(least, bound + problem.fixed) - planned) / 1e9,
  });
  const operators = all.map(({ placed: own, alike, alone, together }): OperatorPinPrice => {
    const { node } = own;
    const on = meshOf?.(node) ?? mesh;
    const factors = (strategy: Strategy) => shortened(factorsOf(graph, { node, strategy }), on);
    return {
      operator: node.name,
      op: node.op,
      alike: alike.nodes.map(({ name }) => name),
      now: factors(own.strategy),
      pin: { match: { node: exactly(node.name) }, factors: factors(alone.strategy) },
      shown: { now: shownStrategy(own.strategy, on), pin: shownStrategy(alone.strategy, on) },
      alone: added(alone),
      together: together && added(together),
    };
  });
  return { operators, without };
}

/** The best plan found, in nanoseconds above the fixed cost of all plans; `cost` is null if none fits the memory so far. */
interface PinnedOptimum {
  readonly cost: number | null;
  readonly bound: number;
  /** Strategy of the first operator. */
  readonly strategy: Strategy;
  readonly problem: MeshProblem;
}

interface PricedPin {
  readonly placed: PlacedOperator;
  readonly alike: AlikeOperators;
  alone: PinnedOptimum;
  together: PinnedOptimum | null;
}

function dearestFirst(a: PricedPin, b: PricedPin): number {
  const least = ({ alone, together }: PricedPin) => (together ?? alone).cost ?? (together ?? alone).bound;
  return least(b) - least(a);
}

/** Pins are priced without a memory limit. An assignment within the limit is optimal; for others the search runs again. */
class WithinMemory {
  constructor(
    private readonly searching: Parameters<typeof fitProblem>[1],
    private readonly limit: number | undefined,
  ) {}

  look(found: PinnedAssignment | null, alike: AlikeOperators): PinnedOptimum | null {
    if (!found) return null;
    const { states, cost, bound, problem } = found;
    const assignment = problem.groups.assignmentOf(states);
    const fits = this.limit === undefined || this.peak(problem, assignment) <= this.limit;
    return { cost: fits ? cost : null, bound, strategy: strategyOf(alike, assignment), problem };
  }

  /** The optimum within the memory limit; unchanged if it already fits. */
  async search(found: PinnedOptimum, alike: AlikeOperators): Promise<PinnedOptimum> {
    const { cost, bound, problem } = found;
    if (cost !== null || this.limit === undefined) return found;
    const { completed } = await fitProblem(problem, this.searching, this.limit);
    if (!completed) return found;
    return {
      cost: completed.cost - problem.fixed,
      bound: Math.max(bound, completed.bound - problem.fixed),
      strategy: strategyOf(alike, completed.assignment),
      problem,
    };
  }

  private peak({ graph, cluster, resharder }: MeshProblem, assignment: Assignment): number {
    return memoryOf(partition(graph, assignment, resharder), cluster).peakBytes;
  }
}

function strategyOf({ nodes: [first] }: AlikeOperators, { strategies }: Assignment): Strategy {
  return strategies.get(first?.group ?? '') ?? REPLICATED;
}

/** `tp` for `(tp.0,tp.1)`. */
function shortened(factors: Readonly<Record<string, string>>, { axes }: Mesh): Readonly<Record<string, string>> {
  const short = (text: string) =>
    axes.reduce((written, { name, subAxes }) => {
      const own = subAxes.map((sub) => sub.name).join();
      return own === '' ? written : written.replaceAll(`(${own})`, name).replaceAll(own, name);
    }, text);
  return Object.fromEntries(Object.entries(factors).map(([factor, text]) => [factor, short(text)]));
}

/** Default number of operators that are searched again if the memory limit matters. */
const TOP = 8;

/** Nanoseconds of the plan. @throws AutoparError if plan.json states another cost than that of its lowered graph */
function checkedCost(seconds: number, nanoseconds: number): number {
  if (Math.round(seconds * 1e9) === nanoseconds) return nanoseconds;
  throw new AutoparError(
    'plan-of-another-version',
    'input',
    `the plan costs ${nanoseconds / 1e9} s per step, not ${seconds} s as in plan.json: it was edited or is of another version`,
    {},
    'compile again',
  );
}

/** The corresponding operators of equal layers, by the first of them. */
function alikeOperators(
  placed: readonly PlacedOperator[],
  leaders: ReadonlyMap<string, string>,
): ReadonlyMap<PlacedOperator, AlikeOperators> {
  const byLeader = groupBy(placed, ({ node: { name } }) => leaders.get(name) ?? name);
  return new Map(
    [...byLeader.values()].map((list) => {
      const first = list[0] as PlacedOperator;
      return [first, { nodes: list.map(({ node }) => node), strategy: first.strategy }];
    }),
  );
}
