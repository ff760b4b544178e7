/**
 * @file An operator of a graph by what is particular about it.
 */
import type { Node } from './graph.js';

/**
 * The operator with everything that is not stated as most operators have it: of ONNX's own domain, without attributes, of no
 * module and no layer, in the forward, with a strategy of its own.
 *
 * Deep models have a hundred thousand: properties one by one, in one order, take a tenth of the time of objects spread into one.
 */
export function plainNode(stated: Pick<Node, 'name' | 'op' | 'inputs' | 'outputs'> & Partial<Node>): Node {
  const { name, op, domain = '', attributes = {}, inputs, outputs, module = [], layer = null } = stated;
  const { phase = 'forward', forward = null, group = name, body = null, differentiated } = stated;
  const node = { name, op, domain, attributes, inputs, outputs, module, layer, phase, forward, group, body };
  return differentiated ? { ...node, differentiated } : node;
}
