/**
 * @file Models of PyTorch's exporters train on two ranks as on one: a loss behind the first output, four steps of SGD, data
 * and tensor parallel, planned and lowered as a user's would be.
 */
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import test from 'ava';
import { compile } from '../../src/api/compile.js';
import { randomInputs } from '../../src/api/execution/inputs.js';
import { importModel } from '../../src/api/models/import.js';
import type { Training } from '../../src/api/models/training.js';
import { openCompiled } from '../../src/api/verify.js';
import { type Graph, typeOf } from '../../src/ir/graph.js';
import { operatorOf } from '../../src/ir/operator-of.js';
import { entryOf } from '../../src/ir/ops/index.js';
import { runProgram } from '../../src/runtime/run-program.js';
import { missing } from '../missing.js';
import { thinned } from '../selection.js';
import { ABSENT, dimsOf, sharedCases } from './shared-models.js';

const CASES = thinned(sharedCases(), 2);

const DEGREES = [
  { dp: 1, tp: 1 },
  { dp: 2, tp: 1 },
  { dp: 1, tp: 2 },
] as const;

/** Relative, of every step's loss. Sums in another order differ by rounding, in half precision by more. */
const TOLERANCE = 1e-5;
const HALF_TOLERANCE = 1e-3;

if (missing(CASES.length === 0, `training of ${ABSENT}`) !== null) test.skip(`training of ${ABSENT}`, () => undefined);

for (const item of CASES) {
  const { name, file } = item;
  test.serial(name, async (t) => {
    const dims = await dimsOf(item);
    const { graph } = await importModel(file, { dims });
    const [of = ''] = graph.outputs;
    const kind = typeOf(graph, of).shape.length === 0 ? 'model-output' : 'mse';
    const folder = mkdtempSync(join(tmpdir(), 'autopar-test-'));
    t.teardown(() => rmSync(folder, { recursive: true, force: true }));
    const losses = async (degrees: (typeof DEGREES)[number]) => {
      const training: Training = { loss: { kind, output: of }, optimizer: { kind: 'sgd', learningRate: 0.01 } };
      const devices = degrees.dp * degrees.tp;
      const output = join(folder, 'step');
      const { plan } = await compile({
        ...{ model: file, dims, output, force: true, training, devices, degrees, axes: 'roles' },
      });
      const { flopsPerRank, flopsTotal } = plan.predicted;
      const { imported } = await openCompiled(output);
      // Data parallelism has every rank update the weights that all of them have.
      const updates = updateFlops(imported.graph);
      t.true(
        flopsPerRank <= (1.1 / devices) * (flopsTotal - updates) + updates,
        `no rank does the work of another: ${flopsPerRank} of ${flopsTotal} FLOPs, ${updates} of them updates`,
      );
      const { history } = await runProgram(output, randomInputs(imported.graph, 1), { steps: 4 });
      return Object.values(history)[0] ?? [];
    };
    const alone = await losses(DEGREES[0]);
    t.is(alone.length, 4);
    t.true((alone.at(-1) ?? Number.NaN) < (alone[0] ?? Number.NaN), 'it learns');
    const half = [...graph.tensors.values()].some(({ dtype }) => dtype === 'float16');
    for (const degrees of DEGREES.slice(1)) {
      const shared = await losses(degrees);
      const worst = Math.max(
        ...alone.map((loss, step) => Math.abs((shared[step] ?? Number.NaN) - loss) / Math.abs(loss)),
      );
      t.log(`dp ${degrees.dp} tp ${degrees.tp}: ${worst.toExponential(1)}`);
      t.true(worst <= (half ? HALF_TOLERANCE : TOLERANCE), `dp ${degrees.dp} tp ${degrees.tp}: ${worst}`);
    }
  });
}

/** FLOPs of the optimizer, once for all weights. */
function updateFlops(graph: Graph): number {
  const updates = graph.nodes.filter(({ phase }) => phase === 'update');
  return updates.reduce(
    (sum, node) => sum + (entryOf(node.op, node.domain)?.work(operatorOf(graph, node)).flops ?? 0),
    0,
  );
}
