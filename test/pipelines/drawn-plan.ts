/**
 * @file Plans drawn from all that the command line can ask of a pipeline, and the check that each computes what its model does:
 * it is compiled and verified against the unsharded model, or refused with an error that is the user's to mend.
 */
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import fc from 'fast-check';
import {
  AutoparError,
  annotationsOf,
  type CompileOptions,
  compile,
  importModel,
  inspect,
  type Training,
} from '../../src/api/index.js';
import { OPTIMIZERS } from '../../src/api/requests/training-request.js';
import { DISPATCHES, type Dispatch } from '../../src/ir/experts/dispatches.js';
import { OUTER_MEMORIES } from '../../src/ir/graph.js';
import { OFFLOAD_PARTS } from '../../src/partition/offload-parts.js';
import type { ScheduleKind } from '../../src/schedule/schedule.js';
import { SP_METHODS, SP_ORDERS, type SpMethod, type SpOrder } from '../../src/sharding-propagation/roles.js';
import { GRADIENT_SYNCS, type GradientSync } from '../../src/strategy/request.js';
import { MODELS, type ModelName, writeModel } from './models.js';

/** Kinds whose stages have several chunks. */
const CHUNKED: readonly ScheduleKind[] = ['interleaved-1f1b', 'interleaved-zero-bubble', 'zbv'];
const KINDS: readonly ScheduleKind[] = ['naive', 'f-then-b', '1f1b', 'zero-bubble', ...CHUNKED];

/** Drawn options. Numbers in `at` are places of bars between units, in thousandths of the model. */
export interface DrawnPlan {
  readonly model: ModelName;
  readonly batch: number;
  readonly dp: number;
  readonly tp: number;
  readonly sp: number;
  readonly ep: number;
  readonly spMethod: SpMethod | null;
  readonly spOrder: SpOrder | null;
  /** Capacity factor of experts; `whole`: they take all tokens; null where tokens go as the model has it. */
  readonly capacity: number | 'whole' | null;
  readonly dispatch: Dispatch;
  readonly pp: number;
  /** The axes of each stage, of dp · sp · tp devices each; null where all stages have one mesh. */
  readonly meshes: readonly string[] | null;
  readonly cut: { readonly by: 'balance' | 'stages' | 'pins'; readonly at: readonly number[] };
  readonly schedule: ScheduleKind | null;
  readonly virtualStages: number;
  readonly training: {
    readonly loss: 'cross_entropy' | 'mse';
    readonly optimizer: (typeof OPTIMIZERS)[number];
    readonly clips: boolean;
    readonly microBatches: number | null;
    readonly precision: 'fp32' | 'bf16' | 'fp16';
    readonly zero: 0 | 1 | 2 | 3 | null;
    readonly recompute: (typeof RECOMPUTES)[number];
    /** Bytes of a bucket. */
    readonly bucket: number | null;
    readonly interleave: 1 | 2;
    readonly gradientSync: GradientSync | null;
    readonly moeBalance: number | null;
  } | null;
  readonly isFree: boolean;
  /** Parts kept outside of the devices, by `--offload`; null for none. */
  readonly offload: string | null;
  readonly seed: number;
}

/** How a drawn plan ended: `refused` by an error that is the user's to mend. */
export interface Outcome {
  readonly verdict: 'verified' | 'refused' | 'failed';
  /** The error's code where it was refused. */
  readonly code?: string;
  /** The reason of the refusal or failure. */
  readonly why: string;
}

const MOST_RANKS = 16;

/** Values of recompute; layers in them sometimes do not exist, nor any for `full` in models without layers. */
const RECOMPUTES = [
  ...[null, 'selective', 'operators', 'full', 'full:0', 'full:1-2', 'operators:0,1'],
  ...['stage', 'stage:0-1', 'full:except-last', 'stage:except-last', 'operators:0,1:except-last'],
] as const;
/** Models with what sp and ep shard. */
const ROUTED: ReadonlySet<ModelName> = new Set([
  ...(['routed-experts', 'batched-experts', 'operator-experts', 'unrolled-experts', 'skewed-experts'] as const),
  ...(['chosen-experts', 'einsum-experts'] as const),
]);
const EXPERTS: ReadonlySet<ModelName> = new Set(['soft-experts', 'moe', 'capacity-experts', ...ROUTED]);
const SEQUENCES: ReadonlySet<ModelName> = new Set([
  ...(['gpt', 'llama', 'uneven', 'windows', 'documents', 'sinks', 'encoder-decoder', ...EXPERTS] as const),
  ...(['attention-operators', 'grouped-operators', 'cross-attention'] as const),
  ...(['cnn', 'batch-norm', 'resnet', 'u-net'] as const),
]);
/** Models whose batch is the file's, and whose step is one micro-batch. */
const WHOLE: ReadonlySet<ModelName> = new Set(['batch-norm', 'moe', 'capacity-experts']);

