/**
 * @file The memory that states of a mesh's variables take, and when: the uses of the solver's limited problem.
 *
 * Moments are operators in the order in which they run, two each: `2i`, when operands are resharded into the layouts in which
 * operator i reads them, and `2i + 1`, when it runs.
 *
 *     weight      all the time, in the layout of one of its readers
 *     input       from the beginning until its last reader
 *     tensor      as made, until its first reader; from then on as its readers share it, until the last
 *     operator    while it runs: its result, intermediate tensors of its lowering, and the operands that it is the last to read
 *
 * That is liveness (partition/liveness.ts) without intermediate tensors of reshardings and copies for single readers, which
 * depend on two variables. So no assignment needs less than its uses, and one without reshardings needs just that.
 */
import { fusesRegions } from '../cost-model/device.js';
import { byteLength } from '../ir/dtype.js';
import { type Graph, type Node, type TensorType, typeOf } from '../ir/graph.js';
import { appendTo } from '../ir/group-by.js';
import { operatorOf } from '../ir/operator-of.js';
import { isAccumulator } from '../ir/ops/accumulate.js';
import { madeOnce } from '../ir/remembered.js';
import type { TensorReader } from '../partition/assignment.js';
import type { Fragment } from '../partition/fragment.js';
import { contextOf, lowerOperator } from '../partition/lower-operator.js';
import { changesWhileRunning, occupancy } from '../partition/occupancy.js';
import { localBytes } from '../partition/partition.js';
import { type Layout, layoutKey, localShape } from '../sharding-propagation/layout.js';
import type { Mesh } from '../sharding-propagation/mesh.js';
import type { MemoryUse } from '../solver/problem.js';
import { readersByTensor } from '../strategy/readers.js';
import type { CandidateSet } from './candidates.js';
import type { ConditionalUse, WayOut } from './conditional-uses.js';
import type { EdgeEnd } from './group-graph.js';
import type { MeshProblem } from './mesh-problem.js';

export interface MemoryUses {
  readonly uses: readonly MemoryUse[];
  /** Uses that several variables decide together. */
  readonly conditional: readonly ConditionalUse[];
  /** The moments of an operator, by name: from, and up to. */
  readonly spanOf: (operator: string) => readonly [number, number];
  /** The end of all moments. */
  readonly end: number;
}

/** The uses of a mesh's variables. */
export function memoryUses(problem: MeshProblem): MemoryUses {
  return new Gathering(problem).run();
}

class Gathering {
  private readonly graph: Graph;
  private readonly mesh: Mesh;
  private readonly fuses: boolean;
  private readonly uses: MemoryUse[] = [];
  private readonly conditional: ConditionalUse[] = [];
  private readonly place: ReadonlyMap<string, number>;
  private readonly order: readonly Node[];
  private readonly end: number;
  /** Operators of a micro-batch, which come first; none where there are no micro-batches. */
  private readonly microCount: number;
  private readonly readers: ReadonlyMap<string, readonly TensorReader[]>;
  /** Tensors that stay while there are micro-batches. */
  private readonly kept: ReadonlySet<string>;
  private readonly transients = new Map<string, Float64Array>();
  private readonly setIds = new Map<CandidateSet, number>();

  constructor(private readonly problem: MeshProblem) {
    const { graph, mesh, cluster } = problem;
    this.graph = graph;
    this.mesh = mesh;
    this.fuses = fusesRegions(cluster.device);
    // Operators at the beginning of a step come first, and their results stay alive as those in `kept` do.
    const micro = graph.nodes.filter(({ phase }) => phase !== 'update');
    this.order = graph.microBatches
      ? [...micro, ...graph.nodes.filter(({ phase }) => phase === 'update')]
      : graph.nodes;
    this.place = new Map(this.order.map((node, index) => [node.name, index]));
    this.end = 2 * this.order.length + 2;
    this.microCount = graph.microBatches ? micro.length : 0;
    this.readers = readersByTensor(graph);
    this.kept = new Set([
      ...graph.state.map(({ input }) => input),
      ...graph.nodes.flatMap(({ phase, outputs }) =>
        phase === 'begin' ? outputs.filter((name) => name !== null) : [],
      ),
    ]);
  }

  run(): MemoryUses {
    const { graph } = this;
    this.weights();
    for (const input of graph.inputs) this.input(input);
    for (const node of this.order) {
      this.transient(node);
      node.outputs.forEach((tensor, index) => {
        if (tensor !== null) this.computed(node, tensor, index);
      });
    }
    return {
      uses: this.uses,
      conditional: this.conditional,
      spanOf: (operator) => this.spanOf(operator),
      end: this.end,
    };
  }

  private spanOf(operator: string): readonly [number, number] {
    const index = this.place.get(operator);
    return index === undefined ? [this.end - 2, this.end] : [2 * index, 2 * index + 2];
  }

