/**
 * @file The type of a command: data that help, parsing, docs and tests read, and one function that runs it; and the error for
 * a word in place of a command of its own.
 */
import type { ExitKind, Idle } from '../api/index.js';
import { type AutoparError, offer, usageError } from '../api/words.js';
import type { Output } from './output.js';

/** A line that a user may type; help prints it and a test runs it. */
export interface Example {
  readonly line: string;
  readonly says: string;
}

export interface CommandArgument {
  /** `<model>` where it must be given, `[device]` where it may be left out. */
  readonly name: string;
  readonly says: string;
}

export interface CommandOption {
  /** As commander takes them: `-o, --output <dir>`. */
  readonly flags: string;
  readonly says: string;
  /**
   * Turns the text into a value; throws AutoparError code `bad-option`, with the option's name. `before`: the value so far, for
   * options that repeat.
   */
  readonly parse?: (text: string, name: string, before: unknown) => unknown;
  /** It may be given several times, and `parse` gathers the values. */
  readonly repeats?: true;
}

/** The context of a command besides its arguments and options. */
export interface CommandContext {
  readonly output: Output;
  /** The words of the command line. */
  readonly line: readonly string[];
  /** Aborted by Ctrl-C. */
  readonly signal: AbortSignal;
}

/** Options of a verb that a command passes on, all but those that it gives itself: the folder, interruption and callbacks. */
export type FlagsOf<Options> = Omit<Options, 'directory' | 'signal' | `on${string}`>;

/** `Options` are the values by camelCase name, as `parse` made them; flags without a value are `true`. */
export interface Command<Options = Readonly<Record<string, unknown>>> {
  readonly name: string;
  readonly says: string;
  readonly arguments: readonly CommandArgument[];
  readonly options: readonly CommandOption[];
  readonly examples: readonly Example[];
  /** Options that would do nothing beside others, besides those that the API refuses. */
  readonly idle?: readonly Idle<Options>[];
  /** Commands of its own, as `autopar strategy diff`: `run` answers only where none of them is named. */
  readonly subcommands?: readonly Command<never>[];
  readonly run: (context: CommandContext, values: readonly string[], options: Options) => Promise<ExitKind>;
}

/** The error for a word that is none of the command's own commands, with the nearest of them. */
export function unknownAction(
  { name, subcommands = [] }: Pick<Command<never>, 'name' | 'subcommands'>,
  action: string,
): AutoparError {
  const known = subcommands.map((own) => own.name);
  return usageError('unknown-command', `unknown command '${name} ${action}'`, offer(action, known));
}
