/**
 * @file Compares pins on one operator or tensor: pins that contradict each other directly are an error, or the lower priority
 * gives way. A demand on a tensor is one on its producer's result, and on the readers of a weight.
 */
import { AutoparError } from '../../ir/error.js';
import type { FactorRule } from '../../ir/factor-rule.js';
import type { Graph, Node } from '../../ir/graph.js';
import { appendTo, groupBy } from '../../ir/group-by.js';
import { operatorOf } from '../../ir/operator-of.js';
import { ruleOf } from '../../ir/ops/index.js';
import type { Mesh } from '../mesh.js';
import type { OperatorPin, Pin, PinSource, TensorPin } from '../pin.js';
import { contradiction, demandsAgree, demandText, type PinDemands } from './agreement.js';
import { pinPlace } from './pin-error.js';

/**
 * The pins without those that one of higher priority overrules.
 * @throws AutoparError `pins-contradict` naming both, with their lines
 */
export function settled(pins: readonly Pin[], graph: Graph, mesh: Mesh): readonly Pin[] {
  const overruled = new Set<Pin>();
  const pairs = [...operatorPairs(pins, graph, mesh), ...tensorPairs(pins, mesh), ...decisionPairs(pins)];
  for (const { first, second, where, problem } of pairs) {
    if (overruled.has(first) || overruled.has(second)) continue;
    if (first.source.priority === second.source.priority) throw contradict(first.source, second.source, where, problem);
    overruled.add(first.source.priority < second.source.priority ? first : second);
  }
  return pins.filter((pin) => !overruled.has(pin));
}

/** Two pins that cannot both hold. */
interface Clash {
  readonly first: Pin;
  readonly second: Pin;
  readonly where: { readonly node?: string; readonly tensor?: string };
  readonly problem: string;
}

/** The demand of a pin on a node. */
interface Demand {
  readonly pin: Pin;
  readonly demands: PinDemands;
}

function operatorPairs(pins: readonly Pin[], graph: Graph, mesh: Mesh): readonly Clash[] {
  const byNode = new Map<string, Demand[]>();
  const put = (node: string, demand: Demand): void => appendTo(byNode, node, demand);
  const tensors = new Map<string, TensorPin[]>();
  for (const pin of pins) {
    if (pin.kind === 'operator') put(pin.node, { pin, demands: pin });
    if (pin.kind === 'tensor') appendTo(tensors, pin.tensor, pin);
  }
  for (const node of tensors.size > 0 ? graph.nodes : []) {
    const at = (names: Node['inputs'], tensor: string, pin: TensorPin) =>
      names.map((name) => (name === tensor ? pin.demand : null));
    for (const tensor of new Set(node.outputs))
      for (const pin of tensors.get(tensor ?? '') ?? [])
        put(node.name, { pin, demands: { results: at(node.outputs, tensor ?? '', pin) } });
    for (const tensor of new Set(node.inputs))
      for (const pin of graph.weights.has(tensor ?? '') ? (tensors.get(tensor ?? '') ?? []) : [])
        put(node.name, { pin, demands: { operands: at(node.inputs, tensor ?? '', pin) } });
  }
  const crowded = graph.nodes.filter((node) => (byNode.get(node.name)?.length ?? 0) > 1);
  return crowded.flatMap((node) => {
    const rule: FactorRule = ruleOf(operatorOf(graph, node));
    return pairsOf(byNode.get(node.name) ?? []).flatMap(([one, other]): readonly Clash[] => {
      if (one.pin === other.pin) return [];
      const problem = contradiction(one.demands, other.demands, rule, mesh);
      return problem === null ? [] : [{ first: one.pin, second: other.pin, where: { node: node.name }, problem }];
    });
  });
}

function tensorPairs(pins: readonly Pin[], mesh: Mesh): readonly Clash[] {
  const byTensor = groupBy(
    pins.filter((pin) => pin.kind === 'tensor'),
    ({ tensor }) => tensor,
  );
  return [...byTensor].flatMap(([tensor, group]) =>
    pairsOf(group).flatMap(([first, second]): readonly Clash[] => {
      if (demandsAgree(first.demand, second.demand, mesh)) return [];
      const problem = `it is ${demandText(first.demand, mesh)} by the first and ${demandText(second.demand, mesh)} by the second`;
      return [{ first, second, where: { tensor }, problem }];
    }),
  );
}

type PlanPin = Exclude<Pin, OperatorPin | TensorPin>;

function decisionPairs(pins: readonly Pin[]): readonly Clash[] {
  const decisions = pins.filter((pin): pin is PlanPin => pin.kind !== 'operator' && pin.kind !== 'tensor');
  const groups = groupBy(decisions, ({ kind, node }) => JSON.stringify([kind, node]));
  return [...groups.values()].flatMap((group) =>
    pairsOf(group).flatMap(([first, second]): readonly Clash[] => {
      const [one, other] = [decided(first), decided(second)];
      if (one === other) return [];
      const problem = `its ${first.kind} is ${one} by the first and ${other} by the second`;
      return [{ first, second, where: { node: first.node }, problem }];
    }),
  );
}

function decided(pin: PlanPin): string {
  if (pin.kind === 'stage') return pin.chunk === undefined ? `${pin.stage}` : `${pin.stage}, chunk ${pin.chunk}`;
  return pin.kind === 'recompute' ? String(pin.recompute) : pin.place;
}

function pairsOf<Item>(items: readonly Item[]): readonly (readonly [Item, Item])[] {
  return items.flatMap((first, index) => items.slice(index + 1).map((second) => [first, second] as const));
}

function contradict(first: PinSource, second: PinSource, where: Clash['where'], problem: string): AutoparError {
  const named = ({ text, line }: PinSource) => (line === null ? text : `${text} (line ${line})`);
  const target = where.node === undefined ? `tensor ${where.tensor}` : `node ${where.node}`;
  return new AutoparError(
    'pins-contradict',
    'input',
    `${named(first)} and ${named(second)} contradict each other on ${target}: ${problem}`,
    { ...pinPlace(second), ...where },
    'change one of them, or give the one that should win a higher priority',
  );
}
