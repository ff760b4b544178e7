/**
 * @file The alternative strategies of an operator of a plan, and their costs.
 *
 * Alternatives are priced with everything else unchanged: the operator under the other strategy, and resharding from the
 * reshards that it reads and to the reshards of its results. A negative difference means that the neighbours would have to
 * change as well, or that the search had to exclude the strategy; the plan as a whole would not cost less. Where nodes differ,
 * prices are those on the devices of the operator's stage, while the search prices all stages on the slowest.
 */
import type { Cluster } from '../../cost-model/cluster.js';
import { priceNode } from '../../cost-model/price.js';
import { dtypeBits } from '../../ir/dtype.js';
import { type Node, typeOf } from '../../ir/graph.js';
import { operatorOf } from '../../ir/operator-of.js';
import { madeOnce } from '../../ir/remembered.js';
import type { Fragment } from '../../partition/fragment.js';
import { contextOf, lowerOperator } from '../../partition/lower-operator.js';
import { type CandidateRequest, type CandidateSet, candidatesOf } from '../../search/candidates.js';
import { type OperatorFactsOf, operatorFactsOf } from '../../search/operator-facts.js';
import { type SearchPins, searchPins } from '../../search/pinned.js';
import type { Layout } from '../../sharding-propagation/layout.js';
import type { Mesh } from '../../sharding-propagation/mesh.js';
import type { OperatorPin, PinSource } from '../../sharding-propagation/pin.js';
import { namesOn } from '../../sharding-propagation/stage-meshes.js';
import { REPLICATED, type Strategy } from '../../sharding-propagation/strategy.js';
import { producedLayouts } from '../../strategy/produced-layouts.js';
import { type Explainable, type ExplainedResharding, reshardingOf } from '../explain.js';
import { sidesUnder } from './explain-layouts.js';
import { type StagePrices, stagePricesOf } from './stage-prices.js';

export interface ExplainedStrategy {
  /** Axes by factor (`n`, or a piece `n.1`). */
  readonly axes: Readonly<Record<string, readonly string[]>>;
  readonly pieces: Readonly<Record<string, readonly number[]>>;
  /** Axes over which partial operands pass through the operator unreduced. */
  readonly partial: readonly string[];
  /** Of the partial sums that it makes: `none`, `all-reduce`, or `scatter onto m`. */
  readonly reduction: string;
  /** @deprecated older name of `partial` */
  readonly carried: readonly string[];
  /** @deprecated older name of `reduction` */
  readonly owed: string;
}

export interface Alternative {
  readonly strategy: ExplainedStrategy;
  /** The operator alone, with its pending reduction. */
  readonly seconds: number;
  /** Resharding of its operands and results, everything else unchanged. */
  readonly redistributionSeconds: number;
  /** The sum of both, minus the cost of the plan's own strategy. */
  readonly differenceSeconds: number;
  /** Why the search did not consider it: the axes' roles, a given degree, or a pin; null if it did. */
  readonly ruledOut: RuledOut | null;
}

export type RuledOut = 'roles' | 'degrees' | 'pins';

/** The alternatives of the operators of one plan; data that all operators share is computed once. */
export class OperatorAlternatives {
  private readonly pricesOf: (operator: string) => StagePrices;
  private readonly produced: ReadonlyMap<string, Layout>;
  private readonly reshards = new Map<string, Layout[]>();
  private readonly readReshards = new Map<string, Layout>();
  private readonly factsOf: OperatorFactsOf;
  private readonly pins: SearchPins;
  private readonly considered = new Map<Cluster, Map<string, CandidateSet>>();

  constructor(private readonly plan: Explainable) {
    const { graph, assignment, left, pins } = plan;
    this.pricesOf = stagePricesOf(plan);
    this.produced = producedLayouts(graph, assignment);
    this.factsOf = operatorFactsOf(graph, left?.asked);
    this.pins = searchPins(graph, pins);
    for (const { tensor, layout, readers } of assignment.sharedReshards) {
      this.reshards.set(tensor, [...(this.reshards.get(tensor) ?? []), layout]);
      for (const { kind, name, operand } of readers)
        if (kind === 'operator') this.readReshards.set(JSON.stringify([name, operand]), layout);
    }
  }

