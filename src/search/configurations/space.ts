/**
 * @file The search space of a step: degrees, micro-batches, recomputation, ZeRO, schedules. Impossible choices are left out
 * with the reason; the user's decisions are taken as they are.
 */
import type {
  Degrees,
  MeshOrder,
  Offload,
  StepConfiguration,
  StepRecompute,
} from '../../cost-model/step/configuration.js';
import type { ModelWork } from '../../cost-model/step/work.js';
import { fewestChunks, interleaves, type ScheduleKind, splitsBackward } from '../../schedule/schedule.js';

/** Facts about a model that limit the choices. */
export interface ModelFacts {
  readonly layers: number;
  /** Positions that attention goes over; 1 where there is none. */
  readonly sequence: number;
  /** Whether state-space layers pass a state from position to position, so that a program cannot shard sequences. */
  readonly carriesState?: true;
  /** Heads of attention; null if none. */
  readonly heads: number | null;
  /** Experts per layer; 1 without. */
  readonly experts: number;
}

/** The user's decisions; fields that are left out are searched. */
export interface DecidedSettings extends Partial<Degrees> {
  readonly microBatch?: number;
  readonly microBatches?: number;
  readonly zero?: 0 | 1 | 2 | 3;
  readonly recompute?: StepRecompute;
  readonly schedule?: ScheduleKind;
  readonly virtualStages?: number;
  readonly tpSequence?: boolean;
  readonly meshOrder?: MeshOrder;
  readonly offload?: Offload;
  /** Layers of each part of the pipeline; its number of parts is decided too. */
  readonly stageLayers?: readonly number[];
  /** Axes that pins of operators name: on one rank they would shard nothing. */
  readonly pinnedAxes?: readonly (keyof Degrees)[];
}

export interface SpaceOptions {
  readonly devices: number;
  /** Devices that share the fast links. */
  readonly perNode: number;
  readonly globalBatch: number;
  readonly facts: ModelFacts;
  readonly decided: DecidedSettings;
  /** Sizes of a micro-batch that the model cannot be rebuilt at, with the reason. */
  readonly unbuilt?: ReadonlyMap<number, string>;
  /** Settings that are not searched: precision, software, kernels, overlap. */
  readonly base: Omit<
    StepConfiguration,
    'degrees' | 'schedule' | 'virtualStages' | 'microBatch' | 'tpSequence' | 'zero' | 'recompute'
  >;
}

/** Degrees with the micro-batches that go with them, or the reason why none does. */
export interface Combination {
  readonly degrees: Degrees;
  /** Samples of a micro-batch on a rank; empty where the combination is impossible. */
  readonly microBatches: readonly number[];
  readonly reason: string | null;
}

/** The facts that a model's work holds, read at tp 1. */
export function factsOf(work: ModelWork): ModelFacts {
  const all = work.layers.flatMap(({ part }) => part.forward);
  const attention = all.flatMap((item) => (item.kind === 'attention' ? [item] : []));
  const experts = all.flatMap((item) => (item.kind === 'matmul' && item.experts ? [item.batch] : []));
  return {
    layers: work.layers.reduce((sum, { count }) => sum + count, 0),
    sequence: Math.max(1, ...attention.map(({ queries }) => queries)),
    heads: attention.length === 0 ? null : Math.max(...attention.map(({ heads }) => heads)),
    experts: Math.max(1, ...experts),
  };
}

/** All pp · dp · sp · tp = devices with every ep, as far as they are not decided otherwise; few stages first. */
export function combinations(options: SpaceOptions): readonly Combination[] {
  const { devices, decided, facts } = options;
  const found: Combination[] = [];
  for (const pp of divisors(devices)) {
    if ((decided.pp ?? pp) !== pp) continue;
    for (const tp of divisors(devices / pp)) {
      if ((decided.tp ?? tp) !== tp) continue;
      for (const sp of divisors(devices / pp / tp)) {
        if ((decided.sp ?? sp) !== sp || (decided.sp === undefined && sp > 1 && wholeSequence(sp, facts) !== null))
          continue;
        const dp = devices / pp / tp / sp;
        if ((decided.dp ?? dp) !== dp) continue;
        for (const ep of divisors(facts.experts)) {
          if ((decided.ep ?? ep) !== ep || (dp * sp) % ep !== 0) continue;
          found.push(combination({ pp, dp, sp, tp, ep }, options));
        }
      }
    }
  }
  return found;
}

/** Attention that layers do not show is that before or behind them, and one with Dropout on its probabilities. */
export function withoutSequence(sp: number): string {
  return `sp ${sp} shards the sequence of attention, and the estimate of the layers has no attention`;
}

/** Why sequences are not sharded; null where they can be. */
function wholeSequence(sp: number, { sequence, carriesState }: ModelFacts): string | null {
  if (sequence === 1) return withoutSequence(sp);
  return carriesState
    ? `sp ${sp} shards sequences, and state-space layers pass a state from position to position`
    : null;
}

