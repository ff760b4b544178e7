/**
 * @file Instances unlike the given ones: changed instances (renumbered, other costs, limits tighter or looser, parts, copies side
 * by side, more edges), and graphs drawn from scratch (chains, fans, grids, layers, dense cores, aliases, format edge cases).
 *
 * Everything follows from a seed. The limit of a changed instance is a factor times the least peak bytes of any choice, as in
 * the contest: near 1 there may be no solution. Drawn instances have one.
 */

import { type Generator, generator } from '../../src/solver/generator.js';
import { type ContestInstance, FORBIDDEN } from './instance.js';

/** An instance under construction; `limit` is set at the end. */
interface Draft {
  readonly costs: number[][];
  readonly usages: number[][];
  readonly intervals: [number, number][];
  readonly edges: [number, number][];
  readonly edgeCosts: number[][];
}

/** Changes that make an instance from another one. */
export const CHANGES: Readonly<Record<string, (instance: ContestInstance, seed: number) => ContestInstance>> = {
  renumbered: (instance, seed) => renumbered(instance, generator(seed)),
  // Every cost has a factor of its own: costs that were equal are no longer equal.
  noisy: (instance, seed) => priced(instance, (random) => 0.5 + random.next(), seed, false),
  // One factor for each node and edge, over four orders of magnitude.
  skewed: (instance, seed) => priced(instance, (random) => 10 ** (4 * random.next() - 2), seed, true),
  'tight-1.03': (instance) => ({ ...instance, limit: Math.floor(1.03 * leastPeak(instance)) }),
  'tight-1.01': (instance) => ({ ...instance, limit: Math.floor(1.01 * leastPeak(instance)) }),
  'loose-1.5': (instance) => ({ ...instance, limit: Math.floor(1.5 * leastPeak(instance)) }),
  'loose-4': (instance) => ({ ...instance, limit: Math.floor(4 * leastPeak(instance)) }),
  half: (instance, seed) => part(instance, 0.5, generator(seed)),
  tenth: (instance, seed) => part(instance, 0.1, generator(seed)),
  twice: (instance) => sideBySide(instance, 2),
  denser: (instance, seed) => denser(instance, 0.5, generator(seed)),
};

/** Instances drawn from scratch. */
export const FROM_SCRATCH: Readonly<Record<string, (seed: number) => ContestInstance>> = {
  'no-nodes': (seed) => scratch('no-nodes', { nodes: 0, strategies: 1, edges: chain, seed }),
  'one-node': (seed) => scratch('one-node', { nodes: 1, strategies: 5, edges: () => [], seed }),
  'single-strategies': (seed) => scratch('single-strategies', { nodes: 500, strategies: 1, edges: chain, seed }),
  'no-limit': (seed) => ({
    ...scratch('no-limit', { nodes: 300, strategies: 8, edges: layers(3), seed }),
    limit: 2 ** 50,
  }),
  chain: (seed) => scratch('chain', { nodes: 2000, strategies: 12, edges: chain, seed }),
  'long-chain': (seed) => scratch('long-chain', { nodes: 100_000, strategies: 6, edges: chain, seed }),
  fan: (seed) => scratch('fan', { nodes: 5000, strategies: 10, edges: fan(4), seed }),
  grid: (seed) => scratch('grid', { nodes: 900, strategies: 8, edges: grid(30), seed }),
  'large-grid': (seed) => scratch('large-grid', { nodes: 40_000, strategies: 8, edges: grid(200), seed }),
  layers: (seed) => scratch('layers', { nodes: 1000, strategies: 16, edges: layers(3), seed }),
  'many-layers': (seed) => scratch('many-layers', { nodes: 30_000, strategies: 12, edges: layers(4), seed }),
  dense: (seed) => scratch('dense', { nodes: 60, strategies: 10, edges: everyPair, seed }),
  'wide-nodes': (seed) => scratch('wide-nodes', { nodes: 300, strategies: 150, edges: layers(2), seed }),
  'aliases-tight': (seed) =>
    scratch('aliases-tight', { nodes: 3000, strategies: 12, edges: layers(3), seed, aliases: 0.5, limit: 1 }),
  'lasting-tight': (seed) =>
    scratch('lasting-tight', { nodes: 2000, strategies: 10, edges: layers(3), seed, lasting: 0.5, limit: 1 }),
  'forbidden-pairs': (seed) =>
    scratch('forbidden-pairs', { nodes: 1500, strategies: 10, edges: layers(3), seed, forbidden: 0.4, limit: 1.2 }),
  apart: (seed) =>
    scratch('apart', { nodes: 5000, strategies: 6, edges: () => [], seed, isContrary: true, overLeast: 1.1 }),
  groups: (seed) =>
    scratch('groups', { nodes: 600, strategies: 6, edges: groups(6), seed, isContrary: true, overLeast: 1.1 }),
  'huge-layers': (seed) =>
    scratch('huge-layers', { nodes: 100_000, strategies: 6, edges: layers(2), seed, isContrary: true, overLeast: 1.1 }),
  'small-layers': (seed) => scratch('small-layers', { nodes: 80, strategies: 6, edges: layers(3), seed }),
  'small-tight': (seed) =>
    scratch('small-tight', { nodes: 80, strategies: 6, edges: layers(3), seed, lasting: 0.3, limit: 1.02 }),
  'small-forbidden': (seed) =>
    scratch('small-forbidden', { nodes: 60, strategies: 6, edges: layers(3), seed, forbidden: 0.4, limit: 1.2 }),
  'small-dense': (seed) => scratch('small-dense', { nodes: 16, strategies: 6, edges: everyPair, seed }),
};

