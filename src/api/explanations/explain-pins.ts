/**
 * @file explain pins: what it would cost to pin operators otherwise than the plan has them, and what each pin that there is
 * costs the plan. Every figure is the difference of two plans' step times by the cost model.
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
import { operatorQuestions } from '../../search/operator-questions.js';
import { type AlikeOperators, type Otherwise, PinPricing } from '../../search/pin-prices.js';
import { searchPins } from '../../search/pinned.js';
import { stagePins } from '../../search/pipeline/stage-pins.js';
import { zeroAsked } from '../../search/zero.js';
import type { PinRecord } from '../../sharding-propagation/annotations/annotation.js';
import type { Mesh } from '../../sharding-propagation/mesh.js';
import { REPLICATED, type Strategy } from '../../sharding-propagation/strategy.js';
import { Deadline } from '../../solver/deadline.js';
import { exactly } from '../../strategy/pin-document.js';
import { type PlacedOperator, placePlan } from '../../strategy/placed-operators.js';
import { factorsOf } from '../../strategy/plan-pins.js';
import { assignedPlan, lowerUncut } from '../planning/lower-plan.js';
import { openReplanning, type Replanning } from '../planning/replan.js';
import { type DroppedPin, droppedPins } from './dropped-pins.js';

/** How much longer a step takes with a pin. Seconds; below zero where the plan is not the best there is. */
export interface AddedSeconds {
  /** Of the best plan with the pin that was found; null where none was found within the memory. */
  readonly seconds: number | null;
  /** No plan with the pin takes less. Equal to `seconds` where that is proven. */
  readonly atLeastSeconds: number;
}

export interface OperatorPinPrice {
  /** The operator, the first of those that are alike. */
  readonly operator: string;
  readonly op: string;
  /** The operators of equal layers that correspond to it; itself included. */
  readonly alike: readonly string[];
  /** As an annotation: where it lies, and where it would lie at least cost if not there. */
  readonly now: NonNullable<PinRecord['factors']>;
  readonly pin: Pick<PinRecord, 'match'> & { readonly factors: NonNullable<PinRecord['factors']> };
  readonly alone: AddedSeconds;
  /** With the same pin on all that are alike; null where there is but one, or they have no such strategy. */
  readonly together: AddedSeconds | null;
}

export interface PinsExplanation {
  readonly stepSeconds: number;
  /** The format that most of it is priced in; null in plans of earlier versions. */
  readonly precision: string | null;
  /** What pins cost is proven to be no less than this limit allows; null where none applies. */
  readonly memoryBytes: number | null;
  /** Dearest first. */
  readonly operators: readonly OperatorPinPrice[];
  /** Operators that can lie in one way only. */
  readonly without: number;
  /** What is pinned, what would save most first. */
  readonly pins: readonly DroppedPin[];
}

export interface ExplainPinsOptions {
  readonly model?: string;
  /** How many of the most expensive are looked at again where the memory limit matters. */
  readonly top?: number;
  readonly signal?: AbortSignal;
  readonly onProgress?: (text: string) => void;
}

