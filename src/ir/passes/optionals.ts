/**
 * @file Optionals: whether one holds a value is known before the run, so that it is its value or an absent one.
 */
import { AutoparError } from '../error.js';
import { constant } from '../ops/constants.js';
import type { Rewrite } from './rewrite.js';

/** Rewrites by operator. */
export const optionalRewrites: Readonly<Record<string, Rewrite>> = {
  Optional: (node, context) => {
    const [result] = node.outputs;
    const [value] = node.inputs;
    if (!result) return [];
    if (value) context.alias(result, value);
    else context.absent(result);
    return [];
  },
  OptionalHasElement: (node, context) => {
    const [result] = node.outputs;
    const [value] = node.inputs;
    if (!result) return [];
    const has = typeof value === 'string' && !context.isAbsent(value);
    context.alias(result, context.literal(result, constant('bool', [has ? 1 : 0])));
    return [];
  },
  OptionalGetElement: (node, context) => {
    const [result] = node.outputs;
    const [value] = node.inputs;
    if (!value || context.isAbsent(value)) {
      throw new AutoparError(
        'empty-optional',
        'input',
        `node '${node.name || node.op}' (${node.op}) reads an optional that has no value`,
        { file: context.file, node: node.name || node.op },
        'read it only if OptionalHasElement is true',
      );
    }
    if (result) context.alias(result, value);
    return [];
  },
};
