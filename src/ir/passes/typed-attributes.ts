/**
 * @file The attributes of operators that are not in the registry: their types are unknown here, so they are passed on as the file
 * has them.
 */
import type { Attributes, AttributeValue } from '../graph.js';
import type { SourceNode } from '../onnx/model.js';

/** `attributes` with their numbers of the types that the file gives them. */
export function typedAttributes(attributes: Attributes, types: SourceNode['numberTypes'] = {}): Attributes {
  return Object.fromEntries(
    Object.entries(attributes).map(([name, value]) => {
      const type = Object.hasOwn(types, name) ? types[name] : undefined;
      if (!type || (typeof value !== 'number' && !isNumbers(value))) return [name, value];
      return [name, { type, numbers: typeof value === 'number' ? [value] : value }];
    }),
  );
}

function isNumbers(value: AttributeValue): value is readonly number[] {
  return Array.isArray(value) && value.every((item) => typeof item === 'number');
}
