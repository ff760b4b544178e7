/**
 * @file Bytes that one part of a model takes on one rank: state that it holds for all of the step, stored activations of each
 * micro-batch in flight, and temporaries that are live while it runs.
 *
 * Activations are the tensors that the layer's sharded graph passes from forward to backward, in 16 bits s · b · h · 34 a layer
 * for GPT with dropout, and 5 · a · s more where attention in parts stores its scores (Korthikanti et al. 2022, equation 2).
 */

import { elementBytes } from '../kernel-price.js';
import type { StepConfiguration, StepRecompute } from './configuration.js';
import type { RankParameters } from './data-price.js';
import { offloadsActivations, offloadsOptimizer } from './offload.js';
import type { LongLivedTensor } from './read-work.js';
import type { MatmulWork, ModelWork, PartWork, StepAttentionWork } from './work.js';

export interface PartBytes {
  /** Held for the whole step, after ZeRO. */
  readonly parameters: number;
  readonly gradients: number;
  readonly optimizer: number;
  /** Stored activations of each micro-batch in flight. */
  readonly saved: number;
  /** Temporaries that are live while it runs: a stage needs room for those of one part, the largest. */
  readonly transient: number;
  /** Parameters that ZeRO 3 gathers to run it, and their gradients: again the largest counts. */
  readonly gathered: number;
  /** In the host's memory, beside the device's: for the whole step, and by each micro-batch in flight. */
  readonly hostState: number;
  readonly hostSaved: number;
}

export interface PartsBytes {
  readonly first: PartBytes;
  /** By class of layers: one that stores all that its backward reads, and one that recomputes as the configuration states. */
  readonly layers: readonly { readonly stored: PartBytes; readonly recomputed: PartBytes }[];
  /** One micro-batch is in it at a time, and its logits count. */
  readonly last: PartBytes;
}

/** The bytes of a model's parts. */
export function partBytes(model: ModelWork, configuration: StepConfiguration): PartsBytes {
  const { recompute } = configuration;
  const first = stateBytes(rankParameters(model.first, configuration), model.first.buffers, configuration);
  if (configuration.inference) return inferenceBytes(model, configuration);
  return {
    first: withActivations(first, partSavedBytes(model.first, recompute, configuration), 0, 0, 0),
    layers: model.layers.map(({ part }) => {
      const stored = layerBytes(part, 'none', model, configuration);
      return { stored, recomputed: recompute === 'none' ? stored : layerBytes(part, recompute, model, configuration) };
    }),
    last: withActivations(
      stateBytes(rankParametersOfLast(model, configuration), model.last.buffers, configuration),
      0,
      lossBytes(model, configuration),
      0,
      0,
    ),
  };
}

/** No activations are stored: a part needs room for its parameters, and for the tensors that are live at its peak. */
function inferenceBytes(model: ModelWork, configuration: StepConfiguration): PartsBytes {
  const own = (part: PartWork, held: RankParameters, gathered: number) =>
    withActivations(stateBytes(held, part.buffers, configuration), 0, liveBytes(part, configuration), gathered, 0);
  return {
    first: own(model.first, rankParameters(model.first, configuration), 0),
    layers: model.layers.map(({ part }) => {
      const held = rankParameters(part, configuration);
      const stored = own(part, held, gatheredBytes(held, configuration));
      return { stored, recomputed: stored };
    }),
    last: own(model.last, rankParametersOfLast(model, configuration), 0),
  };
}

/** Bytes live at a part's peak in inference; attention in parts writes its scores, and softmax beside them. */
function liveBytes(part: PartWork, { degrees, precision, tpSequence, attention }: StepConfiguration): number {
  const scores = attention === 'parts' ? 2 * scoresOf(part) : 0;
  return (((tpSequence ? part.liveShared : part.live) + scores) * elementBytes(precision)) / degrees.sp;
}

type StateBytes = Pick<PartBytes, 'parameters' | 'gradients' | 'optimizer' | 'hostState'>;

/** Written out, since a search makes thousands of them and copying records field by field is slow. */
function withActivations(
  { parameters, gradients, optimizer, hostState }: StateBytes,
  saved: number,
  transient: number,
  gathered: number,
  hostSaved: number,
): PartBytes {
  return { parameters, gradients, optimizer, hostState, saved, transient, gathered, hostSaved };
}