/** Least peak bytes of any choice of strategies: the contest's limits are about 1.1 times this. */
export function leastPeak({ usages, intervals }: Pick<ContestInstance, 'usages' | 'intervals'>): number {
  const changes = new Map<number, number>();
  const change = (time: number, bytes: number) => changes.set(time, (changes.get(time) ?? 0) + bytes);
  intervals.forEach(([from, until], node) => {
    if (until <= from) return;
    const least = (usages[node] ?? []).reduce((a, b) => Math.min(a, b), Infinity);
    change(from, least);
    change(until, -least);
  });
  let [live, peak] = [0, 0];
  for (const time of [...changes.keys()].sort((a, b) => a - b)) {
    live += changes.get(time) as number;
    peak = Math.max(peak, live);
  }
  return peak;
}

function renumbered(instance: ContestInstance, random: Generator): ContestInstance {
  const order = shuffled(instance.costs.length, random);
  const numberOf = new Int32Array(order.length);
  order.forEach((node, index) => {
    numberOf[node] = index;
  });
  const states = instance.costs.map(({ length }) => shuffled(length, random));
  const statesOf = (node: number) => states[node] as readonly number[];
  const pick = (rows: readonly (readonly number[])[]) =>
    order.map((node) => statesOf(node).map((state) => rows[node]?.[state] as number));
  const edges = shuffled(instance.edges.length, random);
  return {
    ...instance,
    costs: pick(instance.costs),
    usages: pick(instance.usages),
    intervals: order.map((node) => instance.intervals[node] as readonly [number, number]),
    edges: edges.map((edge) => {
      const [i, j] = instance.edges[edge] as readonly [number, number];
      return [numberOf[i] as number, numberOf[j] as number] as const;
    }),
    edgeCosts: edges.map((edge) => {
      const [i, j] = instance.edges[edge] as readonly [number, number];
      const [table, width] = [instance.edgeCosts[edge] as readonly number[], statesOf(j).length];
      return statesOf(i).flatMap((s) => statesOf(j).map((t) => table[s * width + t] as number));
    }),
  };
}

/** Costs times factors; one factor for each row where `wholeRows`. */
function priced(
  instance: ContestInstance,
  factorOf: (random: Generator) => number,
  seed: number,
  wholeRows: boolean,
): ContestInstance {
  const random = generator(seed);
  const change = (rows: readonly (readonly number[])[]) =>
    rows.map((row) => {
      const common = factorOf(random);
      return row.map((cost) => (cost >= FORBIDDEN ? cost : Math.round(cost * (wholeRows ? common : factorOf(random)))));
    });
  return { ...instance, costs: change(instance.costs), edgeCosts: change(instance.edgeCosts) };
}

/** The nodes nearest to a random one, and the edges between them. */
function part(instance: ContestInstance, share: number, random: Generator): ContestInstance {
  const count = instance.costs.length;
  const near: number[][] = Array.from({ length: count }, () => []);
  for (const [i, j] of instance.edges) {
    near[i]?.push(j);
    near[j]?.push(i);
  }
  const taken = new Set<number>();
  const queue: number[] = [];
  const most = Math.ceil(count * share);
  while (taken.size < most) {
    if (queue.length === 0) queue.push(random.below(count));
    const node = queue.shift() as number;
    if (taken.has(node)) continue;
    taken.add(node);
    queue.push(...(near[node] ?? []));
  }
  const nodes = [...taken].sort((a, b) => a - b);
  const numbers = new Map(nodes.map((node, index) => [node, index]));
  const kept = [...instance.edges.keys()].filter((edge) => instance.edges[edge]?.every((node) => taken.has(node)));
  const rest = {
    name: instance.name,
    costs: nodes.map((node) => instance.costs[node] as readonly number[]),
    usages: nodes.map((node) => instance.usages[node] as readonly number[]),
    intervals: nodes.map((node) => instance.intervals[node] as readonly [number, number]),
    edges: kept.map((edge) => {
      const [i, j] = instance.edges[edge] as readonly [number, number];
      return [numbers.get(i) as number, numbers.get(j) as number] as const;
    }),
    edgeCosts: kept.map((edge) => instance.edgeCosts[edge] as readonly number[]),
  };
  return { ...rest, limit: Math.floor(1.1 * leastPeak(rest)) };
}

