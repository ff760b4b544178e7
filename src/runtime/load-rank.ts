/**
 * @file Loads a rank before its first step: its shards, a session for each segment and set of weights, its
 * coordinates; and its instruction lists with every name resolved.
 */
import { readFile } from 'node:fs/promises';
import { memoryPlaceOf } from '../program/check-places.js';
import { ownFile } from '../program/inside-folder.js';
import { groupOf, shardIndex, shardText } from '../program/mesh.js';
import type { Instruction, ProgramStage } from '../program/program.js';
import { openSafetensors } from '../program/safetensors.js';
import { AutoparError, byteLength, elementCount } from '../program/values.js';
import type { Backend, LoadedSegment } from './backend.js';
import type { RankSetup } from './messages.js';
import { tensorBytes, tensorOf } from './stage-tensors.js';
import type { Memory, TensorStore } from './tensor-store.js';
import type { CollectiveCall, TransferCall } from './transport.js';

/** An instruction with all names resolved; `peer` is the rank of another stage that is sent to or received from. */
export type LoadedStep<Tensor> = { readonly half?: 1 } & (
  | {
      readonly kind: 'compute';
      readonly label: string;
      readonly segment: LoadedSegment<Tensor>;
      readonly temporaryBytes: number;
      /** The memory that it works in. */
      readonly memory: Memory;
      readonly inputs: readonly string[];
      readonly outputs: readonly string[];
      readonly pass?: string;
    }
  | {
      readonly kind: 'start';
      readonly label: string;
      readonly call: CollectiveCall;
      readonly input: string;
      readonly output: string;
      /** It begins only where its list runs for the last time in a step. */
      readonly last?: true;
    }
  | {
      readonly kind: 'wait';
      readonly label: string;
      readonly call: CollectiveCall;
      readonly input: string;
      readonly output: string;
    }
  | { readonly kind: 'send' | 'recv'; readonly label: string; readonly tensor: string; readonly call: TransferCall }
  | { readonly kind: 'accumulate' | 'move'; readonly label: string; readonly input: string; readonly output: string }
  | { readonly kind: 'free'; readonly tensors: readonly string[] }
);

export interface LoadedRank<Tensor> {
  /** Per action of the rank: its list, and whether it runs for the last time in a step. */
  readonly actions: readonly { readonly steps: readonly LoadedStep<Tensor>[]; readonly isLast: boolean }[];
  readonly release: () => Promise<void>;
  /** Operators that run on the CPU in the device's place, each once. */
  readonly substitutes: readonly string[];
}

type ComputeInstruction = Extract<Instruction, { kind: 'compute' }>;

/**
 * Loads a rank. Tensors that last the run are put into `store`: coordinates, state, weights that are read as tensors. The store
 * also counts memory held throughout: weights in sessions (once per session that holds them) and communication buffers.
 * `onProgress` is called after each thing loaded, and may throw to end it. Throws AutoparError (exit input) naming the file.
 */
export async function loadRank<Tensor extends object>(
  setup: RankSetup,
  backend: Backend<Tensor>,
  store: TensorStore<Tensor>,
  onProgress: () => void,
): Promise<LoadedRank<Tensor>> {
  const { stage } = setup;
  const shards = new ShardReader(setup);
  const sessions = new Map<string, LoadedSegment<Tensor>>();
  for (const [slot, capacity] of (setup.slots.capacities[localRank(setup)] ?? []).entries())
    store.hold(setup.slots.places[slot] ?? 'device', capacity, `communication buffer ${slot}`);
  try {
    for (const instruction of Object.values(stage.phases).flat()) {
      if (instruction.kind !== 'compute' || sessions.has(sessionKey(stage, instruction))) continue;
      const bytes = instruction.weights.reduce((sum, name) => sum + tensorBytes(stage, name), 0);
      store.hold(memoryPlaceOf(stage, instruction.outputs[0]), bytes, `the weights of ${instruction.label}`);
      const segment = await loadSegment(setup, backend, shards, instruction);
      sessions.set(sessionKey(stage, instruction), segment);
      onProgress();
    }
    for (const name of weightsReadAsTensors(setup)) {
      store.defineBytes(name, backend.hasValues ? await shards.read(name) : new Uint8Array());
      onProgress();
    }
  } finally {
    await shards.close();
  }
  for (const [name, { axes, block, bias }] of Object.entries(stage.coordinates)) {
    const value = BigInt64Array.of(BigInt(shardIndex(setup.axes, axes, localRank(setup)) * block + bias));
    store.defineBytes(name, new Uint8Array(value.buffer));
  }
  const ahead = startsAhead<Tensor>(setup);
  const lists = new Map(Object.keys(stage.phases).map((phase) => [phase, resolve(setup, phase, sessions, ahead)]));
  const lastRuns = new Set(new Map(setup.actions.map((action) => [action.phase, action])).values());
  return {
    actions: setup.actions.map((action) => ({
      steps: lists.get(action.phase) ?? [],
      isLast: lastRuns.has(action),
    })),
    substitutes: [...new Set([...sessions.values()].flatMap(({ substitutes = [] }) => substitutes))],
    release: async () => {
      for (const session of sessions.values()) await session.release();
    },
  };
}