/** Often a pipeline that can be, sometimes one that cannot. */
const PLANS: fc.Arbitrary<DrawnPlan> = fc
  .record({
    model: fc.constantFrom(...(Object.keys(MODELS) as ModelName[])),
    batch: fc.constantFrom(8, 8, 16),
    dp: fc.constantFrom(1, 1, 2, 4),
    tp: fc.constantFrom(1, 1, 2, 4),
    sp: fc.constantFrom(1, 1, 1, 2, 3, 4),
    ep: fc.constantFrom(1, 1, 1, 2, 4),
    method: fc.constantFrom(null, ...SP_METHODS, 'ring'),
    order: fc.constantFrom(null, null, ...SP_ORDERS),
    capacity: fc.constantFrom<number | 'whole' | null>(null, 'whole', 0.5, 1, 1.25),
    dispatch: fc.constantFrom(...DISPATCHES),
    pp: fc.constantFrom(1, 2, 2, 3, 4, 8),
    // Which divisors of what is left of a stage's devices.
    meshes: fc.option(fc.array(fc.tuple(fc.nat(23), fc.nat(23), fc.nat(23)), { minLength: 8, maxLength: 8 }), {
      freq: 2,
    }),
    cut: fc.record({
      by: fc.constantFrom('balance', 'balance', 'stages', 'pins'),
      at: fc.array(fc.nat(1000), { minLength: 15, maxLength: 15 }),
    }),
    chunks: fc.constantFrom(1, 1, 2, 3),
    kind: fc.constantFrom(null, ...KINDS),
    // Rarely chunks and schedule contradict each other.
    isApart: fc.integer({ min: 0, max: 15 }).map((drawn) => drawn === 0),
    training: fc.option(
      fc.record({
        loss: fc.constantFrom('cross_entropy', 'mse'),
        optimizer: fc.constantFrom(...OPTIMIZERS),
        clips: fc.boolean(),
        microBatches: fc.constantFrom(null, null, 1, 2, 4, 4, 8, 3),
        precision: fc.constantFrom('fp32', 'fp32', 'fp32', 'fp32', 'bf16', 'fp16'),
        zero: fc.constantFrom(null, 0, 1, 2, 3),
        recompute: fc.constantFrom(null, null, null, ...RECOMPUTES),
        bucket: fc.constantFrom(null, null, 1, 4000, 1e8),
        interleave: fc.constantFrom<1 | 2>(1, 1, 2),
        gradientSync: fc.constantFrom(null, null, ...GRADIENT_SYNCS),
        moeBalance: fc.constantFrom(null, 0.5),
      }),
      { freq: 5 },
    ),
    isFree: fc.integer({ min: 0, max: 5 }).map((drawn) => drawn === 0),
    offload: fc.option(
      fc
        .uniqueArray(fc.tuple(fc.constantFrom(...OFFLOAD_PARTS), fc.constantFrom(...OUTER_MEMORIES)), {
          minLength: 1,
          selector: ([part]) => part,
        })
        .map((parts) => parts.map((part) => part.join(':')).join(',')),
    ),
    seed: fc.nat(1000),
  })
  .filter(({ dp, sp, tp, pp, ep }) => dp * sp * tp * pp <= MOST_RANKS && (dp * sp) % ep === 0)
  .map(({ chunks: drawn, kind, isApart, training: asked, method, order, meshes: choices, ...others }): DrawnPlan => {
    // Rarely a server together with ranks that shard the state that it keeps.
    const isServed = asked?.gradientSync === 'parameter-server' && !isApart;
    const training = asked && isServed ? { ...asked, zero: null } : asked;
    const { model, pp, dp, tp, cut } = others;
    const sp = SEQUENCES.has(model) || isApart ? others.sp : 1;
    const capacity = ROUTED.has(model) || isApart ? others.capacity : null;
    const ep = EXPERTS.has(model) || isApart ? others.ep : 1;
    const chunks = pp > 1 ? drawn : 1;
    const by = pp > 1 ? cut.by : 'balance';
    const devices = dp * sp * tp;
    const meshes = pp > 1 && !isServed ? (choices?.slice(0, pp).map(meshIn(devices, model)) ?? null) : null;
    const rest = {
      ...others,
      capacity,
      sp,
      ep,
      spMethod: (meshes ? /sp[2-9]/.test(meshes.join()) : sp > 1) ? method : null,
      spOrder: !meshes && sp > 1 && method === 'ring' ? order : null,
      meshes,
      cut: { ...cut, by } as const,
    };
    const virtualStages = training || isApart ? chunks : 1;
    const isChunked = kind !== null && CHUNKED.includes(kind);
    const usual = isChunked || rest.pp === 1 ? null : kind;
    const inChunks = isChunked && (kind !== 'zbv' || virtualStages === 2) ? kind : 'interleaved-1f1b';
    const fitting = virtualStages > 1 ? inChunks : usual;
    if (isApart) return { ...rest, training, virtualStages, schedule: kind };
    if (!training) return { ...rest, training, virtualStages, schedule: null };
    const isUneven = virtualStages > 1 && (training.microBatches ?? 0) % rest.pp !== 0;
    const isWhole = WHOLE.has(rest.model);
    const moeBalance = ROUTED.has(model) ? training.moeBalance : null;
    const microBatches = isWhole ? 1 : isUneven ? null : training.microBatches;
    const interleave = isWhole ? 1 : training.interleave;
    return {
      ...rest,
      training: { ...training, microBatches, interleave, moeBalance },
      virtualStages: isWhole ? 1 : virtualStages,
      schedule: isWhole ? null : fitting,
    };
  });