/** Copies that share the memory; each starts half of the time after the one before. */
function sideBySide(instance: ContestInstance, copies: number): ContestInstance {
  const count = instance.costs.length;
  const last = instance.intervals.reduce((most, [, until]) => Math.max(most, until), 0);
  const each = <T>(map: (copy: number) => readonly T[]) =>
    Array.from({ length: copies }, (_, copy) => map(copy)).flat();
  const rest = {
    name: instance.name,
    costs: each(() => instance.costs),
    usages: each(() => instance.usages),
    intervals: each((copy) => {
      const later = Math.floor((copy * last) / 2);
      return instance.intervals.map(([from, until]) => [from + later, until + later] as const);
    }),
    edges: each((copy) => instance.edges.map(([i, j]) => [i + copy * count, j + copy * count] as const)),
    edgeCosts: each(() => instance.edgeCosts),
  };
  return { ...rest, limit: Math.floor(1.1 * leastPeak(rest)) };
}

/** More edges between nodes at a distance of two, so that no neighbourhood stays a tree. */
function denser(instance: ContestInstance, share: number, random: Generator): ContestInstance {
  const near: number[][] = instance.costs.map(() => []);
  for (const [i, j] of instance.edges) {
    near[i]?.push(j);
    near[j]?.push(i);
  }
  const scale = Math.max(1, median(instance.costs.flat().filter((cost) => cost > 0 && cost < FORBIDDEN)));
  const edges = [...instance.edges];
  const edgeCosts = [...instance.edgeCosts];
  for (let more = Math.floor(instance.edges.length * share); more > 0; more--) {
    const i = random.below(instance.costs.length);
    const middle = near[i]?.[random.below(near[i]?.length ?? 0)];
    const j = middle === undefined ? undefined : near[middle]?.[random.below(near[middle]?.length ?? 0)];
    if (j === undefined || j === i) continue;
    edges.push([i, j]);
    edgeCosts.push(conversion(instance.costs[i]?.length ?? 0, instance.costs[j]?.length ?? 0, scale, 0, random));
  }
  return { ...instance, edges, edgeCosts };
}

interface Recipe {
  readonly nodes: number;
  /** Strategies of a node, at most. */
  readonly strategies: number;
  readonly edges: (nodes: number, random: Generator) => [number, number][];
  readonly seed: number;
  /** Share of edges that require equal strategies. */
  readonly aliases?: number;
  /** Share of pairs that are forbidden. */
  readonly forbidden?: number;
  /** Share of nodes that live to the end. */
  readonly lasting?: number;
  /** Factor over the peak bytes of the hidden solution. */
  readonly limit?: number;
  /** Factor over the least peak bytes of any choice, as in the contest; replaces `limit` in graphs without forbidden pairs. */
  readonly overLeast?: number;
  /** Whether strategies with less memory take more time, so that the limit raises the cost everywhere. */
  readonly isContrary?: boolean;
}