/** A rank's number inside its stage. */
export function localRank(setup: RankSetup): number {
  return setup.rank - setup.regions.firstRank;
}

/** Segments that differ in types alone share a file, and so a session. */
function sessionKey({ segments }: ProgramStage, instruction: ComputeInstruction): string {
  return JSON.stringify([segments[instruction.segment]?.file, instruction.weights]);
}

async function loadSegment<Tensor extends object>(
  setup: RankSetup,
  backend: Backend<Tensor>,
  shards: ShardReader,
  instruction: ComputeInstruction,
): Promise<LoadedSegment<Tensor>> {
  const segment = setup.stage.segments[instruction.segment];
  if (!segment) throw new Error(`segment ${instruction.segment} is not declared`);
  const { inputs, outputs, nodes = [] } = segment;
  if (!backend.hasValues) {
    const source = { id: instruction.segment, file: '', model: new Uint8Array(), inputs, outputs, nodes, weights: [] };
    return backend.load(source, setup.threads);
  }
  const file = await ownFile(setup.folder, segment.file);
  const model = await readModel(file);
  const { plain } = segment;
  const inPlain = plain && { plain: async () => readModel(await ownFile(setup.folder, plain.file)) };
  const weights: { name: string; data: Uint8Array }[] = [];
  for (const [index, name] of segment.weights.entries()) {
    weights.push({ name, data: await shards.read(instruction.weights[index] as string) });
  }
  const source = { id: instruction.segment, file, model, inputs, outputs, nodes, weights, ...inPlain };
  return backend.load(source, setup.threads);
}

async function readModel(file: string): Promise<Uint8Array> {
  return readFile(file).catch((error: NodeJS.ErrnoException) => {
    const reason = error.code === 'ENOENT' ? 'does not exist' : `cannot be read (${error.code ?? error.message})`;
    throw new AutoparError(
      'missing-segment',
      'input',
      `the segment ${file} ${reason}`,
      { file },
      'compile the model again',
    );
  });
}

/** State, and weights that some instruction reads under their own name: to communicate, to send, or as an output. */
function weightsReadAsTensors({ stage, stageIndex, outputs, state }: RankSetup): readonly string[] {
  const read = Object.values(stage.phases)
    .flat()
    .flatMap((instruction) => {
      if (instruction.kind === 'compute') return instruction.inputs;
      if ('input' in instruction) return [instruction.input];
      return instruction.kind === 'send' ? [instruction.tensor] : [];
    });
  const given = outputs.filter((output) => output.stage === stageIndex).map((output) => output.tensor);
  return [...new Set([...state.map(({ to }) => to), ...read, ...given])].filter((name) => name in stage.weights);
}

type StartStep<Tensor> = Extract<LoadedStep<Tensor>, { kind: 'start' }>;

/** Collectives that begin in one list and are waited for in another, by number. */
function startsAhead<Tensor>(setup: RankSetup): ReadonlyMap<number, StartStep<Tensor>> {
  return new Map(
    Object.entries(setup.stage.phases).flatMap(([phase, list]) =>
      list.flatMap((instruction, position) => {
        if (instruction.kind !== 'start' || !instruction.last) return [];
        return [[instruction.id, startOf<Tensor>(setup, instruction, phase, position)] as const];
      }),
    ),
  );
}

function startOf<Tensor>(
  setup: RankSetup,
  instruction: Extract<Instruction, { kind: 'start' }>,
  phase: string,
  position: number,
): StartStep<Tensor> {
  const { input, output, label, last } = instruction;
  const call = callOf(setup, instruction, setup.slots.slotAt[phase]?.[position] ?? -1);
  return { kind: 'start', label, call, input, output, ...(last ? { last } : {}) };
}

