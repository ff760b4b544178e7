/**
 * @file Whether pins on one operator are compatible. Each states something about the rule's factors, however it is written:
 *
 *     factors {n: tp}             n is sharded over tp (and so into 4)
 *     split [[4, 1], [1, 2]]      for b m k+, k+ n: m is split into 4, k into 1, n into 2
 *     layout {out: ["[-, tp]"]}   n is sharded over tp
 *
 * Two pins must state the same about one factor. Contradictions that show only along a chain of operators are found by
 * propagation.
 */
import type { DimensionFactors, FactorRule } from '../../ir/factor-rule.js';
import { type Digit, digitsOf } from '../digits.js';
import { layoutText } from '../layout-text.js';
import { axesSize, deviceCount, type Mesh, type SubAxis } from '../mesh.js';
import { type LayoutDemand, meets, type OperatorPin } from '../pin.js';

/** The demands of pins on an operator, without their sources. */
export type PinDemands = Pick<OperatorPin, 'axes' | 'pieces' | 'eitherPiece' | 'without' | 'operands' | 'results'>;

/** The words by which a sentence tells the two sides of a contradiction apart. */
export type SideWords = readonly [first: string, second: string];

/** Why two pins of one operator contradict each other, as a sentence's end; null where they do not, directly. */
export function contradiction(
  first: PinDemands,
  second: PinDemands,
  rule: FactorRule,
  mesh: Mesh,
  apart: SideWords = ['by the first', 'by the second'],
): string | null {
  return (
    sides(first.operands, second.operands, 'operand', mesh, apart) ??
    sides(first.results, second.results, 'result', mesh, apart) ??
    factorClash(first, second, rule, mesh, apart) ??
    forbidden(first, second) ??
    forbidden(second, first)
  );
}

/** Why one pin alone cannot hold: its notations cut the operator into more parts than there are devices. */
export function tooManyParts(asked: PinDemands, rule: FactorRule, mesh: Mesh): string | null {
  const counts = new Map<string, number>();
  for (const { factor, count } of factorClaims(asked, rule, mesh))
    if (!rule.factors.get(factor)?.streams) counts.set(factor, count);
  const parts = [...counts.values()].reduce((product, count) => product * count, 1);
  const devices = deviceCount(mesh);
  if (parts <= devices) return null;
  const written = [...counts].filter(([, count]) => count > 1).map(([factor, count]) => `${factor} into ${count}`);
  return `it cuts ${written.join(' and ')}, ${parts} parts in all, more than the ${devices} devices`;
}

/** Whether two demands on one tensor can both be met. */
export function demandsAgree(first: LayoutDemand, second: LayoutDemand, mesh: Mesh): boolean {
  if (second.kind === 'layout') return meets(first, second.layout, mesh);
  if (first.kind === 'layout') return meets(second, first.layout, mesh);
  return first.counts.join() === second.counts.join();
}

/** A demand as it was written: `[dp, -]`, `(4, 1)`. */
export function demandText(demand: LayoutDemand, mesh: Mesh): string {
  if (demand.written) return demandText(demand.written, mesh);
  return demand.kind === 'layout' ? layoutText(demand.layout, mesh) : `(${demand.counts.join(', ')})`;
}

type DemandedLayouts = OperatorPin['operands'];

function sides(
  first: DemandedLayouts,
  second: DemandedLayouts,
  word: string,
  mesh: Mesh,
  [here, there]: SideWords,
): string | null {
  for (const [index, one] of (first ?? []).entries()) {
    const other = second?.[index];
    if (one && other && !demandsAgree(one, other, mesh))
      return `${word} ${index} is ${demandText(one, mesh)} ${here} and ${demandText(other, mesh)} ${there}`;
  }
  return null;
}

/** A pin's statement about a factor: into how many parts it is split, and over which axes where these are stated. */
interface Claim {
  readonly factor: string;
  readonly count: number;
  readonly axes: readonly SubAxis[] | null;
}

function factorClash(
  first: PinDemands,
  second: PinDemands,
  rule: FactorRule,
  mesh: Mesh,
  [here, there]: SideWords,
): string | null {
  const [ones, others] = [factorClaims(first, rule, mesh), factorClaims(second, rule, mesh)];
  const written = ({ count, axes }: Claim) =>
    axes === null ? `cut into ${count}` : `on ${axes.join(', ') || 'no axis'}`;
  for (const one of ones) {
    for (const other of others) {
      if (one.factor === other.factor) {
        const differ = one.axes && other.axes ? one.axes.join() !== other.axes.join() : one.count !== other.count;
        if (differ) return `factor ${one.factor} is ${written(one)} ${here} and ${written(other)} ${there}`;
      } else if (!streamed(one, rule) && !streamed(other, rule)) {
        const shared = one.axes?.find((axis) => other.axes?.includes(axis));
        if (shared !== undefined) return `${shared} shards factor ${one.factor} ${here} and ${other.factor} ${there}`;
      }
    }
  }
  return null;
}

