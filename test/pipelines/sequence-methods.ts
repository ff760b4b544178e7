/**
 * @file Each way to shard a sequence, in each model, on two and four ranks and beside dp, tp and pp: two steps of training
 * against one rank. docs/reference/sequences.md shows the results, and sequence-methods.slow.ts checks them.
 */
import { annotationsOf } from '../../src/api/index.js';
import { peakMemory } from '../../src/api/reports/peak-memory.js';
import { parseCluster } from '../../src/cost-model/cluster.js';
import type { SpMethod } from '../../src/sharding-propagation/roles.js';
import { type Asked, type Pipeline, type Task, type Trained, train } from './compiled-training.js';
import { difference, worstDifference } from './difference.js';
import type { ModelName } from './models.js';
import { pairwise } from './pairwise.js';

/** A method of `--sp`, or Megatron's: tp, with the sequence sharded between its matmuls. */
export type SequenceMethod = Exclude<SpMethod, 'auto'> | 'megatron';

export const METHODS: readonly SequenceMethod[] = ['megatron', 'ulysses', 'ring', 'gather'];

interface SequenceModelText {
  /** The particular property of the model. */
  readonly says: string;
  /** Its layers' modules, as a glob. */
  readonly layers: string;
}

export const SEQUENCE_MODELS = {
  gpt: { says: 'MatMul, Softmax, MatMul; learned positions', layers: 'h.*' },
  llama: { says: 'grouped heads, rotary positions', layers: 'model.layers.*' },
  uneven: { says: 'the same, 7 positions', layers: 'model.layers.*' },
  'attention-operators': { says: "ONNX's Attention: grouped heads, a soft cap", layers: 'layers.*' },
  'grouped-operators': { says: 'GroupQueryAttention: rotary inside, a window, sinks', layers: 'layers.*' },
  windows: { says: 'a window and the first position, grouped heads', layers: 'layers.*' },
  documents: { says: 'packed samples, masks from data', layers: 'layers.*' },
  sinks: { says: 'sinks as one more column of the scores', layers: 'layers.*' },
  'cross-attention': { says: 'an encoder with padding, a decoder that attends to it', layers: '*coder.*' },
} as const satisfies Partial<Record<ModelName, SequenceModelText>>;

export type SequenceModel = keyof typeof SEQUENCE_MODELS;

/** Degrees beside each other, the sequence's own last. */
export type SequenceDegrees = 'n 2' | 'n 4' | 'dp 2, n 2' | 'tp 2, n 2' | 'pp 2, n 2';

const ALONE: readonly SequenceDegrees[] = ['n 2', 'n 4'];
const COMBINED: readonly SequenceDegrees[] = ['dp 2, n 2', 'tp 2, n 2', 'pp 2, n 2'];

/**
 * Models that are trained beside dp, tp and pp by every method; for the others, every pair of model, method and degrees is in
 * some case.
 */
const ALL_DEGREES: ReadonlySet<SequenceModel> = new Set(['llama', 'grouped-operators', 'cross-attention']);

export interface SequenceCase {
  readonly model: SequenceModel;
  readonly method: SequenceMethod;
  readonly degrees: SequenceDegrees;
}

export function sequenceCases(): readonly SequenceCase[] {
  const models = Object.keys(SEQUENCE_MODELS) as SequenceModel[];
  const combined = models.flatMap((model) => everyMethod(model, COMBINED));
  const drawn = pairwise(combined.filter(({ model }) => !ALL_DEGREES.has(model)));
  return models.flatMap((model) => [
    ...everyMethod(model, ALONE),
    ...combined.filter((each) => each.model === model && (ALL_DEGREES.has(model) || drawn.includes(each))),
  ]);
}

/** Megatron's is over tp itself. */
function everyMethod(model: SequenceModel, all: readonly SequenceDegrees[]): readonly SequenceCase[] {
  return all.flatMap((degrees) =>
    METHODS.filter((method) => method !== 'megatron' || !degrees.startsWith('tp')).map((method) => ({
      model,
      method,
      degrees,
    })),
  );
}