/** @param ahead collectives that other lists begin */
function resolve<Tensor>(
  setup: RankSetup,
  phase: string,
  sessions: ReadonlyMap<string, LoadedSegment<Tensor>>,
  ahead: ReadonlyMap<number, StartStep<Tensor>>,
): LoadedStep<Tensor>[] {
  const { stage } = setup;
  const begun = new Map<number, StartStep<Tensor>>();
  const peerIn = (other: number) => localRank(setup) + other * setup.regions.regions.length;
  const resolved = (instruction: Instruction, position: number): LoadedStep<Tensor> => {
    if (instruction.kind === 'compute') {
      const segment = sessions.get(sessionKey(stage, instruction)) as LoadedSegment<Tensor>;
      const { temporaryBytes = 0 } = stage.segments[instruction.segment] ?? {};
      const { kind, inputs, outputs, label, pass } = instruction;
      const memory = memoryPlaceOf(stage, outputs[0]);
      return { kind, label, segment, temporaryBytes, memory, inputs, outputs, ...(pass === undefined ? {} : { pass }) };
    }
    if (instruction.kind === 'start') {
      const own = instruction.last ? ahead.get(instruction.id) : undefined;
      const step = own ?? startOf<Tensor>(setup, instruction, phase, position);
      if (!own) begun.set(instruction.id, step);
      return step;
    }
    if (instruction.kind === 'wait') {
      const start = begun.get(instruction.id) ?? ahead.get(instruction.id);
      if (!start) throw new Error(`collective ${instruction.id} is waited for before it begins`);
      const { label, call, input, output } = start;
      return { kind: 'wait', label, call, input, output };
    }
    if (instruction.kind === 'free' || instruction.kind === 'accumulate' || instruction.kind === 'move')
      return instruction;
    const { kind, tensor, label, stage: other } = instruction;
    return { kind, label, tensor, call: { label, peer: peerIn(other), bytes: tensorBytes(stage, tensor) } };
  };
  return (stage.phases[phase] ?? []).map((instruction, position) => {
    const { half } = instruction;
    return half === undefined ? resolved(instruction, position) : { ...resolved(instruction, position), half };
  });
}

function callOf(setup: RankSetup, start: Extract<Instruction, { kind: 'start' }>, slot: number): CollectiveCall {
  const { firstRank } = setup.regions;
  const members = groupOf(setup.axes, start.axes, localRank(setup)).map((member) => member + firstRank);
  return {
    collective: start.collective,
    dtype: tensorOf(setup.stage, start.input).dtype,
    members,
    member: members.indexOf(setup.rank),
    inputBytes: tensorBytes(setup.stage, start.input),
    outputBytes: tensorBytes(setup.stage, start.output),
    slot,
    ...(start.bucket === undefined ? {} : { bucket: start.bucket }),
  };
}

/** Reads a rank's shards, each file opened once. */
class ShardReader {
  private readonly files = new Map<string, Awaited<ReturnType<typeof openSafetensors>>>();

  constructor(private readonly setup: RankSetup) {}

  async read(name: string): Promise<Uint8Array> {
    const { stage, axes, folder } = this.setup;
    const weight = stage.weights[name];
    if (!weight) throw new Error(`weight ${name} is not declared`);
    const bytes = byteLength(weight.dtype, elementCount(weight.localShape));
    const isFirst = shardIndex(axes, weight.zeroUnlessFirst, localRank(this.setup)) === 0;
    if (weight.file === null || !isFirst) return new Uint8Array(bytes);
    const shard = shardIndex(axes, weight.axes, localRank(this.setup));
    const file = await ownFile(folder, shardText(weight.file, shard));
    let opened = this.files.get(file);
    if (!opened) {
      opened = await openSafetensors(file);
      this.files.set(file, opened);
    }
    const key = shardText(weight.key, shard);
    const { dtype, data } = await opened.read(key);
    if (dtype !== weight.dtype || data.byteLength !== bytes) {
      const message =
        `${file} holds ${key} as ${dtype} of ${data.byteLength} bytes, but the program expects ` +
        `${weight.dtype} of ${bytes}`;
      throw new AutoparError('bad-weights', 'input', message, { file, tensor: name }, 'compile the model again');
    }
    return data;
  }

  async close(): Promise<void> {
    for (const file of this.files.values()) await file.close();
  }
}
