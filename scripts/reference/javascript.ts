/**
 * @file docs/reference/javascript.md: the exports of `import … from 'autopar'`, from the declarations that the compiler writes.
 */
import { readFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { parseSync } from 'oxc-parser';

const INDEX = join(dirname(fileURLToPath(import.meta.url)), '../../src/api/index.d.ts');

const TITLES = { function: 'Functions', class: 'Classes', constant: 'Constants', type: 'Types' } as const;

type Kind = keyof typeof TITLES;

interface Declared {
  readonly name: string;
  readonly kind: Kind;
  /** Text of the comment before it, without its frame. */
  readonly says: string;
  readonly code: string;
  /** Where it is declared. */
  readonly file: string;
}

interface Module {
  /** Declarations by name. */
  readonly own: ReadonlyMap<string, Declared>;
  /** Names of other modules: the file, and the name there. */
  readonly from: ReadonlyMap<string, readonly [file: string, name: string]>;
  /** Files whose exports are all exported again. */
  readonly all: readonly string[];
}

/** The page. */
export function javascriptDocs(): string {
  const exported = withBases(exportsOf(INDEX));
  const sections = Object.entries(TITLES).flatMap(([kind, title]) => {
    const members = exported.filter((one) => one.kind === kind).sort((a, b) => (a.name < b.name ? -1 : 1));
    return members.length === 0 ? [] : [`## ${title}\n\n${members.map(entry).join('\n')}`];
  });
  return `# JavaScript interface

The interface of \`import … from 'autopar'\`. Written by \`npm run docs:reference\` from the declarations of \`src/api/index.ts\`;
[getting started](../getting-started.md#from-javascript) has examples. Errors that a user can correct are \`AutoparError\` with a
[code](errors.md).

${sections.join('\n')}`;
}

function entry({ name, says, code }: Declared): string {
  return `### ${name}\n\n${says === '' ? '' : `${says}\n\n`}\`\`\`ts\n${code}\n\`\`\`\n`;
}

function exportsOf(file: string): readonly Declared[] {
  const { own, from, all } = moduleOf(file);
  return [
    ...own.values(),
    ...[...from].map(([name, [source, theirs]]) => ({ ...resolved(source, theirs), name })),
    ...all.flatMap(exportsOf),
  ];
}

/** The exports, and the interfaces that exported ones extend: their options and fields are not documented elsewhere. */
function withBases(exported: readonly Declared[]): readonly Declared[] {
  const known = new Map(exported.map((one) => [one.name, one]));
  for (const { code, file } of known.values()) {
    const [, bases = ''] = /^interface \w+ extends ([^{]*)\{/.exec(code) ?? [];
    for (const [name] of bases.matchAll(/\b[A-Z]\w*/g)) {
      const { own, from } = moduleOf(file);
      if (!known.has(name) && (own.has(name) || from.has(name))) known.set(name, { ...resolved(file, name), name });
    }
  }
  return [...known.values()];
}

/** @throws Error for a name that nothing declares */
function resolved(file: string, name: string): Declared {
  const { own, from, all } = moduleOf(file);
  const there = own.get(name);
  if (there) return there;
  const [source, theirs] = from.get(name) ?? [
    all.find((other) => exportsOf(other).some((one) => one.name === name)),
    name,
  ];
  if (source === undefined) throw new Error(`${file} does not declare ${name}`);
  return resolved(source, theirs);
}

const modules = new Map<string, Module>();

function moduleOf(file: string): Module {
  const read = modules.get(file) ?? readModule(file);
  modules.set(file, read);
  return read;
}

function readModule(file: string): Module {
  const source = readFileSync(file, 'utf8');
  const { program, comments } = parseSync(file, source);
  const beside = (request: string): string => join(dirname(file), request.replace(/\.js$/, '.d.ts'));
  const own = new Map<string, Declared>();
  const from = new Map<string, readonly [string, string]>();
  const all: string[] = [];
  let before = 0;
  for (const node of program.body) {
    const comment = comments.filter(({ start, end }) => start >= before && end <= node.start).at(-1);
    before = node.end;
    if (node.type === 'ImportDeclaration' && node.source.value.startsWith('.')) {
      for (const one of node.specifiers)
        if (one.type === 'ImportSpecifier')
          from.set(one.local.name, [beside(node.source.value), 'name' in one.imported ? one.imported.name : '']);
    } else if (node.type === 'ExportAllDeclaration') all.push(beside(node.source.value));
    else if (node.type === 'ExportNamedDeclaration' && node.declaration === null) {
      for (const { local, exported } of node.specifiers)
        if (node.source && 'name' in local && 'name' in exported)
          from.set(exported.name, [beside(node.source.value), local.name]);
    } else {
      const text = source.slice(node.start, node.end);
      const [, word = '', name = ''] =
        /^(?:export )?(?:declare )?(?:abstract )?(function|class|const|interface|type|enum) (\w+)/.exec(text) ?? [];
      if (name === '') continue;
      const kind: Kind = word === 'function' || word === 'class' ? word : word === 'const' ? 'constant' : 'type';
      const code = text
        .replace(/^export (declare )?/, '')
        .replaceAll(/^( {4})+/gm, (spaces) => ' '.repeat(spaces.length / 2));
      own.set(name, { name, kind, says: plain(comment?.value ?? ''), code, file });
    }
  }
  return { own, from, all };
}

/** A comment without stars; `@throws` and its like on lines of their own. */
function plain(comment: string): string {
  return comment
    .split('\n')
    .map((line) => line.replace(/^\s*\*+ ?/, '').trim())
    .filter((line) => line !== '' && !line.startsWith('@file'))
    .join('\n')
    .replaceAll(/(^|\s)@throws/g, '\n\nThrows:')
    .replaceAll(/(^|\s)@(param|returns)/g, '\n\n$2:')
    .replaceAll(/[<>]/g, (sign) => `\\${sign}`)
    .trim();
}
