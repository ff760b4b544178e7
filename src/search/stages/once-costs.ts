/**
 * @file What a stage pays once, whichever of its layers need it: side inputs, copies of shared parameters, their exchange.
 */
import type { OnceCost, StageProblem } from './problem.js';
import type { PhaseSeconds } from './schedule-weights.js';

export interface StageOnce {
  /** Equal for stages that pay the same things. */
  readonly key: string;
  readonly seconds: PhaseSeconds;
  readonly residentBytes: number;
  readonly savedBytes: number;
  readonly transientBytes: number;
}

export interface OnceSum {
  readonly of: (subMesh: number, first: number, end: number) => StageOnce;
}

/** Of a stage that needs nothing. */
export const NOTHING_ONCE: StageOnce = {
  key: '',
  seconds: { forward: 0, backward: 0, weightGradient: 0, step: 0 },
  residentBytes: 0,
  savedBytes: 0,
  transientBytes: 0,
};

export function onceCosts({ sideInputs = [], shared = [] }: StageProblem): OnceSum {
  const charges: readonly Charge[] = [
    ...sideInputs.map(({ readers, cost }) => ({ cost, falls: (has: Has) => readers.some(has) })),
    ...shared.flatMap(({ users, home, copy, exchange = [] }) => [
      { cost: copy, falls: (has: Has) => !has(home) && users.some(has) },
      { cost: exchange, falls: (has: Has) => has(home) && !users.every(has) },
    ]),
  ];
  if (charges.length === 0) return { of: () => NOTHING_ONCE };
  return {
    of: (subMesh, first, end) => {
      const has = (layer: number) => layer >= first && layer < end;
      const falling = charges.flatMap((charge, index) => (charge.falls(has) ? [{ index, ...charge }] : []));
      const costs = falling.map(({ cost }) => cost[subMesh] ?? {});
      return costs.length === 0 ? NOTHING_ONCE : sumOf(falling.map(({ index }) => index).join(), costs);
    },
  };
}

type Has = (layer: number) => boolean;

interface Charge {
  readonly cost: readonly OnceCost[];
  readonly falls: (has: Has) => boolean;
}

function sumOf(key: string, costs: readonly OnceCost[]): StageOnce {
  const sum = (of: (cost: OnceCost) => number | undefined) => costs.reduce((total, cost) => total + (of(cost) ?? 0), 0);
  return {
    key,
    seconds: {
      forward: sum((cost) => cost.forwardSeconds),
      backward: sum((cost) => cost.backwardSeconds),
      weightGradient: 0,
      step: sum((cost) => cost.stepSeconds),
    },
    residentBytes: sum((cost) => cost.residentBytes),
    savedBytes: sum((cost) => cost.savedBytes),
    transientBytes: Math.max(0, ...costs.map(({ transientBytes = 0 }) => transientBytes)),
  };
}
