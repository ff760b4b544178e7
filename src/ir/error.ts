/**
 * @file The only error type that users see: the problem, its place, and the remedy.
 */

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
 * `code` is a stable kebab-case word (`unbound-dimension`) that docs/reference/errors.md lists; `exit` names the exit code;
 * `hint` states the remedy.
 */
export class AutoparError extends Error {
  override readonly name = 'AutoparError';
  readonly hint: string | undefined;

  constructor(
    readonly code: string,
    readonly exit: ExitKind,
    message: string,
    readonly where: ErrorPlace = {},
    hint?: string,
  ) {
    super(shortened(message));
    this.hint = hint === undefined ? undefined : shortened(hint);
  }
}

/** Names and shapes come from files: a message that repeats one of thousands of characters is cut in its middle. */
const LONGEST_MESSAGE = 2000;

function shortened(message: string): string {
  if (message.length <= LONGEST_MESSAGE) return message;
  return `${message.slice(0, LONGEST_MESSAGE * 0.75)} … ${message.slice(-LONGEST_MESSAGE / 4)}`;
}
