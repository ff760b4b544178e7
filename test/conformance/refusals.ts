/**
 * @file Why a case is refused, in the few classes that totals are kept by.
 */
import type { AutoparError } from '../../src/ir/error.js';

/** Classes by error code; a code that is not here is its own class. */
const CLASSES: Readonly<Record<string, string>> = {
  'control-flow': 'loop',
  'loop-too-long': 'loop',
  'data-dependent-shape': 'data-dependent shape',
  'not-a-sequence': 'sequence or optional',
  'unsupported-sequence': 'sequence or optional',
  'unsupported-operator': 'the runtime lacks an operator',
  'unsupported-dtype': 'element type',
  'unknown-operator': 'unknown operator',
  'dp-does-not-divide-batch': 'dp does not divide the batch',
};

/** The class of a refusal. */
export function reasonClass({ code, message }: AutoparError): string {
  if (/\bstrings?\b/.test(message)) return 'string';
  if (/\belement type\b/.test(message)) return 'element type';
  if (code === 'unsupported-input') return /sequence|optional/.test(message) ? 'sequence or optional' : 'string';
  return CLASSES[code] ?? code;
}

/** A refusal that is not autopar's: ONNX Runtime cannot run the file, or gives something else. */
export class Refusal extends Error {
  constructor(
    readonly reason: string,
    message: string,
  ) {
    super(message);
  }
}
