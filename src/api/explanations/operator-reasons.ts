/**
 * @file Why each operator of a plan has its strategy, short enough for a table of all operators: the pins that bind it, the
 * propagation that sharded it, or the additional cost of the next strategy.
 */
import type { Node } from '../../ir/graph.js';
import type { Mesh } from '../../sharding-propagation/mesh.js';
import type { PinSource } from '../../sharding-propagation/pin.js';
import { operatorChain } from '../../sharding-propagation/propagation/reasons.js';
import type { Strategy } from '../../sharding-propagation/strategy.js';
import { type AxisChain, type Explainable, joinChains } from '../explain.js';
import { type Alternative, OperatorAlternatives } from './operator-alternatives.js';

/** The reason for the strategy of an operator. */
export type OperatorReason =
  /** It recomputes another operator, with the strategy of that operator. */
  | { readonly by: 'recompute'; readonly operator: string }
  /** Pins, and the number of operators that they bind. */
  | { readonly by: 'pins'; readonly pins: readonly PinSource[]; readonly operators: number }
  /** One chain for each axis that propagation brought to it; none if it is replicated. */
  | { readonly by: 'propagation'; readonly chains: readonly AxisChain[] }
  /**
   * The price, with the cheapest of the other strategies that were considered, everything else unchanged: null if there was
   * none, absent if it was not requested.
   */
  | { readonly by: 'price'; readonly next?: Alternative | null };

/**
 * The reasons of operators of equal layers: their pins, and the reason of the first operator without a pin. The other
 * strategies of one operator take milliseconds to price.
 */
export function operatorReasons(
  plan: Explainable,
): (operators: Iterable<string>, isPriced: boolean) => readonly OperatorReason[] {
  const nodes = new Map(plan.graph.nodes.map((node) => [node.name, node]));
  const others = new OperatorAlternatives(plan);
  const freeReason = (node: Node, isPriced: boolean): OperatorReason => {
    if (node.phase === 'recompute' && node.forward !== null) return { by: 'recompute', operator: node.forward };
    if (!plan.propagation) return { by: 'price', ...(isPriced ? { next: others.next(node) } : {}) };
    return { by: 'propagation', chains: operatorChains(plan, node, others.strategyOf(node), others.meshOf(node)) };
  };
  return (operators, isPriced) => {
    const all = [...operators].flatMap((name) => nodes.get(name) ?? []);
    const pinned = all.filter(({ name }) => others.pinsOf(name).length > 0);
    const pins = new Map(pinned.flatMap(({ name }) => others.pinsOf(name)).map((pin) => [JSON.stringify(pin), pin]));
    const free = all.find((node) => !pinned.includes(node));
    return [
      ...(pinned.length > 0 ? [{ by: 'pins', pins: [...pins.values()], operators: pinned.length } as const] : []),
      ...(free ? [freeReason(free, isPriced)] : []),
    ];
  };
}

/** The propagation steps that brought each axis of an operator to its factor; empty if propagation did not make the plan. */
export function operatorChains(
  { graph, propagation }: Explainable,
  { name }: Node,
  { axes, pieces = {} }: Strategy,
  mesh: Mesh,
): readonly AxisChain[] {
  if (!propagation) return [];
  const chains = Object.entries(axes).flatMap(([factor, own]) => {
    // A piece of a factor has the reasons of the factor.
    const [whole = factor] = factor.split('.');
    const known = Object.keys(pieces).includes(whole) ? whole : factor;
    return own.map((axis) => ({
      axis,
      place: `factor ${factor}`,
      steps: operatorChain(propagation.reasons, name, known, axis),
    }));
  });
  return joinChains(chains, graph, mesh);
}
