/**
 * @file Bytes that one rank of each pipeline stage holds at the peak of a training step: what is kept for the whole step, what
 * each micro-batch in flight keeps for its backward, and what is live while the fullest layer runs.
 *
 * Activations are what the layer's sharded graph hands from forward to backward, in 16 bits s · b · h · 34 a layer for GPT with
 * dropout, and 5 · a · s more where attention in parts keeps its scores (Korthikanti et al. 2022, equation 2).
 */
import { DEVICE_OVERHEAD } from '../hardware.js';
import type { StepConfiguration } from './configuration.js';
import { elementBytes } from './kernel-price.js';
import { microBatches } from './step-price.js';
import type { AttentionWork, MatmulWork, ModelWork, PartWork } from './work.js';

/** What a rank of one stage holds at its peak, bytes. */
export interface StageMemory {
  readonly stage: number;
  readonly parameters: number;
  readonly gradients: number;
  readonly optimizer: number;
  /** Kept by micro-batches in flight. */
  readonly activations: number;
  /** What is live besides while the fullest part runs: recomputed values, gathered parameters, logits and loss. */
  readonly temporaries: number;
  /** Device context, communication library, and what the allocator cannot use. */
  readonly overhead: number;
  readonly total: number;
  /** Micro-batches whose activations are held at once. */
  readonly inFlight: number;
}

/** How many bytes each kind of state has per parameter. */
interface Recipe {
  readonly parameter: number;
  readonly gradient: number;
  readonly optimizer: number;
}

/** Mixed-precision Adam: 16-bit parameters beside fp32 masters and moments; fp32 has no masters. */
function recipeOf({ precision, software, zero }: StepConfiguration): Recipe {
  if (precision === 'fp32') return { parameter: 4, gradient: 4, optimizer: 8 };
  // PyTorch's FSDP keeps fp32 shards and casts what it gathers; Megatron accumulates gradients in fp32 except in its
  // recipes for 8 and 4 bits.
  if (zero === 3) return { parameter: 4, gradient: 4, optimizer: 8 };
  const gradient = precision === 'bf16' && software !== 'eager' ? 4 : 2;
  return { parameter: 2, gradient, optimizer: 12 };
}

/** One record per stage; `overhead` is left out of `allocated`, which is what a framework's own counter shows. */
export function stageMemory(model: ModelWork, configuration: StepConfiguration): readonly StageMemory[] {
  const { degrees } = configuration;
  return Array.from({ length: degrees.pp }, (_, stage) => memoryOf(stage, model, configuration));
}

/** Peak bytes of tensors, without context, communication library and fragmentation. */
export function allocatedBytes({ total, overhead }: StageMemory): number {
  return total - overhead;
}

