/**
 * @file Memory of a rank of this machine: what the bundled runtime holds while it runs the phases of a step.
 *
 * It differs from liveness in what sessions are: each holds the weights that it reads, takes a whole run of operators at once,
 * and writes results to memory of their own, so that state is there twice when a step ends: as it was, and as it will be.
 * Collectives go through buffers that are held all the time.
 */
import type { Liveness } from './liveness.js';
import { type Change, occupancy } from './occupancy.js';
import { orderPhase, phasesOf, type Step } from './order.js';
import { localBytes } from './partition.js';
import { isInlined, type ReadOutside, readersOutside, segmentResults } from './segments.js';
import { resultsOf, type ShardedGraph } from './sharded-graph.js';

/** Names of what is no tensor of the graph: `communication buffer 0`, …; and of an output what was made of it before. */
const BUFFER = 'communication buffer';
const EARLIER = ' of earlier micro-batches';

/** Bytes of a coordinate: one int64. */
const COORDINATE_BYTES = 8;

/** What a rank of the bundled runtime holds at its fullest moment. */
export function rankMemory(graph: ShardedGraph): Liveness {
  const phases = phasesOf(graph).map((list) => ({ runs: list.runs, steps: orderPhase(graph, list) }));
  const walk = new Walk(
    graph,
    phases.flatMap(({ steps }) => steps),
  );
  // What one micro-batch leaves the next one finds: two of them show it.
  const { count } = graph.microBatches ?? { count: 1 };
  for (const [index, { runs, steps }] of phases.entries()) {
    const later = phases.slice(index + 1).flatMap(({ steps }) => readsOf(steps));
    const kept = new Set(runs === 'micro' ? later : []);
    for (let run = 0; run < (runs === 'micro' ? Math.min(2, count) : 1); run++) walk.phase(steps, kept);
  }
  return walk.fullest();
}

/** What a name of `held` stands for: a tensor, or null for a buffer of the runtime. */
export function heldTensor(name: string): string | null {
  if (name.startsWith(`${BUFFER} `)) return null;
  return name.endsWith(EARLIER) ? name.slice(0, -EARLIER.length) : name;
}

class Walk {
  private readonly changes: Change[] = [];
  /** The operator that runs at each change. */
  private readonly at: (string | null)[] = [];
  private readonly readOutside: ReadOutside;
  /** Never freed: weights, state before the step, coordinates, outputs, what micro-batches add to. */
  private readonly stays: ReadonlySet<string>;

  constructor(
    private readonly graph: ShardedGraph,
    steps: readonly Step[],
  ) {
    this.readOutside = readersOutside(graph, steps);
    const resident = residentBytes(graph, steps);
    this.stays = new Set([...resident.keys(), ...graph.outputs.map(({ tensor }) => tensor)]);
    for (const [name, bytes] of resident) this.hold(name, bytes, null);
    for (const { tensor } of graph.inputs) if (!this.stays.has(tensor)) this.hold(tensor, this.bytes(tensor), null);
    const { microBatches } = graph;
    for (const { tensor, output } of graph.outputs)
      if (microBatches?.cut.has(output))
        this.hold(`${tensor}${EARLIER}`, (microBatches.count - 1) * this.bytes(tensor), null);
  }

  /** One run of a phase; what is `kept` is there when it ends. */
  phase(steps: readonly Step[], kept: ReadonlySet<string>): void {
    const lastUse = new Map<string, number>();
    const isFreed = (name: string) => !kept.has(name) && !this.stays.has(name);
    steps.forEach((step, index) => {
      for (const name of usedBy(step)) if (isFreed(name)) lastUse.set(name, index);
    });
    const frees: string[][] = steps.map(() => []);
    for (const [name, index] of lastUse) frees[index]?.push(name);
    steps.forEach((step, index) => {
      this.run(step);
      for (const name of frees[index] ?? []) this.hold(name, 0, null);
    });
  }

  fullest(): Liveness {
    const found = occupancy(this.changes);
    return { peakBytes: found.peakBytes, at: this.at[found.atChange] ?? null, held: found.held };
  }