function combination(degrees: Degrees, options: SpaceOptions): Combination {
  const { facts, globalBatch, decided, perNode } = options;
  const { pp, dp, sp, tp } = degrees;
  const no = (reason: string): Combination => ({ degrees, microBatches: [], reason });
  if (pp > facts.layers) return no(`pp ${pp} needs ${pp} layers, and the model has ${facts.layers}`);
  if (decided.tp === undefined && tp > perNode)
    return no(`tp ${tp} exceeds the node of ${perNode} devices; searched only with --tp ${tp}`);
  if (facts.heads !== null && tp > facts.heads && decided.tp === undefined)
    return no(`tp ${tp} is more than the ${facts.heads} heads`);
  const idle = options.devices > 1 ? decided.pinnedAxes?.find((axis) => degrees[axis] === 1) : undefined;
  if (idle) return no(`a pin names ${idle}, which has one rank here and shards nothing`);
  const whole = sp > 1 ? wholeSequence(sp, facts) : null;
  if (whole !== null) return no(whole);
  if (facts.sequence % sp !== 0) return no(`sp ${sp} does not divide the sequence of ${facts.sequence}`);
  if (decided.tpSequence && tp > 1 && facts.sequence % (sp * tp) !== 0)
    return no(`norms cannot be sharded over tp ${tp}: sp · tp does not divide the sequence of ${facts.sequence}`);
  if (globalBatch % dp !== 0) return no(`dp ${dp} does not divide the global batch of ${globalBatch}`);
  const sizes = microBatchesOf(globalBatch / dp, options);
  if (sizes.length === 0) return no(undivided(globalBatch / dp, options));
  const built = sizes.filter((size) => !options.unbuilt?.has(size));
  if (built.length === 0) return no(options.unbuilt?.get(sizes[0] ?? 1) ?? '');
  if (pp === 1 && (decided.virtualStages ?? 1) > 1)
    return no(`${decided.virtualStages} virtual stages need a pipeline, and pp is 1`);
  if (pp === 1 && decided.schedule !== undefined)
    return no(`schedule ${decided.schedule} needs a pipeline, and pp is 1`);
  const microBatches = built.filter((size) => schedules(pp, globalBatch / (dp * size), options).length > 0);
  return microBatches.length > 0 ? { degrees, microBatches, reason: null } : no(noSchedule(pp, built, options, dp));
}

/** Why a requested schedule has no order for any of the micro-batches. */
function noSchedule(
  pp: number,
  sizes: readonly number[],
  { facts, globalBatch, decided }: SpaceOptions,
  dp: number,
): string {
  const { schedule = 'interleaved-1f1b', virtualStages = 2 } = decided;
  if (fewestChunks(schedule) === 1) return `${schedule} runs one chunk a stage, not ${virtualStages} virtual stages`;
  if (schedule === 'zbv' && virtualStages !== 2) return `zbv runs 2 chunks a stage, not ${virtualStages}`;
  if (virtualStages === 1) return `${schedule} interleaves the chunks of a stage, and 1 virtual stage is one chunk`;
  if (pp * virtualStages > facts.layers)
    return `pp ${pp} with ${virtualStages} chunks a stage needs ${pp * virtualStages} layers, and the model has ${facts.layers}`;
  const counts = sizes.map((size) => globalBatch / (dp * size)).join(' or ');
  return `${schedule} takes micro-batches in groups of its ${pp} stages, and there are ${counts}`;
}

/** Sizes of a micro-batch: divisors of a rank's samples that agree with the user's decisions. */
function microBatchesOf(samples: number, { decided }: SpaceOptions): readonly number[] {
  const { microBatch, microBatches: count } = decided;
  return divisors(samples).filter(
    (size) => (microBatch ?? size) === size && (count ?? samples / size) === samples / size,
  );
}

/** Why the given micro-batches do not make a replica's batch. */
function undivided(samples: number, { decided: { microBatch, microBatches } }: SpaceOptions): string {
  if (microBatch === undefined)
    return `${microBatches} micro-batches do not divide the per-replica batch of ${samples}`;
  return microBatches === undefined
    ? `micro-batch ${microBatch} does not divide the per-replica batch of ${samples}`
    : `micro-batch ${microBatch} · ${microBatches} micro-batches is not the per-replica batch of ${samples}`;
}

/** The order of the mesh's axes, and whether norms are sharded along the sequence over tp; fields left out are as usual. */
export type DeviceMapping = Pick<StepConfiguration, 'meshOrder'> & { readonly tpSequence?: false };

/** The space whose every configuration has this device mapping. */
export function placed(space: SpaceOptions, mapping: DeviceMapping): SpaceOptions {
  const { tpSequence, ...rest } = mapping;
  const own = rest.meshOrder ? { ...space, base: { ...space.base, ...rest } } : space;
  return tpSequence === undefined ? own : { ...own, decided: { ...own.decided, tpSequence } };
}

