/**
 * @file The units of a model are those that `inspect` shows, whether it infers or trains, in whichever precision and however many
 * micro-batches, so that `--stages` is written once.
 */

import { tmpdir } from 'node:os';
import { join } from 'node:path';
import test from 'ava';
import { importModel } from '../../../src/api/models/import.js';
import { type Training, trainedModel } from '../../../src/api/models/training.js';
import { importedFor } from '../../../src/api/models/training-form.js';
import type { Graph } from '../../../src/ir/graph.js';
import { lettersOf, type StageUnit, stageUnits } from '../../../src/search/pipeline/units.js';
import { MODELS, type ModelName, writeModel } from '../../pipelines/models.js';
import { EVERYTHING } from '../../selection.js';

const FORMS = [
  { precision: 'fp32', microBatches: 1, kind: 'mse' },
  { precision: 'fp32', microBatches: 4, kind: 'cross_entropy' },
  { precision: 'bf16', microBatches: 1, kind: 'cross_entropy' },
  { precision: 'fp16', microBatches: 4, kind: 'mse' },
] as const;

/** Operators that read what a later unit makes. */
function readsOfLater({ nodes }: Graph, units: readonly StageUnit[]): readonly string[] {
  const unitOf = new Map(units.flatMap(({ operators }, index) => operators.map((name) => [name, index] as const)));
  const madeIn = new Map<string | null, number>();
  for (const { name, outputs } of nodes)
    for (const output of outputs) madeIn.set(output, unitOf.get(name) ?? Number.NEGATIVE_INFINITY);
  return nodes.flatMap(({ name, inputs }) => {
    const own = unitOf.get(name);
    return own !== undefined && inputs.some((input) => (madeIn.get(input) ?? own) > own) ? [name] : [];
  });
}

/** Statistics and choices of a whole batch, which micro-batches would make anew. */
const WHOLE: ReadonlySet<string> = new Set(['batch-norm', 'moe', 'capacity-experts', 'resnet', 'u-net']);

/** Its Dropout stands before the layers, and is there when it is trained alone. */
const OTHERWISE: ReadonlySet<string> = new Set(['dropout']);

for (const name of (Object.keys(MODELS) as ModelName[]).filter((own) => !OTHERWISE.has(own))) {
  test(`${name} has the same units when it is trained`, async (t) => {
    const file = join(tmpdir(), `${name}.onnx`);
    writeModel(name, file);
    const shown = stageUnits((await importModel(file)).graph, 1);
    for (const { precision, microBatches, kind } of EVERYTHING ? FORMS : FORMS.slice(0, 2)) {
      if (WHOLE.has(name) && microBatches > 1) continue;
      const isPart = name === 'unrelated';
      const training: Training = {
        loss: { kind, ...(isPart ? { output: 'y' } : {}) },
        optimizer: { kind: 'sgd', learningRate: 0.1 },
        ...(isPart ? { frozen: ['z.*'] } : {}),
        ...{ precision, microBatches, isHeldInFloat32: precision !== 'fp32' },
      };
      const at = (globalBatch: number | undefined) =>
        importModel(file, { ...(globalBatch === undefined ? {} : { globalBatch }), ...importedFor(training) });
      const { graph } = await trainedModel(await at(undefined), training, at);
      const units = stageUnits(graph, 1);
      t.is(lettersOf(units), lettersOf(shown), `${precision} ${microBatches} ${kind}`);
      const placed = units.flatMap(({ operators }) => operators);
      const forward = graph.nodes.filter(({ phase }) => phase === 'forward').map(({ name: node }) => node);
      t.deepEqual([...placed].sort(), forward.sort(), 'every operator has a unit');
      t.deepEqual(readsOfLater(graph, stageUnits(graph, 1000)), [], 'operators read of earlier units');
      t.deepEqual(readsOfLater(graph, units), [], 'units read of earlier ones');
    }
  });
}