/**
 * Axes of a stage with so many devices, as three numbers choose them: dp and sp, experts on some of their ranks, tp of the
 * rest.
 */
function meshIn(devices: number, model: ModelName): (choice: readonly [number, number, number]) => string {
  const one = (size: number, choice: number) => {
    const divisors = Array.from({ length: size }, (_, index) => index + 1).filter((each) => size % each === 0);
    return divisors[choice % divisors.length] as number;
  };
  return ([first, second, third]) => {
    const dp = one(devices, first);
    const sp = SEQUENCES.has(model) ? one(devices / dp, second) : 1;
    const ep = EXPERTS.has(model) ? one(dp * sp, third) : 1;
    return `dp${dp} sp${sp} tp${devices / dp / sp} ep${ep}`;
  };
}

/** The plan of a seed, the same each time. */
export function drawnPlan(seed: number): DrawnPlan {
  return fc.sample(PLANS, { seed, numRuns: 1, unbiased: true } as fc.Parameters<DrawnPlan>)[0] as DrawnPlan;
}

/** Compiles a drawn plan, runs and compares it. */
export async function tryPlan(drawn: DrawnPlan, signal?: AbortSignal): Promise<Outcome> {
  const folder = mkdtempSync(join(tmpdir(), 'autopar-fuzz-'));
  try {
    const file = join(folder, `${drawn.model}.onnx`);
    writeModel(drawn.model, file);
    const options = await optionsOf(drawn, file, join(folder, 'out'));
    const { verification, plan } = await compile({ ...options, verify: true, ...(signal ? { signal } : {}) });
    if (plan.degrees.pp !== drawn.pp) return { verdict: 'failed', why: `pp ${plan.degrees.pp} in the plan` };
    const worst = [
      ...(verification?.outputs ?? []),
      ...(verification?.gradients ?? []),
      ...(verification?.state ?? []),
    ].find(({ passed }) => !passed);
    if (!worst && verification?.passed) return { verdict: 'verified', why: '' };
    return { verdict: 'failed', why: `${worst?.name ?? 'something'} differs by ${worst?.worstAbsolute}` };
  } catch (error) {
    const isUsers = error instanceof AutoparError && ['usage', 'input', 'noPlan'].includes(error.exit);
    if (isUsers) return { verdict: 'refused', code: error.code, why: error.message };
    return { verdict: 'failed', why: error instanceof Error ? `${error.name}: ${error.message}` : String(error) };
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
}

/** Options of a drawn plan, for a model in a file. */
export async function optionsOf(drawn: DrawnPlan, model: string, output: string): Promise<CompileOptions> {
  const {
    dp,
    sp,
    tp,
    pp,
    ep,
    spMethod,
    spOrder,
    capacity,
    dispatch,
    meshes,
    schedule,
    virtualStages,
    batch,
    isFree,
    offload,
    seed,
  } = drawn;
  const text = meshes?.join(' | ');
  return {
    model,
    output,
    ...(text === undefined ? { dp, sp, tp, ep } : { meshes: text }),
    pp,
    devices: pp * dp * sp * tp,
    ...(spMethod ? { spMethod } : {}),
    ...(spOrder ? { spOrder } : {}),
    ...(capacity === null ? {} : { dispatch }),
    ...(typeof capacity === 'number' ? { capacityFactor: capacity } : {}),
    seed,
    ...(model.includes('moe') ? { initRandom: true } : {}),
    ...(batch === 8 ? {} : { globalBatch: batch }),
    ...(schedule ? { schedule } : {}),
    ...(virtualStages > 1 ? { virtualStages } : {}),
    axes: isFree ? 'free' : 'roles',
    ...(offload === null ? {} : { offload: drawn.training ? offload : 'parameters' }),
    ...(drawn.training?.bucket ? { bucket: drawn.training.bucket } : {}),
    ...(drawn.training?.interleave === 2 ? { interleave: 2 as const } : {}),
    ...(drawn.training?.gradientSync ? { gradientSync: drawn.training.gradientSync } : {}),
    ...(drawn.training ? { training: trainingOf(drawn, drawn.training) } : {}),
    ...(typeof drawn.training?.zero === 'number' ? { zero: drawn.training.zero } : {}),
    ...(drawn.training?.recompute ? { recompute: drawn.training.recompute } : {}),
    ...(await cutOf(drawn, model)),
  };
}

function trainingOf({ model }: DrawnPlan, drawn: NonNullable<DrawnPlan['training']>): Training {
  const { optimizer: kind, clips, microBatches, precision } = drawn;
  const hasClasses = model !== 'unrelated' && drawn.loss === 'cross_entropy';
  return {
    loss: {
      kind: hasClasses ? 'cross_entropy' : 'mse',
      ...(model === 'unrelated' ? { output: 'y' } : {}),
      ...(drawn.moeBalance === null ? {} : { moeBalance: drawn.moeBalance }),
    },
    ...(model === 'unrelated' ? { frozen: ['z.*'] } : {}),
    optimizer: {
      kind,
      learningRate: 0.01,
      ...(clips ? { clipNorm: 0.1 } : {}),
      ...(kind === 'sgd' ? { momentum: 0.9 } : {}),
    },
    ...(microBatches === null ? {} : { microBatches }),
    ...(precision === 'fp32' ? {} : { precision }),
  };
}

/** Where stages are drawn: the units of the model with bars between them, or one operator of each stage pinned. */
async function cutOf(
  { cut: { by, at }, pp, virtualStages }: DrawnPlan,
  model: string,
): Promise<Pick<CompileOptions, 'stages' | 'annotations'>> {
  if (by === 'balance') return {};

  if (by === 'stages') {
    const { units } = await inspect({ model });
    const letters = units.layout.split(' ').flatMap((row) => {
      const [letter = '', count = '1'] = row.split('*');
      return Array<string>(Number(count)).fill(letter);
    });
    const between = Array.from({ length: letters.length - 1 }, (_, index) => index + 1);
    const bars = at
      .slice(0, pp * virtualStages - 1)
      .flatMap((place) => between.splice(Math.floor((place / 1001) * between.length), 1));
    return { stages: letters.map((letter, index) => (bars.includes(index) ? `| ${letter}` : letter)).join(' ') };
  }
  const { nodes } = (await importModel(model)).graph;
  const places = at.slice(0, Math.min(pp, 3)).map((place) => Math.floor((place / 1001) * nodes.length));
  const pins = [...new Set(places)]
    .sort((a, b) => a - b)
    .flatMap((place, stage) => {
      const name = nodes[place]?.name;
      return name === undefined ? [] : [{ match: { node: name }, stage }];
    });
  return { annotations: annotationsOf({ version: 1, pins }) };
}
