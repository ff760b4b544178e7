/**
 * @file `npm run docs:torch`: writes the table of operators in docs/torch.md from the table that the target writes programs with.
 */
import { readFileSync, writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { torchText } from '../test/codegen/torch/sampled.js';
import { CASES } from '../test/ir/ops/cases.js';

/** Where the page lies, from the repository root. */
export const TORCH_DOCS = 'docs/torch.md';

const HEADING = '## Operators\n';

/** The page, its table written anew. */
export function torchDocs(page: string): string {
  const rows = new Map<string, string>();
  for (const sample of CASES) {
    const name = sample.domain === '' ? sample.op : `${sample.domain}.${sample.op}`;
    const text = torchText(sample);
    if (text !== null && !rows.has(name)) rows.set(name, `| ${name} | \`${text.replaceAll('|', '\\|')}\` |`);
  }
  const table = [...rows].sort(([a], [b]) => (a < b ? -1 : 1)).map(([, row]) => row);
  const introduction = page.slice(0, page.indexOf(HEADING));
  const text = `${rows.size} operators, each with the expression of one sample; \`npm run docs:torch\` writes the table, and a test runs every
sample in torch and in ONNX Runtime.`;
  return `${introduction}${HEADING}\n${text}\n\n| operator | torch |\n|---|---|\n${table.join('\n')}\n`;
}

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  const file = join(dirname(fileURLToPath(import.meta.url)), '../..', TORCH_DOCS);
  writeFileSync(file, torchDocs(readFileSync(file, 'utf8')));
}
