import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { Ajv } from 'ajv';
import test from 'ava';
import type { ErrorCode } from '../../../src/ir/error-codes.js';
import { ANNOTATIONS_SCHEMA } from '../../../src/sharding-propagation/annotations/annotation-schema.js';
import { annotationsOf, readAnnotations } from '../../../src/sharding-propagation/annotations/read-annotations.js';
import { ROOT } from '../../cli/autopar.js';
import { fileOf, refused } from './file.js';

const GOOD = `# the column/row pair
version: 1
mesh: {dp: 2, tp: 4}
pins:
  - match: {module: 'h.*.mlp'}
    style: pairwise
    why: Megatron's pair
  - match: {tensor: ids}
    layout: '[dp, -]'
    priority: 2
`;

test('YAML and JSON say the same, with lines', async (t) => {
  const read = await readAnnotations(await fileOf(GOOD));
  t.deepEqual(read.mesh, { dp: 2, tp: 4 });
  t.is(read.meshLine, 3);
  t.deepEqual(
    read.pins.map(({ target, line, lines }) => [target, line, lines.style ?? lines.layout]),
    [
      [{ kind: 'module', glob: 'h.*.mlp' }, 5, 6],
      [{ kind: 'tensor', glob: 'ids' }, 8, 9],
    ],
  );
  const record = {
    version: 1,
    mesh: { dp: 2, tp: 4 },
    pins: [
      { match: { module: 'h.*.mlp' }, style: 'pairwise', why: "Megatron's pair" },
      { match: { tensor: 'ids' }, layout: '[dp, -]', priority: 2 },
    ],
  } as const;
  const json = await readAnnotations(await fileOf(JSON.stringify(record, null, 2), 'pins.json'));
  const bare = (pins: readonly object[]) => pins.map((pin) => ({ ...pin, line: null, lines: {} }));
  t.deepEqual(bare(json.pins), bare(read.pins));
  t.deepEqual(annotationsOf(record).pins, bare(read.pins));
});

test('aliases stand for what they name, and their lines are found', async (t) => {
  const text = 'version: 1\npins:\n  - &first\n    match: {node: a}\n    factors: {n: tp}\n  - *first\n';
  const read = await readAnnotations(await fileOf(text));
  t.is(read.pins.length, 2);
  t.deepEqual(read.pins[1]?.factors, { n: 'tp' });
});

