/**
 * @file JSON Schemas as data, which schema-check.ts compiles: helpers for lists and mappings.
 */

export type JsonSchema = Readonly<Record<string, unknown>>;

export function listOf(items: object): JsonSchema {
  return { type: 'array', items };
}

/** A mapping whose keys are free. */
export function mapOf(values: object): JsonSchema {
  return { type: 'object', additionalProperties: values };
}

/** A mapping with these keys and no others. */
export function closedRecord(properties: Readonly<Record<string, object>>, required: readonly string[]): JsonSchema {
  return { type: 'object', properties, required, additionalProperties: false };
}

/** The same, with all keys required unless named in `optional`. */
export function record(properties: Readonly<Record<string, object>>, optional: readonly string[] = []): JsonSchema {
  return closedRecord(
    properties,
    Object.keys(properties).filter((name) => !optional.includes(name)),
  );
}
