/**
 * @file Annotations of models of PyTorch's exporters: the file's initializers, sharded as the exported annotations say, are the
 * shards on the ranks. TorchScript and dynamo write linear layers as Gemm, as MatMul of stored transposes, and as Transpose
 * and MatMul.
 */
import { mkdtemp } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { isDeepStrictEqual } from 'node:util';
import test from 'ava';
import { compile } from '../../src/api/compile.js';
import { importModel } from '../../src/api/models/import.js';
import { convertStrategy } from '../../src/api/strategy.js';
import { elementCount, fileTensorOf } from '../../src/ir/graph.js';
import { readOnnx } from '../../src/ir/onnx/reader.js';
import { loadWeight } from '../../src/ir/onnx/tensors.js';
import { missing } from '../missing.js';
import { thinned } from '../selection.js';
import { elementsOf, heldShards, positionsBySpec, specsOf } from './annotated-elements.js';
import { ABSENT, dimsOf, sharedCases } from './shared-models.js';

/** Its gates are stacked to weights that no tensor of the file is, and its last matrix is padded. */
const STACKED = 'torch-2.13.0-nn_lstm';

const cases = sharedCases();
if (missing(cases.length === 0, ABSENT)) test.skip('annotations of exported models', (t) => t.pass());

for (const shared of thinned(cases, 2)) {
  test(`${shared.name}: annotations cut the file's weights as the program does`, async (t) => {
    const dims = await dimsOf(shared);
    const directory = join(await mkdtemp(join(tmpdir(), 'autopar-annotated-')), 'out');
    await compile({
      model: shared.file,
      dims,
      output: directory,
      devices: 4,
      degrees: { dp: 1, tp: 4 },
      axes: 'roles',
    });
    const annotated = join(directory, '..', 'annotated.onnx');
    await convertStrategy({ from: directory, output: annotated });
    const { graph } = await importModel(shared.file, { dims });
    const { initializers } = (await readOnnx(shared.file)).graph;
    const shards = await heldShards(directory);
    let compared = 0;
    for (const spec of await specsOf(annotated)) {
      const name = spec.tensor_name ?? '';
      const stored = initializers.get(name);
      const positions = stored && positionsBySpec(spec, stored.shape);
      const data = stored && (await loadWeight(stored.source));
      if (!stored || !positions || !data) continue;
      const own = shards.filter(({ source }) => (fileTensorOf(graph, source)?.name ?? source) === name);
      const count = elementCount(stored.shape);
      const expected = positions.map((of) => elementsOf(data, count, of));
      if (own.length === 0) continue;
      t.true(
        own.some(({ ranks }) => isDeepStrictEqual(ranks, expected)),
        name,
      );
      compared++;
    }
    t.is(compared > 0, shared.name !== STACKED, 'annotations about weights');
  });
}
