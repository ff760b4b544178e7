/**
 * @file explain an operator: its strategy, what that costs on its own and around it, and what the others would cost.
 *
 * Alternatives are priced with everything else as it is: the operator under the other strategy, and redistributions from the
 * views that it reads and to the views of what it makes. A difference below zero means that the neighbours would have to
 * change along, or that the search had to leave it out; the plan as a whole costs no less.
 */
import { priceNode } from '../../cost-model/price.js';
import { dtypeBits } from '../../ir/dtype.js';
import { type Node, typeOf } from '../../ir/graph.js';
import { viewOf } from '../../ir/view.js';
import type { StagePlace } from '../../partition/cut-stages.js';
import type { Fragment } from '../../partition/fragment.js';
import { contextOf, lowerOperator } from '../../partition/lower-operator.js';
import { type CandidateQuestion, candidatesOf } from '../../search/candidates.js';
import { operatorQuestions } from '../../search/operator-questions.js';
import { searchPins } from '../../search/pinned.js';
import { tensorLayoutText } from '../../sharding-propagation/file-form.js';
import type { Layout } from '../../sharding-propagation/layout.js';
import type { Mesh } from '../../sharding-propagation/mesh.js';
import type { OperatorPin, PinSource } from '../../sharding-propagation/pin.js';
import { operatorChain } from '../../sharding-propagation/propagation/reasons.js';
import type { Redistributor } from '../../sharding-propagation/redistribution.js';
import { namesOn } from '../../sharding-propagation/stage-meshes.js';
import { REPLICATED, type Strategy } from '../../sharding-propagation/strategy.js';
import { producedLayouts } from '../../strategy/produced-layouts.js';
import {
  type AxisChain,
  type Explainable,
  type ExplainedRedistribution,
  joinChains,
  pinsOf,
  type RawChain,
  redistributionOf,
  redistributorOf,
  unknownName,
} from '../explain.js';
import { sidesUnder } from './explain-layouts.js';
import { type ExplainedTransfer, placesOfOperator, transfersOf } from './explain-stages.js';

export interface ExplainedStrategy {
  /** Axes by factor (`n`, or a piece `n.1`). */
  readonly axes: Readonly<Record<string, readonly string[]>>;
  readonly pieces: Readonly<Record<string, readonly number[]>>;
  /** Axes over which partial sums pass through. */
  readonly carried: readonly string[];
  /** `none`, `all-reduce`, or `scatter onto m`. */
  readonly owed: string;
}

export interface Alternative {
  readonly strategy: ExplainedStrategy;
  /** The operator alone, with its pending reduction. */
  readonly seconds: number;
  /** Redistributions to its operands and from its results, everything else as it is. */
  readonly redistributionSeconds: number;
  /** Both together, less what the plan's own strategy costs. */
  readonly differenceSeconds: number;
  /** Why the search did not consider it: the axes' roles, a degree that was given, a pin; null where it did. */
  readonly ruledOut: RuledOut | null;
}

export type RuledOut = 'roles' | 'degrees' | 'pins';

export interface OperatorExplanation {
  readonly operator: string;
  readonly op: string;
  readonly rule: string;
  readonly strategy: ExplainedStrategy;
  /** Stages of a pipeline that run it: several where it depends on no parameter. Empty without a pipeline. */
  readonly places: readonly StagePlace[];
  /** Of its results from its stage to others. */
  readonly transfers: readonly (ExplainedTransfer & { readonly tensor: string })[];
  readonly operands: readonly { readonly tensor: string; readonly layout: string }[];
  readonly results: readonly { readonly tensor: string; readonly layout: string }[];
  readonly computeSeconds: number;
  /** Collectives of the pending reduction, and those that lowering inserts. */
  readonly collectives: readonly {
    readonly kind: string;
    readonly axes: readonly string[];
    readonly seconds: number;
  }[];
  readonly redistributions: readonly (ExplainedRedistribution & {
    readonly tensor: string;
    readonly side: 'operand' | 'result';
  })[];
  /** Every strategy that may be had on this mesh, cheapest first. */
  readonly alternatives: readonly Alternative[];
  readonly chains: readonly AxisChain[];
  readonly pins: readonly PinSource[];
}

