/**
 * @file `npm run bench:pins -- N [--seed S]`: draws pins of degrees, micro-batches, ZeRO, recomputation and schedules for models
 * on 64 devices and more, plans with them, and compares: no pin may beat the plan without it. Both are the fastest plan that
 * fits, whatever memory it leaves (`--prefer fastest --headroom 0`). Exit 1 if a pin does.
 */
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { uniform } from '../src/api/verification/numbers.js';
import { compiledApart, NotCompiled } from './compiled-apart.js';

interface Model {
  readonly text: string;
  readonly cluster: string;
  readonly precision: 'fp32' | 'bf16';
  /** Devices of a node. */
  readonly perNode: number;
  readonly hasSequence: boolean;
  readonly experts: number;
}

const DENSE = { perNode: 8, precision: 'bf16', hasSequence: true, experts: 1 } as const;

const MODELS: readonly Model[] = [
  {
    ...DENSE,
    text: 'llama:layers=32,hidden=4096,heads=32,kv_heads=8,ffn=14336,vocab=128256,seq=8192,batch=64',
    cluster: '8x8:h100-sxm-80',
  },
  {
    ...DENSE,
    text: 'llama:layers=80,hidden=8192,heads=64,kv_heads=8,ffn=28672,vocab=128256,seq=4096,batch=128',
    cluster: '8x8:h100-sxm-80',
  },
  { ...DENSE, text: 'gpt:layers=36,hidden=4096,heads=32,seq=2048,vocab=51200,batch=512', cluster: '16x8:a100-sxm-80' },
  { ...DENSE, text: 'gpt:layers=48,hidden=1600,heads=25,seq=1024,vocab=50304,batch=256', cluster: '8x8:a100-sxm-80' },
  {
    ...DENSE,
    text: 'bert:layers=24,hidden=1024,heads=16,seq=512,batch=512',
    cluster: '8x8:v100-sxm2-32',
    precision: 'fp32',
  },
  { ...DENSE, text: 'vit:layers=32,hidden=1280,heads=16,batch=1024', cluster: '8x8:a100-sxm-80', hasSequence: false },
  {
    ...DENSE,
    text: 'moe:layers=16,hidden=2048,heads=16,ffn=8192,vocab=32000,seq=2048,experts=8,topk=2,batch=128',
    cluster: '8x8:h100-sxm-80',
    experts: 8,
  },
  { ...DENSE, text: 'resnet:layers=50,batch=2048', cluster: '8x8:a100-sxm-80', precision: 'fp32', hasSequence: false },
  {
    ...DENSE,
    text: 'hybrid:pattern=MEMEM*EMEMEM*EMEMEM*E,hidden=2048,heads=16,seq=4096,vocab=32000,batch=128',
    cluster: '8x8:h100-sxm-80',
  },
];

const words = process.argv.slice(2);
const count = Number(words[0] ?? 20);
const seed = Number(words[words.indexOf('--seed') + 1] ?? 1);
if (!Number.isInteger(count) || !Number.isInteger(seed))
  throw new Error('bench:pins takes a number of pins and --seed');

/** One to three pins. */
function pinsOf(random: () => number, { perNode, hasSequence, experts }: Model): readonly string[] {
  const among = <Item>(items: readonly Item[]): Item => items[Math.floor(random() * items.length)] as Item;
  const kinds: readonly (readonly [option: string, values: readonly (string | number)[]])[] = [
    ['--pp', [1, 2, 4, 8]],
    ['--tp', [1, 2, 4, perNode]],
    ['--dp', [1, 2, 4, 8, 16, 32]],
    ...(hasSequence ? ([['--sp', [1, 2, 4, 8]]] as const) : []),
    ...(experts > 1 ? ([['--ep', [1, 2, 4, experts]]] as const) : []),
    ['--micro-batch', [1, 2, 4]],
    ['--zero', [0, 1, 2, 3]],
    ['--recompute', ['none', 'full', 'selective']],
    ['--schedule', ['1f1b', 'interleaved-1f1b', 'zero-bubble', 'interleaved-zero-bubble', 'zbv']],
  ];
  const wanted = 1 + Math.floor(random() * 3);
  const chosen = new Map<string, string>();
  while (chosen.size < wanted) {
    const [option, values] = among(kinds);
    chosen.set(option, String(among(values)));
  }
  return [...chosen].flat();
}

const folder = mkdtempSync(join(tmpdir(), 'autopar-bench-'));
const seconds = ({ text, cluster, precision }: Model, pins: readonly string[]): number => {
  const asked = ['--model', text, '--cluster', cluster, '--train', '--precision', precision, '--plan-only'];
  const out = ['--prefer', 'fastest', '--headroom', '0', '--output', join(folder, 'out'), '--force'];
  return compiledApart([...asked, ...pins, ...out]).figures.predicted.stepSeconds;
};
const known = new Map<Model, number>();
let [beaten, refused] = [0, 0];
try {
  for (let draw = 0; draw < count; draw++) {
    const random = uniform(seed + draw);
    const model = MODELS[Math.floor(random() * MODELS.length)] as Model;
    const pins = pinsOf(random, model);
    const own = known.get(model) ?? seconds(model, []);
    known.set(model, own);
    let pinned = Number.POSITIVE_INFINITY;
    try {
      pinned = seconds(model, pins);
    } catch (error) {
      // Exits 2 and 4: the pins contradict each other, or no plan with them fits.
      if (!(error instanceof NotCompiled) || ![2, 4].includes(error.exit)) throw error;
      refused++;
    }
    const isBeaten = pinned < own * (1 - 1e-9);
    if (isBeaten) beaten++;
    const ratio = Number.isFinite(pinned) ? `${(pinned / own).toFixed(4)} times` : 'refused';
    console.log(`${isBeaten ? 'BEATEN ' : ''}seed ${seed + draw}: ${model.text} ${pins.join(' ')}: ${ratio}`);
  }
} finally {
  rmSync(folder, { recursive: true, force: true });
}
console.log(`${count} drawn on ${known.size} models, ${refused} refused, ${beaten} beat the plan`);
if (beaten > 0) process.exitCode = 1;
