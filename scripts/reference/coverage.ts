/**
 * @file docs/reference/coverage.md: techniques with their commands and tests.
 */
import { TECHNIQUES, type Technique } from './techniques.js';

/** The page. */
export function coverageDocs(): string {
  const sections = Object.entries(TECHNIQUES).map(
    ([title, techniques]) =>
      `## ${title}\n\n| technique | command | test |\n|---|---|---|\n${techniques.map(row).join('\n')}\n`,
  );
  return `# Coverage

Techniques of distributed training, each with a command that shows it and a test that proves it. \
Written by \`npm run docs:reference\` from
\`scripts/reference/techniques.ts\`; a test checks that commands, options and tests exist.

${sections.join('\n')}`;
}

function row({ does, commands, tests }: Technique): string {
  const quoted = (texts: readonly string[]) => texts.map((text) => `\`${text.replaceAll('|', '\\|')}\``).join(', ');
  return `| ${does} | ${quoted(commands)} | ${quoted(tests)} |`;
}