/** Why an operator has its strategy. @throws AutoparError `unknown-node` (usage) with the nearest name */
export function explainOperator(plan: Explainable, name: string): OperatorExplanation {
  const { graph, cluster, assignment, propagation } = plan;
  const node = graph.nodes.find((candidate) => candidate.name === name);
  if (!node) {
    const names = graph.nodes.map((candidate) => candidate.name);
    throw unknownName('node', name, names);
  }
  const mesh = plan.meshOf?.(node) ?? assignment.mesh;
  const strategy = assignment.strategies.get(node.group) ?? REPLICATED;
  const { rule, operands, results } = sidesUnder(graph, node, strategy, mesh);
  const { fragment } = lowerOperator(viewOf(graph, node), strategy, mesh, contextOf(graph, node));
  const named = (tensors: Node['inputs'], layouts: readonly (Layout | null)[]) =>
    tensors.flatMap((tensor, index) => {
      const layout = layouts[index];
      return tensor !== null && layout ? [{ tensor, layout: tensorLayoutText(graph, tensor, layout, mesh) }] : [];
    });
  const neighbours = new OperatorNeighbours(plan, node);
  return {
    operator: name,
    op: node.op,
    rule: rule.text,
    strategy: explained(strategy, mesh),
    places: placesOfOperator(plan.stages ?? [], name),
    transfers: node.outputs.flatMap((tensor) =>
      tensor === null ? [] : transfersOf(plan.stages ?? [], tensor).map((sent) => ({ tensor, ...sent })),
    ),
    operands: named(node.inputs, operands),
    results: named(node.outputs, results),
    computeSeconds: secondsOf(fragment, cluster, 'compute'),
    collectives: fragment.nodes.flatMap((inner) =>
      inner.kind === 'communicate'
        ? [
            {
              kind: inner.collective.kind,
              axes: namesOn(mesh, inner.axes),
              seconds: priceNode(inner, fragment, cluster) / 1e9,
            },
          ]
        : [],
    ),
    redistributions: neighbours.redistributions(operands, results),
    alternatives: alternativesOf(plan, node, neighbours, {
      seconds: secondsOf(fragment, cluster),
      around: neighbours.cost(operands, results),
    }),
    chains: joinChains(chainsOf(strategy, name, propagation), graph, mesh),
    pins: pinsOf(plan, name),
  };
}

/** What lies around an operator and stays as it is: the views that it reads and those of its results. */
class OperatorNeighbours {
  private readonly by: Redistributor;
  private readonly read: readonly (Layout | null)[];
  private readonly shown: readonly (readonly Layout[])[];

  constructor(
    private readonly plan: Explainable,
    private readonly node: Node,
  ) {
    const { graph, assignment } = plan;
    this.by = redistributorOf(plan);
    const produced = producedLayouts(graph, assignment);
    this.read = node.inputs.map((input, operand) => {
      if (input === null || graph.weights.has(input)) return null;
      const view = assignment.views.find(({ readers }) =>
        readers.some((reader) => reader.kind === 'operator' && reader.name === node.name && reader.operand === operand),
      );
      return view?.layout ?? produced.get(input) ?? null;
    });
    this.shown = node.outputs.map((output) =>
      assignment.views.filter(({ tensor }) => tensor === output).map(({ layout }) => layout),
    );
  }

  redistributions(
    operands: readonly (Layout | null)[],
    results: readonly (Layout | null)[],
  ): OperatorExplanation['redistributions'] {
    return this.pairs(operands, results).flatMap(({ tensor, side, from, to }) => {
      const found = redistributionOf(this.plan, this.by, tensor, from, to);
      return found ? [{ ...found, tensor, side }] : [];
    });
  }

  /** Integer nanoseconds. */
  cost(operands: readonly (Layout | null)[], results: readonly (Layout | null)[]): number {
    return this.pairs(operands, results).reduce((sum, { tensor, from, to }) => {
      const { shape, dtype } = typeOf(this.plan.graph, tensor);
      return sum + this.by.cost(from, to, shape, dtypeBits(dtype));
    }, 0);
  }

  private pairs(operands: readonly (Layout | null)[], results: readonly (Layout | null)[]) {
    const before = this.node.inputs.flatMap((tensor, index) => {
      const [from, to] = [this.read[index], operands[index]];
      return tensor !== null && from && to ? [{ tensor, side: 'operand' as const, from, to }] : [];
    });
    const after = this.node.outputs.flatMap((tensor, index) => {
      const from = results[index];
      if (tensor === null || !from) return [];
      return (this.shown[index] ?? []).map((to) => ({ tensor, side: 'result' as const, from, to }));
    });
    return [...before, ...after];
  }
}

