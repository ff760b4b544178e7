import { existsSync, readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import test from 'ava';
import { OPERATOR_DOCS, operatorDocs } from '../../scripts/write-operator-docs.js';
import { SCHEDULE_DOCS, scheduleDocs } from '../../scripts/write-schedule-docs.js';
import { TORCH_DOCS, torchDocs } from '../../scripts/write-torch-docs.js';
import { COMMANDS } from '../../src/cli/commands.js';
import { EXIT } from '../../src/ir/error.js';
import { operatorEntries } from '../../src/ir/ops/index.js';
import { ROOT } from '../cli/autopar.js';

const page = (file: string): string => readFileSync(join(ROOT, file), 'utf8');

test('docs/reference/operators.md is current', (t) => {
  t.is(page(OPERATOR_DOCS), operatorDocs(operatorEntries), 'npm run docs:operators writes it anew');
});

test('docs/schedules.md is current', (t) => {
  t.is(page(SCHEDULE_DOCS), scheduleDocs(), 'npm run docs:schedules writes it anew');
});

test('docs/torch.md has the table of operators', (t) => {
  t.is(page(TORCH_DOCS), torchDocs(page(TORCH_DOCS)), 'npm run docs:torch writes it anew');
});

test('docs/commands.md has every command and option', (t) => {
  const text = page('docs/commands.md').replaceAll('\\|', '|');
  for (const { name, options, examples, subcommands = [] } of COMMANDS) {
    for (const subcommand of subcommands) {
      t.true(text.includes(`### autopar ${name} ${subcommand.name}`), `${name} ${subcommand.name}`);
      for (const { flags } of subcommand.options) t.true(text.includes(`\`${flags}\``), `${subcommand.name} ${flags}`);
    }
    if (examples.length > 0) t.true(text.includes(`## autopar ${name}`), name);
    else t.true(text.includes(`\`${name}\``), name);
    for (const { flags } of options) t.true(text.includes(`\`${flags}\``), `${name} ${flags}`);
  }
});

test('docs/errors.md lists every error code of the source, with its exit code', (t) => {
  const rows = [...page('docs/errors.md').matchAll(/^\| `([a-z0-9-]+)` \| (\d+(?:, \d+)*) \|/gm)];
  const listed = new Map(rows.map(([, code = '', exits = '']) => [code, exits.split(', ').map(Number)]));
  const used = errorCodes();
  for (const [code, kinds] of used) {
    t.true(listed.has(code), `${code} is missing`);
    for (const kind of kinds)
      t.true(listed.get(code)?.includes(EXIT[kind]) ?? false, `${code} exits with ${EXIT[kind]} (${kind})`);
  }
  const source = sources().join('\n');
  for (const code of listed.keys())
    t.true(source.includes(`'${code}'`), `${code} is listed but the source has no such code`);
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

test('docs/coverage.md names only tests that exist', (t) => {
  for (const [, file = ''] of page('docs/coverage.md').matchAll(/`((?:test|bench)\/[\w./-]+)`/g)) {
    t.true(existsSync(join(ROOT, file)), file);
  }
});

test('docs/coverage.md names only commands, options, scripts and pages that exist; what has a command has a test', (t) => {
  const { scripts } = JSON.parse(page('package.json')) as { readonly scripts: Readonly<Record<string, string>> };
  const optionsOf = new Map(
    COMMANDS.map(({ name, options, subcommands = [] }) => [
      name,
      [...options, ...subcommands.flatMap((subcommand) => subcommand.options)].flatMap(
        ({ flags }) => flags.match(/--[\w-]+/g) ?? [],
      ),
    ]),
  );
  const rows = [...page('docs/coverage.md').matchAll(/^\| (?!technique)(.*?) \|(.*)\|(.*)\|$/gm)];
  t.true(rows.length > 90);
  for (const [, claim = '', commands = '', tests = ''] of rows) {
    if (commands.trim() === '') {
      t.is(tests.trim(), '', claim);
      continue;
    }
    t.regex(tests, /`(test|bench)\/|\]\([\w-]+\.md/, claim);
    for (const [, text = ''] of commands.matchAll(/`([^`]+)`/g)) {
      const [first = '', second = '', third = ''] = text.split(' ');
      if (first === 'npm') t.truthy(scripts[third], `${claim}: ${text}`);
      else if (first.startsWith('docs/')) t.true(existsSync(join(ROOT, first)), `${claim}: ${text}`);
      else if (first === 'autopar') {
        const known = optionsOf.get(second);
        t.truthy(known, `${claim}: ${text}`);
        for (const [option] of text.matchAll(/--[\w-]+/g))
          t.true(known?.includes(option), `${claim}: ${text}: ${option}`);
      }
    }
  }
});

test('links between pages lead somewhere', (t) => {
  const pages = readdirSync(join(ROOT, 'docs'), { encoding: 'utf8', recursive: true }).filter((name) =>
    name.endsWith('.md'),
  );
  for (const file of ['README.md', ...pages.map((name) => `docs/${name}`)]) {
    for (const [, target = ''] of page(file).matchAll(/\]\((?!https?:|#)([^)#]+)[^)]*\)/g)) {
      t.true(existsSync(join(ROOT, file, '..', target)), `${file} links to ${target}`);
    }
  }
});

type Kind = keyof typeof EXIT;

/** Codes and exit kinds of all errors that the source makes. */
function errorCodes(): ReadonlyMap<string, ReadonlySet<Kind>> {
  const codes = new Map<string, Set<Kind>>();
  for (const source of sources()) {
    for (const [code, kind] of codesIn(source)) codes.set(code, (codes.get(code) ?? new Set()).add(kind));
  }
  return codes;
}

function sources(): readonly string[] {
  return ['src', 'models']
    .flatMap((folder) => readdirSync(join(ROOT, folder), { recursive: true, withFileTypes: true }))
    .filter((entry) => entry.isFile() && entry.name.endsWith('.ts'))
    .map((entry) => readFileSync(join(entry.parentPath, entry.name), 'utf8'));
}

/**
 * Codes in `new AutoparError(code, 'kind', …`, alternatives included, and in calls of the functions of the file that hand
 * their first parameter on as the code.
 */
function codesIn(source: string): readonly (readonly [string, Kind])[] {
  const made = [...source.matchAll(/new AutoparError\(\s*([^,]*),\s*'(\w+)'/g)].flatMap(
    ([, expression = '', kind = '']) =>
      [...expression.matchAll(/(?<!=== )'([\w-]+)'/g)].map(([, code = '']) => [code, kind as Kind] as const),
  );
  const wrappers = source.matchAll(
    /function (\w+)\(\s*code: string[^{]*\{\s*return new AutoparError\(\s*code,\s*'(\w+)'/g,
  );
  const handed = [...wrappers].flatMap(([, name = '', kind = '']) =>
    [...source.matchAll(new RegExp(`(?<!function )\\b${name}\\(\\s*'([\\w-]+)'`, 'g'))].map(
      ([, code = '']) => [code, kind as Kind] as const,
    ),
  );
  return [...made, ...handed];
}
