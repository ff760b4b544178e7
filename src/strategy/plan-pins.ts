/**
 * @file A plan's choices as pins: per operator the axes of every factor of its rule, whole ones included, and the layouts of
 * the model's inputs. Compiled with them, the model gets these strategies again.
 */
import type { Graph } from '../ir/graph.js';
import { operatorOf } from '../ir/operator-of.js';
import { isAccumulator } from '../ir/ops/accumulate.js';
import { ruleOf } from '../ir/ops/index.js';
import { sharedOperators } from '../partition/cut-stages.js';
import type { AnnotationRecord, PinRecord } from '../sharding-propagation/annotations/annotation.js';
import { tensorLayoutText } from '../sharding-propagation/file-form.js';
import { pieceName } from '../sharding-propagation/refine.js';
import { exactly, pinDocument } from './pin-document.js';
import type { PlacedOperator, PlacedPlan } from './placed-operators.js';

/**
 * The annotation file of a plan; it states recompute and places where they are not the default. In a pipeline every forward
 * operator has its stage, except those that each stage that reads them runs for itself; the other operators follow the
 * forward ones.
 */
export function planPins(placed: PlacedPlan): AnnotationRecord {
  const { graph, stages, chunks } = placed;
  const shared = sharedOperators(graph);
  const placeOf = ({ node, stage, chunk }: PlacedOperator) =>
    stages === 1 || node.phase !== 'forward' || shared.has(node) || isAccumulator(node)
      ? {}
      : { stage, ...(chunks > 1 ? { chunk } : {}) };
  const { mesh, inputs } = placed.assignment;
  const operators = placed.operators.map((operator): PinRecord => {
    const factors = factorsOf(graph, operator);
    return {
      match: { node: exactly(operator.node.name) },
      ...(Object.keys(factors).length > 0 ? { factors } : {}),
      ...placeOf(operator),
      ...(operator.recompute ? { recompute: true } : {}),
      ...(operator.place === 'host' ? { place: operator.place } : {}),
    };
  });
  const fed = [...inputs].map(
    ([tensor, layout]): PinRecord => ({
      match: { tensor: exactly(tensor) },
      layout: tensorLayoutText(graph, tensor, layout, mesh),
    }),
  );
  return pinDocument(mesh, [...operators.filter((pin) => Object.keys(pin).length > 1), ...fed], stages);
}

/** An operator's strategy as the `factors` of a pin: axes of every factor of its rule, whole ones included. */
export function factorsOf(
  graph: Graph,
  { node, strategy }: Pick<PlacedOperator, 'node' | 'strategy'>,
): Readonly<Record<string, string>> {
  const axesText = (factor: string): string => {
    const axes = strategy.axes[factor] ?? [];
    return axes.length === 0 ? '-' : axes.length === 1 ? (axes[0] ?? '-') : `(${axes.join(',')})`;
  };
  const pieceText = (size: number, factor: string): string => {
    const axes = axesText(factor);
    return axes === '-' ? `${size}` : `${size}:${axes}`;
  };
  const entries = [...ruleOf(operatorOf(graph, node)).factors.keys()].map((factor) => {
    const pieces = strategy.pieces?.[factor];
    if (!pieces) return [factor, axesText(factor)] as const;
    return [factor, `(${pieces.map((size, index) => pieceText(size, pieceName(factor, index))).join(' | ')})`] as const;
  });
  return Object.fromEntries(entries);
}
