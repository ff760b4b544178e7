/**
 * @file The reduced problem, packed for speed: variables 0 … count−1, states numbered through all variables, pair tables by
 * edge, and memory as uses over rows.
 */
import { capacities } from './memory-rows.js';
import type { ReducedGraph } from './reduction.js';

export interface Core {
  readonly count: number;
  /** State s of variable v has the number offsets[v] + s. */
  readonly offsets: Int32Array;
  /** By state number. */
  readonly unary: Float64Array;
  /** Ends of each edge, a < b, and its table: rows are the states of a. */
  readonly edgeA: Int32Array;
  readonly edgeB: Int32Array;
  readonly tables: readonly Float64Array[];
  /** Edges at variable v: edgesAt[edgeStarts[v]] … */
  readonly edgeStarts: Int32Array;
  readonly edgesAt: Int32Array;
  /** Memory uses of variable v are numbers useStarts[v] … useStarts[v+1]−1: rows [useFrom, useTo), bytes by state. */
  readonly useStarts: Int32Array;
  readonly useFrom: Int32Array;
  readonly useTo: Int32Array;
  readonly useBytes: readonly Float64Array[];
  readonly rows: number;
  /** Bytes that each row may take. */
  readonly capacity: Float64Array;
  /** The variable's number in the problem. */
  readonly variables: Int32Array;
  readonly constant: number;
  /** Entries of all tables. */
  readonly entries: number;
}

/** Packs the reduced problem. */
export function packed({ graph, constant }: ReducedGraph, limit: number): Core {
  const variables = Int32Array.from(graph.alive());
  const numbers = new Map([...variables].map((variable, index) => [variable, index]));
  const count = variables.length;
  const offsets = new Int32Array(count + 1);
  for (let v = 0; v < count; v++) offsets[v + 1] = (offsets[v] as number) + graph.size(variables[v] as number);
  const unary = new Float64Array(offsets[count] as number);
  const [edgeA, edgeB, tables]: [number[], number[], Float64Array[]] = [[], [], []];
  const [useStarts, useFrom, useTo, useBytes]: [number[], number[], number[], Float64Array[]] = [[0], [], [], []];
  const edgesOf: number[][] = Array.from({ length: count }, () => []);
  let rows = 0;
  for (let v = 0; v < count; v++) {
    const variable = variables[v] as number;
    unary.set(graph.unary(variable), offsets[v] as number);
    for (const other of graph.neighbours(variable)) {
      const w = numbers.get(other) as number;
      if (w < v) continue;
      edgesOf[v]?.push(tables.length);
      edgesOf[w]?.push(tables.length);
      edgeA.push(v);
      edgeB.push(w);
      tables.push(graph.rowsBy(variable, other));
    }
    for (const { start, end, bytes } of graph.uses(variable)) {
      useFrom.push(start);
      useTo.push(end);
      useBytes.push(bytes);
      rows = Math.max(rows, end);
    }
    useStarts.push(useFrom.length);
  }
  const edgeStarts = new Int32Array(count + 1);
  for (let v = 0; v < count; v++) edgeStarts[v + 1] = (edgeStarts[v] as number) + (edgesOf[v]?.length ?? 0);
  return {
    count,
    offsets,
    unary,
    edgeA: Int32Array.from(edgeA),
    edgeB: Int32Array.from(edgeB),
    tables,
    edgeStarts,
    edgesAt: Int32Array.from(edgesOf.flat()),
    useStarts: Int32Array.from(useStarts),
    useFrom: Int32Array.from(useFrom),
    useTo: Int32Array.from(useTo),
    useBytes,
    rows,
    capacity: rows === 0 ? new Float64Array(0) : capacities(graph, limit, rows),
    variables,
    constant,
    entries: unary.length + tables.reduce((sum, { length }) => sum + length, 0),
  };
}

/** Cost of a state per variable, without the constant. */
export function coreCost(core: Core, states: Int32Array): number {
  let cost = 0;
  for (let v = 0; v < core.count; v++)
    cost += core.unary[(core.offsets[v] as number) + (states[v] as number)] as number;
  for (let e = 0; e < core.tables.length; e++) {
    const b = core.edgeB[e] as number;
    const width = (core.offsets[b + 1] as number) - (core.offsets[b] as number);
    cost += (core.tables[e] as Float64Array)[
      (states[core.edgeA[e] as number] as number) * width + (states[b] as number)
    ] as number;
  }
  return cost;
}

/** Bytes by row. */
export function rowUsage(core: Core, states: Int32Array): Float64Array {
  const usage = new Float64Array(core.rows + 1);
  for (let v = 0; v < core.count; v++) {
    for (let u = core.useStarts[v] as number; u < (core.useStarts[v + 1] as number); u++) {
      const bytes = (core.useBytes[u] as Float64Array)[states[v] as number] as number;
      usage[core.useFrom[u] as number] = (usage[core.useFrom[u] as number] as number) + bytes;
      usage[core.useTo[u] as number] = (usage[core.useTo[u] as number] as number) - bytes;
    }
  }
  for (let row = 1; row < core.rows; row++) usage[row] = (usage[row] as number) + (usage[row - 1] as number);
  return usage.subarray(0, core.rows);
}
