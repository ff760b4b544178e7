/**
 * @file Units of models and their letters: every operator in one unit, units in an order in which they read of earlier ones
 * alone, and the text of a layout of stages.
 */
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import test from 'ava';
import { generatedModel } from '../../../models/families.js';
import { importModel } from '../../../src/api/models/import.js';
import { AutoparError } from '../../../src/ir/error.js';
import { writeOnnx } from '../../../src/ir/onnx/writer.js';
import { layoutOfStages, readStageLayout } from '../../../src/search/pipeline/stage-layout.js';
import { lettersOf, stageUnits } from '../../../src/search/pipeline/units.js';

const LETTERS: Readonly<Record<string, string>> = {
  'gpt-tiny': 'E t*2 H',
  'llama-tiny': 'E t*2 H',
  mlp: 't*2 u',
  'cnn-tiny': 't*2 H',
};

for (const [model, letters] of Object.entries(LETTERS)) {
  test(`${model} is ${letters}, and reads of earlier units alone`, async (t) => {
    const { graph } = await importModel(`models/${model}.onnx`);
    t.is(lettersOf(stageUnits(graph, 1)), letters);
    for (const least of [1, 1000]) {
      const units = stageUnits(graph, least);
      t.deepEqual(units.flatMap(({ operators }) => operators).sort(), graph.nodes.map(({ name }) => name).sort());
      const unitOf = new Map(units.flatMap(({ operators }, index) => operators.map((name) => [name, index] as const)));
      const makers = new Map(
        graph.nodes.flatMap(({ name, outputs }) => outputs.map((output) => [output, name] as const)),
      );
      for (const { name, inputs } of graph.nodes) {
        for (const maker of inputs.flatMap((input) => makers.get(input) ?? []))
          t.true((unitOf.get(maker) ?? 0) <= (unitOf.get(name) ?? 0), `${name} reads of ${maker}`);
      }
    }
  });
}

test('a mask that layers share is made before them, wherever it stands, and each layer stays a unit', async (t) => {
  const folder = mkdtempSync(join(tmpdir(), 'autopar-test-'));
  t.teardown(() => rmSync(folder, { recursive: true, force: true }));
  const file = join(folder, 'model.onnx');
  writeFileSync(file, writeOnnx(generatedModel('gpt:layers=3,hidden=32,heads=4,seq=16,vocab=64').build(2)));
  const { graph } = await importModel(file, { sharesSequence: true });
  const units = stageUnits(graph, 1);
  t.is(lettersOf(units), 'E t*3 H');
  const mask = graph.nodes.findIndex(({ layer, op }) => layer === null && op === 'LessOrEqual');
  t.true(
    mask > graph.nodes.findIndex(({ layer }) => layer !== null),
    'it stands behind the beginning of the first layer',
  );
  t.true(units[0]?.operators.includes(graph.nodes[mask]?.name ?? ''));
});

test('a layout of stages is read as it is written, and refused where it is of another model', async (t) => {
  const { graph } = await importModel('models/gpt-tiny.onnx');
  const units = stageUnits(graph, 1);
  for (const sizes of [
    [2, 2],
    [1, 3],
    [1, 1, 1, 1],
  ]) {
    const text = layoutOfStages(units, sizes);
    t.deepEqual(readStageLayout(text, units, sizes.length), sizes, text);
    t.deepEqual(readStageLayout(text.replaceAll(' ', ''), units, sizes.length), sizes, text);
  }
  const refused: readonly (readonly [string, number, RegExp])[] = [
    ['E t t H', 2, /it has 1 parts, and --pp · --virtual-stages is 2/],
    ['E t | t', 2, /it leaves out H/],
    ['E t | t t H', 2, /unit 3 of it is t, and the model has H/],
    ['E t | | t H', 3, /a stage has no units/],
    ['E 2t | t H', 2, /is not a row of letters/],
    ['E t | t H H', 2, /the model has 4 units/],
    ['E t*999999 | H', 2, /unit 3 of it is t/],
  ];
  for (const [text, parts, says] of refused) {
    const error = t.throws(() => readStageLayout(text, units, parts), { instanceOf: AutoparError }, text);
    t.is(error?.code, 'bad-stages');
    t.regex(error?.message ?? '', says, text);
    t.regex(error?.hint ?? '', /E t\*2 H/);
  }
});
