/**
 * @file `npm run docs:operators`: writes docs/operators.md from the registry, so that it cannot say anything else.
 */
import { writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import type { OperatorEntry, OperatorFamily } from '../src/ir/operator.js';
import { operatorEntries } from '../src/ir/ops/index.js';

/** Where the page lies, from the repository root. */
export const OPERATOR_DOCS = 'docs/operators.md';

const FAMILIES: Readonly<Record<OperatorFamily, string>> = {
  contraction: 'Contractions',
  convolution: 'Convolutions and pooling',
  attention: 'Attention',
  normalisation: 'Normalisation',
  reduction: 'Reductions',
  elementwise: 'Element-wise',
  view: 'Views and movement',
  indexing: 'Indexing',
  recurrent: 'Recurrent',
  loss: 'Losses',
  sort: 'Sorting',
  generator: 'Generators',
  other: 'Other',
};

const INTRODUCTION = `# Operators

Written by \`npm run docs:operators\` from the registry (\`src/ir/ops/\`); a test checks that it is current.

An operator of this list can be sharded along every dimension that its rule does not keep whole. *Expanded* operators are
replaced by plainer ones where a dimension that they treat as one is sharded (softmax: max, subtraction, power, sum,
division). *Constant inputs* must be known when compiling. Any other operator is run whole on every rank, with a note in
the report; no operator stops a compile.
`;

/** The page as the registry wants it. */
export function operatorDocs(entries: readonly OperatorEntry[]): string {
  const sections = Object.entries(FAMILIES).flatMap(([family, title]) => {
    const members = entries.filter((entry) => entry.family === family);
    return members.length === 0 ? [] : [section(title, members)];
  });
  return `${INTRODUCTION}\n${entries.length} operators.\n\n${sections.join('\n')}`;
}

function section(title: string, members: readonly OperatorEntry[]): string {
  const rows = [...members].sort((left, right) => (nameOf(left) < nameOf(right) ? -1 : 1)).map(rowOf);
  return `## ${title}\n\n| operator | expanded | constant inputs | what stays whole, and why |\n|---|---|---|---|\n${rows.join('\n')}\n`;
}

function rowOf(entry: OperatorEntry): string {
  const constants = entry.constantInputs.map(({ attribute }) => attribute).join(', ');
  return `| ${nameOf(entry)} | ${entry.expansion ? 'yes' : ''} | ${constants} | ${(entry.note ?? '').replaceAll('|', '\\|')} |`;
}

function nameOf({ op, domain }: OperatorEntry): string {
  return domain === '' ? op : `${domain}.${op}`;
}

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  const root = dirname(dirname(dirname(fileURLToPath(import.meta.url))));
  writeFileSync(join(root, OPERATOR_DOCS), operatorDocs(operatorEntries));
  console.log(`${OPERATOR_DOCS}: ${operatorEntries.length} operators`);
}
