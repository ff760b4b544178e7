/**
 * @file A lower bound on the seconds of a step with given degrees, micro-batch, order of the axes and schedule, however its
 * layers are cut into stages: the stages together do all the work, so the slowest takes their mean at least, and a micro-batch
 * passes all of them. Recomputation, reductions, transfers and further waiting are not counted.
 */
import type { Cluster } from '../../cost-model/cluster.js';
import { outsideSeconds } from '../../cost-model/phase.js';
import type { StepConfiguration } from '../../cost-model/step/configuration.js';
import type { PartPhases } from '../../cost-model/step/part-price.js';
import { elapsedSeconds } from '../../cost-model/step/phase-time.js';
import { microBatches, scheduleRequest } from '../../cost-model/step/step-price.js';
import type { ModelWork } from '../../cost-model/step/work.js';
import { splitsBackward } from '../../schedule/schedule.js';

/** The work that stages share, in seconds of one micro-batch. */
export interface SharedWork {
  /** Through the whole model, each part where it is fastest. */
  readonly through: number;
  /** Lower bound for the slowest stage. */
  readonly slowest: number;
  /** The fraction of 1F1B's bubble that zero-bubble leaves at least. */
  readonly left: number;
}

/**
 * For stages on devices of several kinds: t(j, k) is the seconds of part j on kind k, W(k) those of all parts (duality of the
 * linear program that distributes the parts):
 *
 *     slowest  ≥  Σ over parts of min over k of t(j, k) / W(k), divided by Σ over stages of 1 / W(k(s))
 *
 * @param stages the phases on the devices of each stage: one record where they are alike
 */
export function sharesOf(model: ModelWork, stages: readonly PartPhases[], pp: number): SharedWork {
  const kinds = [...new Set(stages)].map((phases) => partsOf(model, phases));
  const first = kinds[0] ?? [];
  const wholes = kinds.map((parts) => parts.reduce((sum, { count, seconds }) => sum + count * seconds, 0));
  const least = (of: (part: StageShare, kind: number) => number) =>
    first.reduce(
      (sum, { count }, index) =>
        sum + count * Math.min(...kinds.map((parts, kind) => of(parts[index] as StageShare, kind))),
      0,
    );
  const through = least(({ seconds }) => seconds);
  const shared = through === 0 ? 0 : least(({ seconds }, kind) => seconds / (wholes[kind] as number));
  const whole = new Map([...new Set(stages)].map((phases, kind) => [phases, wholes[kind] as number]));
  const speed =
    stages.length === 1
      ? pp / (wholes[0] as number)
      : stages.reduce((sum, phases) => sum + 1 / (whole.get(phases) as number), 0);
  return { through, slowest: through === 0 ? 0 : shared / speed, left: Math.min(...kinds.map(bubbleLeft)) };
}

/** Lower bound on the seconds of a step whose stages share work so. */
export function leastSeconds(shares: SharedWork, configuration: StepConfiguration, cluster: Cluster): number {
  const { tp, pp, dp, sp } = configuration.degrees;
  const nodes = Math.max(1, (tp * pp * dp * sp) / cluster.perNode);
  const trains = !configuration.inference && !configuration.bundledRuntime;
  const inside = pipelineLeast(shares, configuration);
  return (inside + outsideSeconds(inside, { trains, nodes })) * ROUNDING;
}

/**
 * A stage of 1F1B runs m − 1 micro-batches beside the one that passes all stages, less half of its warm-up at most; with more
 * micro-batches than stages, the first stage fills and drains the pipeline. Half of the bubble of interleaved chunks is certain
 * (test/search/configurations/interleaved-fill.test.ts). ZB-V may leave none.
 */
export function pipelineLeast({ through, slowest, left }: SharedWork, configuration: StepConfiguration): number {
  const { kind, virtualStages: v, training, stages: p } = scheduleRequest(configuration);
  const m = microBatches(configuration);
  const busy = m * slowest;
  if (p === 1) return busy;
  if (kind === 'naive') return m * through;
  if (!training || kind === 'f-then-b') return busy;
  if (kind === 'zbv') return busy;
  const turns =
    v > 1
      ? busy + ((p - 1) * slowest) / v / 2
      : Math.max(busy, through + ((m - 1) / 2) * slowest, m > p ? (m + p - 1) * slowest : 0);
  return splitsBackward(kind) ? left * turns + (1 - left) * busy : turns;
}

interface StageShare {
  readonly count: number;
  readonly seconds: number;
  readonly forward: number;
  readonly weight: number;
}

function partsOf({ layers }: ModelWork, phases: PartPhases): readonly StageShare[] {
  const part = (count: number, { forward, backward }: PartPhases['first']): StageShare => ({
    count,
    seconds: elapsedSeconds(forward) + elapsedSeconds(backward),
    forward: elapsedSeconds(forward),
    weight: backward.weightGradient,
  });
  return [
    part(1, phases.first),
    ...phases.layers.map((own, index) => part(layers[index]?.count ?? 0, own)),
    part(1, phases.last),
  ];
}

/** The least share of 1F1B's bubble that zero-bubble leaves, whatever parts the slowest stage has: 1 − (W + w) / (F + B). */
function bubbleLeft(parts: readonly StageShare[]): number {
  const most = (of: (part: StageShare) => number) =>
    parts.reduce((found, part) => (part.seconds > 0 ? Math.max(found, of(part) / part.seconds) : found), 0);
  return Math.max(
    0,
    1 -
      Math.min(
        most(({ weight, forward }) => weight + forward),
        most(({ weight }) => 2 * weight),
      ),
  );
}

/** Sums in another order differ in their last digits: bounds are lowered by more than that. */
const ROUNDING = 1 - 1e-9;
