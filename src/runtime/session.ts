/**
 * @file A session: the ranks of a compiled program on this machine, a worker thread each, loaded once. Steps are run on inputs
 * that may differ from step to step; state stays with the ranks, and can be read and written between steps.
 */

import { checkFiles } from '../program/check-files.js';
import type { StoredTensor } from '../program/checkpoint.js';
import { rankCount, stageAxes } from '../program/mesh.js';
import { joinedParts, partShape, partsOf, readerOfPart } from '../program/micro-batch-parts.js';
import type { Program, ProgramStage, ProgramTensor } from '../program/program.js';
import { holdsTensor, stageOfRank } from '../program/rank-stage.js';
import { programFolder, readProgram } from '../program/reader.js';
import { assembleShards, cutShard, readerOfShard, readShard } from '../program/shards.js';
import { AutoparError, byteLength, type ConstantTensor, elementCount } from '../program/values.js';
import { loadWhole } from '../program/whole-folder.js';
import { BACKENDS, type BackendName } from './backend.js';
import { checkInputs, checkRanks, checkSupport } from './check-run.js';
import { makeControlBuffer } from './control.js';
import { TIME_BYTES } from './emulated.js';
import { actionsOfStage, makeLines, Ranks } from './launch.js';
import type { Delays, Emulation, Fault, RankAnswer, RankSetup, RankStep, Shards, TraceSpan } from './messages.js';
import { withPrivateFolder } from './private-folder.js';
import { restoreState, saveState } from './saved-state.js';
import { makeRegions } from './shared-memory.js';
import { planSlots } from './slots.js';
import type { RankStatistics } from './statistics.js';
import type { NotFinite } from './value-watch.js';

/** Whole tensors by name. */
export type UnshardedTensors = Readonly<Record<string, ConstantTensor>>;

/** Resources of this machine that a rank may use. */
export interface RankResources {
  /** Bytes that its device may hold: a rank that would hold more fails. */
  readonly memory?: number;
  /** Folder for tensors that programs store on disk; the system's for temporary files by default. */
  readonly offloadDir?: string;
  /** The backend that computes segments; `cpu` by default. */
  readonly backend?: BackendName;
  /** Called with the operators that the device has no kernels for, if any, each with its substitute. */
  readonly onSubstitutes?: (operators: readonly string[]) => void;
}

/** Picks them from other options. */
export function resourcesOf({ memory, offloadDir, backend, onSubstitutes }: RankResources): RankResources {
  return {
    ...(memory === undefined ? {} : { memory }),
    ...(offloadDir === undefined ? {} : { offloadDir }),
    ...(backend === undefined ? {} : { backend }),
    ...(onSubstitutes === undefined ? {} : { onSubstitutes }),
  };
}

export interface SessionOptions extends RankResources {
  /** Threads of each rank; 1 by default. */
  readonly threadsPerRank?: number;
  /**
   * A native call that takes so long while other ranks wait for it has stalled; 30 by default. Outside of native calls a
   * rank that makes no progress is noticed within about a second.
   */
  readonly stallSeconds?: number;
  /** Waits as long as segments and links are predicted to take instead of computing; then outputs have no values. */
  readonly emulation?: Emulation;
  /** Ends the session. */
  readonly signal?: AbortSignal;
  /** Called as ranks have loaded. */
  readonly onLoaded?: (rank: number, ranks: number) => void;
  /** For tests of fault handling. */
  readonly fault?: Fault;
  /** For tests of independence of time. */
  readonly delays?: Delays;
}

export interface StepOptions {
  /** Names of the outputs that are assembled; all by default. */
  readonly outputs?: readonly string[];
  /** Local tensors to return whole as they were made last: names, or every tensor that is a shard of one of the model's. */
  readonly collect?: readonly string[] | 'all';
  /** The ranks' shards of the inputs, in place of whole inputs. */
  readonly feeds?: Feeds;
  /** Local tensors, without padding and partial sums, whose sum of squares is requested. */
  readonly measure?: readonly string[];
  /** Whether to list tensors that are not finite, which inspects every number that a segment computes. */
  readonly check?: boolean;
  /** Whether to list when ranks ran each action and instruction. */
  readonly trace?: boolean;
}

/** The shards of a step's inputs, rank by rank. */
export interface Feeds {
  readonly byRank: readonly Shards[];
}

