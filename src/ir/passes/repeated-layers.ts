/**
 * @file Repeated layers of a model whose file does not name them: runs of operators that come again, in the order of the graph,
 * each time with matrices of their own. JAX and Paddle write no module paths, and optimisers of files lose them.
 */
import { byteLength } from '../dtype.js';
import { elementCount, type Graph } from '../graph.js';
import { structureOf, typeKey } from '../structure-key.js';

/** A run of operators that comes `count` times, from the operator at `start` on. */
interface Repetition {
  readonly start: number;
  readonly period: number;
  readonly count: number;
}

/** A layer for each operator, null where it is in none. */
export function repeatedLayers(graph: Graph): readonly (string | null)[] {
  const { nodes } = graph;
  const layers = nodes.map((): string | null => null);
  const found = repetitionsIn(graph, numberedStructures(graph), 0, nodes.length);
  let number = 0;
  for (const { start, period, count } of [...found].sort((a, b) => a.start - b.start))
    for (let layer = 0; layer < count; layer++, number++)
      layers.fill(`layers.${number}`, start + layer * period, start + (layer + 1) * period);
  return layers;
}

/** A number for each operator, equal where operators differ in names alone. */
function numberedStructures({ nodes, weights, tensors }: Graph): readonly number[] {
  const numbers = new Map<string, number>();
  return nodes.map((node) => {
    const { key } = structureOf([node], (tensor, body) => {
      const [weight, type] = [(body?.weights ?? weights).get(tensor), (body?.tensors ?? tensors).get(tensor)];
      return [weight?.role ?? null, typeKey(type ?? null)];
    });
    const number = numbers.get(key) ?? numbers.size;
    numbers.set(key, number);
    return number;
  });
}

/** The repetitions between two places: the longest, and those before and behind it, as of an encoder and a decoder. */
function repetitionsIn(graph: Graph, keys: readonly number[], from: number, to: number): readonly Repetition[] {
  const longest = longestRepetition(graph, keys, from, to);
  if (!longest) return [];
  const end = longest.start + longest.period * longest.count;
  return [longest, ...repetitionsIn(graph, keys, from, longest.start), ...repetitionsIn(graph, keys, end, to)];
}

function longestRepetition(graph: Graph, keys: readonly number[], from: number, to: number): Repetition | null {
  const readers = matrixReaders(graph);
  let best: (Repetition & { readonly spare: number }) | null = null;
  let most = 0;
  for (const period of distances(keys, from, to)) {
    for (let start = from; start + period < to; ) {
      let end = start;
      while (end + period < to && keys[end] === keys[end + period]) end++;
      const [count, spare] = [Math.floor((end - start) / period) + 1, (end - start) % period];
      const isLonger = count > 1 && count * period > most;
      if (isLonger && [0, 1].every((layer) => ownMatrices(readers, start + layer * period, period) >= FEWEST)) {
        best = { start, period, count, spare };
        most = count * period;
      }
      start = end + 1;
    }
  }
  if (!best) return null;
  const { start, period, count, spare } = best;
  const crossing = crossings(graph);
  const cuts = Array.from({ length: spare + 1 }, (_, later) => crossing[start + later + period] ?? 0);
  return { start: start + cuts.indexOf(Math.min(...cuts)), period, count };
}

/** The fewest matrices of a layer: linear layers one behind the other are not what layers are cut for. */
const FEWEST = 2;

/** The distances of equal operators that follow each other, the smallest first. */
function distances(keys: readonly number[], from: number, to: number): readonly number[] {
  const last = new Map<number, number>();
  const found = new Set<number>();
  for (let place = from; place < to; place++) {
    const key = keys[place] as number;
    const before = last.get(key);
    if (before !== undefined) found.add(place - before);
    last.set(key, place);
  }
  return [...found].sort((a, b) => a - b);
}

/** The first and the last reader of every weight that is a matrix or has more dimensions. */
function matrixReaders({ nodes, weights }: Graph): readonly (readonly [number, number])[] {
  const readers = new Map<string, [number, number]>();
  for (const [place, { inputs }] of nodes.entries()) {
    for (const name of inputs) {
      const weight = name === null ? undefined : weights.get(name);
      if (name === null || !weight || weight.shape.filter((size) => size > 1).length < 2) continue;
      readers.set(name, [readers.get(name)?.[0] ?? place, place]);
    }
  }
  return [...readers.values()];
}

/** The matrices that nothing else reads. Steps of a recurrence have none. */
function ownMatrices(readers: readonly (readonly [number, number])[], start: number, period: number): number {
  return readers.filter(([first, last]) => first >= start && last < start + period).length;
}

/** By place: the bytes of computed tensors that are made before it and read at it or later. */
function crossings({ nodes, tensors }: Graph): readonly number[] {
  const made = new Map<string, number>();
  const read = new Map<string, number>();
  for (const [place, { inputs, outputs }] of nodes.entries()) {
    for (const name of inputs) if (name !== null) read.set(name, place);
    for (const name of outputs) if (name !== null) made.set(name, place);
  }
  const changes = Array.from({ length: nodes.length + 1 }, () => 0);
  for (const [name, place] of made) {
    const last = read.get(name) ?? place;
    const type = tensors.get(name);
    const bytes = type ? byteLength(type.dtype, elementCount(type.shape)) : 0;
    changes[place + 1] = (changes[place + 1] ?? 0) + bytes;
    changes[last + 1] = (changes[last + 1] ?? 0) - bytes;
  }
  let open = 0;
  return changes.map((change) => (open += change));
}
