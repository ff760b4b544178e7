/**
 * @file docs/reference/commands.md: the `--help` of every command, on one page.
 */
import type { Command, CommandOption } from '../../src/cli/command.js';
import { COMMANDS } from '../../src/cli/commands.js';
import { groupedOptions } from '../../src/cli/option-groups.js';

/** The page. */
export function commandDocs(): string {
  return `# Commands

Written by \`npm run docs:reference\` from the tables that the command line reads. \
Every command has \`--json\` (one object on stdout; its
\`schema\` names its form), \`--quiet\` (print errors only) and \`--help\`. \
\`autopar plan\` is \`autopar compile --plan-only\`, \`autopar diff\` is
\`autopar strategy diff\`. [Errors](errors.md) has the exit codes; [using autopar](../using.md) says what to use when.

${COMMANDS.map((command) => section(command, 'autopar', 2)).join('\n')}`;
}

function section(command: Command<never>, before: string, depth: number): string {
  const { name, says, options, examples, subcommands = [] } = command;
  const title = `${before} ${name}`;
  const words = [
    title,
    ...command.arguments.map((argument) => argument.name),
    ...(options.length > 0 ? ['[options]'] : []),
  ];
  return [
    `${'#'.repeat(depth)} ${title}`,
    `    ${words.join(' ')}`,
    `${sentence(says)}`,
    ...(command.arguments.length > 0
      ? [
          table(
            'argument',
            command.arguments.map((one) => [one.name, one.says]),
          ),
        ]
      : []),
    ...optionTables(options),
    ...(examples.length > 0 ? [examples.map((example) => `    ${example.line}`).join('\n')] : []),
    ...subcommands.map((subcommand) => section(subcommand, title, depth + 1).trimEnd()),
  ]
    .join('\n\n')
    .concat('\n');
}

/** One table for each group of help. */
function optionTables(options: readonly CommandOption[]): readonly string[] {
  const groups = new Map<string | null, (readonly [string, string])[]>();
  for (const { option, group } of groupedOptions(options))
    groups.set(group, [...(groups.get(group) ?? []), [option.flags, option.says]]);
  return [...groups].map(([group, rows]) => table(group ?? 'option', rows));
}

function table(title: string, rows: readonly (readonly [string, string])[]): string {
  const lines = rows.map(([flags, says]) => `| \`${flags.replaceAll('|', '\\|')}\` | ${cell(says)} |`);
  return `| ${title} | |\n|---|---|\n${lines.join('\n')}`;
}

/** Text of help names placeholders in angle brackets, which Markdown would take for HTML. */
function cell(text: string): string {
  return text.replaceAll('|', '\\|').replaceAll(/<([^>]+)>/g, '`<$1>`');
}

function sentence(says: string): string {
  return `${says.charAt(0).toUpperCase()}${says.slice(1)}.`;
}
