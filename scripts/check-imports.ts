/**
 * @file Checks the import column of docs/architecture.md (import-rules.ts), that no file imports itself indirectly, that a
 * type name has one meaning, and that lines fit. Type-only imports obey the same rules: a cycle of types is a cycle for the
 * reader too.
 */
import { readdirSync, readFileSync } from 'node:fs';
import { dirname, join, posix, relative } from 'node:path';
import { fileURLToPath } from 'node:url';
import { alg, Graph } from '@dagrejs/graphlib';
import { parseSync } from 'oxc-parser';
import { type FolderRule, IMPORT_RULES } from './import-rules.js';

/** One file's import of another; both relative to the repository root, with forward slashes. */
export interface Import {
  readonly from: string;
  readonly to: string;
  readonly typeOnly: boolean;
  /** Whatever is not a type is loaded by `await import(…)`. */
  readonly lazy: boolean;
}

/** The relative imports, re-exports and dynamic imports of a TypeScript source. */
export function importsOf(file: string, source: string): readonly Import[] {
  const { module } = parseSync(file, source);
  const found = new Map<string, { readonly typeOnly: boolean; readonly lazy: boolean }>();
  const note = (request: string, typeOnly: boolean, lazy = typeOnly): void => {
    if (!request.startsWith('.')) return;
    const to = posix.normalize(posix.join(posix.dirname(file), request)).replace(/\.js$/, '.ts');
    const before = found.get(to) ?? { typeOnly: true, lazy: true };
    found.set(to, { typeOnly: before.typeOnly && typeOnly, lazy: before.lazy && lazy });
  };
  for (const { moduleRequest, entries } of module.staticImports) {
    note(moduleRequest.value, entries.length > 0 && entries.every((entry) => entry.isType));
  }
  for (const { entries } of module.staticExports) {
    for (const entry of entries) if (entry.moduleRequest) note(entry.moduleRequest.value, entry.isType);
  }
  for (const { moduleRequest } of module.dynamicImports) {
    note(source.slice(moduleRequest.start, moduleRequest.end).replace(/^['"]|['"]$/g, ''), false, true);
  }
  return [...found].map(([to, how]) => ({ from: file, to, ...how }));
}

/** A sentence for every import that its folder's rule does not allow. Folders without a rule may import anything. */
export function columnFaults(imports: readonly Import[], rules: readonly FolderRule[]): readonly string[] {
  const inside = (file: string, folder: string): boolean => file.startsWith(`${folder}/`);
  return imports.flatMap((item) => {
    const rule = rules.find(({ folder }) => inside(item.from, folder));
    if (!rule || inside(item.to, rule.folder)) return [];
    const allowed =
      rule.may.some((folder) => inside(item.to, folder)) ||
      rule.files?.includes(item.to) ||
      (item.typeOnly && rule.types?.includes(item.to)) ||
      (item.lazy && rule.lazy?.includes(item.to));
    if (allowed) return [];
    const may = [...rule.may, ...(rule.files ?? []), ...(rule.lazy ?? []).map((file) => `${file} lazily`)];
    return [`${item.from} imports ${item.to}: ${rule.folder} may import ${may.join(', ') || 'nothing of ours'}`];
  });
}

/** A sentence for every set of files that import each other in a cycle. */
export function cycles(imports: readonly Import[]): readonly string[] {
  const graph = new Graph();
  for (const { from, to } of imports) graph.setEdge(from, to);
  return alg.findCycles(graph).map((files) => `cycle: ${files.join(' → ')}`);
}

/** The types and classes that a TypeScript source defines for itself or for others. */
export function typesOf(file: string, source: string): readonly string[] {
  return parseSync(file, source).program.body.flatMap((statement) => {
    const defined = statement.type === 'ExportNamedDeclaration' ? statement.declaration : statement;
    if (!defined || !('id' in defined) || !DEFINITIONS.has(defined.type)) return [];
    return defined.id && 'name' in defined.id ? [defined.id.name] : [];
  });
}

const DEFINITIONS: ReadonlySet<string> = new Set([
  'TSInterfaceDeclaration',
  'TSTypeAliasDeclaration',
  'ClassDeclaration',
]);

/** A sentence for every name that several files give to a type. */
export function sharedNames(types: readonly { readonly file: string; readonly name: string }[]): readonly string[] {
  const files = new Map<string, string[]>();
  for (const { file, name } of types) files.set(name, [...(files.get(name) ?? []), file]);
  return [...files].flatMap(([name, own]) =>
    new Set(own).size > 1 ? [`type ${name} is defined in ${own.join(' and ')}: import one, or name them apart`] : [],
  );
}

/** A sentence for every line that is longer than editors and reviews show. */
export function longLines(file: string, source: string): readonly string[] {
  return source.split('\n').flatMap((line, index) => {
    const { length } = [...line];
    return length > LINE ? [`${file}:${index + 1} has ${length} columns, more than ${LINE}`] : [];
  });
}

const LINE = 130;

/** Checks the repository whose root is given; returns how many files were read and what is wrong. */
export function checkImports(root: string): { readonly files: number; readonly faults: readonly string[] } {
  const files = ['src', 'models', 'bench', 'test', 'scripts'].flatMap((folder) => sources(root, folder));
  const read = files.map((file) => ({ file, source: readFileSync(join(root, file), 'utf8') }));
  const imports = read.flatMap(({ file, source }) => importsOf(file, source));
  const types = read
    .filter(({ file }) => file.startsWith('src/'))
    .flatMap(({ file, source }) => typesOf(file, source).map((name) => ({ file, name })));
  return {
    files: files.length,
    faults: [
      ...columnFaults(imports, IMPORT_RULES),
      ...cycles(imports),
      ...sharedNames(types),
      ...read.flatMap(({ file, source }) => longLines(file, source)),
    ],
  };
}

function sources(root: string, folder: string): string[] {
  return readdirSync(join(root, folder), { recursive: true, withFileTypes: true })
    .filter((entry) => entry.isFile() && entry.name.endsWith('.ts'))
    .map((entry) => relative(root, join(entry.parentPath, entry.name)).replaceAll('\\', '/'))
    .sort();
}

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  const root = dirname(dirname(dirname(fileURLToPath(import.meta.url))));
  const { files, faults } = checkImports(root);
  for (const fault of faults) console.log(fault);
  console.log(`imports: ${files} files, ${faults.length} faults`);
  process.exitCode = faults.length === 0 ? 0 : 1;
}
