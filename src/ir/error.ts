/**
 * @file The only error type that users see: the problem, its place, and the remedy.
 */

import type { CodeOf, ErrorCode, ExitOf } from './error-codes.js';

/** Exit codes of the command line (docs/reference/errors.md). */
export const EXIT = {
  done: 0,
  checkFailed: 1,
  usage: 2,
  input: 3,
  noPlan: 4,
  rankFailed: 5,
  backendAbsent: 6,
  cannotWrite: 7,
  fault: 70,
  interrupted: 130,
} as const;

export type ExitKind = keyof typeof EXIT;

/** The place of an error; only known fields are given. */
export interface ErrorPlace {
  readonly file?: string;
  readonly line?: number;
  readonly node?: string;
  readonly tensor?: string;
}

/**
 * An error whose message is meant for the user. Everything else that is thrown is an internal error of autopar (exit 70).
 *
 * `code` is one of error-codes.ts (`unbound-dimension`), `exit` names an exit code that it has there; `hint` states the remedy.
 */
export class AutoparError<Code extends ErrorCode = ErrorCode> extends Error {
  override readonly name = 'AutoparError';
  readonly code: ErrorCode;
  readonly exit: Exclude<ExitKind, 'done'>;
  readonly hint: string | undefined;

  constructor(
    code: Code,
    exit: ExitOf<Code>,
    message: string,
    readonly where: ErrorPlace = {},
    hint?: string,
  ) {
    super(shortened(message));
    this.code = code;
    this.exit = exit;
    this.hint = hint === undefined ? undefined : shortened(hint);
  }

  /** The same error in other words. */
  reworded(message: string, hint: string | undefined): AutoparError {
    return new AutoparError(this.code, this.exit, message, this.where, hint);
  }
}

/** Null in place of an error that users can fix: a choice that has no answer. Others are thrown. */
export function nullIfRefused(error: unknown): null {
  if (error instanceof AutoparError) return null;
  throw error;
}

/** An error of what the user asked for: it has no place in a file. */
export function usageError(code: CodeOf<'usage'>, message: string, hint?: string): AutoparError {
  return new AutoparError(code, 'usage', message, {}, hint);
}

/** The usual one: an option whose value is not of the expected form, or that contradicts another. */
export function badOption(message: string, hint?: string): AutoparError {
  return usageError('bad-option', message, hint);
}

/** Names and shapes come from files: a message that repeats one of thousands of characters is cut in its middle. */
const LONGEST_MESSAGE = 2000;

function shortened(message: string): string {
  if (message.length <= LONGEST_MESSAGE) return message;
  return `${message.slice(0, LONGEST_MESSAGE * 0.75)} … ${message.slice(-LONGEST_MESSAGE / 4)}`;
}
