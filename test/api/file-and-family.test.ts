/**
 * @file Language models priced as the families that they are, whose layers are generated under Megatron's strategies, and as
 * graphs, which are planned: the same step takes as long, and as much memory.
 */
import test from 'ava';
import { generatedModel } from '../../models/families.js';
import { workReader } from '../../src/api/planning/step-works.js';
import { parseCluster } from '../../src/cost-model/cluster.js';
import type { StepConfiguration } from '../../src/cost-model/step/configuration.js';
import { STEP_CONSTANTS } from '../../src/cost-model/step/constants.js';
import { stageMemory } from '../../src/cost-model/step/step-memory.js';
import { priceStep } from '../../src/cost-model/step/step-price.js';
import { BASE } from '../search/configurations/base.js';
import { EVERYTHING } from '../selection.js';

const SIZES = 'hidden=2048,heads=16,seq=2048,vocab=32000';
const EXPERTS = 'ffn=4096,experts=8,topk=2';
const HYBRID = 'head_width=128,ffn=4096,experts=8,topk=2,expert_ffn=1024,shared=1024,state=64,groups=4';

const FAMILIES: readonly (readonly [text: string, hasExperts: boolean])[] = [
  [`gpt:layers=24,${SIZES}`, false],
  [`llama:layers=24,kv_heads=4,${SIZES}`, false],
  [`bert:layers=24,${SIZES}`, false],
  [`moe:layers=24,kv_heads=4,${EXPERTS},${SIZES}`, true],
  [`moe:layers=24,kv_heads=4,shared=1024,dense=1,${EXPERTS},${SIZES}`, true],
  [`hybrid:pattern=M-M*MEM-M*ME,kv_heads=4,latent=1024,${HYBRID},${SIZES}`, true],
];

type Degrees = StepConfiguration['degrees'];

const DENSE: readonly Degrees[] = [
  { dp: 32, tp: 1, sp: 1, pp: 1, ep: 1 },
  { dp: 4, tp: 2, sp: 2, pp: 2, ep: 1 },
  { dp: 4, tp: 4, sp: 1, pp: 2, ep: 1 },
];

const SPARSE: readonly Degrees[] = [
  { dp: 32, tp: 1, sp: 1, pp: 1, ep: 8 },
  { dp: 8, tp: 1, sp: 2, pp: 2, ep: 4 },
  { dp: 8, tp: 2, sp: 1, pp: 2, ep: 8 },
  { dp: 4, tp: 4, sp: 1, pp: 2, ep: 4 },
];

for (const [text, hasExperts] of EVERYTHING ? FAMILIES : FAMILIES.slice(2, 4)) {
  test(`as a family and as a graph a step is predicted alike: ${text}`, async (t) => {
    const cluster = parseCluster('4x8:a100-sxm-80', undefined);
    const generated = generatedModel(text);
    const { language: _, ...graph } = generated;
    const purpose = { kind: 'training', loss: { kind: 'cross_entropy' } } as const;
    const readers = [generated, graph].map((model) => workReader({}, model, purpose, cluster));
    const combinations = [...DENSE, ...(hasExperts ? SPARSE : [])].filter(({ tp }) => EVERYTHING || tp <= 2);
    for (const degrees of combinations) {
      const configuration: StepConfiguration = {
        ...BASE,
        ...{ degrees, microBatch: 1, globalBatch: 64, virtualStages: 1, zero: 1, recompute: 'none' },
        tpSequence: degrees.tp > 1,
      };
      const [family, file] = await Promise.all(
        readers.map(async (read) => {
          const { work } = await read(degrees.tp, 1);
          const { stepSeconds, bytes } = priceStep(work, configuration, cluster, STEP_CONSTANTS);
          const most = Math.max(...stageMemory(work, configuration).map(({ total }) => total));
          return { stepSeconds, ep: bytes.ep, pp: bytes.pp, most };
        }),
      );
      const near = (key: 'stepSeconds' | 'ep' | 'pp' | 'most') => {
        const [own, expected] = [file?.[key] ?? 0, family?.[key] ?? 0];
        t.true(
          Math.abs(own - expected) <= 0.03 * expected,
          `${key} of ${JSON.stringify(degrees)}: ${own}, ${expected}`,
        );
      };
      for (const key of ['stepSeconds', 'ep', 'pp', 'most'] as const) near(key);
      if (degrees.ep > 1) t.true((file?.ep ?? 0) > 0);
    }
  });
}
