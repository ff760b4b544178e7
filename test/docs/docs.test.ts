import { existsSync, readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import test from 'ava';
import { TECHNIQUES } from '../../scripts/reference/techniques.js';
import { OPERATOR_DOCS, operatorDocs } from '../../scripts/write-operator-docs.js';
import { referenceFiles } from '../../scripts/write-reference.js';
import { SCHEDULE_DOCS, scheduleDocs } from '../../scripts/write-schedule-docs.js';
import { TORCH_DOCS, torchDocs } from '../../scripts/write-torch-docs.js';
import { COMMANDS } from '../../src/cli/commands.js';
import { ERROR_CODES } from '../../src/ir/error-codes.js';
import { operatorEntries } from '../../src/ir/ops/index.js';
import { ROOT } from '../cli/autopar.js';

const page = (file: string): string => readFileSync(join(ROOT, file), 'utf8');

test('docs/reference/operators.md is current', (t) => {
  t.is(page(OPERATOR_DOCS), operatorDocs(operatorEntries), 'npm run docs:operators writes it anew');
});

test('docs/reference/schedules.md is current', (t) => {
  t.is(page(SCHEDULE_DOCS), scheduleDocs(), 'npm run docs:schedules writes it anew');
});

test('docs/reference/torch-operators.md is current', (t) => {
  t.is(page(TORCH_DOCS), torchDocs(), 'npm run docs:torch writes it anew');
});

for (const [file, text] of Object.entries(referenceFiles())) {
  test(`${file} is current`, (t) => t.is(page(file), text, 'npm run docs:reference writes it anew'));
}

// The compiler refuses a code that has no row, and an exit that its row lacks.
test('every error code is one that the source or a benchmark throws', (t) => {
  const source = [...sources(), ...texts('bench')]
    .filter((text) => !text.includes('export const ERROR_CODES'))
    .join('\n');
  for (const section of Object.values(ERROR_CODES))
    for (const code of Object.keys(section)) t.true(source.includes(`'${code}'`), `${code} is thrown nowhere`);
});

test('docs/contributing.md names every package', (t) => {
  const manifest = JSON.parse(page('package.json')) as Record<
    'dependencies' | 'devDependencies',
    Record<string, string>
  >;
  const text = page('docs/contributing.md');
  for (const name of [...Object.keys(manifest.dependencies), ...Object.keys(manifest.devDependencies)]) {
    t.true(text.includes(`\`${name}\``), name);
  }
});

/** Options of each command, those of its subcommands included. */
const OPTIONS = new Map(
  COMMANDS.map(({ name, options, subcommands = [] }) => [
    name,
    [...options, ...subcommands.flatMap((subcommand) => subcommand.options)].flatMap(
      ({ flags }) => flags.match(/--[\w-]+/g) ?? [],
    ),
  ]),
);

test('techniques name commands, options, scripts and tests that exist', (t) => {
  const { scripts } = JSON.parse(page('package.json')) as { readonly scripts: Readonly<Record<string, string>> };
  const techniques = Object.values(TECHNIQUES).flat();
  t.true(techniques.length > 100);
  for (const { does, commands, tests } of techniques) {
    for (const file of tests) t.true(existsSync(join(ROOT, file)), `${does}: ${file}`);
    for (const command of commands) {
      const [program, name = '', script = ''] = command.split(' ');
      if (program === 'npm') t.truthy(scripts[script], `${does}: ${command}`);
      else {
        const known = OPTIONS.get(name);
        t.truthy(known, `${does}: ${command}`);
        for (const [option] of command.matchAll(/--[\w-]+/g)) t.true(known?.includes(option), `${does}: ${option}`);
      }
    }
  }
});

const PAGES = [
  'README.md',
  'CHANGELOG.md',
  ...readdirSync(join(ROOT, 'docs'), { encoding: 'utf8', recursive: true })
    .filter((name) => name.endsWith('.md'))
    .map((name) => `docs/${name.replaceAll('\\', '/')}`),
];

test('links between pages lead to files and headings', (t) => {
  for (const file of PAGES) {
    for (const [, target = ''] of page(file).matchAll(/\]\((?!https?:)([^)\s]+)\)/g)) {
      const [path = '', anchor] = target.split('#');
      const to = path === '' ? file : join(file, '..', path);
      t.true(existsSync(join(ROOT, to)), `${file} links to ${target}`);
      if (anchor !== undefined) t.true(anchorsOf(page(to)).has(anchor), `${file} links to ${target}`);
    }
  }
});

test('pages that messages, help and comments name are there', (t) => {
  const named = [...sources(), ...texts('scripts'), ...texts('test')].flatMap((source) => [
    ...source.matchAll(/\bdocs\/[\w/-]+\.(?:md|schema\.json)/g),
  ]);
  t.true(named.length > 50);
  for (const [file] of named) t.true(existsSync(join(ROOT, file)), file);
});

test('commands that pages show have the options that they show', (t) => {
  const everywhere = ['--json', '--quiet', '--help'];
  let shown = 0;
  for (const file of PAGES.filter((name) => !name.startsWith('CHANGELOG') && !name.startsWith('docs/reference/'))) {
    const text = page(file).replaceAll(/ *\\\n */g, ' ');
    for (const [line, name = ''] of text.matchAll(/\bautopar ([a-z]+)[^\n`|]* --[^\n`|]*/g)) {
      const known = OPTIONS.get({ plan: 'compile', diff: 'strategy' }[name] ?? name);
      t.truthy(known, `${file}: ${line}`);
      for (const [option] of line.matchAll(/(?<=\s)--[a-z][\w-]*/g))
        t.true(known?.includes(option) || everywhere.includes(option), `${file}: ${line}: ${option}`);
      shown += 1;
    }
  }
  t.true(shown > 150);
});

/** As GitHub makes them of a page's headings. */
function anchorsOf(text: string): ReadonlySet<string> {
  const headings = text.replaceAll(/^```.*?^```/gms, '').matchAll(/^#+ (.*)$/gm);
  return new Set(
    [...headings].map(([, title = '']) =>
      title
        .toLowerCase()
        .replaceAll(/[^\p{L}\p{N}\s_-]/gu, '')
        .replaceAll(' ', '-'),
    ),
  );
}

function sources(): readonly string[] {
  return ['src', 'models'].flatMap(texts);
}

function texts(folder: string): readonly string[] {
  return readdirSync(join(ROOT, folder), { recursive: true, withFileTypes: true })
    .filter((entry) => entry.isFile() && entry.name.endsWith('.ts'))
    .map((entry) => readFileSync(join(entry.parentPath, entry.name), 'utf8'));
}
