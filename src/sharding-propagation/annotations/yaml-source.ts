/**
 * @file YAML (and JSON, which is YAML) with its line numbers kept, so that every later error can name the line. Hostile
 * files are rejected: too large, nested too deeply, aliases that unfold without end.
 */
import { readFile, stat } from 'node:fs/promises';
import type { Document, Node } from 'yaml';
import { AutoparError } from '../../ir/error.js';

/** A place in a document: keys and list indices from the top. */
export type YamlPath = readonly (string | number)[];

export interface YamlSource {
  readonly file: string;
  /** The document as plain data; aliases are followed. */
  readonly value: unknown;
  /** The line, from 1, of the entry at `path`, or of the nearest entry around it. */
  readonly lineOf: (path: YamlPath) => number | null;
}

export interface YamlOptions {
  /** 1.1 where the file is meant for Python's yaml: `on` and `no` are booleans, `<<` merges. */
  readonly version?: '1.1' | '1.2';
}

/** Reads and parses a file. @throws AutoparError (input) naming the file and, for bad YAML, the line */
export async function readYaml(file: string, options: YamlOptions = {}): Promise<YamlSource> {
  return parseYaml(await textOf(file), file, options);
}

/** Parses `text`; `file` names it in errors. @throws AutoparError (input) `bad-yaml` */
export async function parseYaml(text: string, file: string, options: YamlOptions = {}): Promise<YamlSource> {
  const { document, lineAt } = await parseDocument(text, file, options);
  return { file, value: plainValue(document, file), lineOf: (path) => lineOf(document, path, lineAt) };
}

/** A parsed document that can be edited and written back with its comments. @throws AutoparError (input) `bad-yaml` */
export async function parseDocument(
  text: string,
  file: string,
  options: YamlOptions = {},
): Promise<{ readonly document: Document.Parsed; readonly lineAt: (offset: number) => number }> {
  const { LineCounter, parseDocument: parse } = await import('yaml');
  if (text.length > LARGEST) throw tooLarge(file);
  const counter = new LineCounter();
  const lineAt = (offset: number) => counter.linePos(offset).line;
  const document = unlessTooDeep(file, () =>
    parse(text, { lineCounter: counter, prettyErrors: true, version: options.version ?? '1.2', logLevel: 'error' }),
  );
  const [error] = document.errors;
  if (error) {
    const [sentence = ''] = error.message.split('\n');
    // The parser lists its own exhausted stack among the mistakes of the text.
    if (/call stack/.test(sentence)) throw tooDeep(file);
    const line = error.linePos?.[0].line;
    throw new AutoparError(
      'bad-yaml',
      'input',
      `the file is neither YAML nor JSON: ${sentence.replace(/ at line \d+, column \d+:?$/, '')}`,
      { file, ...(line === undefined ? {} : { line }) },
      'Reading stopped at this line; the mistake may be just before it.',
    );
  }
  return { document, lineAt };
}

/** The text of a file that may be read whole. @throws AutoparError (input) */
async function textOf(file: string): Promise<string> {
  const found = await stat(file).catch(() => null);
  if (!found) throw new AutoparError('file-missing', 'input', 'there is no such file', { file }, 'check the path');
  if (!found.isFile())
    throw new AutoparError(
      'not-a-file',
      'input',
      'this is not a file',
      { file },
      'give the path of a YAML or JSON file',
    );
  if (found.size > LARGEST) throw tooLarge(file);
  return readFile(file, 'utf8').catch((cause: NodeJS.ErrnoException) => {
    throw new AutoparError(
      'file-unreadable',
      'input',
      `the file cannot be read: ${cause.code === 'EACCES' ? 'permission denied' : cause.message}`,
      { file },
      'check its permissions',
    );
  });
}

/** Far above any file that people or tools write: a pin for each of 10^5 operators. */
const LARGEST = 16 * 2 ** 20;

/** How many nodes aliases may stand for, as the yaml package counts them. */
const MOST_ALIASED = 1000;

function plainValue(document: Document.Parsed, file: string): unknown {
  try {
    const value = unlessTooDeep(file, () => document.toJS({ maxAliasCount: MOST_ALIASED }) as unknown);
    checkEnds(value, file);
    return value;
  } catch (error) {
    if (!(error instanceof ReferenceError)) throw error;
    throw new AutoparError(
      'bad-yaml',
      'input',
      /excessive/i.test(error.message)
        ? `aliases of the file unfold to more than ${MOST_ALIASED} entries`
        : `the file has an undefined alias: ${error.message}`,
      { file },
      'replace the aliases by their contents',
    );
  }
}

/** Rejects an alias inside the value that it stands for: schema checks and printing would not come to an end there. */
function checkEnds(value: unknown, file: string): void {
  const around = new Set<unknown>();
  const seen = new Set<unknown>();
  const visit = (entry: unknown): void => {
    if (typeof entry !== 'object' || entry === null || (seen.has(entry) && !around.has(entry))) return;
    if (around.has(entry))
      throw new AutoparError(
        'bad-yaml',
        'input',
        'an alias of the file contains itself',
        { file },
        'replace the aliases by their contents',
      );
    around.add(entry);
    seen.add(entry);
    for (const inside of Object.values(entry)) visit(inside);
    around.delete(entry);
  };
  visit(value);
}

function tooDeep(file: string): AutoparError {
  return new AutoparError(
    'bad-yaml',
    'input',
    'the file is nested too deeply to be read',
    { file },
    'autopar files need only a few levels; the file is damaged or malicious',
  );
}

function unlessTooDeep<Result>(file: string, read: () => Result): Result {
  try {
    return read();
  } catch (error) {
    throw error instanceof RangeError ? tooDeep(file) : error;
  }
}

function tooLarge(file: string): AutoparError {
  return new AutoparError(
    'bad-yaml',
    'input',
    `the file is larger than ${LARGEST / 2 ** 20} MiB`,
    { file },
    'check that the path names the intended file',
  );
}

/** Follows the path as far as it goes. Entries that a merge (`<<`) brings in are found at the merge. */
function lineOf(document: Document.Parsed, path: YamlPath, lineAt: (offset: number) => number): number | null {
  let node = resolved(document, document.contents);
  let found = node ? startOf(node) : null;
  for (const key of path) {
    const next = childOf(node, key);
    if (!next) break;
    found = next.start ?? found;
    node = resolved(document, next.value);
  }
  return found === null ? null : lineAt(found);
}

interface PairLike {
  readonly key: unknown;
  readonly value: unknown;
}

function childOf(
  node: unknown,
  key: string | number,
): { readonly start: number | null; readonly value: unknown } | null {
  const items = (node as { readonly items?: readonly unknown[] } | null)?.items;
  if (!items) return null;
  if (typeof key === 'number') {
    const item = items[key];
    return item === undefined ? null : { start: startOf(item), value: item };
  }
  for (const item of items) {
    const pair = item as Partial<PairLike> | null;
    const name = (pair?.key as { readonly value?: unknown } | null)?.value;
    if (String(name) === key) return { start: startOf(pair?.key), value: pair?.value };
  }
  return null;
}

function startOf(node: unknown): number | null {
  return (node as { readonly range?: readonly number[] | null } | null)?.range?.[0] ?? null;
}

function resolved(document: Document.Parsed, node: unknown): Node | null {
  const alias = node as { readonly resolve?: (document: Document) => Node | undefined } | null;
  return typeof alias?.resolve === 'function' ? (alias.resolve(document) ?? null) : (node as Node | null);
}
