/**
 * @file The model of a public verb: a file, or `generate: 'gpt:layers=12'`, which is written to one.
 */
import { badOption } from '../../ir/error.js';

export interface ModelChoice {
  /** The model file; left out where `generate` is given. */
  readonly model?: string;
  /** `FAMILY:key=value,…`. */
  readonly generate?: string;
}

/** @throws AutoparError (usage) where both are given, and as `generatedFile` */
export async function modelOf({ model, generate }: ModelChoice, globalBatch?: number): Promise<string> {
  if (generate === undefined) return model ?? '';
  if (model === undefined) return (await import('./generated.js')).generatedFile(generate, globalBatch);
  throw badOption(`--model ${generate} contradicts the file ${model}`, 'give one of them');
}

/** The name of the family in `FAMILY:key=value,…`, which the file of a generated model has. */
export function familyOf(generate: string): string {
  return generate.split(':')[0] ?? '';
}
