/**
 * @file Twelve plans of one model, each of which goes on from the checkpoints of all: data, tensor, pipeline, sequence and expert
 * parallelism, ZeRO 0 to 3, on 1 to 8 ranks.
 */
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { Checkpoints } from '../../src/api/execution/checkpoints.js';
import { randomInputs } from '../../src/api/execution/inputs.js';
import { labelBounds } from '../../src/api/execution/labels.js';
import { type CompileOptions, compile } from '../../src/api/index.js';
import { readCompiled } from '../../src/api/output/folder.js';
import { openCompiled } from '../../src/api/verify.js';
import type { ConstantTensor } from '../../src/program/values.js';
import { openSession, type Session, type UnshardedTensors } from '../../src/runtime/session.js';
import { writeModel } from '../pipelines/models.js';

/** Options for the planner by name; degrees that are left out are 1. */
export const PLANS: Readonly<Record<string, Partial<CompileOptions> & { readonly microBatches?: number }>> = {
  one: {},
  dp4: { degrees: { dp: 4 } },
  tp2: { degrees: { tp: 2 } },
  pp2: { degrees: { pp: 2 }, microBatches: 4 },
  sp2: { degrees: { sp: 2 } },
  'ep2 of dp2': { degrees: { dp: 2, ep: 2 } },
  'dp2, ZeRO 1': { degrees: { dp: 2 }, zero: 1 },
  'dp2, ZeRO 2, micro-batches': { degrees: { dp: 2 }, zero: 2, microBatches: 2 },
  'dp4, ZeRO 3': { degrees: { dp: 4 }, zero: 3 },
  'dp2 · tp2, ZeRO 1': { degrees: { dp: 2, tp: 2 }, zero: 1 },
  'pp2 · sp2': { degrees: { pp: 2, sp: 2 }, microBatches: 2 },
  'pp2 · dp2 · tp2': { degrees: { pp: 2, dp: 2, tp: 2 }, microBatches: 2 },
};

/** Steps before the checkpoint, and behind it. */
const [BEFORE, BEHIND] = [6, 4];

/** A plan compiled, after its own run, with the losses of that run. */
interface Ran {
  readonly name: string;
  readonly directory: string;
  readonly first: number;
  /** Behind the checkpoint. */
  readonly losses: readonly number[];
  readonly state: UnshardedTensors;
}

/** How two plans go together. */
export interface Pair {
  readonly from: string;
  readonly to: string;
  /** The largest relative difference of a loss behind the checkpoint. */
  readonly difference: number;
  /** Whether losses and state are the same to the bit. */
  readonly isSame: boolean;
}

/** The runs of all plans, and the pairs that are asked for. */
export class PlanRuns {
  private readonly folder = mkdtempSync(join(tmpdir(), 'autopar-test-'));
  private readonly runs = new Map<string, Ran>();
  private inputs: readonly UnshardedTensors[] = [];

  /** Compiles every plan and runs it: some steps, a checkpoint, some more. */
  async runAll(onRun: (name: string) => void = () => undefined): Promise<void> {
    const file = join(this.folder, 'model.onnx');
    writeModel('soft-experts', file);
    for (const [name, asked] of Object.entries(PLANS)) {
      const directory = join(this.folder, String(this.runs.size));
      const { microBatches = 1, degrees, ...rest } = asked;
      const pinned = { dp: 1, tp: 1, pp: 1, sp: 1, ep: 1, ...degrees };
      await compile({
        model: file,
        output: directory,
        globalBatch: 8,
        devices: pinned.dp * pinned.tp * pinned.pp * pinned.sp,
        degrees: pinned,
        axes: 'roles',
        ...rest,
        training: {
          loss: { kind: 'mse' },
          optimizer: { kind: 'adamw', learningRate: 3e-2, clipNorm: 1, epsilon: 1e-3, schedule: { warmup: 3 } },
          microBatches,
        },
      });
      await this.makeInputs(directory);
      this.runs.set(name, await this.run(name, directory));
      onRun(name);
    }
  }

  /** By how much the losses behind the checkpoint differ from that of the first step, at least; a share of it. */
  get leastProgress(): number {
    return Math.min(
      ...[...this.runs.values()].flatMap(({ first, losses }) => losses.map((loss) => Math.abs(loss - first) / first)),
    );
  }

  /** Goes on with the plan `to`, in ranks of its own, from what each of `sources` has left. */
  async resume(to: string, sources: readonly string[]): Promise<readonly Pair[]> {
    const target = this.runOf(to);
    const session = await openSession(target.directory);
    const checkpoints = await Checkpoints.open(target.directory, await readCompiled(target.directory));
    try {
      const pairs: Pair[] = [];
      for (const from of sources) {
        const source = this.runOf(from);
        const { folder, checkpoint } = await checkpoints.find(source.directory);
        await session.restore(folder, checkpoint.tensors);
        const losses = await this.losses(session, BEFORE, BEHIND);
        const state = await session.read(Object.keys(source.state));
        const isSame =
          losses.every((loss, index) => loss === source.losses[index]) &&
          Object.entries(source.state).every(([name, { data }]) =>
            data.every((byte, at) => byte === state[name]?.data[at]),
          );
        const difference = Math.max(
          ...losses.map((loss, index) => Math.abs(loss - (source.losses[index] ?? Number.NaN)) / loss),
        );
        pairs.push({ from, to, difference, isSame });
      }
      return pairs;
    } finally {
      await session.close();
      await checkpoints.close();
    }
  }

  close(): void {
    rmSync(this.folder, { recursive: true, force: true });
  }

  private async run(name: string, directory: string): Promise<Ran> {
    const session = await openSession(directory);
    const checkpoints = await Checkpoints.open(directory, await readCompiled(directory));
    try {
      const [first = Number.NaN] = await this.losses(session, 0, BEFORE);
      await checkpoints.save(session, { step: BEFORE, state: {} });
      const losses = await this.losses(session, BEFORE, BEHIND);
      const names = [...new Set((session.program.state ?? []).map(({ to }) => to))];
      return { name, directory, first, losses, state: await session.read(names) };
    } finally {
      await session.close();
      await checkpoints.close();
    }
  }

  private async losses(session: Session, from: number, steps: number): Promise<readonly number[]> {
    const losses: number[] = [];
    for (let step = from; step < from + steps; step++)
      losses.push(numberIn((await session.step(this.inputs[step % this.inputs.length])).outputs['loss']));
    return losses;
  }

  private async makeInputs(directory: string): Promise<void> {
    if (this.inputs.length > 0) return;
    const { imported } = await openCompiled(directory);
    this.inputs = [1, 2].map((seed) => randomInputs(imported.graph, seed, labelBounds(imported.training)));
  }

  private runOf(name: string): Ran {
    const run = this.runs.get(name);
    if (!run) throw new Error(`no plan ${name} was run`);
    return run;
  }
}

function numberIn(tensor: ConstantTensor | undefined): number {
  if (!tensor) return Number.NaN;
  return new DataView(tensor.data.buffer, tensor.data.byteOffset).getFloat32(0, true);
}