function alternativesOf(
  { graph, cluster, assignment, left, pins, meshOf }: Explainable,
  node: Node,
  neighbours: OperatorNeighbours,
  own: { readonly seconds: number; readonly around: number },
): readonly Alternative[] {
  const mesh = meshOf?.(node) ?? assignment.mesh;
  const question = { ...operatorQuestions(graph, left?.asked)(node), mesh, cluster };
  const set = candidatesOf({ ...question, axes: 'free', pinned: new Set() });
  const ruledOut = rulingOut(question, left, searchPins(graph, pins).operators.get(node.name) ?? []);
  const all = set.strategies.map((strategy, index): Alternative => {
    const seconds = (set.costs[index] ?? 0) / 1e9;
    const around = neighbours.cost(set.operands[index] ?? [], set.results[index] ?? []) / 1e9;
    // Prices are whole nanoseconds, which seconds are not.
    const differenceSeconds = Math.round((seconds + around - own.seconds) * 1e9 - own.around) / 1e9;
    return {
      strategy: explained(strategy, mesh),
      seconds,
      redistributionSeconds: around,
      differenceSeconds,
      ruledOut: ruledOut(strategy),
    };
  });
  return all.sort((a, b) => a.differenceSeconds - b.differenceSeconds);
}

/** What the search was asked of an operator, one demand after the other: the first that leaves a strategy out is the reason. */
function rulingOut(
  question: Omit<CandidateQuestion, 'axes' | 'pinned' | 'pins'>,
  { axes, degrees }: NonNullable<Explainable['left']> = { axes: 'free', degrees: new Set() },
  pins: readonly OperatorPin[],
): (strategy: Strategy) => RuledOut | null {
  // Pins may ask for what roles leave out: with them there is one reason.
  const demands: readonly (readonly [RuledOut, Partial<CandidateQuestion>])[] =
    pins.length > 0
      ? [['pins', { pinned: degrees, pins }]]
      : [
          ['roles', {}],
          ['degrees', { pinned: degrees }],
        ];
  const asked = demands.map(([reason, demand]) => {
    const { strategies } = candidatesOf({ ...question, axes, pinned: new Set(), ...demand });
    return [reason, new Set(strategies.map(keyOf))] as const;
  });
  return (strategy) => {
    const key = keyOf(strategy);
    return asked.find(([, allowed]) => !allowed.has(key))?.[0] ?? null;
  };
}

function keyOf({ axes, pieces = {}, carried, pending }: Strategy): string {
  const sorted = (record: object) => Object.entries(record).sort(([a], [b]) => (a < b ? -1 : 1));
  return JSON.stringify([sorted(axes), sorted(pieces), carried, pending]);
}

function chainsOf(strategy: Strategy, node: string, propagation: Explainable['propagation']): readonly RawChain[] {
  if (!propagation) return [];
  return Object.entries(strategy.axes).flatMap(([factor, axes]) => {
    // A piece has the reasons of its factor.
    const [whole = factor] = factor.split('.');
    const known = Object.keys(strategy.pieces ?? {}).includes(whole) ? whole : factor;
    return axes.map((axis) => ({
      axis,
      place: `factor ${factor}`,
      steps: operatorChain(propagation.reasons, node, known, axis),
    }));
  });
}

function explained({ axes, pieces = {}, carried, pending }: Strategy, mesh: Mesh): ExplainedStrategy {
  const owed = pending.kind === 'scatter' ? `scatter onto ${pending.factor}` : pending.kind;
  const named = Object.entries(axes).map(([factor, names]) => [factor, namesOn(mesh, names)] as const);
  return { axes: Object.fromEntries(named), pieces, carried: namesOn(mesh, carried?.axes ?? []), owed };
}

function secondsOf(fragment: Fragment, cluster: Explainable['cluster'], kind?: 'compute'): number {
  return fragment.nodes
    .filter((inner) => kind === undefined || inner.kind === kind)
    .reduce((sum, inner) => sum + priceNode(inner, fragment, cluster) / 1e9, 0);
}