/** How far a case is from one rank. */
export interface SequenceResult {
  /** Difference of the losses, relative to the largest. */
  readonly loss: number;
  /** Difference of an element of any weight or moment, relative to its tensor's largest: both are linear in the gradients. */
  readonly gradient: number;
  readonly trained: Trained;
}

const STEPS = 2;
const references = new Map<SequenceModel, Promise<Trained>>();

/** Trains a case and one rank; the one rank of a model once. */
export async function trainedApart({ model, method, degrees }: SequenceCase): Promise<SequenceResult> {
  const microBatches = degrees.startsWith('pp') ? 2 : 1;
  const alone = references.get(model) ?? train({ model, microBatches: 1 }, STEPS);
  references.set(model, alone);
  const asked = method === 'megatron' ? alongSequence(SEQUENCE_MODELS[model].layers) : {};
  const trained = await train({ model, microBatches }, STEPS, pipelineOf(method, degrees), asked);
  const one = await alone;
  return {
    loss: difference(one.losses, trained.losses),
    gradient: worstDifference({ ...one, losses: [1] }, { ...trained, losses: [1] }),
    trained,
  };
}

function pipelineOf(method: SequenceMethod, degrees: SequenceDegrees): Partial<Pipeline> {
  const count = degrees === 'n 4' ? 4 : 2;
  const beside = degrees.startsWith('dp') ? { dp: 2 } : degrees.startsWith('tp') ? { tp: 2 } : {};
  const stages: Partial<Pipeline> = degrees.startsWith('pp') ? { stages: 2, kind: '1f1b' } : { stages: 1 };
  return { ...beside, ...stages, ...ranksOf(method, count) };
}

/** Pins that put the sequence on tp in position-wise operators between the matmuls. */
function alongSequence(layers: string): Asked {
  return { annotations: annotationsOf({ version: 1, pins: [{ match: { module: layers }, style: 'sequence' }] }) };
}

function ranksOf(method: SequenceMethod, count: number): Partial<Pipeline> {
  return method === 'megatron' ? { tp: count } : { sp: count, spMethod: method };
}

/** Bytes of activations, of what is computed beside them and of the runtime's buffers, at a rank's fullest moment. */
export function activationBytes({ lowered, schedule }: Pick<Trained, 'lowered' | 'schedule'>): number {
  const [{ kinds } = { kinds: {} }] = peakMemory({ lowered, schedule }, parseCluster(undefined, lowered.length), 0);
  const held = kinds as Readonly<Record<string, number>>;
  return ['activation', 'temporary', 'communication buffer'].reduce((sum, kind) => sum + (held[kind] ?? 0), 0);
}

/** Trains the model of long sequences on so many ranks. */
export function trainedLong(method: SequenceMethod, ranks: number): Promise<Trained> {
  const task: Task = { model: 'long', microBatches: 1 };
  if (ranks === 1) return train(task, 1, { zero: 0 });
  return train(
    task,
    1,
    { ...ranksOf(method, ranks), zero: 0 },
    method === 'megatron' ? alongSequence('model.layers.*') : {},
  );
}

/** The most chunks that have arrived or are on their way, of those that keys or values of a layer are passed round in. */
export function chunksOfRing({ program }: Pick<Trained, 'program'>): number {
  const firstOf = new Map<string, string>();
  const held = new Map<string, Set<string>>();
  let most = 0;
  for (const { phases } of program.stages)
    for (const instruction of Object.values(phases).flat()) {
      if (instruction.kind === 'free')
        for (const name of instruction.tensors) held.get(firstOf.get(name) ?? '')?.delete(name);
      if (instruction.kind !== 'start' || instruction.collective.kind !== 'permute') continue;
      const { input, output } = instruction;
      const first = firstOf.get(input) ?? input;
      firstOf.set(output, first);
      const chunks = held.get(first) ?? new Set();
      held.set(first, chunks.add(output));
      most = Math.max(most, chunks.size);
    }
  return most;
}
