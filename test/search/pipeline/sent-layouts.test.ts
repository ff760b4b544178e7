/**
 * @file Layouts of tensors between stages of unlike meshes: slices where the link between stages is the slow one, though ranks of
 * one of the two stages hold the tensor whole.
 */
import test from 'ava';
import { importModel } from '../../../src/api/models/import.js';
import { plan } from '../../../src/api/plan.js';
import { localBytes } from '../../../src/partition/partition.js';
import type { ShardedTensor } from '../../../src/partition/sharded-graph.js';

for (const meshes of ['dp2 | tp2', 'tp2 | dp2'])
  test(`between nodes every rank sends its half: ${meshes}`, async (t) => {
    const imported = await importModel('models/gpt-tiny.onnx', { globalBatch: 8 });
    const { found } = await plan(imported, { cluster: '2x2:h100-sxm-80', meshes });
    const [first, second] = found.lowered;
    const sends = first?.sharded.pipeline?.sends ?? [];
    t.true(sends.length > 0);
    for (const { name, tensor } of sends) {
      const type = first?.sharded.tensors.get(tensor) as ShardedTensor;
      const whole = localBytes({ ...type, localShape: type.shape });
      t.is(localBytes(type), whole / 2, name);
      t.deepEqual(second?.sharded.tensors.get(name)?.layout, type.layout, name);
    }
  });
