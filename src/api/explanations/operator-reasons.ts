/**
 * @file Why each operator of a plan has its strategy, short enough for a table of all of them: who pinned it, what propagation
 * carried to it, or by how much the next strategy costs more.
 */
import type { Node } from '../../ir/graph.js';
import type { Mesh } from '../../sharding-propagation/mesh.js';
import type { PinSource } from '../../sharding-propagation/pin.js';
import { operatorChain } from '../../sharding-propagation/propagation/reasons.js';
import type { Strategy } from '../../sharding-propagation/strategy.js';
import { type AxisChain, type Explainable, joinChains } from '../explain.js';
import { type Alternative, OperatorAlternatives } from './operator-alternatives.js';

/** What decided the strategy of an operator. */
export type OperatorReason =
  /** It runs another operator again, under the strategy of that one. */
  | { readonly by: 'recompute'; readonly operator: string }
  /** Of so many of the operators. */
  | { readonly by: 'pins'; readonly pins: readonly PinSource[]; readonly operators: number }
  /** A chain for each axis that came to it; none where it is replicated. */
  | { readonly by: 'propagation'; readonly chains: readonly AxisChain[] }
  /**
   * With the cheapest of the other strategies that were considered, everything else as it is: null where there was none, absent
   * where it was not asked for.
   */
  | { readonly by: 'price'; readonly next?: Alternative | null };

/**
 * Of operators of equal layers: their pins, and what decided the first of them that has none. The other strategies of one
 * operator take milliseconds to price.
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

/** What brought each axis of an operator to its factor; nothing where no propagation made the plan. */
export function operatorChains(
  { graph, propagation }: Explainable,
  { name }: Node,
  { axes, pieces = {} }: Strategy,
  mesh: Mesh,
): readonly AxisChain[] {
  if (!propagation) return [];
  const chains = Object.entries(axes).flatMap(([factor, own]) => {
    // A piece has the reasons of its factor.
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
