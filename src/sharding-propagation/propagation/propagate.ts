/**
 * @file Propagation: from a few pins to a strategy for every operator, by carrying layouts along the graph in both directions
 * until nothing changes (docs/concepts.md). The idea is Shardy's: layouts move along factors, not dimensions.
 *
 * Loops, outermost first:
 *   rounds     pins of the highest priority until nothing changes, then those of the next; at last the batch over dp
 *   turns      elementwise operators and views first, contractions next, what broadcasts last (operator-cells.ts)
 *   operators  those whose tensors changed, in the order in which that happened
 * and in each operator conflicts are settled for the larger tensor (resolve.ts). Cuts only grow, and an operator is visited
 * again only where one of its tensors changed: time grows with the size of the graph.
 */
import { batchStarts, followBatch } from '../../ir/batch.js';
import { sequenceDimensions } from '../../ir/dimension-roles.js';
import { type BatchDimension, type Graph, type Node, typeOf } from '../../ir/graph.js';
import { type Makers, makersOf } from '../../ir/makers-and-readers.js';
import { madeOnce } from '../../ir/remembered.js';
import type { Layout } from '../layout.js';
import { replicated } from '../layout.js';
import { axesSize, type Mesh } from '../mesh.js';
import type { Pin } from '../pin.js';
import { axisRole, dataAxes, type FactorFamily } from '../roles.js';
import type { Strategy } from '../strategy.js';
import { chooseStrategy } from './choose-strategy.js';
import { type Cut, type CutItem, plainCut, resizedCut, UNCUT } from './cut.js';
import { type Demands, demandsOf, type Overruled } from './demands.js';
import { cellsMaker, type OperatorCells, TURNS, type WalkDirection } from './operator-cells.js';
import type { Cause, FactorReason, Reasons } from './reasons.js';
import { type ResolvedCuts, resolveCuts } from './resolve.js';
import { pieceChooser } from './seen-pieces.js';
import { scatteredCut, splitCuts } from './split-axes.js';
import { AllCuts, type TensorCuts } from './tensor-cuts.js';

export interface PropagationOptions {
  /** Whether the batch is sharded over dp where pins leave that open; it is by default. */
  readonly batch?: boolean;
}

export interface Propagation {
  readonly mesh: Mesh;
  /** By operator group. */
  readonly strategies: ReadonlyMap<string, Strategy>;
  /** For every tensor the layout that was carried to it; nothing is partial. */
  readonly layouts: ReadonlyMap<string, Layout>;
  readonly reasons: Reasons;
  /** Tensors whose layouts pins state. */
  readonly pinned: ReadonlySet<string>;
  /** Pins that give way to one of higher priority. */
  readonly overruled: readonly Overruled[];
}

/**
 * Completes pins to a strategy per operator.
 * @throws AutoparError (noPlan) `pins-contradict` where two cannot both hold, `pin-cannot-be-kept` where one cannot
 */
export function propagate(
  graph: Graph,
  mesh: Mesh,
  pins: readonly Pin[],
  options: PropagationOptions = {},
): Propagation {
  return new Propagating(graph, mesh, pins).run(options.batch ?? true);
}

/** Place of each turn in the order. */
const TURN_NUMBERS: Readonly<Record<WalkDirection, number>> = Object.fromEntries(
  TURNS.map((turn, index) => [turn, index]),
) as Record<WalkDirection, number>;

/** The dimensions at which families begin that an axis shards without a pin. */
const DIMENSIONS: Readonly<Partial<Record<FactorFamily, (graph: Graph) => readonly BatchDimension[]>>> = {
  batch: batchStarts,
  sequence: sequenceDimensions,
};

class Propagating {
  private readonly cells = new Map<string, OperatorCells>();
  private readonly touching = new Map<string, OperatorCells[]>();
  private readonly makers: Makers<Node>;
  private readonly cuts: AllCuts;
  private readonly demands: Demands;
  private readonly queues: OperatorCells[][] = TURNS.map(() => []);
  private readonly waiting: Set<OperatorCells>[] = TURNS.map(() => new Set());
  private readonly factorReasons = new Map<string, FactorReason[]>();
  private round = 0;