function memoryOf(stage: number, model: ModelWork, configuration: StepConfiguration): StageMemory {
  const { degrees, zero, recompute, virtualStages, frozen } = configuration;
  const { pp, dp, sp, ep } = degrees;
  const layerCount = model.layers.reduce((sum, { count }) => sum + count, 0);
  const share = Math.ceil(layerCount / pp) / layerCount;
  const first = stage === 0;
  const last = stage === pp - 1;
  const over = (of: (part: PartWork) => number) =>
    model.layers.reduce((sum, { count, part }) => sum + count * of(part), 0) * share;
  const headOfItsOwn = model.tied && pp > 1 && last ? model.first.parameters : 0;
  const edges = (first ? model.first.parameters : 0) + (last ? model.last.parameters : 0) + headOfItsOwn;
  const dense = over(({ parameters, expertParameters }) => parameters - expertParameters) + edges;
  const experts = over(({ expertParameters }) => expertParameters) / ep;

  const width = elementBytes(configuration.precision);
  const recipe = recipeOf(configuration);
  const shards = configuration.shardRanks ?? dp * sp;
  const expertShards = Math.max(1, shards / ep);
  const spread = (bytes: number, from: number) =>
    bytes * (zero >= from ? dense / shards + experts / expertShards : dense + experts);
  const trained = configuration.inference ? 0 : frozen ? ADAPTERS : 1;
  const parameters = spread(frozen || configuration.inference ? width : recipe.parameter, 3);
  const gradients = trained * spread(recipe.gradient, 2);
  const optimizer = trained * spread(recipe.optimizer, 1);

  const m = microBatches(configuration);
  const inFlight = configuration.inference
    ? 0
    : configuration.schedule === 'f-then-b'
      ? m
      : pp === 1 || configuration.schedule === 'naive'
        ? 1
        : virtualStages > 1
          ? Math.min(m, pp * (1 + (pp - 1) / (pp * virtualStages)))
          : Math.min(pp - stage, m);
  const boundary = (model.boundary * width) / sp / (configuration.tpSequence ? degrees.tp : 1);
  const kept = (part: PartWork) => savedBytes(part, configuration);
  const layerActivations =
    recompute === 'full'
      ? layerCount * share * boundary
      : over((part) => kept(part)) * (recompute === 'operators' ? 0.6 : 1);
  const edgeActivations = first ? savedBytes(model.first, configuration) : 0;
  const activations = inFlight * (layerActivations + edgeActivations);

  const fullest = Math.max(
    ...model.layers.map(({ part }) => savedBytes(part, { ...configuration, recompute: 'none' })),
  );
  const logits = last ? lossBytes(model, configuration) : 0;
  const layerParameters = Math.max(
    ...model.layers.map(({ part }) => part.parameters - part.expertParameters + part.expertParameters / ep),
  );
  const gathered = zero === 3 ? 2 * width * layerParameters + recipe.gradient * layerParameters : 0;
  const temporaries = Math.max(recompute === 'full' ? fullest * 1.3 : fullest * 0.3, logits) + gathered;

  const held = parameters + gradients + optimizer + activations + temporaries;
  const { contextBytes, communicationBytes, fragmentation } = DEVICE_OVERHEAD;
  const overhead = contextBytes + (degrees.tp * pp * dp * sp > 1 ? communicationBytes : 0) + fragmentation * held;
  return {
    stage,
    parameters,
    gradients,
    optimizer,
    activations,
    temporaries,
    overhead,
    total: held + overhead,
    inFlight,
  };
}

/**
 * Logits, their softmax and gradients: kept once in 16 bits by a fused loss, three times that by a loss that each rank
 * computes for its part of the vocabulary, and at 19 bytes each where the whole vocabulary meets a plain loss.
 */
function lossBytes(model: ModelWork, configuration: StepConfiguration): number {
  const { loss, degrees } = configuration;
  const saved = savedBytes(model.last, configuration);
  if (loss === 'fused') return saved;
  if (loss === 'parallel') return 3 * saved;
  const [head] = model.last.forward.filter((work): work is MatmulWork => work.kind === 'matmul');
  return head ? (19 * head.rows * head.columns * degrees.tp) / degrees.sp : 3 * saved;
}

/** What a part keeps for its backward on this rank. */
function savedBytes(
  part: PartWork,
  { degrees, precision, tpSequence, attention, recompute, fusedNorms }: StepConfiguration,
): number {
  const width = elementBytes(precision);
  const repeated = part.savedRepeated / (tpSequence ? degrees.tp : 1);
  const scores = part.forward.filter((work): work is AttentionWork => work.kind === 'attention');
  const kept = attention === 'parts' && recompute === 'none';
  const scoreBytes = kept
    ? scores.reduce((sum, { batch, heads, queries, keys }) => sum + batch * heads * queries * keys * SCORE_BYTES, 0)
    : 0;
  const norms = fusedNorms
    ? 0
    : part.forward.reduce(
        (sum, work) => sum + (work.kind === 'memory' && work.norm ? work.elements * PLAIN_NORM_BYTES : 0),
        0,
      );
  // Recipes of 8 bits keep the inputs of products in them: 27 of 34 bytes are left.
  const narrow = precision === 'fp8' || precision === 'fp4' ? 0.8 : 1;
  return (
    ((part.saved - part.savedRepeated + repeated) * width * narrow + part.savedMasks + scoreBytes + norms) / degrees.sp
  );
}

/** Adapters hold about a hundredth of a model's parameters. */
const ADAPTERS = 0.01;
/** Softmax's result, dropout's mask and result: Korthikanti's 5 bytes. */
const SCORE_BYTES = 5;
/** fp32 copies that a normalisation in parts keeps, per element that it reads or writes. */
const PLAIN_NORM_BYTES = 3;