/** Returns bytes of a whole input, row by row; `rank` is the first of those that hold the shard which they are for. */
export type InputReader = (name: string, offset: number, length: number, rank: number) => Uint8Array;

export interface StepResult {
  readonly outputs: UnshardedTensors;
  /** Collected tensors, by local tensor. */
  readonly tensors: UnshardedTensors;
  /** Wall time: the longest over the ranks, from barrier to barrier. */
  readonly seconds: number;
  /** Processor time of the whole process; whatever else the machine does counts little. */
  readonly processorSeconds: number;
  readonly ranks: readonly RankStatistics[];
  /** By tensor that was to be measured. */
  readonly squares: Readonly<Record<string, number>>;
  /** Where a check was requested: in the order in which they were computed, over all ranks. */
  readonly notFinite: readonly (NotFinite & { readonly rank: number })[];
  /** By rank; empty where no trace was requested. */
  readonly spans: readonly (readonly TraceSpan[])[];
}

/**
 * Methods throw AutoparError: exit input for a bad input; `rank-failed` (exit rankFailed) for a rank that dies or stalls;
 * `interrupted`; `session-closed` (usage) after `close`. When one of them has thrown for a rank or an interruption, no rank is
 * left.
 */
export interface Session {
  readonly program: Program;
  /** Runs one step on whole inputs; on those of the last step where none are given. */
  readonly step: (inputs?: UnshardedTensors, options?: StepOptions) => Promise<StepResult>;
  /** Reads the inputs of each rank in a step: each shard once, and nothing else. */
  readonly feeds: (read: InputReader) => Feeds;
  /** State (weights that are trained, moments, scalars of the optimizer) as the next step begins with it. */
  readonly read: (names: readonly string[]) => Promise<UnshardedTensors>;
  /** Replaces state, whole tensors, for the next step. */
  readonly write: (tensors: UnshardedTensors) => Promise<void>;
  /**
   * Writes all state into an empty folder, each rank its own, and returns the stored tensors; the caller writes the manifest.
   * Throws AutoparError (exit cannotWrite) where a file cannot be written; the session goes on.
   */
  readonly save: (folder: string) => Promise<Readonly<Record<string, StoredTensor>>>;
  /**
   * Replaces all state by that of the checkpoint in a folder, whatever plan wrote it: each rank reads the boxes of its shards.
   * Throws AutoparError (exit input) `checkpoint-mismatch` where it is of another model, and the session goes on;
   * `bad-checkpoint` naming the tensor that is damaged, and the session ends.
   */
  readonly restore: (folder: string, tensors: Readonly<Record<string, StoredTensor>>) => Promise<void>;
  /** Ends the ranks. When it settles, none is left. */
  readonly close: () => Promise<void>;
}

/**
 * Opens the program in `dir` (the output of `compile`, or the folder of program.json itself).
 * Throws AutoparError: exit input for a bad program, segment or shard; backendAbsent; rankFailed; interrupted.
 */
export async function openSession(dir: string, options: SessionOptions = {}): Promise<Session> {
  return startSession(await readProgram(dir), await programFolder(dir), options);
}

/** As `openSession`, for a program that has been read from `folder`. */
export function startSession(program: Program, folder: string, options: SessionOptions): Promise<Session> {
  return loadWhole(program, folder, () => loadRanks(program, folder, options));
}

async function loadRanks(program: Program, folder: string, options: SessionOptions): Promise<Session> {
  if (!options.emulation) checkSupport(program, BACKENDS[options.backend ?? 'cpu']);
  checkRanks(program);
  if (!options.emulation) await checkFiles(folder, program);
  const usesDisk = program.stages.some(({ tensors }) => Object.values(tensors).some(({ place }) => place === 'disk'));
  if (options.offloadDir !== undefined && !usesDisk)
    throw new AutoparError(
      'bad-option',
      'usage',
      `--offload-dir ${options.offloadDir}: the program offloads nothing to disk`,
      {},
      'leave it out, or compile with --offload PART:disk',
    );
  const start = async (offloadFolder: string | null) => {
    const substituted = new Set<string>();
    const setups = setUp(program, folder, options, offloadFolder);
    const ranks = await Ranks.start(program, setups, {
      stallSeconds: options.stallSeconds ?? 30,
      signal: options.signal,
      onLoaded: (rank, substitutes) => {
        for (const operator of substitutes) substituted.add(operator);
        options.onLoaded?.(rank, setups.length);
      },
    });
    if (substituted.size > 0) options.onSubstitutes?.([...substituted].sort());
    return new RunningSession(program, setups, ranks, options.emulation === undefined);
  };
  return usesDisk && !options.emulation ? withPrivateFolder(options.offloadDir, start) : start(null);
}

