/**
 * @file Kinds of a sharded graph's operators: those of one kind differ only in names, so that a result for one holds for all.
 * A model of many layers has as many kinds as one of few.
 */
import type { Attributes } from '../ir/graph.js';
import { madeOnce, remembered } from '../ir/remembered.js';
import { borderText } from '../sharding-propagation/collective-rule.js';
import { layoutKey } from '../sharding-propagation/layout.js';
import { canonicalText } from './segments.js';
import type { ComputeNode, ShardedGraph, ShardedTensor } from './sharded-graph.js';

export interface OperatorKinds {
  /**
   * A number that tensors share exactly when they are of one type: dtype, shapes, layout, axes that they vary over or are on the
   * first rank of.
   */
  readonly typeOf: (tensor: ShardedTensor) => number;
  /** A text that operators share exactly when they are of one kind; constants count with their values. */
  readonly kindOf: (node: ComputeNode) => string;
}

/** The kinds of a graph's operators, computed on demand; every tensor that an operator names must exist. */
export function kindsOf({ tensors, constants }: Pick<ShardedGraph, 'tensors' | 'constants'>): OperatorKinds {
  const types = numbers<ShardedTensor>(
    ({ dtype, shape, localShape, layout, varying = [], first = [], zeroPadded, place, border }) =>
      `${dtype}[${shape}][${localShape}]${layoutKey(layout)} ${varying} ${first} ${zeroPadded} ${place} ${borderText(border)}`,
  );
  const attributes = numbers<Attributes>(canonicalText);
  const operand = (name: string | null): string => {
    if (name === null) return '';
    return constants.has(name) ? `=${name}` : `${types(tensors.get(name) as ShardedTensor)}`;
  };
  return {
    typeOf: types,
    kindOf: (node) => {
      const ends = [...node.inputs.map(operand), '>', ...node.outputs.map(operand)].join('\u0000');
      return `${node.domain}:${node.op} ${attributes(node.attributes)} ${node.lowering} ${ends}`;
    },
  };
}

/** Numbers of values by a text that equal values share; the text is made once for each object. */
function numbers<Thing extends object>(textOf: (thing: Thing) => string): (thing: Thing) => number {
  const byText = new Map<string, number>();
  return remembered((thing) => madeOnce(byText, textOf(thing), () => byText.size));
}