  meshOf(node: Node): Mesh {
    return this.plan.meshOf?.(node) ?? this.plan.assignment.mesh;
  }

  /** The devices of an operator's stage. */
  clusterOf({ name }: Node): Cluster {
    return this.pricesOf(name).cluster;
  }

  strategyOf({ group }: Node): Strategy {
    return this.plan.assignment.strategies.get(group) ?? REPLICATED;
  }

  /** The pins that bind an operator: pins on it, on its results or on its weights. */
  pinsOf(node: string): readonly PinSource[] {
    return [...new Set((this.pins.operators.get(node) ?? []).map(({ source }) => source))];
  }

  /** Every possible strategy on this mesh, cheapest first. */
  all(node: Node): readonly Alternative[] {
    const request = this.requestOf(node);
    const set = candidatesOf({ ...request, axes: 'free', pinned: new Set() });
    const ruledOut = rulingOut(request, this.plan.left, this.pins.operators.get(node.name) ?? []);
    return this.priced(node, set, [...set.strategies.keys()], ruledOut);
  }

  /** The cheapest other strategy that the search considers without pins; null if there is none. */
  next(node: Node): Alternative | null {
    const { axes, degrees } = this.plan.left ?? EVERYTHING;
    const request = this.requestOf(node);
    const key = JSON.stringify([this.factsOf(node).key, request.mesh]);
    const considered = madeOnce(this.considered, request.cluster, () => new Map<string, CandidateSet>());
    const set = madeOnce(considered, key, () => candidatesOf({ ...request, axes, pinned: degrees }));
    const own = keyOf(this.strategyOf(node));
    const [costs, strategies] = [(index: number) => set.costs[index] ?? 0, [...set.strategies.entries()]];
    const others = strategies.filter(([, strategy]) => keyOf(strategy) !== own).map(([index]) => index);
    let best: { readonly index: number; readonly cost: number } | null = null;
    // Pricing of resharding takes most time; it is skipped for strategies that cost as much as the best without resharding.
    for (const index of others.sort((a, b) => costs(a) - costs(b))) {
      if (best && costs(index) >= best.cost) break;
      const most: number = (best?.cost ?? Infinity) - costs(index);
      const cost =
        costs(index) + this.reshardNanoseconds(node, set.operands[index] ?? [], set.results[index] ?? [], most);
      if (!best || cost < best.cost) best = { index, cost };
    }
    return best && (this.priced(node, set, [best.index], () => null)[0] ?? null);
  }

  reshardings(node: Node): readonly (ExplainedResharding & {
    readonly tensor: string;
    readonly side: 'operand' | 'result';
  })[] {
    const { operands, results } = sidesUnder(this.plan.graph, node, this.strategyOf(node), this.meshOf(node));
    return this.pairs(node, operands, results).flatMap(({ tensor, side, from, to }) => {
      const found = reshardingOf(this.plan, this.pricesOf(node.name).resharder, tensor, from, to);
      return found ? [{ ...found, tensor, side }] : [];
    });
  }

  private requestOf(node: Node) {
    return { ...this.factsOf(node), mesh: this.meshOf(node), cluster: this.clusterOf(node) };
  }

  private priced(
    node: Node,
    set: CandidateSet,
    indices: readonly number[],
    ruledOut: (strategy: Strategy) => RuledOut | null,
  ): readonly Alternative[] {
    const { graph } = this.plan;
    const [mesh, strategy] = [this.meshOf(node), this.strategyOf(node)];
    const { operands, results } = sidesUnder(graph, node, strategy, mesh);
    const { fragment } = lowerOperator(operatorOf(graph, node), strategy, mesh, contextOf(graph, node));
    const own = {
      seconds: fragmentSeconds(fragment, this.clusterOf(node)),
      around: this.reshardNanoseconds(node, operands, results),
    };
    const all = indices.map((index): Alternative => {
      const other = set.strategies[index] ?? REPLICATED;
      const seconds = (set.costs[index] ?? 0) / 1e9;
      const around = this.reshardNanoseconds(node, set.operands[index] ?? [], set.results[index] ?? []) / 1e9;
      // Prices are whole nanoseconds; the difference is rounded to them.
      const differenceSeconds = Math.round((seconds + around - own.seconds) * 1e9 - own.around) / 1e9;
      return {
        strategy: explainedStrategy(other, mesh),
        seconds,
        redistributionSeconds: around,
        differenceSeconds,
        ruledOut: ruledOut(other),
      };
    });
    return all.sort((a, b) => a.differenceSeconds - b.differenceSeconds);
  }