class RunningSession implements Session {
  private fed = false;

  constructor(
    readonly program: Program,
    private readonly setups: readonly RankSetup[],
    private readonly ranks: Ranks,
    private readonly hasValues: boolean,
  ) {}

  async step(inputs?: UnshardedTensors, options: StepOptions = {}): Promise<StepResult> {
    const { program, setups } = this;
    const { feeds } = options;
    if (this.hasValues && !feeds && (inputs || !this.fed)) checkInputs(program, inputs ?? {});
    const outputs = this.hasValues ? program.outputs.filter(({ name }) => options.outputs?.includes(name) ?? true) : [];
    const collected = program.stages.map((stage) => (this.hasValues ? collectedOf(stage, options.collect ?? []) : []));
    const answers = await this.ranks.ask((rank) => {
      const { stageIndex } = setups[rank] as RankSetup;
      return {
        kind: 'step',
        feeds: this.hasValues
          ? (feeds?.byRank[rank] ?? (inputs ? this.feedsOf(rank, inputs) : null))
          : this.emptyFeeds(stageIndex),
        outputs: outputs.flatMap(({ stage, tensor }) => (stage === stageIndex ? [tensor] : [])),
        collect: collected[stageIndex] ?? [],
        measure: this.hasValues ? (options.measure ?? []).filter((name) => this.measures(rank, name)) : [],
        check: this.hasValues && options.check === true,
        trace: options.trace === true,
      };
    });
    this.fed = true;
    const steps = answers.map(({ step }) => step as RankStep);
    return {
      outputs: Object.fromEntries(
        outputs.map((value) => [
          value.name,
          this.whole(value.stage, value.tensor, shardsIn(answers, value.tensor), value),
        ]),
      ),
      tensors: this.firstOf(collected, (rank) => steps[rank]?.collected),
      seconds: Math.max(...steps.map(({ seconds }) => seconds)),
      processorSeconds: steps[0]?.processorSeconds ?? 0,
      ranks: steps.map(({ statistics }) => statistics),
      squares: Object.fromEntries(
        (options.measure ?? []).map((name) => [name, steps.reduce((sum, own) => sum + (own.squares[name] ?? 0), 0)]),
      ),
      notFinite: steps
        .flatMap(({ notFinite }, rank) => notFinite.map((found) => ({ ...found, rank })))
        .sort((left, right) => left.at - right.at),
      spans: steps.map(({ spans }) => spans),
    };
  }

  feeds(read: InputReader): Feeds {
    const known = new Map<string, Uint8Array>();
    const byRank = this.setups.map(({ stageIndex, stage, axes, regions }, rank): Shards => {
      const own = this.program.inputs.filter((value) => value.stage === stageIndex && this.holds(rank, value.tensor));
      return Object.fromEntries(
        own.map((value): [string, readonly Uint8Array[]] => {
          const { layout } = stage.tensors[value.tensor] as ProgramTensor;
          const reader = readerOfShard(layout, axes, rank - regions.firstRank);
          const parts = Array.from({ length: value.microBatches?.count ?? 1 }, (_, part) => {
            // Stages may hold one input in the same layout.
            const key = JSON.stringify([value.name, part, layout, axes, reader]);
            const held = known.get(key);
            // The memory of a rank's inputs is transferred to the rank.
            if (held) return held.slice();
            const shard = readShard(
              readerOfPart(value, part, (offset, length) =>
                read(value.name, offset, length, reader + regions.firstRank),
              ),
              partShape(value),
              value.dtype,
              layout,
              axes,
              reader,
            );
            known.set(key, shard);
            return shard;
          });
          return [value.tensor, parts];
        }),
      );
    });
    return { byRank };
  }

  async read(names: readonly string[]): Promise<UnshardedTensors> {
    const places = this.placesOf(names);
    const answers = await this.ranks.ask((rank) => ({ kind: 'read', tensors: places[this.stageOf(rank)] ?? [] }));
    return this.firstOf(places, (rank) => answers[rank]?.shards);
  }