  constructor(
    private readonly graph: Graph,
    private readonly mesh: Mesh,
    pins: readonly Pin[],
  ) {
    this.cuts = new AllCuts(graph, mesh);
    this.makers = makersOf(graph.nodes);
    const cellsOf = cellsMaker({ graph, cuts: this.cuts, readers: readerCounts(graph) });
    for (const node of graph.nodes) {
      const cells = cellsOf(node);
      this.cells.set(node.name, cells);
      for (const { tensor } of cells.sides) {
        const list = this.touching.get(tensor);
        if (!list) this.touching.set(tensor, [cells]);
        else if (list.at(-1) !== cells) list.push(cells);
      }
    }
    this.demands = demandsOf(pins, {
      graph,
      mesh,
      cells: (node) => this.cellsNamed(node),
      readers: (tensor) => this.readersOf(tensor).map(({ node }) => node),
      maker: (tensor) => this.makers.get(tensor),
      choosePiece: (cells) => pieceChooser(cells, (tensor) => this.readersOf(tensor), mesh),
    });
    for (const [tensor, { limits }] of this.demands.tensors) {
      const own = this.cuts.of(tensor);
      if (own) own.limits = limits;
    }
  }

  run(batch: boolean): Propagation {
    for (; this.round < this.demands.rounds; this.round++) {
      this.startExact();
      this.settle();
      this.startSplits();
    }
    if (batch) {
      this.startBatch();
      this.settle();
    }
    return this.result();
  }

  /** Pins that name axes feed the round of their priority. */
  private startExact(): void {
    for (const [tensor, { cuts, source, round }] of this.demands.tensors) {
      const own = this.cuts.of(tensor);
      if (!own || !cuts || round !== this.round) continue;
      cuts.forEach((cut, dimension) => {
        this.cutAndEnqueue(own, dimension, cut, () => ({ kind: 'pin', source }), round);
      });
    }
    for (const [node, { fixed }] of this.demands.operators)
      if ([...fixed.values()].some(({ round }) => round === this.round)) this.enqueue(this.cellsNamed(node));
  }

  /** Pins that count parts get their axes one after the other, each when the effects of those before it have arrived. */
  private startSplits(): void {
    const here = <Item extends { readonly round: number }>(items: readonly Item[]) =>
      items.filter(({ round }) => round === this.round);
    let batch: ((node: Node) => ReadonlySet<string>) | undefined;
    for (const node of this.graph.nodes) {
      const demands = this.demands.operators.get(node.name);
      const counts = here(demands?.counts ?? []);
      if (!demands || counts.length === 0) continue;
      batch ??= batchFactors(this.graph);
      const cells = this.cellsNamed(node.name);
      const { cuts } = this.resolved(cells, true);
      const fixed = new Set(demands.fixed.keys());
      const held = cuts.map((cut, at) => demands.fixed.get(at)?.cut ?? cut);
      const question = {
        cells,
        counts,
        cuts: held,
        fixed,
        without: demands.without,
        batch: batch(node),
        mesh: this.mesh,
      };
      const [first] = counts;
      for (const [factor, cut] of splitCuts(question)) {
        const count = counts.find(({ factors }) => factors.includes(factor)) ?? first;
        if (count) demands.fixed.set(factor, { cut, source: count.source, round: this.round });
      }
      for (const count of counts) {
        const tensor = this.cuts.of(count.result?.tensor ?? '');
        if (!count.result || !tensor) continue;
        const cut = scatteredCut(cells, count, (at) => demands.fixed.get(at)?.cut ?? UNCUT, this.mesh);
        const cause: Cause = { kind: 'pin', source: count.source };
        this.cutAndEnqueue(tensor, count.result.dimension, cut, () => cause, this.round);
      }
      this.enqueue(cells);
      this.settle();
    }
    for (const [tensor, { demand, source, round }] of this.demands.tensors) {
      const own = this.cuts.of(tensor);
      if (!own || demand.kind !== 'split' || round !== this.round || this.makers.has(tensor)) continue;
      demand.counts.forEach((parts, dimension) => {
        const cut = this.countedCut(own, dimension, parts);
        this.cutAndEnqueue(own, dimension, cut, () => ({ kind: 'pin', source }), round);
      });
      this.settle();
    }
  }

