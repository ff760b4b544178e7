/**
 * @file Properties of a layer that decide how far its prediction is off: the size of its work on one rank, and the software that
 * runs it. The model's name, the number of layers, stages, schedules, ZeRO, recomputation and the speed of devices and links
 * are not among them.
 */
import type { MatmulPrecision, StepConfiguration } from '../step/configuration.js';
import type { SoftwareName } from '../step/constants.js';
import { flopsOf } from '../step/model-flops.js';
import type { PartWork } from '../step/work.js';

/** One micro-batch of a layer's forward on one rank. */
export interface LayerShape {
  readonly software: SoftwareName;
  readonly precision: MatmulPrecision;
  readonly attention: StepConfiguration['attention'];
  readonly tpSequence: boolean;
  readonly tp: number;
  readonly sp: number;
  readonly ep: number;
  /** The most rows of its matmuls. */
  readonly tokens: number;
  /** FLOPs of its matmuls, without those of attention. */
  readonly products: number;
  /** FLOPs of attention's matmuls. */
  readonly scores: number;
  /** Elements that its ranks of tp reduce or gather. */
  readonly exchanged: number;
}

/** Properties that distinguish the layers of one software from another's. */
const KINDS = ['software', 'attention', 'tpSequence'] as const;

/** Properties that are counted. */
export const SIZES = ['tp', 'sp', 'ep', 'tokens', 'products', 'scores', 'exchanged'] as const;

/** The shape of a layer as a configuration runs it. */
export function layerShape({ forward }: PartWork, configuration: StepConfiguration): LayerShape {
  const { degrees, software, precision, attention, tpSequence } = configuration;
  const { tp, sp, ep } = degrees;
  let [tokens, products, scores, exchanged] = [0, 0, 0, 0];
  for (const work of forward) {
    if (work.kind === 'matmul') {
      if (work.tokens === 'rows') tokens = Math.max(tokens, work.rows / sp);
      // Each rank of tp holds whole experts, and tp shards their tokens.
      products += flopsOf(work) / sp / (work.experts ? tp : 1);
    } else if (work.kind === 'attention') scores += flopsOf(work) / sp;
    else if (work.kind === 'exchange' && tp > 1) exchanged += work.elements / sp;
  }
  return { software, precision, attention, tpSequence, tp, sp, ep, tokens, products, scores, exchanged };
}

/**
 * Whether two layers are one and the same work: sizes that were read at other micro-batches and continued differ in last places.
 */
export function isSameLayer(a: LayerShape, b: LayerShape): boolean {
  return (
    KINDS.every((key) => a[key] === b[key]) &&
    WIDTHS[a.precision] === WIDTHS[b.precision] &&
    SIZES.every((key) => Math.abs(a[key] - b[key]) <= SAME * Math.max(Math.abs(a[key]), Math.abs(b[key])))
  );
}

/**
 * Squared distance of two layers: sizes count in doublings, each difference of software or format counts as one doubling. The
 * correlation of layers falls to e^(−1/2) over a distance of 1.
 */
export function squaredDistance(a: LayerShape, b: LayerShape): number {
  let sum = WIDTHS[a.precision] === WIDTHS[b.precision] ? 0 : 1;
  for (const key of KINDS) if (a[key] !== b[key]) sum++;
  const place = coordinates(b);
  for (const [index, value] of coordinates(a).entries()) sum += (value - (place[index] as number)) ** 2;
  return sum;
}

/** In doublings: micro-batch, weights on a rank, share of attention, and degrees. */
function coordinates({ tp, sp, ep, tokens, products, scores }: LayerShape): readonly number[] {
  return [tokens, products / Math.max(1, tokens), 1 + scores / Math.max(1, products), tp, sp, ep].map((value) =>
    Math.log2(Math.max(1, value)),
  );
}

const SAME = 1e-6;

/** Bits of a number in matmuls: fp16 and bf16 run on the same units. */
const WIDTHS: Readonly<Record<MatmulPrecision, number>> = { fp32: 32, bf16: 16, fp16: 16, fp8: 8, fp4: 4 };
