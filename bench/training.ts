/**
 * @file `npm run bench:training [-- FILE…]`: the cost of training.
 *
 * Without files: the time of a step (forward, backward, AdamW) of three models on one rank with one thread, against PyTorch
 * eager with one thread on the same model, weights and batch (test/reference/, where AUTOPAR_PYTHON has PyTorch; aim: no
 * slower). Both take turns, and the fastest steps are compared: other work of the machine can only add time.
 *
 * For each file (else the shipped models): operators of the training graph against the forward's, the processor time of the
 * pass that makes it (aim: 1 s for Llama-3-8B), and of planning the step for eight H100.
 */
import { mkdtempSync, readdirSync, rmSync, writeFileSync } from 'node:fs';
import { availableParallelism, tmpdir } from 'node:os';
import { basename, dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { cnn } from '../models/cnn.js';
import { llama } from '../models/llama.js';
import { mlp } from '../models/mlp.js';
import { compile } from '../src/api/compile.js';
import { randomInputs } from '../src/api/execution/inputs.js';
import { type ImportedModel, importModel } from '../src/api/models/import.js';
import { type Training, withTraining } from '../src/api/models/training.js';
import { plan } from '../src/api/plan.js';
import { isFloating } from '../src/ir/dtype.js';
import { type Graph, typeOf } from '../src/ir/graph.js';
import { writeOnnx } from '../src/ir/onnx/writer.js';
import { runProgram } from '../src/runtime/run-program.js';
import { startTorch, type Torch, type TorchLoss, torchAbsence } from '../test/reference/torch.js';
import { median } from './measure.js';

const ROUNDS = 5;
const STEPS = 8;
const CLUSTER = '1x8:h100-sxm-80';

interface Model {
  readonly name: string;
  readonly build: () => Graph;
  readonly loss: 'cross_entropy' | 'mse';
}

const MODELS: readonly Model[] = [
  {
    name: 'mlp 4 × 1024, batch 512',
    build: () => mlp('mlp', { batch: 512, widths: [1024, 1024, 1024, 1024, 1024] }, 1),
    loss: 'mse',
  },
  {
    name: 'llama 4 layers × 256, 4 × 128 tokens, vocabulary 4096',
    build: () =>
      llama(
        'llama',
        { batch: 4, sequence: 128, layers: 4, width: 256, heads: 8, keyHeads: 4, feedForward: 688, vocabulary: 4096 },
        1,
      ),
    loss: 'cross_entropy',
  },
  {
    name: 'cnn 32-64-128, 16 images of 64 × 64',
    build: () => cnn('cnn', { batch: 16, channels: 3, size: 64, widths: [32, 64, 128], classes: 100 }, 1),
    loss: 'cross_entropy',
  },
];

const OPTIMIZER = { kind: 'adamw', learningRate: 1e-4, weightDecay: 0.01 } as const;

/** Aim of the pass that makes a training graph, in processor seconds, set for Llama-3-8B. */
const PASS_AIM = 1;

const files = process.argv.slice(2);
const slower = files.length === 0 ? await measureSteps() : [];
console.log(
  '\ntraining graph                  forward  with gradients  ratio  with optimizer     pass   planning (8 H100)',
);
const folder = join(dirname(dirname(dirname(fileURLToPath(import.meta.url)))), 'models');
const shipped = readdirSync(folder).flatMap((file) => (file.endsWith('.onnx') ? [join(folder, file)] : []));
const late: boolean[] = [];
for (const file of files.length > 0 ? files : shipped) late.push((await measureGraph(file)) > PASS_AIM);
const verdicts = [...slower, ...late];
console.log(`\n${verdicts.length} measured, ${verdicts.filter(Boolean).length} missed their aim`);

/** Prints the times; returns for each model whether PyTorch is faster. */
async function measureSteps(): Promise<readonly boolean[]> {
  const absence = torchAbsence();
  console.log(
    `${availableParallelism()} cores, Node ${process.version}, fastest of ${ROUNDS * STEPS} steps, one thread`,
  );
  if (absence !== null) console.log(`skipped: ${absence}`);
  const torch = absence === null ? await startTorch() : null;
  const slower: boolean[] = [];
  try {
    for (const model of MODELS) slower.push(await measureStep(model, torch));
  } finally {
    torch?.close();
  }
  return slower;
}

async function measureStep({ name, build, loss }: Model, torch: Torch | null): Promise<boolean> {
  const place = mkdtempSync(join(tmpdir(), 'autopar-bench-'));
  try {
    const model = join(place, 'model.onnx');
    writeFileSync(model, writeOnnx(build()));
    const training: Training = { loss: { kind: loss }, optimizer: OPTIMIZER };
    const output = join(place, 'compiled');
    await compile({ model, output, training, devices: 1 });
    const imported = await importModel(model, {});
    const { graph } = imported;
    const inputs = randomInputs(withTraining(imported, training).graph, 0);
    const parameters = [...graph.weights].flatMap(([weight, { role }]) => (role === 'parameter' ? [weight] : []));
    const ours: number[] = [];
    const theirs: number[] = [];
    for (let round = 0; round < ROUNDS; round++) {
      const { stepSeconds } = await runProgram(output, inputs, { steps: STEPS, warmup: 1, threadsPerRank: 1 });
      ours.push(...stepSeconds);
      if (!torch) continue;
      const { kind, ...settings } = OPTIMIZER;
      const { seconds } = await torch.train({
        model,
        loss: lossFor(graph, loss),
        parameters,
        batches: [inputs],
        steps: STEPS + 1,
        optimizer: { name: kind, ...settings, undecayed: parameters.filter((weight) => isVector(graph, weight)) },
        threads: 1,
      });
      theirs.push(...seconds.slice(1));
    }
    const own = `${milliseconds(Math.min(...ours))} ms (median ${milliseconds(median(ours))})`;
    if (theirs.length === 0) {
      console.log(`  ${name}: ${own}`);
      return false;
    }
    const ratio = Math.min(...ours) / Math.min(...theirs);
    const other = `${milliseconds(Math.min(...theirs))} (median ${milliseconds(median(theirs))})`;
    console.log(
      `  ${name}: ${own} against PyTorch's ${other}: ${ratio.toFixed(2)} × (aim ≤ 1)${ratio > 1 ? '  missed' : ''}`,
    );
    return ratio > 1;
  } finally {
    rmSync(place, { recursive: true, force: true });
  }
}

function lossFor(graph: Graph, kind: Model['loss']): TorchLoss {
  const [output = ''] = graph.outputs;
  return { kind, output, labels: kind === 'mse' ? 'target' : 'labels' };
}

function isVector(graph: Graph, weight: string): boolean {
  return typeOf(graph, weight).shape.length < 2;
}

/** Prints sizes and times; returns the seconds of the pass. */
async function measureGraph(file: string): Promise<number> {
  const imported = await importModel(file, {});
  const { graph } = imported;
  const output = graph.outputs.find((name) => isFloating(typeOf(graph, name).dtype)) ?? '';
  const training: Training = { loss: { kind: 'mse', output }, optimizer: OPTIMIZER };
  const start = process.cpuUsage();
  const step = withTraining(imported, training);
  const pass = processorSeconds(start);
  const forward = graph.nodes.length;
  const differentiated = step.graph.nodes.filter(({ phase }) => phase !== 'update').length;
  const planning = await planningSeconds(step);
  const columns = [
    String(forward).padStart(9),
    String(differentiated).padStart(16),
    `${(differentiated / forward).toFixed(1)} ×`.padStart(7),
    String(step.graph.nodes.length).padStart(16),
    `${pass.toFixed(2)} s`.padStart(9),
    planning.padStart(12),
  ];
  console.log(`${basename(file).padEnd(30)}${columns.join('')}`);
  return pass;
}

async function planningSeconds(step: ImportedModel): Promise<string> {
  const start = process.cpuUsage();
  // No memory limit: a batch that does not fit is planned too.
  await plan(step, { cluster: CLUSTER, memory: Number.MAX_SAFE_INTEGER });
  return `${processorSeconds(start).toFixed(1)} s`;
}

/** Processor seconds of all threads since then, on which other programs of the machine have little effect. */
function processorSeconds(since: NodeJS.CpuUsage): number {
  const { user, system } = process.cpuUsage(since);
  return (user + system) / 1e6;
}

function milliseconds(seconds: number): string {
  return (seconds * 1000).toFixed(1);
}