  async write(tensors: UnshardedTensors): Promise<void> {
    const places = this.placesOf(Object.keys(tensors));
    for (const [name, given] of Object.entries(tensors)) this.checkWritten(name, given, places);
    await this.ranks.ask((rank) => {
      const { axes, stage, regions } = this.setups[rank] as RankSetup;
      const own = (places[this.stageOf(rank)] ?? []).filter((name) => this.holds(rank, name));
      const shards = own.map((name): [string, readonly Uint8Array[]] => {
        const { shape, dtype, data } = tensors[name] as ConstantTensor;
        const { layout } = stage.tensors[name] as ProgramTensor;
        return [name, [cutShard(data, shape, dtype, layout, axes, rank - regions.firstRank)]];
      });
      return { kind: 'write', shards: Object.fromEntries(shards) };
    });
  }

  save(folder: string): Promise<Readonly<Record<string, StoredTensor>>> {
    return saveState(this.program, this.setups, this.ranks, folder);
  }

  async restore(folder: string, tensors: Readonly<Record<string, StoredTensor>>): Promise<void> {
    await restoreState(this.program, this.setups, this.ranks, { folder, tensors });
  }

  async close(): Promise<void> {
    await this.ranks.close();
  }

  private typeOf(stage: number, tensor: string): ProgramTensor {
    const type = this.program.stages[stage]?.tensors[tensor];
    if (!type) throw new Error(`stage ${stage} has no tensor ${tensor}`);
    return type;
  }

  private holds(rank: number, tensor: string): boolean {
    const { stage, axes, regions } = this.setups[rank] as RankSetup;
    if (!(tensor in stage.tensors)) return false;
    return holdsTensor(stage, axes, rank - regions.firstRank, tensor);
  }

  /** The first of several stages that have a tensor of the same name counts. */
  private measures(rank: number, tensor: string): boolean {
    const first = this.program.stages.findIndex(({ tensors }) => tensor in tensors);
    return this.stageOf(rank) === first && this.holds(rank, tensor);
  }

  private stageOf(rank: number): number {
    return this.setups[rank]?.stageIndex ?? 0;
  }

  /** The shards of the inputs that one rank of a stage holds, by local tensor. */
  private feedsOf(rank: number, inputs: UnshardedTensors): Shards {
    const { stageIndex, stage, axes, regions } = this.setups[rank] as RankSetup;
    const feeds: Record<string, readonly Uint8Array[]> = {};
    for (const value of this.program.inputs) {
      const { name, dtype, tensor } = value;
      const layout = stage.tensors[tensor]?.layout;
      const whole = inputs[name];
      if (value.stage !== stageIndex || !layout || !whole || !this.holds(rank, tensor)) continue;
      const local = rank - regions.firstRank;
      feeds[tensor] = partsOf(value, whole.data).map((part) =>
        cutShard(part, partShape(value), dtype, layout, axes, local),
      );
    }
    return feeds;
  }

  /** Inputs without values. */
  private emptyFeeds(stageIndex: number): Shards {
    const own = this.program.inputs.filter(({ stage }) => stage === stageIndex);
    return Object.fromEntries(
      own.map(({ tensor, microBatches }) => [
        tensor,
        Array.from({ length: microBatches?.count ?? 1 }, () => new Uint8Array()),
      ]),
    );
  }

  /** By stage: those of `names` that are its state. Throws AutoparError `unknown-tensor` for a name that is in no stage. */
  private placesOf(names: readonly string[]): readonly (readonly string[])[] {
    const state = this.program.state ?? [];
    for (const name of names) {
      if (state.some(({ to }) => to === name)) continue;
      const known = state.map(({ to }) => to).slice(0, SHOWN);
      throw new AutoparError(
        'unknown-tensor',
        'usage',
        `the program has no state tensor ${name}`,
        { tensor: name },
        known.length > 0
          ? `its state is ${known.join(', ')}${state.length > SHOWN ? ', …' : ''}`
          : 'compile it with --train',
      );
    }
    return this.program.stages.map((_, index) =>
      names.filter((name) => state.some((pair) => pair.stage === index && pair.to === name)),
    );
  }

