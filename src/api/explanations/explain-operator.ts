/**
 * @file explain an operator: its strategy, the costs of the operator and of the resharding around it, the reasons for the
 * strategy, and the costs of the other strategies.
 */
import { priceNode } from '../../cost-model/price.js';
import type { Node } from '../../ir/graph.js';
import { operatorOf } from '../../ir/operator-of.js';
import type { StagePlace } from '../../partition/cut-stages.js';
import { contextOf, lowerOperator } from '../../partition/lower-operator.js';
import { tensorLayoutText } from '../../sharding-propagation/file-form.js';
import type { Layout } from '../../sharding-propagation/layout.js';
import type { PinSource } from '../../sharding-propagation/pin.js';
import { namesOn } from '../../sharding-propagation/stage-meshes.js';
import { type AxisChain, type Explainable, type ExplainedResharding, unknownName } from '../explain.js';
import { checkArguments, text } from '../options/kinds.js';
import { EXPLAINABLE } from '../options/results.js';
import { sidesUnder } from './explain-layouts.js';
import { type ExplainedTransfer, placesOfOperator, transfersOf } from './explain-stages.js';
import {
  type Alternative,
  type ExplainedStrategy,
  explainedStrategy,
  fragmentSeconds,
  OperatorAlternatives,
} from './operator-alternatives.js';
import { operatorChains } from './operator-reasons.js';

export interface OperatorExplanation {
  readonly operator: string;
  readonly op: string;
  readonly rule: string;
  readonly strategy: ExplainedStrategy;
  /** Pipeline stages that run it: several if it depends on no parameter. Empty without a pipeline. */
  readonly places: readonly StagePlace[];
  /** Sends of its results from its stage to other stages. */
  readonly transfers: readonly (ExplainedTransfer & { readonly tensor: string })[];
  readonly operands: readonly { readonly tensor: string; readonly layout: string }[];
  readonly results: readonly { readonly tensor: string; readonly layout: string }[];
  /** Seconds of one run, as all prices, on the devices of its first stage. */
  readonly computeSeconds: number;
  /** Collectives of the pending reduction, and those that lowering inserts. */
  readonly collectives: readonly {
    readonly kind: string;
    readonly axes: readonly string[];
    readonly seconds: number;
  }[];
  readonly redistributions: readonly (ExplainedResharding & {
    readonly tensor: string;
    readonly side: 'operand' | 'result';
  })[];
  /** Every possible strategy on this mesh, cheapest first. */
  readonly alternatives: readonly Alternative[];
  readonly chains: readonly AxisChain[];
  readonly pins: readonly PinSource[];
}

/** Why an operator has its strategy. @throws AutoparError `unknown-node` (usage) with the nearest name */
export function explainOperator(plan: Explainable, name: string): OperatorExplanation {
  checkArguments('explainOperator', { plan: [plan, EXPLAINABLE], name: [name, text] });
  const { graph } = plan;
  const node = graph.nodes.find((candidate) => candidate.name === name);
  if (!node) {
    const names = graph.nodes.map((candidate) => candidate.name);
    throw unknownName('node', name, names);
  }
  const others = new OperatorAlternatives(plan);
  const [mesh, strategy, cluster] = [others.meshOf(node), others.strategyOf(node), others.clusterOf(node)];
  const { rule, operands, results } = sidesUnder(graph, node, strategy, mesh);
  const { fragment } = lowerOperator(operatorOf(graph, node), strategy, mesh, contextOf(graph, node));
  const named = (tensors: Node['inputs'], layouts: readonly (Layout | null)[]) =>
    tensors.flatMap((tensor, index) => {
      const layout = layouts[index];
      return tensor !== null && layout ? [{ tensor, layout: tensorLayoutText(graph, tensor, layout, mesh) }] : [];
    });
  return {
    operator: name,
    op: node.op,
    rule: rule.text,
    strategy: explainedStrategy(strategy, mesh),
    places: placesOfOperator(plan.stages ?? [], name),
    transfers: node.outputs.flatMap((tensor) =>
      tensor === null ? [] : transfersOf(plan.stages ?? [], tensor).map((sent) => ({ tensor, ...sent })),
    ),
    operands: named(node.inputs, operands),
    results: named(node.outputs, results),
    computeSeconds: fragmentSeconds(fragment, cluster, 'compute'),
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
    redistributions: others.reshardings(node),
    alternatives: others.all(node),
    chains: operatorChains(plan, node, strategy, mesh),
    pins: others.pinsOf(name),
  };
}