/** How many bytes each kind of state has per parameter. */
interface Recipe {
  readonly parameter: number;
  readonly gradient: number;
  readonly optimizer: number;
}

/**
 * Mixed-precision Adam: 16-bit parameters beside fp32 masters and moments; fp32 has no masters. Gradients are added up and
 * reduced in one buffer, so they take as many bytes in memory as on the wire. PyTorch's FSDP keeps fp32 shards of all of them,
 * and casts the gathered ones; with the state on the host, it keeps 16-bit shards, and the masters are on the host.
 */
export function recipeOf(configuration: StepConfiguration): Recipe {
  const { precision, zero, gradientBytes } = configuration;
  if (precision === 'fp32') return { parameter: 4, gradient: 4, optimizer: 8 };
  if (zero === 3 && !offloadsOptimizer(configuration)) return { parameter: 4, gradient: 4, optimizer: 8 };
  return { parameter: 2, gradient: gradientBytes, optimizer: 12 };
}

/** Elements that a rank holds of a part. */
export function rankParameters(
  { parameters, expertParameters }: PartWork,
  { degrees }: StepConfiguration,
): RankParameters {
  return { dense: parameters - expertParameters, experts: expertParameters / degrees.ep };
}

/** Elements that a rank holds of the part after the layers: with a copy of a shared table that is on another stage. */
export function rankParametersOfLast({ last, tied }: ModelWork, configuration: StepConfiguration): RankParameters {
  const { dense, experts } = rankParameters(last, configuration);
  return { dense: dense + (configuration.degrees.pp > 1 ? tied : 0), experts };
}

/**
 * Bytes of a tensor that a part holds: a parameter with its gradient and state, a buffer, or one micro-batch's stored activation.
 */
export function longLivedBytes(
  { kind, elements, mask, repeated, experts }: LongLivedTensor,
  configuration: StepConfiguration,
): number {
  const { degrees, precision, tpSequence } = configuration;
  if (kind === 'buffer') return elements * elementBytes(precision);
  if (kind === 'parameter') {
    const held = experts ? { dense: 0, experts: elements / degrees.ep } : { dense: elements, experts: 0 };
    const { parameters, gradients, optimizer } = stateBytes(held, 0, configuration);
    return parameters + gradients + optimizer;
  }
  const own = repeated && tpSequence && !mask ? elements / degrees.tp : elements;
  return (own * (mask ? 1 : elementBytes(precision) * storedShare(precision))) / degrees.sp;
}

/** State of a part under the recipe and the ZeRO level of a configuration; buffers are replicated over dp. */
function stateBytes({ dense, experts }: RankParameters, buffers: number, configuration: StepConfiguration): StateBytes {
  const { degrees, zero, inference } = configuration;
  const recipe = recipeOf(configuration);
  const shards = degrees.dp * degrees.sp;
  const expertShards = Math.max(1, shards / degrees.ep);
  const spread = (bytes: number, from: number) =>
    bytes * (zero >= from ? dense / shards + experts / expertShards : dense + experts);
  const onHost = offloadsOptimizer(configuration);
  const trained = inference ? 0 : 1;
  const width = elementBytes(configuration.precision);
  return {
    parameters: spread(inference ? width : recipe.parameter, 3) + buffers * width,
    gradients: trained * spread(recipe.gradient, 2),
    optimizer: onHost ? 0 : trained * spread(recipe.optimizer, 1),
    // Beside the state, gradients as they arrive and parameters as they leave.
    hostState: onHost
      ? trained * spread(recipe.optimizer + configuration.gradientBytes + elementBytes(configuration.precision), 1)
      : 0,
  };
}

/** Bytes of a layer whose backward does `recompute` again. */
function layerBytes(
  part: PartWork,
  recompute: StepRecompute,
  model: ModelWork,
  configuration: StepConfiguration,
): PartBytes {
  const held = rankParameters(part, configuration);
  const width = elementBytes(configuration.precision);
  const boundary =
    (model.boundary * width * ofPrograms(model.boundaryOfPrograms, configuration)) / configuration.degrees.sp;
  const whole = partSavedBytes(part, 'none', configuration);
  const saved =
    recompute === 'full'
      ? boundary / (configuration.tpSequence ? configuration.degrees.tp : 1)
      : recompute === 'operators'
        ? boundary / (configuration.tpSequence ? configuration.degrees.tp : 1) + resultBytes(part, configuration)
        : partSavedBytes(part, recompute, configuration);
  const onHost = offloadsActivations(configuration);
  return withActivations(
    stateBytes(held, part.buffers, configuration),
    onHost ? 0 : saved,
    whole * (recompute === 'full' ? 1.3 : 0.3),
    gatheredBytes(held, configuration),
    onHost ? saved : 0,
  );
}

