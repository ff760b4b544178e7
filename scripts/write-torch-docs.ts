/**
 * @file `npm run docs:torch`: writes docs/reference/torch-operators.md from the table that the target writes programs with.
 */
import { writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { torchLines } from '../test/codegen/torch/sampled.js';
import { CASES } from '../test/ir/ops/cases.js';

/** Path of the page, from the repository root. */
export const TORCH_DOCS = 'docs/reference/torch-operators.md';

/** Operators of ONNX's own domain that have samples, and those of them that the target writes. */
export function torchShare(): {
  readonly common: number;
  readonly covered: number;
  readonly lacking: readonly string[];
} {
  const own = CASES.filter(({ domain }) => domain === '');
  const names = new Set(own.map(({ op }) => op));
  const covered = new Set(own.filter((sample) => torchLines(sample) !== null).map(({ op }) => op));
  const lacking = [...names].filter((name) => !covered.has(name)).sort();
  return { common: names.size, covered: covered.size, lacking };
}

function nameOf({ op, domain }: (typeof CASES)[number]): string {
  return domain === '' ? op : `${domain}.${op}`;
}

/** The expression, or how many lines there are. */
function shown(lines: readonly string[]): string {
  const text = lines.map((line) => line.trim()).join(' ');
  const [, expression = text] = / = (.*)/.exec(text) ?? [];
  const isOne = lines.filter((line) => /^ {8}[\w(]/.test(line) && line.includes(' = ')).length === 1;
  return isOne ? `\`${expression.replaceAll('|', '\\|')}\`` : 'the operators that it stands for';
}

/** The page. */
export function torchDocs(): string {
  const rows = new Map<string, string>();
  for (const sample of CASES) {
    const name = nameOf(sample);
    const lines = torchLines(sample);
    if (lines !== null && !rows.has(name)) rows.set(name, `| ${name} | ${shown(lines)} |`);
  }
  const table = [...rows].sort(([a], [b]) => (a < b ? -1 : 1)).map(([, row]) => row);
  const { common, covered, lacking } = torchShare();
  const share = `${((100 * covered) / common).toFixed(1)} %`;
  const text = `${rows.size} operators, among them ${covered} of the ${common} of ONNX's own that the registry has samples of \
(${share}; ${lacking.join(', ')} are
missing), each with the lines of one sample; \`npm run docs:torch\` writes the table, \
and a test runs every sample in torch and in ONNX
Runtime. An operator without a function of its own is written as the operators that it stands for.`;
  return `# Operators of torch programs\n\n${text}\n\n| operator | torch |\n|---|---|\n${table.join('\n')}\n`;
}

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  const file = join(dirname(fileURLToPath(import.meta.url)), '../..', TORCH_DOCS);
  writeFileSync(file, torchDocs());
}
