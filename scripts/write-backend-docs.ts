/**
 * @file `npm run docs:backends -- NAME=FILE.json …`: writes the table operators × backends of docs/reference/backends.md from the
 * results (`--json`) of `npm run conformance -- FOLDER --backend NAME`.
 */
import { readFileSync, writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { type CaseResult, operatorCounts } from '../test/conformance/report.js';

const PAGE = join(dirname(fileURLToPath(import.meta.url)), '../..', 'docs/reference/backends.md');
const HEADING = '## Operators by backend\n';

/** The page, its table (which ends it) written anew. */
function backendDocs(
  page: string,
  backends: readonly (readonly [name: string, results: readonly CaseResult[]])[],
): string {
  const counted = backends.map(([, results]) => operatorCounts(results));
  const operators = [...new Set(counted.flatMap((counts) => [...counts.keys()]))].sort();
  const isWhole = (operator: string) =>
    counted.every((counts) => {
      const { all = 0, ran = 0 } = counts.get(operator) ?? {};
      return all === ran;
    });
  const row = (operator: string) => {
    const cells = counted.map((counts) => {
      const { all, ran } = counts.get(operator) ?? {};
      return all === undefined ? '–' : ran === all ? `all ${all}` : `${ran} of ${all}`;
    });
    return `| ${operator} | ${cells.join(' | ')} |`;
  };
  const whole = operators.filter(isWhole);
  const introduction = page.slice(0, page.indexOf(HEADING));
  return `${introduction}${HEADING}
ONNX's own cases of one operator that ran and were right, of those that ONNX Runtime itself runs. \
Written by \`npm run docs:backends\` from
results of \`npm run conformance\`; WebGPU was SwiftShader, which has no 16-bit floats.

| operator | ${backends.map(([name]) => name).join(' | ')} |
|---|${backends.map(() => '---|').join('')}
${operators
  .filter((operator) => !isWhole(operator))
  .map(row)
  .join('\n')}

All cases run on each of these backends:
${wrapped(whole.join(', '))}.
`;
}

function wrapped(text: string): string {
  return text.replaceAll(/(.{1,128})(?: |$)/g, '$1\n').trimEnd();
}

const given = process.argv.slice(2).map((word) => {
  const [name = '', file = ''] = word.split('=');
  return [name, (JSON.parse(readFileSync(file, 'utf8')) as { readonly cases: readonly CaseResult[] }).cases] as const;
});
writeFileSync(PAGE, backendDocs(readFileSync(PAGE, 'utf8'), given));
