/**
 * @file Models whose layers are of several kinds in turns: computed alike on several ranks, and priced as the layers that they
 * have.
 */
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import test from 'ava';
import { generatedModel } from '../../models/families.js';
import { languageModel } from '../../models/language-model.js';
import type { LanguageModelSizes } from '../../models/language-sizes.js';
import { compile } from '../../src/api/compile.js';
import { modelWork } from '../../src/api/planning/step-works.js';
import { parseCluster } from '../../src/cost-model/cluster.js';
import { STEP_CONSTANTS } from '../../src/cost-model/step/constants.js';
import { flopsOf } from '../../src/cost-model/step/model-flops.js';
import { priceStep } from '../../src/cost-model/step/step-price.js';
import type { PartWork } from '../../src/cost-model/step/work.js';
import { writeOnnx } from '../../src/ir/onnx/writer.js';
import { trained } from '../cost-model/step/trained.js';
import { slowTests } from '../selection.js';

const slow = slowTests(test);

const CLUSTER = parseCluster('1x8:h100-sxm-80', undefined);
const TEXT =
  'hybrid:pattern=M*-E,hidden=32,heads=4,kv_heads=2,head_width=8,ffn=64,state_width=16,state=8,groups=2,' +
  'chunk=8,experts=4,topk=2,expert_ffn=16,shared=32,latent=16,vocab=64,seq=16';

function sizesOf(text: string, batch: number): LanguageModelSizes {
  const { language } = generatedModel(text);
  if (!language) throw new Error(`${text} is no language model`);
  return { ...language, batch };
}

const GPT_OSS =
  'moe:layers=2,hidden=32,heads=4,kv_heads=2,head_width=16,ffn=32,experts=4,topk=2,vocab=64,' +
  'seq=16,window=4,sinks=1,bias=1,clamp=7';

for (const [isSlow, text, degrees, isTraining] of [
  [true, TEXT, { tp: 2 }, true],
  [true, TEXT, { dp: 2 }, true],
  [false, TEXT, { dp: 2, tp: 2 }, false],
  [false, GPT_OSS, { tp: 2 }, true],
  [true, GPT_OSS, { dp: 2 }, false],
] as const)
  slowTests(test, isSlow)(
    `all kinds of layers of ${text.slice(0, 6)} compute the same under ` +
      `${JSON.stringify(degrees)}${isTraining ? ', in training' : ''}`,
    async (t) => {
      const folder = mkdtempSync(join(tmpdir(), 'autopar-hybrid-'));
      t.teardown(() => rmSync(folder, { recursive: true, force: true }));
      const model = join(folder, 'model.onnx');
      writeFileSync(model, writeOnnx(languageModel('model', sizesOf(text, 4), 1)));
      const training = { loss: { kind: 'cross_entropy' }, optimizer: { kind: 'sgd', learningRate: 0.1 } } as const;
      const result = await compile({
        model,
        output: join(folder, 'out'),
        devices: Object.values(degrees).reduce((product, size) => product * size, 1),
        degrees,
        axes: 'roles',
        verify: true,
        ...(isTraining ? { training } : {}),
      });
      t.true(result.verification?.passed);
    },
  );

slow('a layer of each kind is counted as often as the pattern has it', async (t) => {
  const work = await modelWork(sizesOf(TEXT.replace('M*-E', 'MEM*EME-'), 1), 1, CLUSTER);
  t.deepEqual(
    work.layers.map(({ count }) => count),
    [3, 3, 1, 1],
  );
  t.deepEqual(work.order, [0, 1, 0, 2, 1, 0, 1, 3]);
  // Models whose layers follow one another by kind have no order of their own.
  const dense = sizesOf('moe:layers=3,dense=1,hidden=64,heads=4,kv_heads=4,ffn=64,seq=16,vocab=64', 1);
  t.is((await modelWork(dense, 1, CLUSTER)).order, undefined);
});

/** One of two layers of a model of state space alone. */
async function stateSpaceLayer(also: string, tp: number): Promise<PartWork> {
  const text = `hybrid:pattern=MM,hidden=256,state_width=32,state=64,groups=4,chunk=64,vocab=256,seq=512${also}`;
  const [layer] = (await modelWork(sizesOf(text, 1), tp, CLUSTER)).layers;
  if (!layer) throw new Error('a model without layers');
  return layer.part;
}

const flops = (part: PartWork, phase: 'forward' | 'backward') =>
  part[phase].reduce((sum, work) => sum + flopsOf(work), 0);

slow('a state-space layer has the products of its projections and of its chunks, shared out by tp', async (t) => {
  const [s, h, inner, heads, n, groups, chunk] = [512, 256, 512, 16, 64, 4, 64];
  const projections = 2 * s * h * (2 * inner + 2 * groups * n + heads) + 2 * s * inner * h;
  const chunks = s / chunk;
  const scan =
    2 * s * chunk * groups * n + 2 * s * chunk * inner + 2 * (2 * s * n * inner) + 2 * chunks * chunks * n * inner;
  for (const tp of [1, 2, 4]) {
    const part = await stateSpaceLayer('', tp);
    t.is(flops(part, 'forward'), (projections + scan) / tp);
    // Twice as many, and the scan's once more, which its kernels make again.
    t.is(flops(part, 'backward'), (2 * projections + 3 * scan) / tp);
    for (const phase of ['forward', 'backward'] as const) {
      const exchanges = part[phase].filter(({ kind }) => kind === 'exchange');
      t.is(exchanges.length, tp === 1 ? 0 : 1, `${phase} at tp ${tp}`);
    }
  }
});

test('what a scan makes inside its chunks is not kept: what a layer keeps does not grow with them', async (t) => {
  t.is((await stateSpaceLayer('', 1)).saved, (await stateSpaceLayer(',chunk=256', 1)).saved);
});

test('nor does what is live while it infers, but for the states at the ends of chunks, which are fewer', async (t) => {
  t.true((await stateSpaceLayer(',chunk=256', 1)).live <= (await stateSpaceLayer('', 1)).live);
});

test('experts of a latent width are sent tokens of that width', async (t) => {
  const sent = async (latent: number) => {
    const experts = `experts=8,topk=2,expert_ffn=128,shared=0,latent=${latent}`;
    const text = `hybrid:pattern=EE,hidden=256,heads=4,kv_heads=4,head_width=64,${experts},vocab=256,seq=512`;
    const { ep } = priceStep(
      await modelWork(sizesOf(text, 1), 1, CLUSTER),
      trained({ dp: 8, ep: 8 }),
      CLUSTER,
      STEP_CONSTANTS,
    ).bytes;
    return ep;
  };
  t.is(await sent(64), (await sent(0)) / 4);
});