/** Degrees and a micro-batch in every schedule, without ZeRO and recomputation. */
export function scheduled(
  { degrees }: Combination,
  microBatch: number,
  space: SpaceOptions,
): readonly StepConfiguration[] {
  const { base, decided, globalBatch } = space;
  const { pp, dp, tp } = degrees;
  const { offload = 'none', stageLayers } = decided;
  const unscheduled = {
    ...base,
    degrees,
    microBatch,
    tpSequence: tp > 1 && (decided.tpSequence ?? true),
    zero: 0 as const,
    recompute: 'none' as const,
    ...(decided.meshOrder ? { meshOrder: decided.meshOrder } : {}),
    ...(offload === 'none' ? {} : { offload }),
    ...(stageLayers && pp > 1 ? { stageLayers } : {}),
  };
  // One spread: a second one into the same record takes ten times as long, and there are a hundred thousand of these.
  return schedules(pp, globalBatch / (dp * microBatch), space).map(({ schedule, virtualStages }) =>
    schedule === undefined ? { ...unscheduled, virtualStages } : { ...unscheduled, schedule, virtualStages },
  );
}

/** All ZeRO levels and recomputations under one schedule, cheap in memory last. */
export function* states(
  configuration: StepConfiguration,
  { base, decided }: SpaceOptions,
): Generator<StepConfiguration> {
  const { dp, sp } = configuration.degrees;
  for (const recompute of recomputations(base, decided)) {
    for (const zero of zeroLevels(dp * sp, base, decided)) yield { ...configuration, zero, recompute };
  }
}

/** Everything that degrees and a micro-batch may be combined with. */
export function* variants(
  combination: Combination,
  microBatch: number,
  space: SpaceOptions,
): Generator<StepConfiguration> {
  for (const configuration of scheduled(combination, microBatch, space)) yield* states(configuration, space);
}

/** Recomputation: attention as one kernel stores nothing to recompute, so selective equals none there. */
function recomputations(
  { inference, attention }: SpaceOptions['base'],
  { recompute }: DecidedSettings,
): readonly StepRecompute[] {
  if (recompute !== undefined) return [recompute];
  if (inference) return ['none'];
  return attention === 'parts' ? ['none', 'selective', 'full'] : ['none', 'full'];
}

function zeroLevels(
  ranks: number,
  { inference }: SpaceOptions['base'],
  { zero }: DecidedSettings,
): readonly (0 | 1 | 2 | 3)[] {
  if (zero !== undefined) return [zero];
  return inference || ranks === 1 ? [0] : [0, 1, 2, 3];
}

/**
 * The schedule that is decided, or `SEARCHED`, with every number of chunks that divides a stage's layers. Without backward,
 * schedules differ in their chunks only.
 */
function schedules(
  pp: number,
  microBatches: number,
  { facts: { layers }, decided: { schedule, virtualStages }, base: { inference } }: SpaceOptions,
): readonly { readonly schedule?: ScheduleKind; readonly virtualStages: number }[] {
  if (pp === 1) return [{ virtualStages: 1 }];
  const given = virtualStages === undefined ? null : [virtualStages];
  const chunksOf = (kind: ScheduleKind): readonly number[] => {
    if (fewestChunks(kind) === 1) return (virtualStages ?? 1) === 1 ? [1] : [];
    const counts = given ?? (kind === 'zbv' ? [2] : divisors(Math.floor(layers / pp)));
    const hasOrder = (count: number) => (interleaves(kind) ? count > 1 && microBatches % pp === 0 : count === 2);
    return counts.filter((count) => hasOrder(count) && pp * count <= layers);
  };
  const kinds = schedule === undefined ? SEARCHED.filter((kind) => !inference || !splitsBackward(kind)) : [schedule];
  return kinds.flatMap((kind) => chunksOf(kind).map((count) => ({ schedule: kind, virtualStages: count })));
}

/** F-then-B and naive take as long as 1F1B and hold more, or take longer: these, and ZB-V, are used on request only. */
const SEARCHED: readonly ScheduleKind[] = ['1f1b', 'interleaved-1f1b', 'zero-bubble', 'interleaved-zero-bubble'];

/** All divisors of a positive number, in rising order. */
export function divisors(value: number): readonly number[] {
  let found = [1];
  let rest = value;
  // Prime by prime: few numbers take a step for each number up to their root.
  for (let prime = 2; rest > 1; prime = prime === 2 ? 3 : prime + 2) {
    if (prime * prime > rest) prime = rest;
    const before = found;
    for (let power = prime; rest % prime === 0; power *= prime) {
      found = [...found, ...before.map((divisor) => divisor * power)];
      rest /= prime;
    }
  }
  return found.sort((a, b) => a - b);
}
