/**
 * @file A measured step as an equation for its layers: the logarithm of its seconds, and the share of each layer in it, at
 * provisional factors.
 */
import type { Cluster } from '../cluster.js';
import type { StepConfiguration } from '../step/configuration.js';
import { STEP_CONSTANTS } from '../step/constants.js';
import { priceStep } from '../step/step-price.js';
import type { ModelWork } from '../step/work.js';
import { isSameLayer, type LayerShape, layerShape } from './layer-shape.js';

/** A run as it was measured. */
export interface MeasuredRun {
  readonly work: ModelWork;
  readonly configuration: StepConfiguration;
  /** The devices that it ran on. */
  readonly cluster: Cluster;
  /** Measured seconds of a step: the geometric mean where it was measured several times. */
  readonly seconds: number;
  /** How often it was measured; once where left out. */
  readonly times?: number;
}

/** A run whose layers are numbered among those of all runs. */
export interface PlacedRun extends MeasuredRun {
  /** The number of each class of its layers. */
  readonly layers: readonly number[];
}

/** log(step) = `log` + Σ `shares` · change of the layers' logarithms. */
export interface LinearStep {
  readonly log: number;
  readonly shares: ReadonlyMap<number, number>;
}

/** The shapes of all layers, each once and in the order of the runs, and the runs by their numbers. */
export function placeRuns(runs: readonly MeasuredRun[]): {
  readonly shapes: readonly LayerShape[];
  readonly placed: readonly PlacedRun[];
} {
  const shapes: LayerShape[] = [];
  const numberOf = (shape: LayerShape): number => {
    const known = shapes.findIndex((other) => isSameLayer(other, shape));
    return known >= 0 ? known : shapes.push(shape) - 1;
  };
  const placed = runs.map((run) => ({
    ...run,
    layers: run.work.layers.map(({ part }) => numberOf(layerShape(part, run.configuration))),
  }));
  return { shapes, placed };
}

/** Seconds of a run's step whose layers have these logarithms of factors. */
export function stepSeconds({ work, configuration, cluster, layers }: PlacedRun, logs: ArrayLike<number>): number {
  const factors = new Map(work.layers.map(({ part }, index) => [part, Math.exp(logs[layers[index] as number] ?? 0)]));
  const own = { ...cluster, layerFactors: { factorOf: (part: ModelWork['first']) => factors.get(part) ?? 1 } };
  return priceStep(work, configuration, own, STEP_CONSTANTS).stepSeconds;
}

/** The equation at these logarithms, by differences. */
export function linearStep(run: PlacedRun, logs: Float64Array): LinearStep {
  const log = Math.log(stepSeconds(run, logs));
  const shares = new Map<number, number>();
  for (const layer of new Set(run.layers)) {
    const moved = Float64Array.from(logs);
    moved[layer] = (moved[layer] as number) + STEP;
    shares.set(layer, (Math.log(stepSeconds(run, moved)) - log) / STEP);
  }
  return { log, shares };
}

const STEP = 1e-3;