/** Bytes that ZeRO 3 gathers to run a layer: its parameters, those of the next, and in training its gradients. */
function gatheredBytes({ dense, experts }: RankParameters, configuration: StepConfiguration): number {
  if (configuration.zero < 3) return 0;
  const gradient = configuration.inference ? 0 : recipeOf(configuration).gradient;
  return (2 * elementBytes(configuration.precision) + gradient) * (dense + experts);
}

/**
 * Logits, their softmax and gradients: stored once in 16 bits by a fused loss, three times that by a loss that each rank computes
 * for its shard of the vocabulary. A plain loss in fp32 over the whole vocabulary takes 14 bytes each at its peak (the 16-bit
 * logits, their logarithms, and two gradients), and 5 more in eager software, whose copies live as long as their names do.
 */
function lossBytes(model: ModelWork, configuration: StepConfiguration): number {
  const { loss, degrees, recompute, software } = configuration;
  const saved = partSavedBytes(model.last, recompute, configuration);
  if (loss === 'fused') return saved;
  if (loss === 'parallel') return 3 * saved;
  const [head] = model.last.forward.filter((work): work is MatmulWork => work.kind === 'matmul');
  const bytes = software === 'eager' ? 19 : 14;
  return head ? (bytes * head.rows * head.columns * degrees.tp) / degrees.sp : 3 * saved;
}

/** Activations that torch's selective checkpointing by operator stores: results of every second matmul, and of attention. */
function resultBytes({ forward }: PartWork, { degrees, precision }: StepConfiguration): number {
  const elements = forward.reduce((sum, work) => {
    if (work.kind === 'matmul') return sum + (work.batch * work.rows * work.columns) / 2;
    return work.kind === 'attention' ? sum + work.batch * work.heads * work.queries * work.valueWidth : sum;
  }, 0);
  return (elements * elementBytes(precision)) / degrees.sp;
}

/** Bytes of a part's stored activations on this rank. */
function partSavedBytes(part: PartWork, recompute: StepRecompute, configuration: StepConfiguration): number {
  const { degrees, precision, tpSequence, attention, fusedNorms } = configuration;
  const width = elementBytes(precision);
  const repeated = part.savedRepeated / (tpSequence ? degrees.tp : 1);
  const scoreBytes = attention === 'parts' && recompute === 'none' ? SCORE_BYTES * scoresOf(part) : 0;
  const norms = fusedNorms
    ? 0
    : part.forward.reduce(
        (sum, work) => sum + (work.kind === 'memory' && work.norm ? work.elements * PLAIN_NORM_BYTES : 0),
        0,
      );
  const narrow = storedShare(precision) * ofPrograms(part.storedByPrograms, configuration);
  return (
    ((part.saved - part.savedRepeated + repeated) * width * narrow + part.savedMasks + scoreBytes + norms) / degrees.sp
  );
}

/** Factor for a program in 16 bit, which computes some operators in float32 that transformer software runs in 16 bit. */
function ofPrograms(times: number | undefined, { program, precision }: StepConfiguration): number {
  return program && elementBytes(precision) === 2 ? (times ?? 1) : 1;
}

/** Elements of scores of attention. */
function scoresOf({ forward }: PartWork): number {
  return forward
    .filter((work): work is StepAttentionWork => work.kind === 'attention')
    .reduce((sum, { batch, heads, queries, keys }) => sum + batch * heads * queries * keys, 0);
}

/** Recipes of 8 bits store the inputs of matmuls in 8 bits: 27 of 34 bytes are left. */
function storedShare(precision: StepConfiguration['precision']): number {
  return precision === 'fp8' || precision === 'fp4' ? 0.8 : 1;
}

/** Softmax's result, dropout's mask and result: Korthikanti's 5 bytes. */
const SCORE_BYTES = 5;
/** Bytes of the fp32 copies that a normalisation in parts stores, per element that it reads or writes. */
const PLAIN_NORM_BYTES = 3;
