import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import test from 'ava';
import { columnFaults, cycles, importsOf, longLines, sharedNames, typesOf } from '../../scripts/check-imports.js';
import { IMPORT_RULES } from '../../scripts/import-rules.js';
import { ROOT } from '../cli/autopar.js';

test('finds imports of every form, and which are of types only', (t) => {
  const source = [
    "import { a } from './a.js';",
    "import type { B } from './b.js';",
    "import { type C } from '../c.js';",
    "import { type D, e } from './d.js';",
    "export { f } from './f.js';",
    "export type { G } from './g.js';",
    "const h = () => import('./h.js');",
    "import { readFile } from 'node:fs';",
  ].join('\n');
  t.deepEqual(importsOf('src/x/file.ts', source), [
    { from: 'src/x/file.ts', to: 'src/x/a.ts', typeOnly: false, lazy: false },
    { from: 'src/x/file.ts', to: 'src/x/b.ts', typeOnly: true, lazy: true },
    { from: 'src/x/file.ts', to: 'src/c.ts', typeOnly: true, lazy: true },
    { from: 'src/x/file.ts', to: 'src/x/d.ts', typeOnly: false, lazy: false },
    { from: 'src/x/file.ts', to: 'src/x/f.ts', typeOnly: false, lazy: false },
    { from: 'src/x/file.ts', to: 'src/x/g.ts', typeOnly: true, lazy: true },
    { from: 'src/x/file.ts', to: 'src/x/h.ts', typeOnly: false, lazy: true },
  ]);
});

test('an import against the column is named; one along it is not', (t) => {
  const of = (from: string, to: string, typeOnly = false, lazy = typeOnly) =>
    columnFaults([{ from, to, typeOnly, lazy }], IMPORT_RULES);
  t.is(of('src/ir/a.ts', 'src/search/b.ts').length, 1);
  t.is(of('src/ir/a.ts', 'src/search/b.ts', true).length, 1);
  t.is(of('src/runtime/a.ts', 'src/codegen/b.ts').length, 1);
  t.is(of('src/cost-model/a.ts', 'src/strategy/plan.ts', true).length, 0);
  t.is(of('src/cost-model/a.ts', 'src/strategy/plan.ts').length, 1);
  t.is(of('src/search/a.ts', 'src/partition/b.ts').length, 0);
  t.is(of('src/cli/a.ts', 'src/ir/error.ts').length, 1);
  t.is(of('src/cli/a.ts', 'src/api/verbs.ts').length, 0);
  t.is(of('src/cli/a.ts', 'src/api/simulate.ts', true).length, 1);
  t.is(of('src/cli/a.ts', 'src/api/index.ts').length, 1);
  t.is(of('src/cli/a.ts', 'src/api/index.ts', false, true).length, 0);
  t.is(of('src/cli/a.ts', 'src/search/plan.ts').length, 1);
  t.is(of('test/a.ts', 'src/search/plan.ts').length, 0);
});

test('a command loads no station, and no operator, before it runs', (t) => {
  const loaded = new Set(['src/cli/command-thread.ts']);
  for (const file of loaded)
    for (const { to, lazy } of importsOf(file, readFileSync(join(ROOT, file), 'utf8'))) if (!lazy) loaded.add(to);
  t.true(loaded.has('src/api/words.ts'));
  t.deepEqual(
    [...loaded].filter((file) => /^src\/(ir\/(ops|passes|onnx)|codegen|solver|runtime\/session)/.test(file)),
    [],
  );
});

test('cycles are found whatever their length', (t) => {
  const edge = (from: string, to: string) => ({ from, to, typeOnly: true, lazy: true });
  t.is(cycles([edge('a', 'b'), edge('b', 'c')]).length, 0);
  t.is(cycles([edge('a', 'b'), edge('b', 'c'), edge('c', 'a')]).length, 1);
});

test('a line that does not fit is named with its number', (t) => {
  t.deepEqual(longLines('src/one.ts', `short\n${'é'.repeat(130)}\n${'a'.repeat(131)}`), [
    'src/one.ts:3 has 131 columns, more than 130',
  ]);
});

test('a type that two files define is named with both', (t) => {
  const one = ['interface Own {}', 'export type Cut = number;', 'export class Walk {}', 'const Not = 1;'].join('\n');
  t.deepEqual(typesOf('src/one.ts', one), ['Own', 'Cut', 'Walk']);
  const types = ['Own', 'Cut'].map((name) => ({ file: 'src/one.ts', name }));
  t.deepEqual(sharedNames([...types, { file: 'src/two.ts', name: 'Cut' }]), [
    'type Cut is defined in src/one.ts and src/two.ts: import one, or name them apart',
  ]);
});
