/**
 * @file Checking JSON against a JSON Schema, compiled when it is first needed and then kept.
 */
import { createRequire } from 'node:module';
import type { Options, ValidateFunction } from 'ajv';

/**
 * A check for one schema. Compiling one takes up to a tenth of a second, far longer than reading a file: it is done once in a
 * process, and faster where the code is not optimised and the schema, which is autopar's own, is not checked (half the time).
 */
export function schemaCheck<T>(schema: object, options: Options = {}): () => ValidateFunction<T> {
  let compiled: ValidateFunction<T> | null = null;
  return () => {
    compiled ??= new (ajv().Ajv)({ code: { optimize: false }, validateSchema: false, ...options }).compile<T>(schema);
    return compiled;
  };
}

/** Loaded at the first check, since it is 60 modules and most commands check nothing. */
function ajv(): typeof import('ajv') {
  return createRequire(import.meta.url)('ajv') as typeof import('ajv');
}

/** Whether parsed JSON or YAML is a mapping. */
export function isRecord(value: unknown): value is Readonly<Record<string, unknown>> {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}
