/**
 * @file Pages that show commands with their exact output. A block marked `console` has lines that begin with `$ `, each
 * with its output below; a command goes on after a `\` at a line's end, and `| grep -E 'pattern'` after it keeps the lines that
 * match, as in a shell. The text below `$ cat name` is a file that later commands read.
 */

/** The page whose sections are rules of thumb, each shown by commands. */
export const GUIDE = 'docs/choosing-a-strategy.md';

/** The page whose commands simulate, in little time. */
export const SIMULATES = 'docs/memory.md';

/** All pages whose commands are run. */
export const PAGES = [
  SIMULATES,
  GUIDE,
  'docs/using.md',
  'docs/parallelism.md',
  'docs/cost-model.md',
  'docs/planner.md',
  'docs/clusters.md',
] as const;

/** Runs a command, such as `['simulate', '--model', 'gpt']`, and returns its output. */
export type RunCommand = (words: readonly string[]) => Promise<string>;

/** Saves a file that a page shows where commands find it. */
export type SaveFile = (name: string, text: string) => void;

/** The page with every output generated again. */
export async function withOutputs(page: string, run: RunCommand, save: SaveFile): Promise<string> {
  const pieces = page.split(/^(```console\n[\s\S]*?^```$)/m);
  const anew: string[] = [];
  for (const piece of pieces) anew.push(piece.startsWith('```console\n') ? await blockAnew(piece, run, save) : piece);
  return anew.join('');
}

/** The commands of a page, as they are written. */
export function commandsOf(page: string): readonly string[] {
  return [...page.matchAll(/^```console\n([\s\S]*?)^```$/gm)].flatMap(([, block = '']) => linesOf(block));
}

async function blockAnew(block: string, run: RunCommand, save: SaveFile): Promise<string> {
  const outputs: string[] = [];
  for (const shown of block.split(/^(?=\$ )/m).slice(1)) {
    const [, line = '', rest = ''] = /^((?:.*\\\n)*.*)\n?([\s\S]*)$/.exec(shown.replace(/\n```$/, '').trimEnd()) ?? [];
    const [, file] = /^\$ cat (\S+)$/.exec(line) ?? [];
    if (file !== undefined) {
      save(file, `${rest}\n`);
      outputs.push(`${line}\n${rest}`);
      continue;
    }
    const [, command = '', pattern] = /^\$ (.*?)(?: \| grep -E '([^']*)')?$/.exec(joined(line)) ?? [];
    const printed = await run(wordsOf(command).slice(1));
    const lines = printed.trimEnd().split('\n');
    const kept = pattern === undefined ? lines : lines.filter((text) => new RegExp(pattern).test(text));
    outputs.push([line, ...kept].join('\n'));
  }
  return `\`\`\`console\n${outputs.join('\n')}\n\`\`\``;
}

/** The words of a command as a shell splits them: text in quotes is one word. */
function wordsOf(command: string): readonly string[] {
  return [...command.matchAll(/'([^']*)'|(\S+)/g)].map(([, quoted, plain = '']) => quoted ?? plain);
}

function linesOf(block: string): readonly string[] {
  return [...block.matchAll(/^\$ (autopar (?:.*\\\n)*.*)$/gm)].map(([, line = '']) => joined(line));
}

/** A command of several lines as one. */
function joined(line: string): string {
  return line.replace(/ *\\\n */g, ' ');
}
