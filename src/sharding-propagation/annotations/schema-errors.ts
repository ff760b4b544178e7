/**
 * @file The fault of data that a JSON Schema rejects, as one sentence with a place: the first in the file that is not a
 * consequence of another.
 */
import type { ErrorObject } from 'ajv';
import { offer } from '../../ir/nearest.js';
import type { YamlPath } from './yaml-source.js';

export interface SchemaFault {
  readonly path: YamlPath;
  /** Such as `pins[2] has no key 'styl'`. */
  readonly sentence: string;
  readonly hint: string | null;
}

/** The fault to report, of those that ajv found with `allErrors` and `verbose`. */
export function schemaFault(errors: readonly ErrorObject[], lineOf: (path: YamlPath) => number | null): SchemaFault {
  const outside = errors.filter((error) => !/\/anyOf\/\d/.test(error.schemaPath));
  const faults = (outside.length > 0 ? outside : errors).map((error) => faultOf(error));
  const [first] = faults
    .map((fault, order) => ({ fault, order, line: lineOf(fault.path) ?? 0 }))
    .sort((a, b) => a.line - b.line || a.order - b.order);
  return first?.fault ?? { path: [], sentence: 'the file is malformed', hint: null };
}

/** `pins[2].match.node`; the whole where the path is empty. */
function pathText(path: YamlPath): string {
  const text = path.map((key) => (typeof key === 'number' ? `[${key}]` : `.${key}`)).join('');
  return text === '' ? 'the file' : text.replace(/^\./, '');
}

function faultOf(error: ErrorObject): SchemaFault {
  const path = pathOf(error.instancePath);
  const place = pathText(path);
  const parent = error.parentSchema as { readonly properties?: object; readonly description?: string } | undefined;
  const params = error.params as Readonly<Record<string, unknown>>;
  if (error.keyword === 'additionalProperties') {
    const key = String(params['additionalProperty']);
    const known = Object.keys(parent?.properties ?? {});
    return { path: [...path, key], sentence: `${place} has no key '${key}'`, hint: offer(key, known) };
  }
  if (error.keyword === 'required')
    return { path, sentence: `${place} lacks the key '${String(params['missingProperty'])}'`, hint: null };
  if (error.keyword === 'enum') {
    const choices = (params['allowedValues'] as readonly unknown[]).map(String);
    const hint = typeof error.data === 'string' ? offer(error.data, choices) : `give one of ${choices.join(', ')}`;
    return { path, sentence: `${place} is ${shown(error.data)}, which is not a valid choice`, hint };
  }
  const expected =
    error.keyword === 'anyOf' || error.keyword === 'minProperties' || error.keyword === 'maxProperties'
      ? parent?.description
      : undefined;
  if (path.length === 0 && error.data === null)
    return { path, sentence: 'the file is empty, or has only comments', hint: null };
  return {
    path,
    sentence: `${place} is ${shown(error.data)}, where ${expected ?? words(error)} is expected`,
    hint: null,
  };
}

const TYPE_WORDS: Readonly<Record<string, string>> = {
  string: 'text',
  integer: 'a whole number',
  number: 'a number',
  boolean: 'true or false',
  array: 'a list',
  object: 'a mapping of keys to values',
  null: 'null',
};

function words({ keyword, params, message }: ErrorObject): string {
  const given = params as Readonly<Record<string, unknown>>;
  if (keyword === 'type')
    return [given['type']]
      .flat()
      .map((type) => TYPE_WORDS[String(type)] ?? String(type))
      .join(' or ');
  if (keyword === 'const') return String(given['allowedValue']);
  if (keyword === 'minimum') return `a number of at least ${String(given['limit'])}`;
  if (keyword === 'maximum') return `a number of at most ${String(given['limit'])}`;
  if (keyword === 'exclusiveMinimum') return `a number above ${String(given['limit'])}`;
  if (keyword === 'minLength') return 'text that is not empty';
  if (keyword === 'maxLength') return `text of at most ${String(given['limit'])} characters`;
  if (keyword === 'minItems') return 'a list that is not empty';
  if (keyword === 'minProperties') return 'at least one key';
  return message ?? 'something else';
}

/** A value short enough for a sentence. */
function shown(value: unknown): string {
  if (value === undefined) return 'absent';
  if (typeof value === 'number' && !Number.isFinite(value)) return 'not a finite number';
  if (Array.isArray(value) && value.length === 0) return 'an empty list';
  if (typeof value === 'object' && value !== null && Object.keys(value).length === 0) return 'an empty mapping';
  const text = JSON.stringify(value) ?? String(value);
  return text.length > 60 ? `${text.slice(0, 57)}…` : text;
}

/** A JSON pointer as keys; all-digit keys are list indices. */
function pathOf(pointer: string): YamlPath {
  return pointer
    .split('/')
    .slice(1)
    .map((part) => part.replaceAll('~1', '/').replaceAll('~0', '~'))
    .map((part) => (/^\d+$/.test(part) ? Number(part) : part));
}