  /** An input's dimension in so many parts: by its axes so far, and by axes that the input does not use, in the mesh's order. */
  private countedCut(tensor: TensorCuts, dimension: number, parts: number): Cut {
    const used = new Set(tensor.rounds.keys());
    const axes = (tensor.cuts[dimension] ?? UNCUT).flatMap((item) => item.axes);
    let rest = parts / axesSize(this.mesh, axes);
    for (const { name, size } of this.mesh.axes.flatMap((axis) => axis.subAxes)) {
      if (used.has(name) || rest % size !== 0) continue;
      axes.push(name);
      rest /= size;
    }
    return rest === 1 ? plainCut(axes, tensor.shape[dimension] ?? 1, this.mesh) : UNCUT;
  }

  /** Shards inputs over data axes: the batch over dp, the sequence over sp, where they divide them. */
  private startBatch(): void {
    for (const { name, size: ranks, subAxes } of dataAxes(this.mesh)) {
      if (ranks === 1) continue;
      const names = subAxes.map((sub) => sub.name);
      const dimensions = (axisRole(name).takes.elsewhere ?? []).flatMap(
        (family) => DIMENSIONS[family]?.(this.graph) ?? [],
      );
      for (const { input, axis } of dimensions) {
        const tensor = this.cuts.of(input);
        const size = tensor?.shape[axis] ?? 0;
        if (!tensor || size % ranks !== 0) continue;
        this.cutAndEnqueue(tensor, axis, plainCut(names, size, this.mesh), () => ({ kind: 'batch' }), this.round);
      }
    }
  }

  /** Operators by turn until no tensor changes. */
  private settle(): void {
    for (;;) {
      const turn = this.queues.findIndex((queue) => queue.length > 0);
      const cells = this.queues[turn]?.shift();
      if (!cells) return;
      this.waiting[turn]?.delete(cells);
      this.visit(cells, TURNS[turn] === 'contraction-back' || !cells.turns.includes('contraction'));
    }
  }

  private visit(cells: OperatorCells, backward: boolean): void {
    const resolved = this.resolved(cells, backward);
    if (resolved.causes.size === 0) return;
    this.note(cells, resolved);
    for (const side of cells.sides) {
      const tensor = side.cuts;
      if (!tensor) continue;
      side.dims.forEach(({ factors, sizes }, dimension) => {
        let base = 1;
        for (let index = factors.length - 1; index >= 0; index--) {
          const size = cells.factors[factors[index] ?? -1]?.size ?? 1;
          const cut = resizedCut(resolved.cuts[factors[index] ?? -1] ?? UNCUT, size, sizes[index] ?? 1, this.mesh);
          if (cut.length > 0) this.carry(cells, factors[index] ?? -1, cut, tensor, dimension, base, resolved);
          base *= sizes[index] ?? 1;
        }
      });
    }
  }

  /** Carries a factor's cut onto a dimension of which it is a part; `base` is the number of positions below it. */
  private carry(
    cells: OperatorCells,
    factor: number,
    cut: Cut,
    tensor: TensorCuts,
    dimension: number,
    base: number,
    { rounds }: ResolvedCuts,
  ): void {
    const own = cells.factors[factor];
    if (!own) return;
    const placed = base === 1 ? cut : cut.map((item) => ({ ...item, stride: item.stride * base }));
    const cause: Cause = { kind: 'operator', node: cells.node.name, factor: own.name };
    const round = Math.min(...cut.flatMap(({ axes }) => axes.map((axis) => rounds.get(axis) ?? this.round)));
    this.cutAndEnqueue(tensor, dimension, placed, () => cause, round);
  }

