/**
 * @file compared.json: what was compared with a plan, beside its plan.json. Reports read it in place of a search; without it, or
 * beside another plan than its own, there is none.
 */
import { readFile } from 'node:fs/promises';
import { AutoparError } from '../../ir/error.js';
import { schemaCheck } from '../../ir/schema-check.js';
import { stableJson } from '../../program/atomic.js';
import { insideFolder } from '../../program/inside-folder.js';
import type { Plan } from '../../strategy/plan.js';
import { planDigest } from '../../strategy/plan-json.js';
import type { PlanComparison } from '../planning/comparison.js';
import { COMPARISON_SCHEMA } from './comparison-schema.js';

export const COMPARISON_FILE = 'compared.json';

interface ComparisonFile extends PlanComparison {
  readonly format: 'autopar-compared';
  readonly version: 1;
  /** SHA-256 of plan.json. */
  readonly plan: string;
}

/** Verdicts that are kept, the cheapest first: a thousand devices have some hundred combinations of degrees. */
const MOST = 1000;

/** The text of compared.json; null where nothing was compared. */
export function comparisonToJson({ proposals, ...others }: PlanComparison, plan: Plan): string | null {
  if (proposals === null && others.top.length < 2) return null;
  const kept = proposals && { ...proposals, verdicts: proposals.verdicts.slice(0, MOST) };
  const head = { format: 'autopar-compared', version: 1, plan: planDigest(plan) } as const;
  return stableJson({ ...head, ...others, proposals: kept } satisfies ComparisonFile);
}

/**
 * The plans compared with that of a folder; null where the folder has no such file, or that of another plan or version.
 * @throws AutoparError `bad-source` (input) where the file was cut or edited
 */
export async function readComparison(directory: string, plan: Plan): Promise<PlanComparison | null> {
  const file = await insideFolder(directory, COMPARISON_FILE);
  const text = await readFile(file, 'utf8').catch(() => null);
  if (text === null) return null;
  try {
    const value: unknown = JSON.parse(text);
    if (isNewer(value)) return null;
    if (comparisonCheck()(value)) return value.plan === planDigest(plan) ? value : null;
  } catch (error) {
    if (!(error instanceof SyntaxError)) throw error;
  }
  throw new AutoparError(
    'bad-source',
    'input',
    `${COMPARISON_FILE} is truncated or was edited`,
    { file },
    'Remove it, and explain searches again; or compile the model again.',
  );
}

function isNewer(value: unknown): boolean {
  const { version } = (value ?? {}) as { readonly version?: unknown };
  return typeof version === 'number' && version > 1;
}

const comparisonCheck = schemaCheck<ComparisonFile>(COMPARISON_SCHEMA, { allowUnionTypes: true });
