/**
 * @file The command line: from words to a command, from a command's end to an exit code.
 */
import { readFileSync } from 'node:fs';
import { Command as CommanderCommand, CommanderError, Option } from 'commander';
import type { ExitKind } from '../api/index.js';
import { type AutoparError, badOption, type CodeOf, offer, refuseIdle, usageError } from '../api/words.js';
import { type Command, type CommandContext, type CommandOption, unknownAction } from './command.js';
import { COMMANDS } from './commands.js';
import { exitCode, failureJson, failureOf, failureText } from './failure.js';
import { LATER_ELSEWHERE, notThereYet } from './later.js';
import { groupedOptions } from './option-groups.js';
import { Output, type OutputFlags } from './output.js';

const GLOBAL_OPTIONS = [
  { flags: '--json', says: 'print one JSON object on stdout' },
  { flags: '--quiet', says: 'print errors only' },
] as const;

/** Short names of lines that are typed often: the word, and the words it stands for. */
const ALIASES: Readonly<Record<string, readonly string[]>> = {
  plan: ['compile', '--plan-only'],
  diff: ['strategy', 'diff'],
};

/** Runs one command line and returns its exit code. Prints all errors; throws nothing. */
export async function runCommandLine(
  given: readonly string[],
  signal: AbortSignal,
  output = new Output(outputFlags(given)),
): Promise<number> {
  const line = withoutAlias(given);
  const version = packageVersion();
  try {
    return exitCode(await dispatch(line, { output, line, signal }, version));
  } catch (error) {
    return reportFailure(error, line, output, signal.aborted, version);
  }
}

/** The line with its command's alias, if it has one, written out. */
function withoutAlias(line: readonly string[]): readonly string[] {
  const at = line.findIndex((word) => !word.startsWith('-'));
  const words = Object.hasOwn(ALIASES, line[at] ?? '') ? ALIASES[line[at] ?? ''] : undefined;
  return words ? [...line.slice(0, at), ...words, ...line.slice(at + 1)] : line;
}

/** The flags of a line that nobody has parsed yet. */
export function outputFlags(line: readonly string[]): OutputFlags {
  return { json: line.includes('--json'), quiet: line.includes('--quiet') };
}

/** Prints a thrown value as users see it; returns the exit code. */
export function reportFailure(
  error: unknown,
  line: readonly string[],
  output: Output,
  interrupted: boolean,
  version = packageVersion(),
): number {
  output.clearProgress();
  const failure = failureOf(error, { version, line, interrupted });
  output.data(failureJson(failure));
  const alone =
    process.stderr.isTTY && failure.code === 'missing-argument' && line.length === 1 ? commandOf(line) : undefined;
  if (alone) process.stderr.write(`autopar ${alone.name}: ${alone.says}${examplesText(alone)}\n\n`);
  if (!output.json) process.stderr.write(`${failureText(failure)}\n`);
  if (process.env['AUTOPAR_DEBUG'] && error instanceof Error) process.stderr.write(`${error.stack ?? ''}\n`);
  return exitCode(failure.exit);
}

async function dispatch(line: readonly string[], context: CommandContext, version: string): Promise<ExitKind> {
  let ended: ExitKind = 'done';
  const program = buildProgram(context, version, (kind) => {
    ended = kind;
  });
  if (line.length === 0) {
    program.outputHelp();
    return 'done';
  }
  try {
    await program.parseAsync(line, { from: 'user' });
  } catch (error) {
    if (!(error instanceof CommanderError)) throw error;
    if (error.exitCode !== 0) throw lineError(error, line);
  }
  return ended;
}

function buildProgram(context: CommandContext, version: string, end: (kind: ExitKind) => void): CommanderCommand {
  const program = newCommand('autopar')
    .description('An auto-parallel strategy compiler: ONNX model + cluster → the fastest sharded program, verified.')
    .version(version, '--version', 'print the version')
    .helpCommand('help [command]', 'print help of a command');
  for (const { flags, says } of GLOBAL_OPTIONS) program.option(flags, says);
  for (const command of COMMANDS) program.addCommand(buildCommand(command, context, end));
  const aliases = Object.entries(ALIASES).map(
    ([word, words]) => `  autopar ${word.padEnd(26)} autopar ${words.join(' ')}`,
  );
  return program.addHelpText(
    'after',
    `\nShort for:\n${aliases.join('\n')}\n\nExamples and options of a command: autopar COMMAND --help`,
  );
}

function newCommand(name: string): CommanderCommand {
  return new CommanderCommand(name)
    .helpOption('-h, --help', 'print help')
    .configureHelp({ showGlobalOptions: true })
    .configureOutput({ writeErr: () => undefined })
    .showSuggestionAfterError(false)
    .exitOverride();
}