  /** A weight in the layout of its first reader, and one more copy in every other layout that some reader has it in. */
  private weights(): void {
    const readers = new Map<string, WeightOperand[]>();
    for (const node of this.order) {
      node.inputs.forEach((weight, operand) => {
        if (weight === null || !this.graph.weights.has(weight)) return;
        const { variable, set } = this.operatorOf(node);
        const layouts = set.operands.map((operands) => operands[operand] ?? null);
        appendTo(readers, weight, { variable, layouts });
      });
    }
    for (const [weight, [first, ...others]] of readers) {
      if (!first) continue;
      const type = typeOf(this.graph, weight);
      this.use(first.variable, 0, this.end, this.bytesOf(first.layouts, type));
      for (const layout of new Map(others.flatMap(({ layouts }) => keyed(layouts))).values())
        this.another(layout, first, others, this.bytesOf([layout], type)[0] as number);
    }
  }

  /** A weight's shard in a layout that readers behind the first may have, where the first has another layout. */
  private another(layout: Layout, first: WeightOperand, others: readonly WeightOperand[], bytes: number): void {
    const isIn = ({ layouts }: WeightOperand, is: boolean) =>
      Uint8Array.from(layouts, (own) => Number((own !== null && layoutKey(own) === layoutKey(layout)) === is));
    const nobody: WayOut = new Map(
      others.map((reader) => {
        const same = others.filter(({ variable }) => variable === reader.variable).map((other) => isIn(other, false));
        return [reader.variable, (same[0] as Uint8Array).map((_, state) => Number(same.every((own) => own[state])))];
      }),
    );
    const already: WayOut = new Map([[first.variable, isIn(first, true)]]);
    const isOpen = already.get(first.variable)?.includes(0) ?? false;
    if (bytes > 0 && isOpen) this.conditional.push({ start: 0, end: this.end, bytes, unless: [nobody, already] });
  }

  private input(input: string): void {
    const end = this.problem.groups.variables.inputEnds.get(input);
    if (end) this.use(end.variable, 0, this.lastOf(input), this.endBytes(end, input));
  }

  private computed(maker: Node, tensor: string, index: number): void {
    const { variable, set } = this.operatorOf(maker);
    const made = this.bytesOf(
      set.results.map((results) => results[index] ?? null),
      typeOf(this.graph, tensor),
    );
    const view = this.problem.groups.variables.viewEnds.get(tensor);
    const readers = this.readers.get(tensor) ?? [];
    const isShared = view !== undefined && view.variable !== variable;
    if (this.isCutOutput(tensor)) {
      // The parts of all micro-batches are allocated all the time; a result that is made in another layout takes more.
      const bytes = view ? this.endBytes(view, tensor) : made;
      const times = this.graph.microBatches?.count ?? 1;
      this.use(
        view?.variable ?? variable,
        0,
        this.end,
        bytes.map((amount) => amount * times),
      );
      return;
    }
    const [from, last] = [this.isResident(maker) ? 0 : this.spanOf(maker.name)[1], this.lastOf(tensor)];
    if (!isShared) this.use(variable, from, last, made);
    else {
      const first = Math.min(...readers.map((reader) => this.startOf(reader)));
      this.use(variable, from, first, made);
      this.use(view.variable, first, last, this.endBytes(view, tensor));
    }
  }

  /** Whether each micro-batch makes a part of an output of the step. */
  private isCutOutput(tensor: string): boolean {
    const { microBatches, outputs } = this.graph;
    return (microBatches?.cut.has(tensor) ?? false) && outputs.includes(tensor);
  }

  /** Accumulators hold their sums from the first micro-batch on. */
  private isResident(node: Node): boolean {
    return this.graph.microBatches !== undefined && isAccumulator(node);
  }

  private startOf(reader: TensorReader): number {
    return reader.kind === 'output' ? this.end - 2 : this.spanOf(reader.name)[0];
  }

  /** The moment at which the layout that readers share is freed: while its last reader runs, the tensor counts as an operand. */
  private lastOf(tensor: string): number {
    const readers = this.readers.get(tensor) ?? [];
    if (readers.some(({ kind }) => kind === 'output')) return this.lastOfOutput(tensor);
    if (readers.length === 0) return this.graph.inputs.includes(tensor) ? this.end : 0;
    const last = Math.max(...readers.map((reader) => this.startOf(reader))) + 1;
    if (!this.graph.microBatches || !this.kept.has(tensor)) return last;
    return Math.max(last, 2 * this.microCount);
  }

  /** An output stays alive; but state for the next micro-batch is resharded to that one's layout when a micro-batch ends. */
  private lastOfOutput(tensor: string): number {
    const isState = this.graph.state.some(({ output }) => output === tensor);
    const isOfMicroBatch = this.order.slice(0, this.microCount).some(({ outputs }) => outputs.includes(tensor));
    return isState && isOfMicroBatch ? 2 * this.microCount : this.end;
  }

