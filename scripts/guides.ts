/**
 * @file Pages that show commands with exactly what they print. A block marked `console` has lines that begin with `$ `, each
 * with its output below; `| grep -E 'pattern'` after a command keeps the lines that match, as it does in a shell.
 */

export const GUIDES = ['docs/choosing-a-strategy.md', 'docs/splitting-tips.md'] as const;

/** All pages whose commands are run: those that explain how it works, too. */
export const PAGES = [...GUIDES, 'docs/search.md', 'docs/whole-steps.md'] as const;

/** What runs a command, such as `['simulate', '--model', 'gpt']`, and returns what it printed. */
export type RunCommand = (words: readonly string[]) => Promise<string>;

/** The page with every output made anew. */
export async function withOutputs(page: string, run: RunCommand): Promise<string> {
  const pieces = page.split(/^(```console\n[\s\S]*?^```$)/m);
  const anew: string[] = [];
  for (const piece of pieces) anew.push(piece.startsWith('```console\n') ? await blockAnew(piece, run) : piece);
  return anew.join('');
}

/** The commands of a page, as they are written. */
export function commandsOf(page: string): readonly string[] {
  return [...page.matchAll(/^```console\n([\s\S]*?)^```$/gm)].flatMap(([, block = '']) => linesOf(block));
}

async function blockAnew(block: string, run: RunCommand): Promise<string> {
  const outputs: string[] = [];
  for (const line of linesOf(block)) {
    const [, command = '', pattern] = /^(.*?)(?: \| grep -E '([^']*)')?$/.exec(line) ?? [];
    const printed = await run(command.split(/\s+/).slice(1));
    const lines = printed.trimEnd().split('\n');
    const kept = pattern === undefined ? lines : lines.filter((text) => new RegExp(pattern).test(text));
    outputs.push([`$ ${line}`, ...kept].join('\n'));
  }
  return `\`\`\`console\n${outputs.join('\n')}\n\`\`\``;
}

function linesOf(block: string): readonly string[] {
  return [...block.matchAll(/^\$ (autopar .*)$/gm)].map(([, line = '']) => line);
}
