/**
 * @file Memory needs of assignments of a mesh: uses that the solver knows, and further needs that lowered assignments show.
 *
 * While an operator's operands are resharded and while it runs, their memory depends on its strategy, on the layouts in which its
 * operands are shared, and, where it is the first to read one, on the layout in which that was made. Everything else is alive
 * meanwhile, whatever these are. So the need that one lowered assignment shows there holds for every assignment that
 */
import { fusesRegions } from '../cost-model/device.js';
import { memoryOf } from '../cost-model/predict.js';
import type { Node } from '../ir/graph.js';
import { type Makers, makersOf } from '../ir/makers-and-readers.js';
import type { TensorReader } from '../partition/assignment.js';
import { liveness, livenessByNode } from '../partition/liveness.js';
import { localBytes, partition } from '../partition/partition.js';
import type { ShardedNode, ShardedTensor } from '../partition/sharded-graph.js';
import { type Layout, layoutKey } from '../sharding-propagation/layout.js';
import type { CostProblem, LimitedProblem } from '../solver/problem.js';
import { readersByTensor } from '../strategy/readers.js';
import { aidsOf, type ConditionalUse, type WayOut, withAids } from './conditional-uses.js';
import { livePeaks } from './live-peaks.js';
import { type MemoryUses, memoryUses } from './memory-uses.js';
import type { MeshProblem } from './mesh-problem.js';

/** Bytes that a lowered assignment needs on a device. */
export interface AssignmentNeed {
  /** Peak of the device; `alive`: of live tensors alone, to which sessions and buffers of this machine's ranks add. */
  readonly peak: number;
  readonly alive: number;
  /** The most bytes by operator, while its operands are resharded and while it runs. */
  readonly byOperator: ReadonlyMap<string, number>;
  /** Bytes in these of constants that lowering adds: they are always alive, and all operators share them. */
  readonly constants: number;
}

export class MeshNeed {
  private readonly memory: MemoryUses;
  private readonly conditional: ConditionalUse[];
  private readonly known = new Set<string>();
  private readonly nodes: ReadonlyMap<string, Node>;
  private readonly makers: Makers<Node>;
  private readonly readers: ReadonlyMap<string, readonly TensorReader[]>;

  constructor(private readonly mesh: MeshProblem) {
    const { graph } = mesh;
    this.memory = memoryUses(mesh);
    this.conditional = [...this.memory.conditional];
    this.nodes = new Map(graph.nodes.map((node) => [node.name, node]));
    this.makers = makersOf(graph.nodes);
    this.readers = readersByTensor(graph);
  }

  /** The mesh's problem with its uses. The mesh's own variables come first; no assignment of them needs less than the uses. */
  problem(): CostProblem & Pick<LimitedProblem, 'uses'> {
    const { sizes, factors } = this.mesh.groups.problem();
    const aids = aidsOf(this.conditional, sizes.length);
    return {
      sizes: [...sizes, ...aids.sizes],
      factors: [...factors, ...aids.factors],
      uses: [...this.memory.uses, ...aids.uses],
    };
  }

  /** The moments of an operator: from, and up to. */
  spanOf(operator: string): readonly [number, number] {
    return this.memory.spanOf(operator);
  }

  /** The most bytes of an assignment's uses between two moments. */
  usedBytes(states: readonly number[]): (start: number, end: number) => number {
    return livePeaks(this.problem().uses, withAids(states, this.conditional));
  }

  lowered(states: readonly number[]): AssignmentNeed {
    const { graph, cluster, groups, resharder } = this.mesh;
    const sharded = partition(graph, groups.assignmentOf(states), resharder);
    const fuses = fusesRegions(cluster.device);
    const byOperator = new Map<string, number>();
    for (const [index, { mostBytes }] of livenessByNode(sharded, fuses).entries()) {
      const { origin } = sharded.nodes[index] as ShardedNode;
      byOperator.set(origin, Math.max(byOperator.get(origin) ?? 0, mostBytes));
    }
    const constants = [...sharded.constants.keys()].reduce(
      (sum, name) => sum + localBytes(sharded.tensors.get(name) as ShardedTensor),
      0,
    );
    const alive = liveness(sharded, fuses).peakBytes;
    const peak = cluster.local ? Math.max(alive, memoryOf(sharded, cluster).peakBytes) : alive;
    return { peak, alive, byOperator, constants };
  }

  /** Learns an assignment's excess over its uses, where its need is above the limit; false where nothing is new. */
  learn(states: readonly number[], { byOperator, constants }: AssignmentNeed, limit: number): boolean {
    const usedBytes = this.usedBytes(states);
    const learnt: ConditionalUse[] = [];
    for (const [operator, needed] of byOperator) {
      const node = this.nodes.get(operator);
      const [start, end] = this.spanOf(operator);
      const bytes = needed - constants - usedBytes(start, end);
      if (!node || needed <= limit || bytes <= 0) continue;
      const unless = this.neighbourStates(node, states);
      const key = [operator, ...unless.flatMap((way) => [...way].map((condition) => condition.join(':')))].join(' ');
      if (!this.known.has(key)) learnt.push({ start, end, bytes, unless });
      this.known.add(key);
    }
    this.conditional.push(...learnt);
    return learnt.length > 0;
  }

  /**
   * Learns the total need of an assignment, where its uses are less: for this assignment only, since memory beside live tensors
   * depends on the whole assignment.
   */
  learnTotal(states: readonly number[], { peak }: AssignmentNeed): void {
    const { end } = this.memory;
    const { sizes } = this.mesh.groups.problem();
    const unless = sizes.flatMap((size, variable) =>
      size > 1 ? [otherThan(variable, [...new Array<number>(size).keys()], states)] : [],
    );
    this.conditional.push({ start: 0, end, bytes: peak - this.usedBytes(states)(0, end), unless });
  }

  /** The states that an operator's need depends on: each may be another. */
  private neighbourStates(node: Node, states: readonly number[]): readonly WayOut[] {
    const { operators, viewEnds } = this.mesh.groups.variables;
    const ways: WayOut[] = [];
    const own = operators.get(node);
    if (own) ways.push(otherThan(own.variable, [...own.set.strategies.keys()], states));
    for (const tensor of new Set(node.inputs)) {
      if (tensor === null || this.mesh.graph.weights.has(tensor)) continue;
      const view = viewEnds.get(tensor);
      if (view) ways.push(otherThan(view.variable, view.numbers, states));
      const maker = this.makers.get(tensor);
      const made = maker && operators.get(maker);
      if (!maker || !made || made.variable === view?.variable || !this.isFirst(node, tensor)) continue;
      const result = maker.outputs.indexOf(tensor);
      const layouts = made.set.results.map((results) => keyOf(results[result]));
      ways.push(otherThan(made.variable, layouts, states));
    }
    return ways;
  }

  private isFirst(node: Node, tensor: string): boolean {
    const [start] = this.spanOf(node.name);
    return (this.readers.get(tensor) ?? []).every(
      (reader) => reader.kind === 'output' || this.spanOf(reader.name)[0] >= start,
    );
  }
}

/** A variable's states in which it has another layout. */
function otherThan(variable: number, layouts: readonly (number | string)[], states: readonly number[]): WayOut {
  const own = layouts[states[variable] as number];
  return new Map([[variable, Uint8Array.from(layouts, (layout) => Number(layout !== own))]]);
}

function keyOf(layout: Layout | null | undefined): string {
  return layout ? layoutKey(layout) : '';
}
