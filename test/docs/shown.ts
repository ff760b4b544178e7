/**
 * @file The contents of a guide, by section: each command with its output, and figures read from it.
 */

export interface Shown {
  /** The words of the command, without the filter behind it. */
  readonly command: string;
  readonly output: string;
}

/** By title: the commands of a page's sections. */
export function shownIn(page: string): ReadonlyMap<string, readonly Shown[]> {
  const [, ...sections] = page.split(/^## /m);
  return new Map(sections.map((section) => [section.split('\n')[0] ?? '', commandsOf(section)]));
}

function commandsOf(section: string): readonly Shown[] {
  const blocks = [...section.matchAll(/^```console\n([\s\S]*?)^```$/gm)].map(([, block = '']) => block);
  return blocks
    .flatMap((block) => block.split(/^\$ /m).slice(1))
    .map((text) => {
      const [line = '', ...output] = text.split('\n');
      return { command: line.replace(/ \| grep .*$/, ''), output: output.join('\n') };
    });
}

const FIGURES = {
  step: /^ {2}(?:step|predicted) +([\d.,]+) (\S+)/m,
  memory: /(?:fits: |needs |step(?: in [a-z0-9]+)?, )([\d.]+) ([GMT]B)/,
  'pointwise ops': /pointwise ops +([\d.]+) (\S+)/,
  bubble: /pipeline bubble +([\d.]+) (\S+)/,
  'share of the bubble': /pipeline bubble +\S+ \S+ +([\d.]+) (%)/,
  'time over tp': /communication over tp +([\d.]+) (\S+)/,
  'time over ep': /communication over ep +([\d.]+) (\S+)/,
  'time over pp': /communication over pp +([\d.]+) (\S+)/,
} as const;

export type Figure = keyof typeof FIGURES;

const UNITS: Readonly<Record<string, number>> = { s: 1, ms: 1e-3, µs: 1e-6, TB: 1e12, GB: 1e9, MB: 1e6, '%': 0.01 };

/** A figure of an output in seconds, bytes or as a share. @throws where the output does not have it */
export function figureOf(figure: Figure, { command, output }: Shown): number {
  const [, number = '', unit = ''] = FIGURES[figure].exec(output) ?? [];
  const value = Number(number) * (UNITS[unit] ?? Number.NaN);
  if (number === '' || Number.isNaN(value)) throw new Error(`${command} shows no ${figure}`);
  return value;
}

/** The one command that ends so. @throws where there is none, or several */
export function commandEnding(words: string, all: readonly Shown[]): Shown {
  const [found, ...others] = all.filter(({ command }) => command.endsWith(` ${words}`));
  if (!found || others.length > 0)
    throw new Error(`${others.length > 0 ? 'several commands end' : 'no command ends'} in ${words}`);
  return found;
}
