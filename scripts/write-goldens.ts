/**
 * @file `npm run goldens`: writes the plans and predictions on record anew (test/golden/goldens.json) and prints which changed.
 */
import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { ROOT } from '../test/cli/autopar.js';
import { CASES, type Golden, goldenOf } from '../test/golden/cases.js';

const file = join(ROOT, 'test', 'golden', 'goldens.json');
const before = known();
const now: Record<string, Golden> = {};
for (const { name, words } of CASES) {
  const golden = await goldenOf(words);
  now[name] = golden;
  const old = before[name];
  const fields = Object.keys(golden) as (keyof Golden)[];
  const changed = fields.filter((field) => old?.[field] !== golden[field]);
  if (changed.length > 0)
    console.log(
      `${name}\n${changed.map((field) => `  ${field}: ${old?.[field] ?? 'new'} → ${golden[field]}`).join('\n')}`,
    );
}
writeFileSync(file, `${JSON.stringify(now, null, 2)}\n`);
process.exit(0);

function known(): Readonly<Record<string, Golden>> {
  try {
    return JSON.parse(readFileSync(file, 'utf8')) as Record<string, Golden>;
  } catch {
    return {};
  }
}