  private checkWritten(name: string, given: ConstantTensor, places: readonly (readonly string[])[]): void {
    const stage = places.findIndex((own) => own.includes(name));
    const { dtype, shape } = this.typeOf(stage, name);
    const expected = `${dtype} [${shape.join(', ')}]`;
    const found = `${given.dtype} [${given.shape.join(', ')}]`;
    const bytes = byteLength(dtype, elementCount(shape));
    if (found === expected && given.data.byteLength === bytes) return;
    const what =
      found === expected
        ? `${given.data.byteLength} bytes, but ${expected} takes ${bytes}`
        : `${found}, but ${expected} is expected`;
    throw new AutoparError('wrong-input', 'input', `tensor ${name} is ${what}`, { tensor: name }, 'convert it');
  }

  /** Whole tensors whose shards ranks returned; one that several stages have under one name is the first's. */
  private firstOf(
    names: readonly (readonly string[])[],
    shardsOf: (rank: number) => Shards | undefined,
  ): Record<string, ConstantTensor> {
    const result: Record<string, ConstantTensor> = {};
    for (const [index, own] of names.entries()) {
      const first = this.setups.findIndex(({ stageIndex }) => stageIndex === index);
      for (const name of own)
        if (!(name in result) && shardsOf(first)?.[name])
          result[name] = this.whole(index, name, (rank) => shardsOf(rank)?.[name]);
    }
    return result;
  }

  /**
   * A tensor assembled from the shards of its stage's ranks; an output that micro-batches make parts of, also from the parts.
   */
  private whole(
    stage: number,
    tensor: string,
    shardsOf: (rank: number) => readonly Uint8Array[] | undefined,
    value?: Program['outputs'][number],
  ): ConstantTensor {
    const { dtype, shape, layout } = this.typeOf(stage, tensor);
    const own = [...this.setups.keys()].filter((rank) => this.stageOf(rank) === stage);
    const axes = this.setups[own[0] ?? 0]?.axes ?? [];
    const parts = Array.from({ length: value?.microBatches?.count ?? 1 }, (_, part) =>
      assembleShards(
        own.map((rank) => shardsOf(rank)?.[part]),
        shape,
        dtype,
        layout,
        axes,
      ),
    );
    return value
      ? { dtype, shape: value.shape, data: joinedParts(value, parts) }
      : { dtype, shape, data: parts[0] as Uint8Array };
  }
}

/** Names that a message lists at most. */
const SHOWN = 8;

function shardsIn(answers: readonly RankAnswer[], tensor: string): (rank: number) => readonly Uint8Array[] | undefined {
  return (rank) => answers[rank]?.shards[tensor];
}

function setUp(
  program: Program,
  folder: string,
  options: SessionOptions,
  offloadFolder: string | null,
): readonly RankSetup[] {
  const axes = stageAxes(program.mesh, program.stages.length);
  const ranksPerStage = rankCount(axes);
  const ranks = ranksPerStage * program.stages.length;
  const control = makeControlBuffer(ranks);
  const lines = makeLines(program, ranksPerStage);
  return program.stages.flatMap((stage, stageIndex) => {
    const slots = planSlots(stage, axes);
    const sizes = options.emulation
      ? slots.capacities.map((capacities) => capacities.map(() => TIME_BYTES))
      : slots.capacities;
    const regions = makeRegions(stageIndex * ranksPerStage, sizes);
    return Array.from({ length: ranksPerStage }, (_, local): RankSetup => {
      const rank = stageIndex * ranksPerStage + local;
      return {
        rank,
        ranks,
        folder,
        stageIndex,
        stage: stageOfRank(stage, axes, local),
        axes,
        actions: actionsOfStage(program, stageIndex),
        outputs: program.outputs,
        state: (program.state ?? []).filter(
          ({ stage: of, to }) => of === stageIndex && holdsTensor(stage, axes, local, to),
        ),
        threads: options.threadsPerRank ?? 1,
        control,
        regions,
        slots,
        lines: lines[rank] ?? [],
        backend: options.backend ?? 'cpu',
        emulation: options.emulation ?? null,
        memory: options.memory ?? null,
        offloadFolder,
        delays: options.delays ?? null,
        fault: options.fault ?? null,
      };
    });
  });
}

function collectedOf(stage: ProgramStage, names: readonly string[] | 'all'): readonly string[] {
  const known = Object.entries(stage.tensors);
  if (names === 'all') return known.filter(([, tensor]) => tensor.source !== undefined).map(([name]) => name);
  return known.map(([name]) => name).filter((name) => names.includes(name));
}
