/**
 * @file Running a compiled program on this machine: a worker thread per rank, inputs cut and handed out, outputs put
 * together, everything counted.
 */
import { assembleBlocks, cutBlock } from '../program/blocks.js';
import { checkFiles } from '../program/check-files.js';
import { rankCount, stageAxes } from '../program/mesh.js';
import { partShape, partsOf, wholeOf } from '../program/micro-batch-parts.js';
import type { Program, ProgramStage, ProgramTensor } from '../program/program.js';
import { programFolder, readProgram } from '../program/reader.js';
import type { ConstantTensor } from '../program/values.js';
import { CPU_TRAITS } from './backend.js';
import { checkInputs, checkRanks, checkSupport } from './check-run.js';
import { makeControlBuffer } from './control.js';
import { actionsOf, launch, makeLines, type RankDone } from './launch.js';
import type { Fault, RankSetup } from './messages.js';
import { makeRegions } from './shared-memory.js';
import { planSlots } from './slots.js';
import type { RankStatistics } from './statistics.js';

/** What happens during a run, for progress displays. */
export type RunProgress =
  | { readonly kind: 'loaded'; readonly rank: number; readonly ranks: number }
  | { readonly kind: 'step'; readonly step: number; readonly steps: number };

export interface RunOptions {
  /** Counted steps; 1 by default. All run on the same inputs. */
  readonly steps?: number;
  /** Steps before them that are not counted; 0 by default. */
  readonly warmup?: number;
  readonly backend?: 'cpu';
  /** Threads of each rank; 1 by default. */
  readonly threadsPerRank?: number;
  /** Local tensors to hand back whole: names, or every tensor that is a block of one of the model's. */
  readonly collect?: readonly string[] | 'all';
  /**
   * A native call that takes so long while other ranks wait for it has stalled; 30 by default. Outside of native calls a
   * rank that makes no progress is noticed within about a second.
   */
  readonly stallSeconds?: number;
  readonly signal?: AbortSignal;
  readonly onProgress?: (progress: RunProgress) => void;
  /** For tests of fault handling. */
  readonly fault?: Fault;
}

export interface RunResult {
  /** Whole graph outputs of the last step. */
  readonly outputs: Readonly<Record<string, ConstantTensor>>;
  /** Whole collected tensors of the last step, by local tensor. */
  readonly tensors: Readonly<Record<string, ConstantTensor>>;
  /** Outputs that are one number (a loss), by name: their value in every counted step. */
  readonly history: Readonly<Record<string, readonly number[]>>;
  /** Wall time of each counted step: the longest over the ranks, from barrier to barrier. */
  readonly stepSeconds: readonly number[];
  /** Processor time of the whole process in a counted step, on average; whatever else the machine does counts little. */
  readonly processorSeconds: number;
  readonly ranks: readonly (RankStatistics & { readonly rank: number })[];
  /** Resident memory of the whole process when the ranks were done. */
  readonly rssBytes: number;
}

/**
 * Runs the program in `dir` (what `compile` wrote, or the folder of program.json itself) on whole inputs.
 * Throws AutoparError: exit input for a bad program, segment, shard or input; rankFailed for a rank that dies or stalls;
 * backendAbsent; interrupted. When it settles, no rank is left.
 */
export async function runProgram(
  dir: string,
  inputs: Readonly<Record<string, ConstantTensor>>,
  options: RunOptions = {},
): Promise<RunResult> {
  const program = await readProgram(dir);
  checkSupport(program, CPU_TRAITS);
  checkRanks(program);
  checkInputs(program, inputs);
  const folder = await programFolder(dir);
  await checkFiles(folder, program);
  const setups = setUp(program, folder, inputs, options);
  let rssBytes = 0;
  const done = await launch(program, setups, {
    stallSeconds: options.stallSeconds ?? 30,
    signal: options.signal,
    onMessage: (rank, message) => {
      if (message.kind === 'loaded') options.onProgress?.({ kind: 'loaded', rank, ranks: setups.length });
      if (message.kind === 'step') {
        options.onProgress?.({ kind: 'step', step: message.step, steps: (options.warmup ?? 0) + (options.steps ?? 1) });
      }
      if (message.kind === 'done') rssBytes = Math.max(rssBytes, process.memoryUsage.rss());
    },
  });
  return {
    outputs: wholeOutputs(program, setups, done),
    tensors: wholeTensors(program, setups, done),
    history: Object.fromEntries(
      program.outputs.flatMap(({ name, tensor, stage }) => {
        const values = done[stage * rankCount(stageAxes(program.mesh, program.stages.length))]?.history[tensor];
        return values && values.length > 0 ? [[name, values] as const] : [];
      }),
    ),
    stepSeconds: (done[0] as RankDone).stepSeconds.map((_, step) =>
      Math.max(...done.map(({ stepSeconds }) => stepSeconds[step] as number)),
    ),
    processorSeconds: (done[0] as RankDone).processorSeconds,
    ranks: done.map(({ statistics }, rank) => ({ rank, ...statistics })),
    rssBytes,
  };
}