function buildCommand(
  command: Command<never>,
  context: CommandContext,
  end: (kind: ExitKind) => void,
): CommanderCommand {
  const built = newCommand(command.name).description(command.says);
  if (command.examples.length === 0) built.allowUnknownOption();
  for (const { name, says } of command.arguments) built.argument(name, says);
  for (const { option, group } of groupedOptions(command.options)) {
    const added = new Option(option.flags, option.says);
    if (group !== null) added.helpGroup(`${group}:`);
    built.addOption(added.isBoolean() ? added : added.argParser(parserOf(option, added.long ?? '')));
  }
  for (const subcommand of command.subcommands ?? []) built.addCommand(buildCommand(subcommand, context, end));
  if (command.examples.length > 0) built.addHelpText('after', examplesText(command));
  return built.action(async () => {
    const options = built.opts() as never;
    refuseIdle(options, command.idle ?? []);
    end(await command.run(context, built.args, options));
  });
}

/** The parser of an option's values. It throws `bad-option` for a second value where one is meant. */
function parserOf(
  { parse = String, repeats }: CommandOption,
  name: string,
): (text: string, before: unknown) => unknown {
  let first: string | null = null;
  return (text, before) => {
    if (first !== null && !repeats) throw badOption(`${name} is given twice: ${first} and ${text}`, 'give it once');
    first = text;
    return parse(text, name, before);
  };
}

function examplesText({ examples }: Pick<Command, 'examples'>): string {
  return `\nExamples:\n${examples.map(({ line, says }) => `  ${line}\n      ${says}`).join('\n')}`;
}

/** Commander's error as one of autopar's, with the nearest name. */
function lineError(error: CommanderError, line: readonly string[]): AutoparError {
  const message = error.message.replace(/^error: /, '').trim();
  const [, named = ''] = /'([^']*)'/.exec(message) ?? [];
  const flag = named.split(/[ =]/)[0] ?? '';
  const command = commandOf(line);
  const action = line.slice(line.indexOf(command?.name ?? '') + 1).find((word) => !word.startsWith('-'));
  if (command?.subcommands && action !== undefined && !command.subcommands.some(({ name }) => name === action))
    return unknownAction(command, action);
  if (error.code === 'commander.unknownOption') {
    if (LATER_ELSEWHERE.includes(flag)) return notThereYet(flag, command?.name, commandsWith(flag));
    return usageError('unknown-option', message, optionHint(flag, command));
  }
  if (error.code === 'commander.unknownCommand') return unknownCommand(named);
  // The error of commander for help of an unknown command.
  if (error.code === 'commander.help') return unknownCommand(line.filter((word) => !word.startsWith('-'))[1] ?? '');
  const parent = COMMANDS.find(({ subcommands }) => subcommands?.some((own) => own === command));
  const words = [parent, command].flatMap((each) => (each ? [`${each.name} `] : []));
  const help = `autopar ${words.join('')}--help shows its usage`;
  return usageError(USAGE_CODES[error.code] ?? 'bad-usage', message, help);
}

/** Commands that have the option. */
function commandsWith(flag: string): readonly string[] {
  return COMMANDS.filter(({ options }) => options.some(({ flags }) => flags.split(/[ ,]+/).includes(flag))).map(
    ({ name }) => name,
  );
}

/** The command that a line is about, or the subcommand of it. */
function commandOf(line: readonly string[]): Command<never> | undefined {
  const named = line.find((word) => COMMANDS.some(({ name }) => name === word));
  const command = COMMANDS.find(({ name }) => name === named);
  const rest = line.slice(line.indexOf(command?.name ?? '') + 1);
  return command?.subcommands?.find(({ name }) => rest[0] === name) ?? command;
}

function unknownCommand(name: string): AutoparError {
  const known = [...COMMANDS.map((command) => command.name), ...Object.keys(ALIASES)];
  return usageError('unknown-command', `unknown command '${name}'`, offer(name, known));
}

const USAGE_CODES: Readonly<Record<string, CodeOf<'usage'>>> = {
  'commander.missingArgument': 'missing-argument',
  'commander.optionMissingArgument': 'missing-argument',
  'commander.excessArguments': 'excess-arguments',
};

function optionHint(flag: string, command: Command<never> | undefined): string {
  const own = (command?.options ?? []).map(({ flags }) => /--[\w-]+/.exec(flags)?.[0] ?? '');
  return offer(flag, [...own, ...GLOBAL_OPTIONS.map(({ flags }) => flags), '--help', '--version']);
}

function packageVersion(): string {
  const file = new URL('../../../package.json', import.meta.url);
  return (JSON.parse(readFileSync(file, 'utf8')) as { readonly version: string }).version;
}
