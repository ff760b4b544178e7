/**
 * @file The best cut by trying everything: every way to cut the layers, every sub-mesh for every stage, every point for every
 * layer. Shares nothing with the search but the problem's types; formulas are written out from docs/schedules.md.
 */
import type { LayerPoint, OnceCost, StageProblem } from '../../../src/search/stages/problem.js';

/** A stage with every choice made. */
interface Choice {
  readonly first: number;
  readonly end: number;
  readonly subMesh: number;
  readonly points: readonly LayerPoint[];
}

/** Least seconds of any cut that fits; infinite for none. */
export function bruteForce(problem: StageProblem): number {
  let best = Number.POSITIVE_INFINITY;
  for (const shape of shapes(problem)) {
    for (const choice of choices(problem, shape)) {
      if (choice.every((_, index) => fits(problem, choice, index))) best = Math.min(best, seconds(problem, choice));
    }
  }
  return best;
}

type Shape = readonly Omit<Choice, 'points'>[];

/** Every way to cut the layers and to place the stages on devices in order. */
function* shapes(problem: StageProblem, before: Shape = [], group = 0, used = 0): Generator<Shape> {
  const { layers, groups, subMeshes, idleDevices, pins } = problem;
  const from = before.at(-1)?.end ?? 0;
  const here = groups[group]?.devices ?? 0;
  if (from === layers.length) {
    const all = idleDevices || (group === groups.length - 1 && used === here);
    // A later group that no stage uses is idle too.
    if (all && (pins?.stages ?? before.length) === before.length) yield before;
    if (!idleDevices && used === here && group < groups.length - 1) return;
    return;
  }
  for (const [subMesh, mesh] of subMeshes.entries()) {
    if (mesh.group !== group || used + mesh.devices > here) continue;
    for (let end = from + 1; end <= layers.length; end++) {
      yield* shapes(problem, [...before, { first: from, end, subMesh }], group, used + mesh.devices);
    }
  }
  if (group < groups.length - 1 && (idleDevices || used === here)) yield* shapes(problem, before, group + 1, 0);
}

function* choices(problem: StageProblem, shape: Shape, before: readonly Choice[] = []): Generator<readonly Choice[]> {
  const next = shape[before.length];
  if (!next) {
    yield before;
    return;
  }
  const classes = problem.layers.slice(next.first, next.end);
  for (const points of products(classes.map((layerClass) => problem.tables[layerClass]?.[next.subMesh] ?? []))) {
    yield* choices(problem, shape, [...before, { ...next, points }]);
  }
}

function products<Item>(lists: readonly (readonly Item[])[]): readonly (readonly Item[])[] {
  return lists.reduce<readonly (readonly Item[])[]>(
    (starts, list) => starts.flatMap((start) => list.map((item) => [...start, item])),
    [[]],
  );
}

function onceOf(problem: StageProblem, { first, end, subMesh }: Choice): readonly OnceCost[] {
  const has = (layer: number) => first <= layer && layer < end;
  const side = (problem.sideInputs ?? [])
    .filter(({ readers }) => readers.some(has))
    .map(({ cost }) => cost[subMesh] ?? {});
  const shared = (problem.shared ?? []).flatMap(({ users, home, copy, exchange }) => {
    const used = users.filter(has).length;
    if (has(home)) return used < users.length ? [exchange?.[subMesh] ?? {}] : [];
    return used > 0 ? [copy[subMesh] ?? {}] : [];
  });
  return [...side, ...shared];
}

const total = <Item>(items: readonly Item[], of: (item: Item) => number | undefined): number =>
  items.reduce((sum, item) => sum + (of(item) ?? 0), 0);

function fits(problem: StageProblem, stages: readonly Choice[], index: number): boolean {
  const stage = stages[index] as Choice;
  const { kind, microBatches, training = true } = problem.schedule;
  const behind = stages.length - index;
  const held = { naive: 1, 'f-then-b': microBatches, '1f1b': Math.min(behind, microBatches) };
  const inFlight = !training
    ? 1
    : kind === 'zero-bubble'
      ? Math.min(stages.length, microBatches)
      : held[kind as keyof typeof held];
  const once = onceOf(problem, stage);
  const bytes =
    total(stage.points, ({ residentBytes, savedBytes }) => residentBytes + inFlight * savedBytes) +
    total(once, ({ residentBytes = 0, savedBytes = 0 }) => residentBytes + inFlight * savedBytes) +
    Math.max(
      ...stage.points.map(({ transientBytes }) => transientBytes),
      ...once.map(({ transientBytes = 0 }) => transientBytes),
    );
  return bytes <= (problem.subMeshes[stage.subMesh]?.memoryBytes ?? 0);
}

function seconds(problem: StageProblem, stages: readonly Choice[]): number {
  const { kind, microBatches: m, training = true } = problem.schedule;
  const exposed = problem.transfers !== 'overlapped';
  const cuts = stages.slice(1).map(({ first, subMesh }, before) => {
    const crossing = problem.tensors.filter(({ producer, lastReader }) => producer < first && first <= lastReader);
    const link = problem.links[problem.linkOf?.(stages[before]?.subMesh as number, subMesh) ?? 0];
    const forward = link?.(total(crossing, ({ bytes }) => bytes)) ?? 0;
    const backward = training ? (link?.(total(crossing, ({ gradientBytes }) => gradientBytes)) ?? 0) : 0;
    return { forward, backward };
  });
  const figures = stages.map((stage, index) => {
    const once = onceOf(problem, stage);
    const parts = [...stage.points, ...once];
    const sent = exposed ? (cuts[index]?.forward ?? 0) + (cuts[index - 1]?.backward ?? 0) : 0;
    const step = total(parts, ({ stepSeconds }) => stepSeconds);
    const time = total(
      parts,
      ({ forwardSeconds = 0, backwardSeconds = 0 }) => forwardSeconds + (training ? backwardSeconds : 0),
    );
    if (kind === 'naive' && training) return { fill: m * (time + sent), pace: step };
    if (kind !== 'zero-bubble' || !training) return { fill: time + sent, pace: (m - 1) * (time + sent) + step };
    const p = stages.length;
    const fill = total<Partial<LayerPoint>>(parts, (part) => {
      const forward = part.forwardSeconds ?? 0;
      const backward = part.backwardSeconds ?? 0;
      const weights = part.weightGradientSeconds ?? 0;
      const filling = Math.min(forward, backward - weights, weights);
      return forward + backward - weights - filling + (p > 1 ? (Math.max(0, p - m) / (p - 1)) * filling : 0);
    });
    return { fill: fill + sent, pace: m * time - fill + (m - 1) * sent + step };
  });
  const naive = kind === 'naive' && training;
  const travelling = exposed ? 0 : total(cuts, ({ forward, backward }) => forward + backward) * (naive ? m : 1);
  const wires = exposed || naive ? [] : cuts.map(({ forward, backward }) => (m - 1) * Math.max(forward, backward));
  return total(figures, ({ fill }) => fill) + travelling + Math.max(...figures.map(({ pace }) => pace), ...wires);
}
