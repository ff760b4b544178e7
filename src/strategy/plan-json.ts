/**
 * @file plan.json as text: written with sorted keys, so that equal plans are equal bytes; read with an error for every way
 * in which the file can be wrong.
 */
import { createHash } from 'node:crypto';
import { readFile } from 'node:fs/promises';
import type { ErrorObject } from 'ajv';
import { AutoparError } from '../ir/error.js';
import type { CodeOf } from '../ir/error-codes.js';
import { isRecord, schemaCheck } from '../ir/schema-check.js';
import { PLAN_VERSION, type Plan } from './plan.js';
import { fromVersion1 } from './plan-of-version-1.js';
import { planProblem } from './plan-problem.js';
import { PLAN_SCHEMA } from './plan-schema.js';

/** The plan as JSON: keys sorted at every level, two spaces, a final newline. */
export function planToJson(plan: Plan): string {
  return `${JSON.stringify(sorted(plan), null, 2)}\n`;
}

/** SHA-256 of a plan's text, which its program records: whatever is edited in plan.json changes it. */
export function planDigest(plan: Plan): string {
  return createHash('sha256').update(planToJson(plan)).digest('hex');
}

/** Reads a plan. @throws AutoparError (input) where the file is absent, truncated, of a newer version, or edited wrongly. */
export async function readPlan(file: string): Promise<Plan> {
  let text: string;
  try {
    text = await readFile(file, 'utf8');
  } catch (error) {
    const { code, message } = error as NodeJS.ErrnoException;
    const reason =
      code === 'ENOENT'
        ? 'the file does not exist'
        : code === 'ENOTDIR'
          ? 'a part of the path is a file, not a folder'
          : message;
    throw invalid(
      'plan-missing',
      `cannot read the plan: ${reason}`,
      file,
      'autopar compile MODEL -o DIR writes DIR/plan.json',
    );
  }
  return planFromJson(text, file);
}

/** Parses a plan; `file` names it in errors. @throws AutoparError (input) */
export function planFromJson(text: string, file: string): Plan {
  let value: unknown;
  try {
    value = JSON.parse(text);
  } catch (error) {
    const cut = text.trim() === '' ? 'the file is empty' : (error as Error).message;
    throw invalid(
      'plan-not-json',
      `the plan is not JSON: ${cut}`,
      file,
      'the file was cut or edited; compile the model again',
    );
  }
  if (!isRecord(value) || value.format !== 'autopar-plan') {
    throw invalid('plan-invalid', 'the file is not a plan: it lacks "format": "autopar-plan"', file, AGAIN);
  }
  if (typeof value.version === 'number' && value.version > PLAN_VERSION) {
    throw invalid(
      'plan-newer',
      `the plan has version ${value.version}, this autopar reads up to version ${PLAN_VERSION}`,
      file,
      'update autopar, or compile the model again with this one',
    );
  }
  const current = value.version === 1 ? fromVersion1(value) : value;
  if (current === null) {
    throw invalid(
      'plan-older',
      'the plan has version 1 and a pipeline, and does not list the operators of each stage',
      file,
      'plan again: compile the model with this version',
    );
  }
  if ('step' in current) {
    throw invalid(
      'plan-older',
      'the plan is for a training step whose operators have no strategies over all axes',
      file,
      'plan again: compile the model with this version',
    );
  }
  const validate = planCheck();
  if (!validate(current)) {
    throw invalid('plan-invalid', `the plan is not valid: ${describe(validate.errors?.[0], current)}`, file, AGAIN);
  }
  const problem = planProblem(current);
  if (problem) throw invalid('plan-invalid', `the plan contradicts itself: ${problem}`, file, AGAIN);
  return current;
}

const planCheck = schemaCheck<Plan>(PLAN_SCHEMA, { allowUnionTypes: true });

const AGAIN = 'undo the last edit (docs/reference/plan.md describes the format), or compile the model again';

/** `operators.head.stage is "0", must be integer`. */
function describe(error: ErrorObject | undefined, plan: object): string {
  if (!error) return 'unknown reason';
  const keys = error.instancePath
    .split('/')
    .slice(1)
    .map((key) => key.replaceAll('~1', '/').replaceAll('~0', '~'));
  const found = keys.reduce<unknown>((value, key) => (isObjectOrList(value) ? value[key] : undefined), plan);
  const shown = isObjectOrList(found) ? '' : ` is ${JSON.stringify(found)},`;
  const place = `${keys.join('.') || 'the plan'}${shown}`;
  const extra = error.params.additionalProperty ?? error.params.allowedValue;
  return `${place} ${error.message}${extra === undefined ? '' : ` (${extra})`}`;
}

function invalid(code: CodeOf<'input'>, message: string, file: string, hint: string): AutoparError {
  return new AutoparError(code, 'input', message, { file }, hint);
}

function isObjectOrList(value: unknown): value is Readonly<Record<string, unknown>> {
  return typeof value === 'object' && value !== null;
}

function sorted(value: unknown): unknown {
  if (Array.isArray(value)) return value.map(sorted);
  if (!isRecord(value)) return value;
  return Object.fromEntries(
    Object.keys(value)
      .sort()
      .map((key) => [key, sorted(value[key])]),
  );
}
