/**
 * @file What memory makes the layers of a model recompute at least, however they are shared out among the stages.
 */
import { DEVICE_OVERHEAD } from '../../cost-model/hardware.js';
import type { StepConfiguration } from '../../cost-model/step/configuration.js';
import type { LayerPrice, PartPrice, PartPrices } from '../../cost-model/step/part-price.js';
import { inFlightOn } from '../../cost-model/step/step-memory.js';
import { type BoundRequest, MOST_CHUNKS, ROUNDING } from './bound-request.js';

/**
 * Seconds of a micro-batch's backward, through all layers, that recompute at least; infinite where not even all of them make
 * room. Of several classes also what all stages together have room for: with any weights of the stages, what all layers hold is
 * no more than the sum of their rooms, so that those recompute which free most for their time (a fractional knapsack, Dantzig
 * 1957).
 */
export function recomputingAtLeast(prices: PartPrices, request: BoundRequest): number {
  const count = recomputedAtLeast(prices, request);
  const most = mostCommon(prices);
  if (!most || count === Number.POSITIVE_INFINITY) return count;
  const alone = count * longerBy(most);
  if (prices.layers.length === 1 || request.limitBytes === null) return alone;
  const { holding: configuration = request.configuration } = request;
  const flyingOn = leastInFlight(configuration);
  const flying = Array.from({ length: configuration.degrees.pp }, (_, stage) => flyingOn(stage));
  const rooms = flying.map((held, stage) =>
    roomOfLayers(stage, held, prices, request.limitBytes as number, configuration),
  );
  const weights = [flying.map(() => 1), ...(flying.some((held) => held === 0) ? [] : [flying.map((held) => 1 / held)])];
  const together = weights.map((own) =>
    knapsack(prices, request.isMixed, {
      room: rooms.reduce((sum, room, stage) => sum + room * (own[stage] as number), 0),
      resident: Math.min(...own),
      saved: Math.min(...own.map((weight, stage) => weight * (flying[stage] as number))),
    }),
  );
  return Math.max(alone, ...together);
}

function longerBy({ kept, recomputed }: LayerPrice): number {
  return recomputed.backwardSeconds - kept.backwardSeconds;
}

/** Bytes that the layers of a stage have, beside what else is on it and the least that one of them needs while it runs. */
function roomOfLayers(
  stage: number,
  flying: number,
  { first, layers, last }: PartPrices,
  limitBytes: number,
  configuration: StepConfiguration,
): number {
  const ends = [...(stage === 0 ? [first] : []), ...(stage === configuration.degrees.pp - 1 ? [last] : [])];
  const held = ends.reduce((sum, { bytes }) => sum + residentBytes(bytes) + flying * bytes.saved, 0);
  const live = Math.min(
    ...layers.map(({ kept, recomputed }) => Math.min(kept.bytes.transient, recomputed.bytes.transient)),
  );
  return roomFor(limitBytes, configuration) - held - (ends.length > 0 ? 0 : live);
}

/** Bytes that all layers have, and how much of what each holds, and of what it keeps for each micro-batch, counts at least. */
interface Sack {
  readonly room: number;
  readonly resident: number;
  readonly saved: number;
}

/** Seconds of the layers, or parts of them, that take least time to recompute for the room that they make. */
function knapsack({ layers }: PartPrices, isMixed: boolean, { room, resident, saved }: Sack): number {
  let lacking = -room;
  for (const { count, kept, recomputed } of layers) {
    const own = isMixed ? kept.bytes : recomputed.bytes;
    lacking += count * (resident * residentBytes(own) + saved * own.saved);
  }
  // What rounding may make of sums of so many bytes.
  lacking -= Math.abs(room) * 1e-9;
  if (lacking <= 0) return 0;
  const choices = isMixed
    ? layers
        .map((layer) => ({
          seconds: layer.count * longerBy(layer),
          bytes: layer.count * saved * Math.max(0, layer.kept.bytes.saved - layer.recomputed.bytes.saved),
        }))
        .filter(({ bytes }) => bytes > 0)
        .sort((a, b) => a.seconds / a.bytes - b.seconds / b.bytes)
    : [];
  let seconds = 0;
  for (const choice of choices) {
    if (lacking <= choice.bytes) return (seconds + (lacking / choice.bytes) * choice.seconds) * ROUNDING;
    seconds += choice.seconds;
    lacking -= choice.bytes;
  }
  return Number.POSITIVE_INFINITY;
}

function residentBytes(bytes: PartPrice['bytes']): number {
  return bytes.parameters + bytes.gradients + bytes.optimizer;
}

