/**
 * @file What is searched of a variant only where it can pay: other orders of the mesh's axes, and the host's memory. An order
 * changes nothing but communication, so a variant's price without its outer part bounds all that leave its work in place; what
 * lies on the host makes no step shorter, so it is looked at only where devices are too small, or make layers recompute.
 */

import type { MeshOrder, Offload, StepConfiguration } from '../../cost-model/step/configuration.js';
import type { Need, Priced } from './priced.js';

/** What the search asks of a cost model besides. */
export interface Further {
  /** Other orders of the axes that might be faster for a variant of these degrees with this micro-batch. */
  readonly orders: (lightest: StepConfiguration) => readonly OtherOrder[];
  /** Seconds at least of a variant that was priced, in an order that may be faster in some of its communication. */
  readonly floor: (configuration: StepConfiguration, mayGain: OtherOrder['mayGain']) => number;
  /** Seconds of a variant at least, whatever the order, and with `waits` 0 whatever the schedule: cheaper than its price. */
  readonly atLeast: (configuration: StepConfiguration, waits?: 0) => number;
  /** What may lie on the host. */
  readonly offloads: readonly Exclude<Offload, 'none'>[];
}

export interface OtherOrder {
  readonly order: MeshOrder;
  /** Whether tp, sp and ep lie as they do in the usual order. */
  readonly isSameInside: boolean;
  readonly mayGain: { readonly pp: boolean; readonly dp: boolean };
  /** Seconds that no variant beats in it. */
  readonly atLeast: number;
}

/** A variant that was looked at, as it was fitted into memory. */
export interface Tried {
  readonly variant: StepConfiguration;
  readonly configuration: StepConfiguration;
  readonly need: Need;
  readonly fits: boolean;
}

export interface Around {
  readonly further: Further;
  readonly lightest: StepConfiguration;
  /** Whether layers may keep their activations where others recompute. */
  readonly isLayerByLayer: boolean;
  readonly seconds: (configuration: StepConfiguration) => number;
  readonly fitted: (configuration: StepConfiguration) => StepConfiguration;
  readonly needOf: (configuration: StepConfiguration) => Need;
  /** Whether it fits; remembered where it does not, too. */
  readonly fits: (configuration: StepConfiguration, need: Need) => boolean;
  /** Whether nothing that takes so long at least is wanted any more. */
  readonly isPointless: (atLeast: number) => boolean;
  readonly keep: (priced: Priced) => void;
}

/** Looks at what else the variants of one combination and micro-batch may be. @returns how many prices it took */
export function lookFurther(tried: readonly Tried[], around: Around): number {
  const { further, lightest, isPointless } = around;
  const others = further.orders(lightest).filter(({ atLeast }) => !isPointless(atLeast));
  // In an order that moves tp, sp or ep no price of the usual one says anything.
  const elsewhere = Math.min(
    ...others.filter(({ isSameInside }) => !isSameInside).map(({ atLeast }) => atLeast),
    Number.POSITIVE_INFINITY,
  );
  let count = 0;
  const price = (configuration: StepConfiguration) => {
    count++;
    return around.seconds(configuration);
  };
  const floors = new Map<string, number>();
  /** Seconds that a configuration takes at least, whatever the order. */
  const floorOf = (configuration: StepConfiguration) => {
    const { schedule, virtualStages, zero, recompute, offload } = configuration;
    const key = `${schedule} ${virtualStages} ${zero} ${recompute} ${offload}`;
    const known = floors.get(key);
    if (known !== undefined) return known;
    const seconds = price(configuration);
    const floor = others.length === 0 ? seconds : Math.min(further.floor(configuration, ANYTHING), elsewhere);
    floors.set(key, floor);
    return floor;
  };
  const fitting = tried
    .filter(({ fits }) => fits)
    .map(({ configuration, need }): FittingChoice => ({ configuration, need }));
  for (const { configuration, parts } of offloadable(tried, around)) {
    for (const offload of parts) {
      const own = { ...configuration, offload };
      const isRefitted = around.isLayerByLayer && offload === 'optimizer' && own.recompute !== 'none';
      const bare = isRefitted ? { ...own, recompute: 'none' as const } : own;
      if (isPointless(further.atLeast(bare))) continue;
      if (isRefitted && isPointless(floorOf(bare))) continue;
      const fitted = isRefitted ? around.fitted(own) : own;
      // Where nothing has to recompute it is the variant without.
      if (fitted.recompute !== own.recompute) continue;
      const need = around.needOf(fitted);
      if (!around.fits(fitted, need)) continue;
      fitting.push({ configuration: fitted, need });
      around.keep({ ...need, configuration: fitted, seconds: price(fitted) });
    }
  }
  for (const { order, isSameInside, mayGain, atLeast } of others) {
    for (const { configuration, need } of fitting) {
      if (isPointless(isSameInside ? further.floor(configuration, mayGain) : atLeast)) continue;
      const moved = { ...configuration, meshOrder: order };
      // An order changes what lies on which host, and no device's bytes.
      const own = configuration.offload ? around.needOf(moved) : need;
      if (configuration.offload && !around.fits(moved, own)) continue;
      around.keep({ ...own, configuration: moved, seconds: price(moved) });
    }
  }
  return count;
}

const ANYTHING = { pp: true, dp: true };

interface FittingChoice {
  readonly configuration: StepConfiguration;
  readonly need: Need;
}

/** Variants that the host may help: of those that fit where layers recompute its optimizer's part, of those that do not all. */
function* offloadable(
  tried: readonly Tried[],
  { further, lightest, isLayerByLayer, isPointless }: Around,
): Generator<{ readonly configuration: StepConfiguration; readonly parts: Further['offloads'] }> {
  // Whatever the schedule, the host may take too long: with state that is shared out, and, longer, with whole state.
  const promising = new Map<string, Further['offloads']>();
  const partsFor = ({ recompute, zero }: StepConfiguration, isRefitted: boolean) => {
    const shared = zero === 0 ? 0 : 1;
    const key = `${recompute} ${shared} ${isRefitted}`;
    const found =
      promising.get(key) ??
      further.offloads.filter((offload) => {
        const isSpared = isLayerByLayer && offload === 'optimizer';
        if (isRefitted && !isSpared) return false;
        const bare = { ...lightest, recompute: isSpared ? ('none' as const) : recompute, offload };
        return !isPointless(further.atLeast({ ...bare, zero: shared }, 0));
      });
    promising.set(key, found);
    return found;
  };
  for (const { variant, configuration, fits } of tried) {
    const isRecomputing = isLayerByLayer && configuration.recompute !== 'none';
    if (fits && !isRecomputing) continue;
    const parts = partsFor(variant, fits);
    if (parts.length > 0) yield { configuration: variant, parts };
  }
}