function streamed({ factor }: Claim, rule: FactorRule): boolean {
  return rule.factors.get(factor)?.streams === true;
}

function forbidden(first: PinDemands, second: PinDemands): string | null {
  const used = Object.entries(second.axes ?? {});
  for (const axis of first.without ?? []) {
    const [factor] = used.find(([, axes]) => axes.includes(axis)) ?? [];
    if (factor !== undefined) return `one excludes ${axis} from the operator, the other puts it on factor ${factor}`;
  }
  return null;
}

/**
 * The statements of a pin about factors. Results count where nothing is summed over: else a scatter may add axes to them that the
 * factor itself does not have.
 */
function factorClaims(asked: PinDemands, rule: FactorRule, mesh: Mesh): readonly Claim[] {
  const pieced = new Set(Object.keys(asked.pieces ?? {}));
  const direct = Object.entries(asked.axes ?? {}).flatMap(([factor, axes]): readonly Claim[] =>
    rule.factors.has(factor) ? [{ factor, count: axesSize(mesh, axes), axes }] : [],
  );
  const inPieces = [...pieced].map((factor): Claim => {
    const axes = Object.entries(asked.axes ?? {}).filter(([name]) => name.startsWith(`${factor}.`));
    return {
      factor,
      count: axesSize(
        mesh,
        axes.flatMap(([, list]) => list),
      ),
      axes: null,
    };
  });
  const summed = [...rule.factors.values()].some(({ kind }) => kind === 'contracting' || kind === 'mask');
  const tensors = [
    ...(asked.operands ?? []).map((demand, index) => ({ demand, dims: rule.inputs[index] })),
    ...(summed ? [] : (asked.results ?? []).map((demand, index) => ({ demand, dims: rule.outputs[index] }))),
  ];
  const loose = new Set(asked.eitherPiece ?? []);
  const claims = [
    ...direct,
    ...inPieces,
    ...tensors
      .flatMap(({ demand, dims }) =>
        demand && dims ? dims.flatMap((names, axis) => dimensionClaims(names, axis, demand, rule, mesh)) : [],
      )
      // A rank has all chunks of a streamed factor in a tensor that has the factor beside it, as a ring's mask.
      .filter((claim) => claim.count > 1 || !streamed(claim, rule)),
  ];
  return claims.map((claim) => (loose.has(claim.factor) ? { ...claim, axes: null } : claim));
}

function dimensionClaims(
  names: DimensionFactors,
  axis: number,
  demand: LayoutDemand,
  rule: FactorRule,
  mesh: Mesh,
): readonly Claim[] {
  const [only] = names;
  if (demand.kind === 'split') {
    const count = demand.counts[axis] ?? 1;
    if (count === 1) return names.map((factor) => ({ factor, count, axes: null }));
    return only !== undefined && names.length === 1 ? [{ factor: only, count, axes: null }] : [];
  }
  const sizes = names.map((name) => rule.factors.get(name)?.size ?? 1);
  const cut = digitsByFactor(digitsOf(demand.layout.dims[axis] ?? [], mesh), sizes);
  return names.flatMap((factor, position): readonly Claim[] => {
    const digits = cut[position];
    if (!digits) return [];
    const axes = digits.flatMap((digit) => digit.axis ?? []);
    const leading = digits.findIndex((digit) => digit.axis === null);
    const plain = leading < 0 || digits.slice(leading).every((digit) => digit.axis === null);
    return [{ factor, count: axesSize(mesh, axes), axes: plain ? axes : null }];
  });
}

/** A dimension's digits distributed over its factors, major to minor; null from where a digit belongs to two of them. */
function digitsByFactor(digits: readonly Digit[], sizes: readonly number[]): readonly (readonly Digit[] | null)[] {
  const queue = [...digits];
  let broken = false;
  return sizes.map((size) => {
    const own: Digit[] = [];
    for (let rest = size; rest > 1 && !broken; ) {
      const digit = queue.shift();
      if (digit && rest % digit.size === 0) {
        own.push(digit);
        rest /= digit.size;
      } else if (digit?.axis === null && digit.size % rest === 0) {
        own.push({ axis: null, size: rest });
        queue.unshift({ axis: null, size: digit.size / rest });
        rest = 1;
      } else broken = true;
    }
    return broken ? null : own;
  });
}
