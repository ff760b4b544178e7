/**
 * @file Every strategy of an operator that the validator tries: on meshes of one and of two axes, axes of several sub-axes,
 * sizes that axes do not divide, factors seen as pieces, partial operands, and whatever may be done with what is pending.
 */
import type { FactorRule } from '../../src/ir/factor-rule.js';
import type { Operator, OperatorEntry } from '../../src/ir/operator.js';
import { mayBePadded } from '../../src/ir/padding.js';
import { axesSize, type Mesh, makeMesh, type SubAxis } from '../../src/sharding-propagation/mesh.js';
import { type FactorPieces, pieceName, refineRule } from '../../src/sharding-propagation/refine.js';
import {
  checkStrategy,
  type PendingReduction,
  pendingPartial,
  type Strategy,
} from '../../src/sharding-propagation/strategy.js';

export const MESHES: readonly Mesh[] = [
  makeMesh([['tp', 2]]),
  makeMesh([['tp', 4]]),
  makeMesh([['tp', 3]]),
  makeMesh([
    ['dp', 2],
    ['tp', 2],
  ]),
  makeMesh([
    ['dp', 2],
    ['tp', 3],
  ]),
];

type Axes = Readonly<Record<string, readonly SubAxis[]>>;

/** All strategies of an operator on a mesh that are legal and that the registry can lower. */
export function strategiesOf(entry: OperatorEntry, operator: Operator, mesh: Mesh): readonly Strategy[] {
  const rule = entry.rule(operator);
  const linear = entry.linear(operator);
  const placed = [undefined, ...piecesOf(rule)].flatMap((pieces) =>
    placements(entry, operator, rule, mesh, pieces).map((axes) => ({ axes, ...(pieces ? { pieces } : {}) })),
  );
  return placed
    .flatMap((placement): readonly Strategy[] => {
      const plain: Strategy = { ...placement, partialOperands: null, pending: { kind: 'none' } };
      const used = new Set(Object.values(placement.axes).flat());
      const idle = mesh.axes
        .flatMap(({ subAxes }) => subAxes.map(({ name }) => name))
        .filter((name) => !used.has(name));
      const partialOperandSets = linear.flatMap((_, set) =>
        idle.length > 0 ? [{ ...plain, partialOperands: { set, axes: idle.slice(0, 1) } }] : [],
      );
      return [plain, ...partialOperandSets];
    })
    .flatMap((strategy) => pendingVariants(rule, strategy))
    .filter((strategy) => checkStrategy(rule, strategy, linear, mesh) === null);
}

/** Each axis on no factor, on one, or its first sub-axis on one and the rest on another. */
function placements(
  entry: OperatorEntry,
  operator: Operator,
  whole: FactorRule,
  mesh: Mesh,
  pieces: FactorPieces | undefined,
): readonly Axes[] {
  const rule = refineRule(whole, pieces);
  const names = [...rule.factors.values()].filter((factor) => canLower(entry, factor.kind)).map(({ name }) => name);
  const onePiece =
    pieces && Object.entries(pieces).flatMap(([name, sizes]) => sizes.map((_, index) => pieceName(name, index)));
  let all: readonly Axes[] = [{}];
  for (const axis of mesh.axes) {
    const subs = axis.subAxes.map(({ name }) => name);
    const parts =
      subs.length > 1 ? names.flatMap((a) => names.map((b) => ({ [a]: subs.slice(0, 1), [b]: subs.slice(1) }))) : [];
    const ways: readonly Axes[] = [{}, ...names.map((name) => ({ [name]: subs })), ...parts];
    all = all.flatMap((axes) => ways.map((more) => join(axes, more)));
  }
  return all
    .filter((axes) =>
      Object.entries(axes).every(([name, list]) => {
        const size = rule.factors.get(name)?.size ?? 0;
        const parts = axesSize(mesh, list);
        return size % parts === 0 || (size > parts && mayBePadded(name, operator, rule, entry));
      }),
    )
    .filter((axes) => !onePiece || onePiece.some((name) => (axes[name]?.length ?? 0) > 0));
}

function canLower(entry: OperatorEntry, kind: string): boolean {
  if (kind === 'expanded') return entry.expansion !== undefined;
  if (kind === 'indexed') return entry.indexed !== undefined;
  if (kind === 'mask') return entry.indexInput !== undefined;
  return kind === 'pass' || kind === 'contracting' || kind === 'blocked';
}

/** Each factor that may be seen as pieces, as two: a fused projection. */
function piecesOf(rule: FactorRule): readonly FactorPieces[] {
  return [...rule.factors.values()].flatMap(({ name, kind, size }) =>
    (kind === 'pass' || kind === 'contracting') && size % 2 === 0 && size > 2 ? [{ [name]: [2, size / 2] }] : [],
  );
}

function join(a: Axes, b: Axes): Axes {
  const result: Record<string, readonly SubAxis[]> = { ...a };
  for (const [factor, axes] of Object.entries(b)) result[factor] = [...(result[factor] ?? []), ...axes];
  return result;
}

function pendingVariants(rule: FactorRule, strategy: Strategy): readonly Strategy[] {
  if (pendingPartial(rule, strategy).length === 0) return [strategy];
  const scattered = [...refineRule(rule, strategy.pieces).factors.keys()].map(
    (factor): PendingReduction => ({ kind: 'scatter', factor }),
  );
  return [strategy, ...[{ kind: 'all-reduce' } as const, ...scattered].map((pending) => ({ ...strategy, pending }))];
}