  /** Integer nanoseconds of the resharding around an operator. The sum stops early once it reaches `most`. */
  private reshardNanoseconds(
    node: Node,
    operands: readonly (Layout | null)[],
    results: readonly (Layout | null)[],
    most = Infinity,
  ): number {
    const { resharder } = this.pricesOf(node.name);
    return this.pairs(node, operands, results).reduce((sum, { tensor, from, to }) => {
      if (sum >= most) return sum;
      const { shape, dtype } = typeOf(this.plan.graph, tensor);
      return sum + resharder.cost(from, to, shape, dtypeBits(dtype));
    }, 0);
  }

  private pairs(node: Node, operands: readonly (Layout | null)[], results: readonly (Layout | null)[]) {
    const before = node.inputs.flatMap((tensor, index) => {
      const to = operands[index];
      const from = tensor !== null && to ? this.readLayout(node, tensor, index) : null;
      return tensor !== null && from && to ? [{ tensor, side: 'operand' as const, from, to }] : [];
    });
    const after = node.outputs.flatMap((tensor, index) => {
      const from = results[index];
      if (tensor === null || !from) return [];
      return (this.reshards.get(tensor) ?? []).map((to) => ({ tensor, side: 'result' as const, from, to }));
    });
    return [...before, ...after];
  }

  /** Layout of the reshard that an operator reads; null for a weight, which is stored in the layout in which it is read. */
  private readLayout({ name }: Node, tensor: string, operand: number): Layout | null {
    if (this.plan.graph.weights.has(tensor)) return null;
    return this.readReshards.get(JSON.stringify([name, operand])) ?? this.produced.get(tensor) ?? null;
  }
}

/** A search without restrictions. */
const EVERYTHING: NonNullable<Explainable['left']> = { axes: 'free', degrees: new Set() };

/** Why the search excludes a strategy of an operator: of its restrictions in order, the first that excludes the strategy. */
function rulingOut(
  request: Omit<CandidateRequest, 'axes' | 'pinned' | 'pins'>,
  { axes, degrees } = EVERYTHING,
  pins: readonly OperatorPin[],
): (strategy: Strategy) => RuledOut | null {
  // Pins may require strategies that roles exclude: with pins there is only one reason.
  const demands: readonly (readonly [RuledOut, Partial<CandidateRequest>])[] =
    pins.length > 0
      ? [['pins', { pinned: degrees, pins }]]
      : [
          ['roles', {}],
          ['degrees', { pinned: degrees }],
        ];
  const asked = demands.map(([reason, demand]) => {
    const { strategies } = candidatesOf({ ...request, axes, pinned: new Set(), ...demand });
    return [reason, new Set(strategies.map(keyOf))] as const;
  });
  return (strategy) => {
    const key = keyOf(strategy);
    return asked.find(([, allowed]) => !allowed.has(key))?.[0] ?? null;
  };
}

function keyOf({ axes, pieces = {}, partialOperands, pending }: Strategy): string {
  const sorted = (record: object) => Object.entries(record).sort(([a], [b]) => (a < b ? -1 : 1));
  return JSON.stringify([sorted(axes), sorted(pieces), partialOperands, pending]);
}

export function explainedStrategy(
  { axes, pieces = {}, partialOperands, pending }: Strategy,
  mesh: Mesh,
): ExplainedStrategy {
  const reduction = pending.kind === 'scatter' ? `scatter onto ${pending.factor}` : pending.kind;
  const partial = namesOn(mesh, partialOperands?.axes ?? []);
  const named = Object.entries(axes).map(([factor, names]) => [factor, namesOn(mesh, names)] as const);
  return {
    axes: Object.fromEntries(named),
    pieces,
    partial,
    reduction,
    carried: partial,
    owed: reduction,
  };
}

export function fragmentSeconds(fragment: Fragment, cluster: Cluster, kind?: 'compute'): number {
  return fragment.nodes
    .filter((inner) => kind === undefined || inner.kind === kind)
    .reduce((sum, inner) => sum + priceNode(inner, fragment, cluster) / 1e9, 0);
}
