/**
 * @file Groups of an emitted pipeline's transfers: which there are, by the program that the bundled runtime runs, and that
 * transfers in both directions need not wait for each other.
 */
import { mkdtempSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join, resolve } from 'node:path';
import test from 'ava';
import { compile } from '../../../src/api/index.js';
import { openCompiled } from '../../../src/api/verify.js';
import { missing } from '../../missing.js';
import { writeModel } from '../../pipelines/models.js';
import { torchAbsence } from '../../reference/torch.js';
import { python } from './emitted.js';

/** As channels.py prints it. */
interface RankResult {
  readonly made: readonly (readonly number[])[];
  readonly channels: readonly (readonly [sender: number, receiver: number])[];
  readonly groups: number;
  readonly received: readonly (readonly [members: readonly number[], values: readonly number[]])[];
}

const STAGES = 3;
const DP = 2;
const absence = torchAbsence('numpy', 'safetensors');

if (missing(absence !== null, absence ?? '') !== null) test.skip(`${absence}`, () => undefined);
else
  test('each direction between two ranks has a group of its own, and sends wait for no receiver', async (t) => {
    const folder = mkdtempSync(join(tmpdir(), 'autopar-torch-channels-'));
    const [model, output] = [join(folder, 'model.onnx'), join(folder, 'out')];
    // All of its stages read one table, and send to all others.
    writeModel('encoder-decoder', model);
    await compile({
      ...{ model, output, target: 'torch', axes: 'roles', globalBatch: 16, schedule: '1f1b', zero: 0 },
      ...{ devices: STAGES * DP, pp: STAGES, dp: DP },
      training: { loss: { kind: 'mse' }, optimizer: { kind: 'sgd', learningRate: 0.1 }, microBatches: 4 },
    });
    const { program } = await openCompiled(output);
    const sent = program.stages.flatMap(({ phases }, from) =>
      Object.values(phases)
        .flat()
        .flatMap((instruction) => (instruction.kind === 'send' ? [`${from} ${instruction.stage}`] : [])),
    );
    const wanted = [...new Set(sent)]
      .map((text) => text.split(' ').map(Number) as [number, number])
      .flatMap(([from, to]) => Array.from({ length: DP }, (_, place) => [from * DP + place, to * DP + place] as const))
      .sort(([a, b], [c, d]) => a - c || b - d);
    t.is(wanted.length, STAGES * (STAGES - 1) * DP);
    const printed = python([resolve('test/codegen/torch/channels.py'), join(output, 'torch'), String(STAGES * DP)]);
    for (const [rank, { made, channels, groups, received }] of (
      JSON.parse(printed) as readonly RankResult[]
    ).entries()) {
      t.deepEqual(
        made.filter((members) => wanted.some((pair) => String(pair) === String(members))),
        wanted,
      );
      const own = wanted.filter((pair) => pair.includes(rank));
      t.deepEqual(channels, own);
      t.is(groups, own.length);
      t.deepEqual(
        received,
        own.flatMap(([sender, receiver]) =>
          receiver === rank ? [[[sender, receiver].sort(), [sender]] as const] : [],
        ),
      );
    }
  });