function setUp(
  program: Program,
  folder: string,
  inputs: Readonly<Record<string, ConstantTensor>>,
  options: RunOptions,
): readonly RankSetup[] {
  const axes = stageAxes(program.mesh, program.stages.length);
  const ranksPerStage = rankCount(axes);
  const ranks = ranksPerStage * program.stages.length;
  const control = makeControlBuffer(ranks);
  const lines = makeLines(program, ranksPerStage);
  return program.stages.flatMap((stage, stageIndex) => {
    const slots = planSlots(stage);
    const regions = makeRegions(stageIndex * ranksPerStage, ranksPerStage, slots.capacities);
    const collect = collected(stage, options.collect ?? []);
    return Array.from({ length: ranksPerStage }, (_, local): RankSetup => {
      const rank = stageIndex * ranksPerStage + local;
      return {
        rank,
        ranks,
        folder,
        stageIndex,
        stage,
        axes,
        actions: actionsOf(program, stageIndex),
        outputs: program.outputs,
        state: (program.state ?? []).filter((pair) => pair.stage === stageIndex),
        feeds: feedsOf(program, stageIndex, local, inputs),
        steps: Math.max(1, options.steps ?? 1),
        warmup: options.warmup ?? 0,
        threads: options.threadsPerRank ?? 1,
        collect,
        control,
        regions,
        slots,
        lines: lines[rank] ?? [],
        fault: options.fault ?? null,
      };
    });
  });
}

/** The blocks of the inputs that one rank of a stage holds, by local tensor. */
function feedsOf(
  program: Program,
  stageIndex: number,
  local: number,
  inputs: Readonly<Record<string, ConstantTensor>>,
): Record<string, readonly Uint8Array[]> {
  const axes = stageAxes(program.mesh, program.stages.length);
  const feeds: Record<string, readonly Uint8Array[]> = {};
  for (const value of program.inputs) {
    const { name, dtype, stage, tensor } = value;
    const layout = program.stages[stage]?.tensors[tensor]?.layout;
    const whole = inputs[name];
    if (stage !== stageIndex || !layout || !whole) continue;
    const shape = partShape(value);
    feeds[tensor] = partsOf(value, whole.data).map((part) => cutBlock(part, shape, dtype, layout, axes, local));
  }
  return feeds;
}

function collected(stage: ProgramStage, names: readonly string[] | 'all'): readonly string[] {
  const known = Object.entries(stage.tensors);
  if (names === 'all') return known.filter(([, tensor]) => tensor.source !== undefined).map(([name]) => name);
  return known.map(([name]) => name).filter((name) => names.includes(name));
}

function wholeOutputs(
  program: Program,
  setups: readonly RankSetup[],
  done: readonly RankDone[],
): Record<string, ConstantTensor> {
  const result: Record<string, ConstantTensor> = {};
  for (const value of program.outputs) {
    const { name, stage, tensor, shape, dtype } = value;
    const type = program.stages[stage]?.tensors[tensor];
    if (!type) continue;
    const parts = Array.from(
      { length: value.microBatches?.count ?? 1 },
      (_, part) => assemble(setups, stage, type, done, ({ outputs }) => outputs[tensor]?.[part]).data,
    );
    result[name] = { dtype, shape, data: wholeOf(value, parts) };
  }
  return result;
}

/** A tensor that several stages have under one name is taken from the first of them. */
function wholeTensors(
  program: Program,
  setups: readonly RankSetup[],
  done: readonly RankDone[],
): Record<string, ConstantTensor> {
  const result: Record<string, ConstantTensor> = {};
  for (const [index, stage] of program.stages.entries()) {
    const first = setups.findIndex((setup) => setup.stageIndex === index);
    for (const name of setups[first]?.collect ?? []) {
      const type = stage.tensors[name];
      if (!type || name in result || !done[first]?.collected[name]) continue;
      result[name] = assemble(setups, index, type, done, ({ collected: blocks }) => blocks[name]);
    }
  }
  return result;
}

function assemble(
  setups: readonly RankSetup[],
  stage: number,
  { shape, dtype, layout }: ProgramTensor,
  done: readonly RankDone[],
  blockOf: (rank: RankDone) => Uint8Array | undefined,
): ConstantTensor {
  const blocks = done.filter((_, rank) => setups[rank]?.stageIndex === stage).map(blockOf);
  const axes = setups.find((setup) => setup.stageIndex === stage)?.axes ?? [];
  return { dtype, shape, data: assembleBlocks(blocks, shape, dtype, layout, axes) };
}
