/**
 * @file `npm run bench:stages`: how long stage cuts take, in processor seconds, beside what Alpa and Piper say of theirs.
 *
 * GPT-like models whose layers cost what a step's roofline says, on every sub-mesh of a power of two or of whole nodes, as in
 * Alpa; three points a layer (recompute none, selective, full); and a memory that binds in the first stages.
 */
import { bestCut } from '../src/search/stages/best-cut.js';
import { cutStages } from '../src/search/stages/cut-stages.js';
import type { LayerPoint, StageProblem, SubMesh } from '../src/search/stages/problem.js';

interface Size {
  readonly name: string;
  readonly layers: number;
  readonly hidden: number;
  readonly nodes: number;
  readonly microBatches: number;
  /** Share by which layers differ from one another; 0: all alike. */
  readonly unlike?: number;
  readonly kind?: StageProblem['schedule']['kind'];
  /** Seconds that another system's own page or paper says for this size. */
  readonly peer?: string;
}

const SIZES: readonly Size[] = [
  { name: '32 layers × 64', layers: 32, hidden: 8192, nodes: 8, microBatches: 64, peer: 'Alpa 33 s' },
  {
    name: '32 unlike layers × 64',
    layers: 32,
    hidden: 8192,
    nodes: 8,
    microBatches: 64,
    unlike: 0.2,
    peer: 'Alpa 33 s',
  },
  { name: '32 layers × 64, zero-bubble', layers: 32, hidden: 8192, nodes: 8, microBatches: 64, kind: 'zero-bubble' },
  { name: '96 layers × 1,024', layers: 96, hidden: 12_288, nodes: 128, microBatches: 192 },
  { name: '64 layers × 2,048', layers: 64, hidden: 12_288, nodes: 256, microBatches: 256, peer: 'Piper 57 s' },
  { name: '128 layers × 2,048', layers: 128, hidden: 12_288, nodes: 256, microBatches: 256, peer: 'Piper 57 s' },
  {
    name: '64 unlike layers × 2,048',
    layers: 64,
    hidden: 12_288,
    nodes: 256,
    microBatches: 256,
    unlike: 0.2,
    peer: 'Piper 57 s',
  },
];

const CALLS = 300;
const PER_NODE = 8;
const SEQUENCE = 2048;
const FLOPS = 150e12;
const INSIDE = 100e9;
const ACROSS = 10e9;
const VOCABULARY = 51_200;

function meshesOf(nodes: number): readonly SubMesh[] {
  const sizes = Array.from({ length: Math.log2(nodes * PER_NODE) + 1 }, (_, power) => 2 ** power);
  return sizes.map((devices) => ({ name: `${devices}`, devices, group: 0, memoryBytes: 14 * 2 ** 30 }));
}

/** One layer on n devices: tensor parallel in the node, data parallel across; seconds of one micro-batch of a sample. */
function pointsOf(parameters: number, hidden: number, devices: number): readonly LayerPoint[] {
  const tensor = Math.min(devices, PER_NODE);
  const data = devices / tensor;
  const flops = 2 * parameters * SEQUENCE * 8;
  const boundary = SEQUENCE * hidden * 2 * 8;
  const exchange = tensor === 1 ? 0 : (4 * boundary * (tensor - 1)) / tensor / data / INSIDE;
  const forward = flops / devices / FLOPS / (0.9 - 0.04 * Math.log2(tensor)) + exchange + 2e-5;
  const saved = (34 * boundary) / 2 / devices;
  const resident = (parameters * 6) / tensor + (parameters * 12) / devices;
  const step = data === 1 ? 0 : (2 * parameters * 4) / tensor / ACROSS;
  const point = (name: string, again: number, kept: number): LayerPoint => ({
    name,
    forwardSeconds: forward,
    backwardSeconds: (2 + again) * forward,
    weightGradientSeconds: forward,
    stepSeconds: step,
    residentBytes: resident,
    savedBytes: kept * saved,
    transientBytes: (1 - kept) * saved + boundary / devices,
  });
  return [point('none', 0, 1), point('selective', 0.08, 0.55), point('full', 1, 0.06)];
}

