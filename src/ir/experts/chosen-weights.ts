/**
 * @file Weights of experts that are gathered for each token by its choice, as transformers writes `batched_mm` experts:
 *
 *     choice [tokens, k] ─► [tokens·k]
 *     weights [experts, rows, columns] ─ Gather by it ─► [tokens·k, rows, columns] ─ MatMul ─ …
 */
import { isFloating } from '../dtype.js';
import { type Graph, type Node, typeOf } from '../graph.js';
import type { Makers } from '../makers-and-readers.js';
import { operatorOf } from '../operator-of.js';
import { isConversion, isReshaped, ruleOf } from '../ops/index.js';
import { plainRoles, type RoleDims, rolesBehind } from './roles.js';

/** A Gather's result. */
export interface ChosenWeights {
  /** [experts, …] */
  readonly weights: string;
  /** The experts of each token, [..., chosen], before views of it. */
  readonly choice: string;
  readonly chosen: number;
  /** Tokens and their chosen experts, then features. */
  readonly roles: RoleDims;
}

/** Gathered weights by the result of the Gather. Weights have features after the dimension of experts. */
export function chosenWeights(
  graph: Graph,
  makers: Makers<Node>,
  constant: ReadonlySet<string>,
): ReadonlyMap<string, ChosenWeights> {
  const found = new Map<string, ChosenWeights>();
  for (const { op, domain, phase, attributes, inputs, outputs } of graph.nodes) {
    const [weights, rows] = inputs;
    const [result] = outputs;
    const isGather = op === 'Gather' && domain === '' && phase === 'forward' && attributes['axis'] === 0;
    if (!isGather || !weights || !rows || !result || !constant.has(weights) || constant.has(rows)) continue;
    const { dtype, shape } = typeOf(graph, weights);
    if (!isFloating(dtype) || shape.length < 2) continue;
    const views: Node[] = [];
    let choice = rows;
    for (let maker = makers.get(choice); maker && (isReshaped(maker) || isConversion(maker)); ) {
      const [source] = maker.inputs;
      if (!source || !['int32', 'int64'].includes(typeOf(graph, source).dtype)) break;
      views.push(maker);
      choice = source;
      maker = makers.get(choice);
    }
    const choices = typeOf(graph, choice).shape;
    let roles: RoleDims | null = plainRoles(choices, (axis) => (axis === choices.length - 1 ? 'expert' : 'token'));
    for (const view of views.toReversed()) roles = roles && rolesBehind(ruleOf(operatorOf(graph, view)), [roles]);
    if (!roles || choices.length < 2) continue;
    const features = plainRoles(shape.slice(1), () => 'feature');
    found.set(result, { weights, choice, chosen: choices.at(-1) ?? 1, roles: [...roles, ...features] });
  }
  return found;
}