  private cutAndEnqueue(
    tensor: TensorCuts,
    dimension: number,
    cut: Cut,
    cause: (item: CutItem) => Cause,
    round: number,
  ): void {
    for (const changed of this.cuts.add(tensor, dimension, cut, cause, round))
      for (const cells of this.touching.get(changed) ?? []) this.enqueue(cells);
  }

  private enqueue(cells: OperatorCells): void {
    for (const turn of cells.turns) {
      const number = TURN_NUMBERS[turn];
      if (this.waiting[number]?.has(cells)) continue;
      this.waiting[number]?.add(cells);
      this.queues[number]?.push(cells);
    }
  }

  private resolved(cells: OperatorCells, backward: boolean): ResolvedCuts {
    const demands = this.demands.operators.get(cells.node.name);
    return resolveCuts(cells, { mesh: this.mesh, demands, round: this.round, backward });
  }

  /** Only the first cause of an axis on a factor is kept: it comes before everything that followed from it. */
  private note(cells: OperatorCells, { cuts, causes }: ResolvedCuts): void {
    if (causes.size === 0) return;
    const known = madeOnce(this.factorReasons, cells.node.name, () => []);
    cuts.forEach((cut, at) => {
      const factor = cells.factors[at]?.name;
      for (const axis of cut.flatMap((item) => item.axes)) {
        const cause = causes.get(axis);
        if (factor === undefined || !cause || known.some((own) => own.axis === axis && own.factor === factor)) continue;
        known.push({ axis, factor, cause });
      }
    });
  }

  private result(): Propagation {
    const strategies = new Map<string, Strategy>();
    for (const node of this.graph.nodes) {
      const cells = this.cellsNamed(node.name);
      const demands = this.demands.operators.get(node.name);
      const options = { mesh: this.mesh, demands, round: this.round, backward: true };
      const resolved = resolveCuts(cells, options);
      const strategy = chooseStrategy(cells, resolved, options);
      this.note(cells, resolved);
      if (!strategies.has(node.group)) strategies.set(node.group, strategy);
    }
    const layouts = new Map<string, Layout>();
    for (const tensor of this.graph.tensors.keys()) {
      const own = this.cuts.of(tensor);
      layouts.set(
        tensor,
        own && own.rounds.size > 0 ? this.cuts.layout(own) : replicated(typeOf(this.graph, tensor).shape),
      );
    }
    const reasons: Reasons = { tensors: this.cuts.reasons(), operators: this.factorReasons };
    const { tensors, overruled } = this.demands;
    return { mesh: this.mesh, strategies, layouts, reasons, pinned: new Set(tensors.keys()), overruled };
  }

  private cellsNamed(node: string): OperatorCells {
    const cells = this.cells.get(node);
    if (!cells) throw new Error(`graph ${this.graph.name} has no node ${node}`);
    return cells;
  }

  private readersOf(tensor: string): readonly OperatorCells[] {
    return (this.touching.get(tensor) ?? []).filter((cells) => cells.node.inputs.includes(tensor));
  }
}

function readerCounts(graph: Graph): ReadonlyMap<string, number> {
  const counts = new Map<string, number>();
  const add = (tensor: string | null) => {
    if (tensor !== null) counts.set(tensor, (counts.get(tensor) ?? 0) + 1);
  };
  for (const node of graph.nodes) node.inputs.forEach(add);
  graph.outputs.forEach(add);
  return counts;
}

/** Factors that are the batch, or have it as their major part. */
function batchFactors(graph: Graph): (node: Node) => ReadonlySet<string> {
  const marks = followBatch(graph);
  return (node) => new Set(marks.factorMarks(node).keys());
}
