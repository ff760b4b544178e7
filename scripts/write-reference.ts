/**
 * @file `npm run docs:reference`: writes the generated files of docs/reference/ that follow from tables of the source alone.
 */
import { writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { commandDocs } from './reference/commands.js';
import { coverageDocs } from './reference/coverage.js';
import { errorDocs } from './reference/errors.js';
import { familyDocs } from './reference/families.js';
import { javascriptDocs } from './reference/javascript.js';
import { SCHEMAS } from './reference/schemas.js';

/** Texts by path from the repository root. */
export function referenceFiles(): Readonly<Record<string, string>> {
  const pages = {
    'commands.md': commandDocs(),
    'coverage.md': coverageDocs(),
    'errors.md': errorDocs(),
    'families.md': familyDocs(),
    'javascript.md': javascriptDocs(),
    ...Object.fromEntries(
      Object.entries(SCHEMAS).map(([name, schema]) => [name, `${JSON.stringify(schema, null, 2)}\n`]),
    ),
  };
  return Object.fromEntries(Object.entries(pages).map(([name, text]) => [`docs/reference/${name}`, text]));
}

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  const root = join(dirname(fileURLToPath(import.meta.url)), '../..');
  for (const [file, text] of Object.entries(referenceFiles())) writeFileSync(join(root, file), text);
}