/** Prices of pins of a compiled folder's plan of operators. @throws AutoparError as `openReplanning` */
export async function explainPins(directory: string, options: ExplainPinsOptions = {}): Promise<PinsExplanation> {
  const replanning = await openReplanning(directory, options.model);
  const { plan, options: given, cluster } = replanning;
  const limit = given.memoryBytes ?? usableBytes(cluster);
  const { operators, without } = await operatorPrices(replanning, limit, options);
  return {
    stepSeconds: plan.search.costSeconds,
    precision: plan.predicted.precision ?? null,
    memoryBytes: limit ?? null,
    operators,
    without,
    pins: await droppedPins(replanning, options.signal, options.onProgress ?? (() => undefined)),
  };
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
  // Stages of unlike meshes have reshards of their own, chosen after the search.
  const planned = meshOf
    ? Math.round(plan.search.costSeconds * 1e9)
    : checkedCost(plan.search.costSeconds, priceGraph(lowerUncut(assigned), cluster));
  const deadline = new Deadline(undefined, signal);
  const problem = meshProblem(graph, mesh, cluster, {
    axes: options.axes ?? 'roles',
    pinned: new Set(Object.keys(options.degrees ?? {})),
    questions: operatorQuestions(graph, { ...plan.degrees, ...plan.requested }),
    allToAll: options.allToAll ?? true,
    pins: searchPins(graph, stagePins(graph, layout, mesh, options.operatorPins ?? (() => []))),
    ...zeroAsked(options.request),
    ...(meshOf ? { meshOf } : {}),
  });
  const questions = alikeOperators(placed.operators, leadersOf(graph, plan.layerClasses).operators);
  const pricing = new PinPricing(problem, [...questions.values()], deadline);
  await pricing.begin();
  const mode = options.mode === undefined || options.mode === 'sharding_propagation' ? 'auto' : options.mode;
  const memory = new WithinMemory({ deadline, mode, solver: options.solver ?? 'highs' }, limit);
  const all: PricedPin[] = [];
  let without = 0;
  for (const [placed, question] of questions) {
    onProgress(`pins: operator ${all.length + without + 1} of ${questions.size}`);
    const alone = memory.look(await pricing.alone(question), question);
    await deadline.pause();
    if (!alone) without += 1;
    else
      all.push({
        placed,
        question,
        alone,
        together: memory.look(await pricing.together(question, alone.strategy), question),
      });
  }
  all.sort(dearestFirst);
  for (const [index, priced] of all.slice(0, top).entries()) {
    const { alone, together, question } = priced;
    if (alone.cost !== null && together?.cost !== null) continue;
    onProgress(`pins: within the memory limit, ${index + 1} of ${Math.min(top, all.length)}`);
    priced.alone = await memory.search(alone, question);
    // Within the limit another placement may be the cheapest.
    const like = memory.look(await pricing.together(question, priced.alone.strategy), question);
    priced.together = like && (await memory.search(like, question));
  }
  all.sort(dearestFirst);
  // What bounds the plan bounds every plan with a pin more.
  const least = Math.round(plan.search.boundSeconds * 1e9);
  const added = ({ cost, bound }: PinnedOptimum): AddedSeconds => ({
    seconds: cost === null ? null : (cost + problem.fixed - planned) / 1e9,
    atLeastSeconds: (Math.max(least, bound + problem.fixed) - planned) / 1e9,
  });
  const operators = all.map(({ placed: own, question, alone, together }): OperatorPinPrice => {
    const { node } = own;
    const factors = (strategy: Strategy) => shortened(factorsOf(graph, { node, strategy }), meshOf?.(node) ?? mesh);
    return {
      operator: node.name,
      op: node.op,
      alike: question.nodes.map(({ name }) => name),
      now: factors(own.strategy),
      pin: { match: { node: exactly(node.name) }, factors: factors(alone.strategy) },
      alone: added(alone),
      together: together && added(together),
    };
  });
  return { operators, without };
}

/** Nanoseconds of the best plan that was found, without what every plan costs; null where none fits the memory so far. */
interface PinnedOptimum {
  readonly cost: number | null;
  readonly bound: number;
  /** Of the first operator. */
  readonly strategy: Strategy;
  readonly problem: MeshProblem;
}

interface PricedPin {
  readonly placed: PlacedOperator;
  readonly question: AlikeOperators;
  alone: PinnedOptimum;
  together: PinnedOptimum | null;
}

function dearestFirst(a: PricedPin, b: PricedPin): number {
  const least = ({ alone, together }: PricedPin) => (together ?? alone).cost ?? (together ?? alone).bound;
  return least(b) - least(a);
}

/** Prices are found without a memory limit: an assignment that keeps it is the best that does, others are looked for. */
class WithinMemory {
  constructor(
    private readonly searching: Parameters<typeof fitProblem>[1],
    private readonly limit: number | undefined,
  ) {}

  look(found: Otherwise | null, question: AlikeOperators): PinnedOptimum | null {
    if (!found) return null;
    const { states, cost, bound, problem } = found;
    const assignment = problem.groups.assignmentOf(states);
    const fits = this.limit === undefined || this.peak(problem, assignment) <= this.limit;
    return { cost: fits ? cost : null, bound, strategy: strategyOf(question, assignment), problem };
  }

  /** The same within the limit, where it is not yet. */
  async search(found: PinnedOptimum, question: AlikeOperators): Promise<PinnedOptimum> {
    const { cost, bound, problem } = found;
    if (cost !== null || this.limit === undefined) return found;
    const { completed } = await fitProblem(problem, this.searching, this.limit);
    if (!completed) return found;
    return {
      cost: completed.cost - problem.fixed,
      bound: Math.max(bound, completed.bound - problem.fixed),
      strategy: strategyOf(question, completed.assignment),
      problem,
    };
  }

  private peak({ graph, cluster, redistributor }: MeshProblem, assignment: Assignment): number {
    return memoryOf(partition(graph, assignment, redistributor), cluster).peakBytes;
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

/** Operators that are looked at again, where the memory limit matters, unless more are asked for. */
const TOP = 8;

/** Nanoseconds of the plan. @throws AutoparError where plan.json says something else than its lowered graph costs */
function checkedCost(seconds: number, nanoseconds: number): number {
  if (Math.round(seconds * 1e9) === nanoseconds) return nanoseconds;
  throw new AutoparError(
    'plan-of-another-version',
    'input',
    `the plan costs ${nanoseconds / 1e9} s a step, and plan.json says ${seconds} s: it was edited, or made by another version`,
    {},
    'compile again',
  );
}

/** By the first operator: those of equal layers that correspond to it. */
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