function problemOf({ layers, hidden, nodes, microBatches, unlike = 0, kind = '1f1b' }: Size): StageProblem {
  const subMeshes = meshesOf(nodes);
  const classes = unlike === 0 ? 1 : layers;
  // A fixed sequence, so that every run cuts the same model.
  const size = (index: number) => 1 + unlike * Math.sin(index * 12.9898);
  const table = (parameters: number) => subMeshes.map(({ devices }) => pointsOf(parameters, hidden, devices));
  const embedding = table(0.15 * VOCABULARY * hidden);
  const head = table(VOCABULARY * hidden);
  const own = Array.from({ length: classes }, (_, index) => table(12 * hidden * hidden * size(index)));
  const order = Array.from({ length: layers }, (_, index) => 1 + (index % classes));
  return {
    layers: [0, ...order, classes + 1],
    tables: [embedding, ...own, head],
    subMeshes,
    groups: [{ name: 'all', devices: nodes * PER_NODE }],
    tensors: [0, ...order].map((_, producer) => ({
      producer,
      lastReader: producer + 1,
      bytes: SEQUENCE * hidden * 16,
    })),
    links: [(bytes) => 1e-5 + bytes / ACROSS],
    schedule: { kind, microBatches },
  };
}

function measured<Result>(run: () => Result): { readonly result: Result; readonly seconds: number } {
  const used = process.cpuUsage();
  const result = run();
  const { user, system } = process.cpuUsage(used);
  return { result, seconds: (user + system) / 1e6 };
}

console.log('processor seconds, garbage collection and compiling included');
console.log('layers × devices                 cut    simulate     work   stages       step        gap   peer');
for (const size of SIZES) {
  const problem = problemOf(size);
  const cut = measured(() => cutStages(problem, { simulate: 0 }));
  const whole = measured(() => cutStages(problem));
  const answer = whole.result;
  const found = answer.kind === 'cut' ? answer : undefined;
  console.log(
    size.name.padEnd(28),
    `${cut.seconds.toFixed(3)} s`.padStart(9),
    // The second run finds code compiled that the first had to compile.
    `${Math.max(0, whole.seconds - cut.seconds).toFixed(3)} s`.padStart(11),
    `${((found?.work ?? 0) / 1e3).toFixed(0)} k`.padStart(9),
    String(found?.best.stages.length ?? answer.kind).padStart(7),
    `${(found?.best.simulatedSeconds ?? Number.NaN).toFixed(4)} s`.padStart(11),
    (found?.gap === 0 ? 'optimal' : `${found?.gap.toExponential(1)}`).padStart(10),
    ` ${size.peer ?? ''}`,
  );
}

console.log('\nbestCut, one number of stages on equal sub-meshes, 14 and 80 GiB a device');
for (const size of SIZES.filter(({ name }) => /^(32|96) layers × [\d,]+$/.test(name))) {
  for (const memory of [14, 80]) {
    const whole = problemOf(size);
    const subMeshes = whole.subMeshes.map((mesh) => ({ ...mesh, memoryBytes: memory * 2 ** 30 }));
    const subMesh = size.nodes > 8 ? 6 : 3;
    const stages = (size.nodes * PER_NODE) / 2 ** subMesh;
    // Different micro-batches, so that no two are alike.
    const { result, seconds } = measured(() =>
      Array.from({ length: CALLS }, (_, call) =>
        bestCut(
          { ...whole, subMeshes, schedule: { kind: '1f1b', microBatches: size.microBatches + call } },
          subMesh,
          stages,
        ),
      ),
    );
    console.log(
      `${size.layers} layers, ${stages} stages, ${memory} GiB`.padEnd(34),
      `${((seconds / CALLS) * 1e3).toFixed(2)} ms`.padStart(9),
      ` ${result[0]?.kind}`,
    );
  }
}