/** Text, code, line, and what the message and its hint say. */
const BAD: readonly (readonly [
  title: string,
  text: string,
  code: ErrorCode,
  line: number | undefined,
  says: RegExp,
])[] = [
  ['a newer version', 'version: 2\npins: []', 'annotations-newer', 1, /version 2.*up to version 1/],
  ['no version', 'pins: []', 'bad-annotations', 1, /lacks the key 'version'/],
  ['an unknown key', 'version: 1\npin: []\npins: []', 'bad-annotations', 2, /no key 'pin'.*pins/s],
  [
    'an unknown key of a pin',
    'version: 1\npins:\n  - match: {node: a}\n    layot: "[-]"',
    'bad-annotations',
    4,
    /pins\[0\] has no key 'layot'.*did you mean layout/s,
  ],
  [
    'an unknown style',
    'version: 1\npins:\n  - match: {module: a}\n    style: colwize',
    'bad-annotations',
    4,
    /pins\[0\]\.style is "colwize".*colwise/s,
  ],
  ['a wrong type', 'version: 1\npins: 3', 'bad-annotations', 2, /pins is 3, where a list is expected/],
  [
    'a wrong notation',
    'version: 1\npins:\n  - match: {node: a}\n    split: {in: 4}',
    'bad-annotations',
    4,
    /pins\[0\]\.split is \{"in":4\}, where split counts: .* is expected/,
  ],
  [
    'a negative stage',
    'version: 1\npins:\n  - match: {node: a}\n    stage: -1',
    'bad-annotations',
    4,
    /stage is -1, where a number of at least 0/,
  ],
  [
    'a text for a number',
    'version: 1\nmesh: {dp: two}\npins: []',
    'bad-annotations',
    2,
    /mesh\.dp is "two", where a whole number/,
  ],
  ['an unknown axis of the mesh', 'version: 1\nmesh: {td: 2}\npins: []', 'bad-annotations', 2, /no key 'td'.*tp/s],
  [
    'two matches',
    'version: 1\npins:\n  - match: {node: a, op: b}\n    stage: 1',
    'bad-annotations',
    3,
    /exactly one of/,
  ],
  ['no match', 'version: 1\npins:\n  - stage: 1', 'bad-annotations', 3, /lacks the key 'match'/],
  ['a pin that asks nothing', 'version: 1\npins:\n  - match: {node: a}', 'bad-annotations', 3, /requests nothing/],
  [
    'a style on a tensor',
    'version: 1\npins:\n  - match: {tensor: a}\n    style: colwise',
    'bad-annotations',
    4,
    /applies to operators, and the pin matches tensors/,
  ],
  [
    'a layout on a module',
    'version: 1\npins:\n  - match: {module: a}\n    layout: "[-]"',
    'bad-annotations',
    4,
    /matches modules.*style/s,
  ],
  ['a key twice', 'version: 1\nversion: 1\npins: []', 'bad-yaml', 2, /unique/i],
  ['cut YAML', 'version: 1\npins: [{match: ', 'bad-yaml', 2, /neither YAML nor JSON/],
  ['an empty file', '', 'bad-annotations', undefined, /the file is empty/],
  ['an alias that leads nowhere', 'version: 1\npins: *all', 'bad-yaml', undefined, /alias/i],
  ['lists 5,000 deep', `version: 1\npins: ${'['.repeat(5000)}${']'.repeat(5000)}`, 'bad-yaml', undefined, /too deeply/],
  ['several documents', 'version: 1\npins: []\n---\nversion: 1\npins: []', 'bad-yaml', undefined, /documents/],
];

for (const [title, text, code, line, says] of BAD)
  test(`refused: ${title}`, async (t) => {
    const file = await fileOf(text);
    const error = await refused(t, () => readAnnotations(file));
    t.is(error.code, code);
    t.is(error.where.file, file);
    if (line !== undefined) t.is(error.where.line, line);
    t.regex(`${error.message}\n${error.hint}`, says);
  });

test('an alias bomb is refused at once', async (t) => {
  const levels = Array.from(
    { length: 12 },
    (_, index) => `a${index + 1}: &a${index + 1} [${`*a${index}, `.repeat(9)}*a${index}]`,
  );
  const file = await fileOf(`a0: &a0 [x, x]\n${levels.join('\n')}\n`);
  const error = await refused(t, () => readAnnotations(file));
  t.is(error.code, 'bad-yaml');
  t.regex(error.message, /aliases of the file unfold/);
});

test('hostile nesting and size are refused', async (t) => {
  const deep = await refused(t, async () => readAnnotations(await fileOf(`pins: ${'['.repeat(100_000)}`)));
  t.is(deep.code, 'bad-yaml');
  const large = await refused(t, async () => readAnnotations(await fileOf('#'.repeat(17 * 2 ** 20))));
  t.regex(large.message, /larger than 16 MiB/);
});

test('a missing file and a folder are named', async (t) => {
  t.is((await refused(t, () => readAnnotations('/there/is/no/such.yaml'))).code, 'file-missing');
  t.is((await refused(t, () => readAnnotations(ROOT))).code, 'not-a-file');
});

test('the published schema is the one that files are checked against', (t) => {
  const published = JSON.parse(readFileSync(join(ROOT, 'docs/reference/annotations.schema.json'), 'utf8')) as object;
  t.deepEqual(published, ANNOTATIONS_SCHEMA as object);
  t.true(new Ajv({ strict: true }).validateSchema(published));
});
