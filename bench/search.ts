/**
 * @file `npm run bench:search [-- NAME…] [--json]`: `autopar compile --train --plan-only`, each in a process of its own:
 * processor seconds from start to plan, memory, the plan; beside published times of similar searches. A case with `isFile` writes
 * its model first, and reads it from that file.
 */
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { generatedModel } from '../models/families.js';
import { writeOnnx } from '../src/ir/onnx/writer.js';
import { compiledApart } from './compiled-apart.js';

interface Case {
  readonly name: string;
  readonly model: string;
  readonly cluster: string;
  readonly options?: readonly string[];
  /** The model is read from a file. */
  readonly isFile?: true;
  /** Most processor seconds that it is to take. */
  readonly aim?: number;
}

const MODELS = {
  gpt175b: 'gpt:layers=96,hidden=12288,heads=96,seq=2048,vocab=51200,batch=1536',
  gpt24: 'gpt:layers=24,hidden=12288,heads=96,seq=2048,vocab=51200,batch=1536',
  gpt1t: 'gpt:layers=128,hidden=25600,heads=160,seq=2048,vocab=51200,batch=3072',
  gpt512: 'gpt:layers=512,hidden=2048,heads=16,seq=1024,batch=512',
  llama8b: 'llama:layers=32,hidden=4096,heads=32,kv_heads=8,ffn=14336,vocab=128256,seq=8192,batch=64',
  llama70b: 'llama:layers=80,hidden=8192,heads=64,kv_heads=8,ffn=28672,vocab=128256,seq=8192,batch=64',
  moe: 'moe:layers=32,hidden=4096,heads=32,kv_heads=8,ffn=14336,vocab=32000,seq=4096,experts=8,topk=2,batch=128',
};

/** Nodes of three kinds. */
const THREE_KINDS = `version: 1
device: a100-sxm-80
levels:
  - {name: node, size: 8}
  - {name: cluster, size: 64}
nodes:
  - {count: 32}
  - {count: 16, device: h100-sxm-80}
  - {count: 16, device: a100-sxm-40}
`;
const KINDS_FILE = 'three-kinds.yaml';

const BF16 = ['--precision', 'bf16'];

const CASES: readonly Case[] = [
  { name: 'GPT-175B', model: MODELS.gpt175b, cluster: '128x8:a100-sxm-80', options: BF16, aim: 8 },
  { name: 'GPT-1T', model: MODELS.gpt1t, cluster: '2048x8:a100-sxm-80', options: BF16, aim: 8 },
  { name: 'GPT-512-layers', model: MODELS.gpt512, cluster: '8x8:h100-sxm-80', aim: 10 },
  { name: 'Llama-3-8B', model: MODELS.llama8b, cluster: '8x8:h100-sxm-80', options: BF16, isFile: true, aim: 6 },
  { name: 'Llama-3-8B-node', model: MODELS.llama8b, cluster: '1x8:h100-sxm-80', options: BF16 },
  { name: 'Llama-3-70B', model: MODELS.llama70b, cluster: '8x8:h100-sxm-80', options: BF16 },
  { name: 'Llama-3-70B-file', model: MODELS.llama70b, cluster: '8x8:h100-sxm-80', options: BF16, isFile: true },
  { name: 'MoE-8x7B', model: MODELS.moe, cluster: '4x8:h100-sxm-80', options: BF16, aim: 8 },
  { name: 'Nemotron-H-8B', model: 'hybrid:batch=64', cluster: '4x8:h100-sxm-80', options: BF16 },
  { name: 'GPT-24-layers', model: MODELS.gpt24, cluster: '128x8:a100-sxm-80', options: BF16 },
  { name: 'three-kinds', model: MODELS.llama70b, cluster: KINDS_FILE, options: BF16, aim: 12 },
  { name: 'DenseNet-121', model: 'densenet:batch=256', cluster: '1x8:a100-sxm-80', aim: 20 },
  { name: 'Swin', model: 'swin:batch=256', cluster: '1x8:a100-sxm-80', aim: 20 },
  { name: 'AlexNet', model: 'alexnet:batch=256', cluster: '1x8:a100-sxm-80', aim: 20 },
  { name: 'VGG', model: 'vgg:batch=256', cluster: '1x8:a100-sxm-80', aim: 20 },
  { name: 'ResNet-50', model: 'resnet:layers=50,batch=2048', cluster: '8x8:a100-sxm-80' },
];

/** Published times of other searches. */
const PUBLISHED: readonly (readonly [system: string, says: string])[] = [
  ['Alpa', 'stage cuts of 32 layers on 64 devices: 33 s'],
  ['Piper', 'up to 2,048 devices: 57 s'],
  ['Aceso', 'search by reconfiguration: 67 s'],
  ['Galvatron', 'hybrid strategies by layer: 12 s'],
  ['PyTorch AutoParallel', 'Llama-3-8B on an 8 × 8 mesh: 126 s, 4.4 GB'],
];

interface Row {
  readonly name: string;
  readonly processorSeconds: number;
  readonly aim: number | null;
  readonly memoryBytes: number;
  readonly stepSeconds: number;
  readonly degrees: Readonly<Record<string, number>>;
}

function measured({ name, model, cluster, options = [], isFile, aim }: Case, folder: string): Row {
  const source = isFile ? [join(folder, `${name}.onnx`)] : ['--model', model];
  if (isFile) {
    const generated = generatedModel(model);
    writeFileSync(source[0] ?? '', writeOnnx(generated.build(generated.batch)));
  }
  const place = cluster === KINDS_FILE ? join(folder, cluster) : cluster;
  const out = join(folder, 'out');
  const words = [...source, '--train', '--cluster', place, ...options, '--plan-only', '--force'];
  const { figures, used } = compiledApart([...words, '--output', out]);
  return { name, aim: aim ?? null, ...used, stepSeconds: figures.predicted.stepSeconds, degrees: figures.degrees };
}
const json = process.argv.includes('--json');
const wanted = process.argv.slice(2).filter((word) => word !== '--json');
const rows: Row[] = [];
const folder = mkdtempSync(join(tmpdir(), 'autopar-bench-'));
writeFileSync(join(folder, KINDS_FILE), THREE_KINDS);
try {
  if (!json) console.log(`${'model'.padEnd(18)} processor    aim   memory       step  degrees`);
  for (const one of CASES.filter(({ name }) => wanted.length === 0 || wanted.includes(name))) {
    const row = measured(one, folder);
    rows.push(row);
    if (json) continue;
    const degrees = Object.entries(row.degrees).filter(([, degree]) => degree > 1);
    console.log(
      row.name.padEnd(18),
      `${row.processorSeconds.toFixed(1)} s`.padStart(9),
      (row.aim === null ? '' : `${row.aim} s`).padStart(6),
      `${(row.memoryBytes / 1e6).toFixed(0)} MB`.padStart(8),
      `${row.stepSeconds.toPrecision(4)} s`.padStart(10),
      ` ${degrees.map(([axis, degree]) => `${axis} ${degree}`).join(' · ')}`,
    );
  }
} finally {
  rmSync(folder, { recursive: true, force: true });
}
if (json) console.log(JSON.stringify({ schema: 'autopar-bench-search-v2', rows }, null, 2));
else for (const [system, says] of PUBLISHED) console.log(`published: ${system}, ${says}`);
