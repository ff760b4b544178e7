/**
 * @file An operator for propagation: its factors, and for each of its tensors the factors that make each dimension.
 * Layouts meet in the cells of this table.
 *
 *     MatMul *b m k+, *b k+ n → *b m n       b     m     k     n
 *     x  [8, 64, 32]                        dp    ·     ·
 *     w  [32, 128]                                      ·    tp
 *     y  [8, 64, 128]                       ·     ·           ·
 */
import type { FactorKind, FactorRule } from '../../ir/factor-rule.js';
import type { Graph, Node } from '../../ir/graph.js';
import type { Operator, OperatorEntry } from '../../ir/operator.js';
import { operatorOf } from '../../ir/operator-of.js';
import { operatorEntry } from '../../ir/ops/index.js';
import { mayBePadded } from '../../ir/padding.js';
import { madeOnce } from '../../ir/remembered.js';
import { borderProblem } from '../halo.js';
import { axesSize, type Mesh } from '../mesh.js';
import type { CutItem } from './cut.js';
import type { AllCuts, TensorCuts } from './tensor-cuts.js';

export interface CellFactor {
  readonly name: string;
  readonly size: number;
  readonly kind: FactorKind;
  /** Whether an axis may shard it at all: lowering has a way for its kind and operator. */
  readonly usable: boolean;
  /** Results are summed over it: no result has it. */
  readonly contracting: boolean;
}

/** A tensor's dimension as factors, by number. */
export interface CellDimension {
  readonly factors: readonly number[];
  /** Positions of each factor here: under windows, these differ from those of the factor that is sharded with it. */
  readonly sizes: readonly number[];
  readonly size: number;
}

/** One operand or result. */
export interface CellSide {
  readonly tensor: string;
  /** The cuts of the tensor so far; undefined for one that takes no part. */
  readonly cuts: TensorCuts | undefined;
  readonly kind: 'operand' | 'result';
  readonly index: number;
  readonly dims: readonly CellDimension[];
  readonly elements: number;
}

/**
 * The turns of operators. Layouts are carried through operators that leave shapes alone before others decide anything:
 * elementwise operators and views of tensors with one reader, then those with several; contractions from operands
 * to results, then back; last of all operators that make a dimension that no operand has.
 */
export const TURNS = ['single-use', 'multi-use', 'contraction', 'contraction-back', 'broadcast'] as const;

export type WalkDirection = (typeof TURNS)[number];

export interface OperatorCells {
  readonly node: Node;
  readonly operator: Operator;
  readonly entry: OperatorEntry;
  readonly rule: FactorRule;
  readonly factors: readonly CellFactor[];
  /** Operands first. */
  readonly sides: readonly CellSide[];
  readonly contracts: boolean;
  /** The turns in which it takes part. */
  readonly turns: readonly WalkDirection[];
}

/** The input of the tables. */
export interface CellsInput {
  readonly graph: Graph;
  readonly cuts: AllCuts;
  /** How many operands and graph outputs each tensor feeds. */
  readonly readers: ReadonlyMap<string, number>;
}

/** Makes the table of one operator after the other. Repeated layers have the same rules: their tables share what they can. */
export function cellsMaker({ graph, cuts, readers }: CellsInput): (node: Node) => OperatorCells {
  const known = new Map<FactorRule, Map<OperatorEntry, RuleCells>>();
  return (node) => {
    const operator = operatorOf(graph, node);
    const entry = operatorEntry(node);
    const rule = entry.rule(operator);
    const byEntry = madeOnce(known, rule, () => new Map<OperatorEntry, RuleCells>());
    const shared = madeOnce(byEntry, entry, () => ruleCells(rule, entry, operator));
    const side =
      (kind: CellSide['kind']) =>
      (tensor: string | null, index: number): readonly CellSide[] => {
        const dims = (kind === 'operand' ? shared.inputs : shared.outputs)[index];
        if (tensor === null || !dims) return [];
        const elements = dims.reduce((product, { size }) => product * size, 1);
        return [{ tensor, cuts: cuts.of(tensor), kind, index, dims, elements }];
      };
    const sides = [...node.inputs.flatMap(side('operand')), ...node.outputs.flatMap(side('result'))];
    const { factors, contracts, widens } = shared;
    const shown = node.outputs.some((output) => output !== null && (readers.get(output) ?? 0) > 1);
    const turns = widens ? WIDENS : contracts ? CONTRACTS : shown ? SHOWN : HIDDEN;
    return { node, operator, entry, rule, factors, sides, contracts, turns };
  };
}

const WIDENS: readonly WalkDirection[] = ['broadcast'];
const CONTRACTS: readonly WalkDirection[] = ['contraction', 'contraction-back'];
const SHOWN: readonly WalkDirection[] = ['multi-use'];
const HIDDEN: readonly WalkDirection[] = ['single-use'];

/** The part of the table that follows from the rule. */
interface RuleCells extends Pick<OperatorCells, 'factors' | 'contracts'> {
  readonly inputs: readonly (readonly CellDimension[] | null)[];
  readonly outputs: readonly (readonly CellDimension[] | null)[];
  /** Whether a result has a factor that no operand has. */
  readonly widens: boolean;
}

function ruleCells(rule: FactorRule, entry: OperatorEntry, operator: Operator): RuleCells {
  const numbers = new Map<string, number>();
  const factors: CellFactor[] = [];
  for (const { name, size, kind } of rule.factors.values()) {
    numbers.set(name, factors.length);
    const contracting = kind === 'contracting' || kind === 'mask';
    factors.push({ name, size, kind, usable: size > 1 && LOWERED[kind](entry), contracting });
  }
  // The factor that windows read is sharded as the factor that they make.
  for (const { name, halo } of rule.factors.values()) if (halo) numbers.set(name, numbers.get(halo.of) ?? -1);
  const dimensions = (dims: FactorRule['inputs'], types: Operator['inputs']) =>
    types.map((type, index) => {
      const own = dims[index];
      if (!type || !own) return null;
      return own.map((names, dimension): CellDimension => {
        const indices = names.map((name) => numbers.get(name) ?? -1);
        return {
          factors: indices,
          sizes: names.map((name) => rule.factors.get(name)?.size ?? 1),
          size: type.shape[dimension] ?? 1,
        };
      });
    });
  const inputs = dimensions(rule.inputs, operator.inputs);
  const outputs = dimensions(rule.outputs, operator.outputs);
  const read = new Set(inputs.flatMap((dims) => dims?.flatMap((dimension) => dimension.factors) ?? []));
  const widens = factors.some((factor, at) => factor.size > 1 && !read.has(at));
  return { factors, inputs, outputs, contracts: factors.some((factor) => factor.contracting), widens };
}

/** Whether a factor may take an item: always where it divides, where it does not if the factor may be padded. */
export function mayTake(cells: OperatorCells, factor: CellFactor, item: CutItem, mesh: Mesh): boolean {
  if (!factor.usable) return false;
  const shards = axesSize(mesh, item.axes);
  if (borderProblem(cells.rule, factor.name, shards) !== null) return false;
  if (item.size % shards === 0) return true;
  return item.size > shards && mayBePadded(factor.name, cells.operator, cells.rule, cells.entry);
}

/** Whether lowering has a way to shard a factor of a kind. */
const LOWERED: Readonly<Record<FactorKind, (entry: OperatorEntry) => boolean>> = {
  pass: () => true,
  contracting: () => true,
  blocked: () => true,
  mask: (entry) => entry.indexInput !== undefined,
  expanded: (entry) => entry.expansion !== undefined,
  indexed: (entry) => entry.indexed !== undefined,
  whole: () => false,
  halo: () => false,
};
