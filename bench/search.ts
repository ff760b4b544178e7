/**
 * @file `npm run bench:search [-- --json]`: searches over whole steps, each in a process of its own as a command is: seconds from
 * start to plan, memory, configurations priced, gap; beside the times that others published for searches of that kind.
 */
import { spawnSync } from 'node:child_process';
import { fileURLToPath } from 'node:url';

interface Case {
  readonly model: string;
  readonly cluster: string;
  readonly globalBatch: number;
}

const CASES: readonly Case[] = [
  { model: 'gpt:layers=24,hidden=2048,heads=16,seq=2048,vocab=51200', cluster: '1x8:a100-sxm-80', globalBatch: 512 },
  { model: 'gpt:layers=32,hidden=4096,heads=32,seq=1024,vocab=51200', cluster: '8x8:v100-sxm2-32', globalBatch: 1024 },
  {
    model: 'llama:layers=32,hidden=4096,heads=32,kv_heads=8,ffn=14336,vocab=128256,seq=8192',
    cluster: '8x8:h100-sxm-80',
    globalBatch: 512,
  },
  {
    model: 'gpt:layers=96,hidden=12288,heads=96,seq=2048,vocab=51200',
    cluster: '128x8:a100-sxm-80',
    globalBatch: 1536,
  },
  {
    model: 'gpt:layers=96,hidden=12288,heads=96,seq=2048,vocab=51200',
    cluster: '256x8:a100-sxm-80',
    globalBatch: 1536,
  },
  {
    model: 'gpt:layers=128,hidden=25600,heads=160,seq=2048,vocab=51200',
    cluster: '2048x8:a100-sxm-80',
    globalBatch: 3072,
  },
  {
    model: 'moe:layers=32,hidden=4096,heads=32,kv_heads=8,ffn=14336,vocab=32000,seq=4096,experts=8,topk=2',
    cluster: '16x8:h100-sxm-80',
    globalBatch: 1024,
  },
];

/** What others say of theirs. */
const PUBLISHED: readonly (readonly [system: string, says: string])[] = [
  ['Alpa', 'stage cuts of 32 layers on 64 devices: 33 s'],
  ['Piper', 'up to 2,048 devices: 57 s'],
  ['Aceso', 'search by reconfiguration: 67 s'],
  ['Galvatron', 'hybrid strategies by layer: 12 s'],
  ['PyTorch AutoParallel', 'Llama-3-8B on an 8 × 8 mesh: 126 s, 4.4 GB'],
];

interface Row extends Case {
  readonly seconds: number;
  readonly processorSeconds: number;
  readonly memoryBytes: number;
  readonly priced: number;
  readonly combinations: number;
  readonly stepSeconds: number;
  readonly gap: number;
  readonly degrees: Readonly<Record<string, number>>;
}

/** What a process of its own runs, and the line that it prints. */
const PROGRAM = `
const { searchStep } = await import(process.argv[1]);
const { model, cluster, globalBatch } = JSON.parse(process.argv[2]);
const found = await searchStep({ generate: model, cluster, globalBatch, loss: { kind: 'cross_entropy' } });
const { userCPUTime, systemCPUTime, maxRSS } = process.resourceUsage();
console.log(JSON.stringify({
  processorSeconds: (userCPUTime + systemCPUTime) / 1e6,
  memoryBytes: maxRSS * 1024,
  priced: found.priced,
  combinations: found.verdicts.length,
  stepSeconds: found.simulation.stepSeconds,
  gap: found.gap,
  degrees: found.simulation.configuration.degrees,
}));
`;

function measured(one: Case): Row {
  const module = fileURLToPath(new URL('../src/api/planning/search-step.js', import.meta.url));
  const start = performance.now();
  const { stdout, stderr, status } = spawnSync(
    process.execPath,
    ['--input-type=module', '--eval', PROGRAM, module, JSON.stringify(one)],
    { encoding: 'utf8' },
  );
  if (status !== 0) throw new Error(`${one.model}: ${stderr}`);
  return {
    ...one,
    seconds: (performance.now() - start) / 1000,
    ...(JSON.parse(stdout) as Omit<Row, keyof Case | 'seconds'>),
  };
}

const rows: Row[] = [];
const json = process.argv.includes('--json');
if (!json) console.log('  wall  processor  memory  combinations  priced     gap      step  degrees, model, cluster');
for (const one of CASES) {
  const row = measured(one);
  rows.push(row);
  if (json) continue;
  const degrees = Object.entries(row.degrees).filter(([, degree]) => degree > 1);
  console.log(
    `${row.seconds.toFixed(1)} s`.padStart(6),
    `${row.processorSeconds.toFixed(1)} s`.padStart(10),
    `${(row.memoryBytes / 1e6).toFixed(0)} MB`.padStart(7),
    String(row.combinations).padStart(13),
    String(row.priced).padStart(7),
    `${(100 * row.gap).toFixed(1)} %`.padStart(7),
    `${row.stepSeconds.toFixed(2)} s`.padStart(9),
    ` ${degrees.map(([axis, degree]) => `${axis} ${degree}`).join(' · ')}, ${row.model}, ${row.cluster}`,
  );
}
if (json) console.log(JSON.stringify({ schema: 'autopar-bench-search-v1', rows }, null, 2));
else for (const [system, says] of PUBLISHED) console.log(`published: ${system}, ${says}`);