  /** Whether an operator is the last to read a tensor: then the tensor is freed as the operator runs. */
  private goes(node: Node, tensor: string): boolean {
    if (this.graph.weights.has(tensor)) return false;
    const run = this.spanOf(node.name)[0] + 1;
    return this.lastOf(tensor) === run;
  }

  private transient(node: Node): void {
    const { variable, set } = this.operatorOf(node);
    const going = node.inputs.map((input) => input !== null && this.goes(node, input));
    // Operands that are one tensor share it where they are read in one layout.
    const same = node.inputs.map((input) => node.inputs.indexOf(input));
    const held = node.outputs.map((output) => output !== null && (this.isResident(node) || this.isCutOutput(output)));
    const key = `${this.setId(set)} ${going.map(Number).join('')} ${same.join()} ${held.map(Number).join('')}`;
    const bytes = madeOnce(this.transients, key, () => this.transientBytes(node, set, going, same, held));
    const [start, end] = this.spanOf(node.name);
    this.use(variable, start + 1, end, bytes);
  }

  private transientBytes(
    node: Node,
    set: CandidateSet,
    going: readonly boolean[],
    same: readonly number[],
    held: readonly boolean[],
  ): Float64Array {
    const operator = operatorOf(this.graph, node);
    const context = contextOf(this.graph, node);
    return Float64Array.from(set.strategies, (strategy, state) => {
      const { fragment } = lowerOperator(operator, strategy, this.mesh, context);
      const names = new Map<string, string>();
      node.inputs.forEach((input, operand) => {
        const layout = set.operands[state]?.[operand];
        const name = fragment.inputs[operand];
        if (input !== null && layout && name) names.set(name, `${same[operand]} ${layoutKey(layout)}`);
      });
      const dying = new Set(fragment.inputs.filter((_, operand) => going[operand]));
      return this.fragmentPeak(fragment, names, dying, held);
    });
  }

  /** The most bytes while a fragment runs: of tensors that it makes and of its last-read operands. */
  private fragmentPeak(
    fragment: Fragment,
    names: ReadonlyMap<string, string>,
    dying: ReadonlySet<string | null>,
    held: readonly boolean[],
  ): number {
    const bytes = (name: string) => {
      const tensor = fragment.get(name);
      return this.fuses && tensor.inside ? 0 : localBytes(tensor);
    };
    const shared = (name: string) => names.get(name) ?? name;
    const operands = new Map(
      [...names].flatMap(([name, key]) => (dying.has(name) ? [[key, bytes(name)] as const] : [])),
    );
    const made = (name: string) => (held[fragment.outputs.indexOf(name)] ? 0 : bytes(name));
    const stays = (key: string) => !operands.has(key) && fragment.outputs.includes(key);
    return occupancy([
      ...[...operands].map(([name, amount]) => ({ name, bytes: amount })),
      ...changesWhileRunning(fragment.nodes, made, stays, shared),
    ]).peakBytes;
  }

  private operatorOf(node: Node): { readonly variable: number; readonly set: CandidateSet } {
    const found = this.problem.groups.variables.operators.get(node);
    if (!found) throw new Error(`operator ${node.name} has no variable`);
    return found;
  }

  private endBytes(end: EdgeEnd, tensor: string): Float64Array {
    return this.bytesOf(
      end.numbers.map((number) => end.layouts[number] ?? null),
      typeOf(this.graph, tensor),
    );
  }

  private bytesOf(layouts: readonly (Layout | null)[], { dtype, shape }: TensorType): Float64Array {
    const known = new Map<Layout, number>();
    return Float64Array.from(layouts, (layout) => {
      if (!layout) return 0;
      const bytes =
        known.get(layout) ??
        byteLength(
          dtype,
          localShape(shape, layout, this.mesh).reduce((product, size) => product * size, 1),
        );
      known.set(layout, bytes);
      return bytes;
    });
  }

  private use(variable: number, start: number, end: number, bytes: Float64Array): void {
    if (start < end && bytes.some((amount) => amount > 0)) this.uses.push({ variable, start, end, bytes });
  }

  private setId(set: CandidateSet): number {
    return madeOnce(this.setIds, set, () => this.setIds.size);
  }
}

/** An operand that is a weight: the operator's variable, and the layout of the operand by state. */
interface WeightOperand {
  readonly variable: number;
  readonly layouts: readonly (Layout | null)[];
}

function keyed(layouts: readonly (Layout | null)[]): readonly (readonly [string, Layout])[] {
  return layouts.flatMap((layout) => (layout ? [[layoutKey(layout), layout] as const] : []));
}