/**
 * What each stage has in flight at least. With more chunks it falls on the first stages and grows on the last: for any number of
 * them, the least of both ends.
 */
function leastInFlight(configuration: StepConfiguration): (stage: number) => number {
  if (configuration.virtualStages < MOST_CHUNKS) return (stage) => inFlightOn(stage, configuration);
  const fewest = { ...configuration, virtualStages: 2 };
  return (stage) => Math.min(inFlightOn(stage, configuration), inFlightOn(stage, fewest));
}

/**
 * How many layers recompute at least, in parts of a layer; infinite where not even all of them make room. A stage with n layers
 * keeps n of them while there is room, then fewer the more it has: concave, so that layers go where room is left, then to where
 * each displaces least, which is where most micro-batches are in flight.
 */
export function recomputedAtLeast(prices: PartPrices, request: BoundRequest): number {
  const { limitBytes, isMixed, holding: configuration = request.configuration } = request;
  const layer = mostCommon(prices);
  if (limitBytes === null || !layer) return 0;
  const { pp } = configuration.degrees;
  const room = roomFor(limitBytes, configuration);
  const flyingOn = leastInFlight(configuration);
  // Between its ends a stage differs from its neighbours by its micro-batches in flight alone.
  const between = new Map<number, Keeping>();
  const stage = (index: number): Keeping => {
    const flying = flyingOn(index);
    const ends = [...(index === 0 ? [prices.first] : []), ...(index === pp - 1 ? [prices.last] : [])];
    if (ends.length > 0) return keeping(layer, flying, room, ends, isMixed);
    const found = between.get(flying) ?? keeping(layer, flying, room, ends, isMixed);
    between.set(flying, found);
    return found;
  };
  let left = layer.count;
  let kept = 0;
  const stages = Array.from({ length: pp }, (_, index) => stage(index));
  for (const { free, most } of stages) {
    if (most < 0) return Number.POSITIVE_INFINITY;
    const own = Math.min(left, free);
    left -= own;
    kept += own;
  }
  for (const { free, most, displaced } of stages) {
    const own = Math.min(left, most - free);
    left -= own;
    kept -= own * displaced;
  }
  return left > 1e-6 ? Number.POSITIVE_INFINITY : Math.max(0, layer.count - kept - 1e-6);
}

/**
 * The class of which there are most layers: of several, `recomputedAtLeast` knows this one, and takes the others to need none.
 */
export function mostCommon({ layers }: PartPrices): LayerPrice | undefined {
  return layers.reduce<LayerPrice | undefined>(
    (most, own) => (most && most.count >= own.count ? most : own),
    undefined,
  );
}

/** Layers that a stage has room for: as many that all keep; at most; and of those beyond, how many each makes recompute. */
interface Keeping {
  readonly free: number;
  readonly most: number;
  readonly displaced: number;
}

/** @param flying micro-batches in flight; `parts` what the stage has beside layers */
function keeping(
  { kept, recomputed }: LayerPrice,
  flying: number,
  room: number,
  parts: readonly PartPrice[],
  isMixed: boolean,
): Keeping {
  let transient = 0;
  let gathered = 0;
  let least = 0;
  for (const { bytes } of parts) {
    transient = Math.max(transient, bytes.transient);
    gathered = Math.max(gathered, bytes.gathered);
    least = least + residentBytes(bytes) + flying * bytes.saved;
  }
  const other = isMixed ? kept.bytes : recomputed.bytes;
  const live =
    Math.max(Math.min(other.transient, recomputed.bytes.transient), transient) +
    Math.max(Math.min(other.gathered, recomputed.bytes.gathered), gathered);
  const spare = room - least - live;
  // A stage without layers has no layer running in it.
  const bare = room - least - transient - gathered;
  if (spare < 0) return { free: 0, most: bare < 0 ? -1 : 0, displaced: 1 };
  const more = isMixed ? flying * (kept.bytes.saved - recomputed.bytes.saved) : 0;
  const small = residentBytes(recomputed.bytes) + flying * recomputed.bytes.saved + Math.min(0, more);
  const large = small + Math.max(0, more);
  return { free: spare / large, most: spare / small, displaced: more > 0 ? small / more : 1 };
}

/** Bytes of tensors that a device has room for beside its context, communication library and fragmentation. */
export function roomFor(limitBytes: number, { degrees }: StepConfiguration): number {
  const { tp, pp, dp, sp } = degrees;
  const { contextBytes, communicationBytes, fragmentation } = DEVICE_OVERHEAD;
  const fixed = contextBytes + (tp * pp * dp * sp > 1 ? communicationBytes : 0);
  return ((limitBytes - fixed) / (1 + fragmentation)) * (2 - ROUNDING);
}