/** An instance with a hidden solution, so that one exists: its pairs are allowed, and the limit is a factor over its peak. */
function scratch(name: string, recipe: Recipe): ContestInstance {
  const { nodes, strategies, aliases = 0, forbidden = 0, lasting = 0.1, limit = 1.1, seed } = recipe;
  const { overLeast, isContrary = false } = recipe;
  const random = generator(seed);
  const made = draft();
  const hidden: number[] = [];
  for (let node = 0; node < nodes; node++) {
    const count = 1 + (aliases > 0 ? strategies - 1 : random.below(strategies));
    const [work, bytes] = [10 ** (2 + 3 * random.next()), 10 ** (4 + 3 * random.next())];
    // The more devices share a node, the less memory it takes and, mostly, the less time.
    const shares = Array.from({ length: count }, () => 2 ** random.below(5));
    const time = (share: number) => (isContrary ? work * Math.sqrt(share) : work / share);
    made.costs.push(shares.map((share) => Math.round(time(share) * (0.8 + 0.8 * random.next()) + work * 0.1)));
    made.usages.push(shares.map((share) => Math.round(bytes / share)));
    made.intervals.push([node, node + 1 + (random.next() < lasting ? nodes : random.below(20))]);
    hidden.push(random.next() < 0.9 ? shares.indexOf(Math.max(...shares)) : random.below(count));
  }
  for (const [i, j] of recipe.edges(nodes, random)) {
    const [a, b] = [made.costs[i]?.length ?? 0, made.costs[j]?.length ?? 0];
    const [x, y] = [hidden[i] as number, hidden[j] as number];
    made.edges.push([i, j]);
    if (random.next() < aliases) {
      const shift = y - x + b;
      made.edgeCosts.push(
        Array.from({ length: a * b }, (_, at) => ((Math.floor(at / b) + shift) % b === at % b ? 0 : FORBIDDEN)),
      );
      continue;
    }
    const costs = conversion(a, b, 1000, forbidden, random);
    if (costs[x * b + y] === FORBIDDEN) costs[x * b + y] = 1000;
    made.edgeCosts.push(costs);
  }
  if (overLeast !== undefined) return { name, ...made, limit: Math.floor(overLeast * leastPeak(made)) };
  const usages = made.usages.map((bytes, node) => [bytes[hidden[node] as number] as number]);
  return { name, ...made, limit: Math.floor(limit * leastPeak({ usages, intervals: made.intervals })) };
}

/** Costs to reshard a tensor from each of some layouts to each of others: 0 where the two are the same. */
function conversion(a: number, b: number, scale: number, forbidden: number, random: Generator): number[] {
  const [own, other] = [a, b].map((count) => Array.from({ length: count }, () => random.below(6))) as [
    number[],
    number[],
  ];
  const prices = Array.from({ length: 36 }, () => Math.round(scale * 10 ** (2 * random.next() - 1)));
  return own.flatMap((x) =>
    other.map((y) => (x === y ? 0 : random.next() < forbidden ? FORBIDDEN : (prices[x * 6 + y] as number))),
  );
}

function chain(nodes: number): [number, number][] {
  return Array.from({ length: Math.max(0, nodes - 1) }, (_, i) => [i, i + 1]);
}

/** A few nodes that all others read, and a chain. */
function fan(centres: number) {
  return (nodes: number): [number, number][] => [
    ...chain(nodes),
    ...Array.from({ length: nodes - centres - 1 }, (_, i): [number, number] => [i % centres, i + centres + 1]),
  ];
}

function grid(width: number) {
  return (nodes: number): [number, number][] =>
    Array.from({ length: nodes }, (_, i) => i).flatMap((i) => {
      const out: [number, number][] = [];
      if ((i + 1) % width !== 0 && i + 1 < nodes) out.push([i, i + 1]);
      if (i + width < nodes) out.push([i, i + width]);
      return out;
    });
}

/** Each node reads some of the thirty nodes before it, and sometimes one from far back. */
function layers(reads: number) {
  return (nodes: number, random: Generator): [number, number][] => {
    const edges: [number, number][] = [];
    for (let node = 1; node < nodes; node++) {
      const sources = new Set<number>();
      for (let read = 1 + random.below(reads); read > 0; read--) {
        const back = random.next() < 0.03 ? random.below(node) : Math.min(node - 1, random.below(30));
        sources.add(node - 1 - back);
      }
      for (const source of sources) edges.push([source, node]);
    }
    return edges;
  };
}

/** Every pair within each group; only the memory limit connects the groups. */
function groups(size: number) {
  return (nodes: number): [number, number][] =>
    everyPair(nodes).filter(([i, j]) => Math.floor(i / size) === Math.floor(j / size));
}

function everyPair(nodes: number): [number, number][] {
  return Array.from({ length: nodes }, (_, i) => i).flatMap((i) =>
    Array.from({ length: nodes - i - 1 }, (_, k): [number, number] => [i, i + k + 1]),
  );
}

function draft(): Draft {
  return { costs: [], usages: [], intervals: [], edges: [], edgeCosts: [] };
}

function shuffled(count: number, random: Generator): readonly number[] {
  const order = Array.from({ length: count }, (_, index) => index);
  for (let index = count - 1; index > 0; index--) {
    const other = random.below(index + 1);
    [order[index], order[other]] = [order[other] as number, order[index] as number];
  }
  return order;
}

function median(values: readonly number[]): number {
  return [...values].sort((a, b) => a - b)[values.length >> 1] ?? 1;
}
