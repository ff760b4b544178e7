/**
 * @file An operator of a graph by what is particular about it.
 */
import type { Node } from './graph.js';

/**
 * The operator with everything that is not stated as most operators have it: of ONNX's own domain, without attributes, of no
 * module and no layer, in the forward, with a strategy of its own.
 */
export function plainNode(stated: Pick<Node, 'name' | 'op' | 'inputs' | 'outputs'> & Partial<Node>): Node {
  return {
    ...{ domain: '', attributes: {}, module: [], layer: null, phase: 'forward', forward: null },
    ...{ group: stated.name, body: null },
    ...stated,
  };
}
