import test from 'ava';
import { editAnnotations, writeAnnotations } from '../../../src/sharding-propagation/annotations/edit-annotations.js';
import { annotationsIn } from '../../../src/sharding-propagation/annotations/read-annotations.js';
import { parseYaml } from '../../../src/sharding-propagation/annotations/yaml-source.js';
import { refused } from './file.js';

const TEXT = `# Pins of our GPT
version: 1

pins:
  # the embedding's vocabulary
  - match: {node: /wte/Gather}
    factors: {v: tp} # masked lookup

  # the pair
  - match: {module: h.*.mlp}
    style: pairwise
    why: |
      Megatron's pair.
# end
`;

const pinsOf = async (text: string) => annotationsIn(await parseYaml(text, 'pins.yaml')).pins;

test('an edit that changes nothing gives the text back', async (t) => {
  t.is(await editAnnotations(TEXT, 'pins.yaml', { pins: [] }), TEXT);
  const same = { match: { node: '/wte/Gather' }, factors: { v: 'tp' } };
  t.is(await editAnnotations(TEXT, 'pins.yaml', { pins: [same] }), TEXT);
});

test('pins are added and replaced, and comments stay', async (t) => {
  const edited = await editAnnotations(TEXT, 'pins.yaml', {
    mesh: { tp: 4 },
    pins: [
      { match: { node: '/wte/Gather' }, factors: { v: '-', a1: 'tp' }, priority: 1 },
      { match: { tensor: 'ids' }, layout: '[dp, -]' },
    ],
  });
  for (const comment of ['# Pins of our GPT', "# the embedding's vocabulary", '# masked lookup', '# the pair', '# end'])
    t.true(edited.includes(comment), comment);
  const pins = await pinsOf(edited);
  t.deepEqual(
    pins.map(({ target }) => target.glob),
    ['/wte/Gather', 'h.*.mlp', 'ids'],
  );
  t.deepEqual(pins[0]?.factors, { v: '-', a1: 'tp' });
  t.is(pins[0]?.priority, 1);
  t.is(pins[1]?.why, "Megatron's pair.\n");
  t.deepEqual(annotationsIn(await parseYaml(edited, 'pins.yaml')).mesh, { tp: 4 });
});

test('pins are removed with their own comments only', async (t) => {
  const edited = await editAnnotations(TEXT, 'pins.yaml', { pins: [], remove: [{ node: '/wte/Gather' }] });
  t.deepEqual(
    (await pinsOf(edited)).map(({ target }) => target.glob),
    ['h.*.mlp'],
  );
  t.true(edited.includes('# the pair'));
  t.true(edited.includes('# Pins of our GPT'));
});

test('JSON stays JSON', async (t) => {
  const json = JSON.stringify({ version: 1, pins: [{ match: { node: 'a' }, stage: 0 }] });
  const edited = await editAnnotations(json, 'pins.json', {
    pins: [{ match: { node: 'b' }, stage: 1 }],
    mesh: { pp: 2 },
  });
  t.deepEqual(JSON.parse(edited), {
    version: 1,
    pins: [
      { match: { node: 'a' }, stage: 0 },
      { match: { node: 'b' }, stage: 1 },
    ],
    mesh: { pp: 2 },
  });
});

test('a new file reads back as what was written', async (t) => {
  const pins = [
    { match: { node: 'fc' }, layout: { in: ['[dp, -]', null], out: ['[dp, tp]'] }, why: 'because: of #this' },
    { match: { op: 'MatMul' }, split: [[4, 1], null] },
    { match: { tensor: 'w' }, map: { device_matrix: [4, 2], alias_name: ['dp', 'mp'], tensor_map: ['mp', 'None'] } },
    { match: { module: '**.attn' }, style: 'pairwise', stage: 1, recompute: true, place: 'host', priority: -1 },
  ] as const;
  const text = await writeAnnotations({ version: 1, mesh: { dp: 4, tp: 2 }, pins });
  const read = await pinsOf(text);
  for (const [index, pin] of pins.entries())
    for (const [key, value] of Object.entries(pin))
      t.deepEqual((read[index] as unknown as Record<string, unknown>)[key], value);
  t.is(await editAnnotations('', 'new.yaml', { pins, mesh: { dp: 4, tp: 2 } }), text);
});

test('a pin that is none is refused before anything is written', async (t) => {
  const bad = { match: { node: 'a' }, stage: -1 };
  t.is((await refused(t, () => writeAnnotations({ version: 1, pins: [bad] }))).code, 'bad-annotations');
  t.is((await refused(t, () => editAnnotations(TEXT, 'pins.yaml', { pins: [bad] }))).code, 'bad-annotations');
});