  private run(step: Step): void {
    if (step.kind === 'start' || step.kind === 'send') return;
    if (step.kind === 'recv') {
      this.hold(step.transfer.tensor, this.bytes(step.transfer.tensor), null);
      return;
    }
    const { outputs, inside } =
      step.kind === 'segment'
        ? segmentResults(step.nodes, this.graph, this.readOutside)
        : { outputs: resultsOf(step.node), inside: [] };
    const at = step.kind === 'segment' ? (step.nodes[0]?.origin ?? null) : step.node.origin;
    for (const name of [...outputs, ...inside]) this.hold(name, this.bytes(name), at);
    for (const name of inside) this.hold(name, 0, at);
  }

  private hold(name: string, bytes: number, at: string | null): void {
    this.changes.push({ name, bytes });
    this.at.push(at);
  }

  private bytes(name: string): number {
    const tensor = this.graph.tensors.get(name);
    return tensor ? localBytes(tensor) : 0;
  }
}

/** What a rank holds from the first step to the last. */
function residentBytes(graph: ShardedGraph, steps: readonly Step[]): ReadonlyMap<string, number> {
  const held = new Map<string, number>();
  const add = (name: string, times = 1) => {
    const tensor = graph.tensors.get(name);
    if (tensor) held.set(name, (held.get(name) ?? 0) + times * localBytes(tensor));
  };
  const bound = new Set(graph.weights.filter((weight) => !isInlined(weight, graph)).map(({ tensor }) => tensor));
  const read = new Set(graph.outputs.flatMap(({ tensor }) => (bound.has(tensor) ? [tensor] : [])));
  for (const step of steps) {
    // A session has a copy of its weights; what is sent or added up is read as a tensor, of which there is one.
    if (step.kind === 'segment') {
      for (const name of new Set(readsOf([step]))) if (bound.has(name)) add(name);
    } else for (const name of readsOf([step])) if (bound.has(name)) read.add(name);
  }
  for (const name of read) add(name);
  for (const { to } of graph.state) add(to);
  for (const { name } of graph.coordinates) held.set(name, COORDINATE_BYTES);
  for (const [index, bytes] of bufferBytes(graph, steps).entries()) held.set(`${BUFFER} ${index}`, bytes);
  return held;
}

/** A buffer carries one collective at a time, from its start to its wait; each is as large as the largest that it carries. */
function bufferBytes(graph: ShardedGraph, steps: readonly Step[]): readonly number[] {
  const sizes: number[] = [];
  const carried: (unknown | null)[] = [];
  for (const step of steps) {
    if (step.kind === 'wait') carried[carried.indexOf(step.node)] = null;
    if (step.kind !== 'start') continue;
    const free = carried.indexOf(null);
    const index = free < 0 ? carried.length : free;
    carried[index] = step.node;
    const tensor = graph.tensors.get(step.node.input);
    sizes[index] = Math.max(sizes[index] ?? 0, tensor ? localBytes(tensor) : 0);
  }
  return sizes;
}

function readsOf(steps: readonly Step[]): readonly string[] {
  return steps.flatMap((step) => {
    if (step.kind === 'segment') return step.nodes.flatMap(({ inputs }) => inputs.filter((name) => name !== null));
    if (step.kind === 'accumulate') return step.node.inputs.filter((name) => name !== null);
    if (step.kind === 'send') return [step.transfer.tensor];
    return step.kind === 'start' ? [step.node.input] : [];
  });
}

/** What a step reads or makes; a collective's operand is held until its result is there. */
function usedBy(step: Step): readonly string[] {
  if (step.kind === 'segment')
    return step.nodes.flatMap(({ inputs, outputs }) => [...inputs, ...outputs].filter((name) => name !== null));
  if (step.kind === 'accumulate') return [...readsOf([step]), ...resultsOf(step.node)];
  if (step.kind === 'send' || step.kind === 'recv') return [step.transfer.tensor];
  return step.kind === 'wait' ? [step.node.input, step.node.output] : [];
}
