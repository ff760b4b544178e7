/**
 * @file Typing rules of collectives: whether one turns a tensor of one layout into the same tensor of another. Derived from the
 * definition of each collective on shards, not from the steps of a resharding.
 *
 * A shard is a list of digits, each a run of positions along one dimension of the whole tensor, in the order of its memory; an
 * axis that shards is a digit that the rank chooses.
 *
 *     [(6:dp | 4:tp)] on dp 2, tp 2    dp → 12, tp → 2     shard: 3 × 4, 2 × 1     (size × distance)
 *
 *     all-reduce      partial(kind) over its axes              → replicated
 *     all-gather      axes that shard                          → their digits inserted into the shard
 *     reduce-scatter  partial(kind) over its axes              → digits taken out of the shard, chosen by the axes
 *     all-to-all      axes that shard                          → their digits inserted, others taken out
 *     permute         shards move to the ranks that want them; borders move by as many ranks as there are shards between
 *     reduce          partial(kind) over its axes              → held by the first rank of its axes alone
 *     broadcast       held by the first rank of its axes alone → replicated
 *
 * A tensor that only the first rank of other axes holds stays there: the others take no part.
 */
import type { Reduction } from '../ir/factor-rule.js';

/** A collective as graphs and programs write it (see `Collective` in the sharded graph for `outer` and `inner`). */
export type CollectiveForm =
  | { readonly kind: 'all-reduce'; readonly reduction: Reduction }
  | { readonly kind: 'reduce'; readonly reduction: Reduction }
  | ({ readonly kind: 'all-gather' } & CollectiveRows)
  | ({ readonly kind: 'reduce-scatter'; readonly reduction: Reduction } & CollectiveRows)
  | { readonly kind: 'all-to-all'; readonly split: CollectiveRows; readonly concat: CollectiveRows }
  | { readonly kind: 'permute'; readonly to: readonly number[] }
  | { readonly kind: 'broadcast' };

interface CollectiveRows {
  readonly outer: number;
  readonly inner: number;
}

/**
 * How the ranks hold a tensor: a layout, the axes along which they hold unrelated values, and those along which only the first
 * rank holds it.
 */
export interface RankLayout {
  readonly layout: {
    readonly dims: readonly (readonly { readonly size: number; readonly axes: readonly string[] }[])[];
    readonly partial: readonly { readonly axis: string; readonly reduction: Reduction }[];
    readonly extents?: readonly (readonly { readonly size: number; readonly valid: number }[] | null)[];
  };
  readonly varying?: readonly string[];
  readonly first?: readonly string[];
  readonly border?: Border;
}

/**
 * Rows of a sharded dimension, other ones than a rank's own: rank r of `axes` holds positions from r · block + from on, where
 * `block` is the size of a shard.
 */
export interface Border {
  readonly axes: readonly string[];
  readonly dimension: number;
  readonly block: number;
  readonly from: number;
}

/** Size of a sub-axis. */
export type AxisSize = (axis: string) => number;

/** The difference between how two tensors are held, in a sentence; null where every rank holds the same of both. */
export function rankLayoutDifference(a: RankLayout, b: RankLayout, sizeOf: AxisSize): string | null {
  const borders = [borderText(a.border), borderText(b.border)];
  if (borders[0] !== borders[1]) return borders.join(' and ');
  return differenceOf(placed(a, sizeOf), placed(b, sizeOf));
}

/**
 * Why a collective over `axes` does not turn `input` into `output`, in a sentence; null where it does. Shapes and layouts must
 * fit each other, and `axes` be axes of the mesh without repetition.
 */
export function collectiveProblem(
  collective: CollectiveForm,
  axes: readonly string[],
  input: RankLayout,
  output: RankLayout,
  sizeOf: AxisSize,
): string | null {
  if (axes.length === 0) return 'it is over no axes';
  const before = placed(input, sizeOf);
  const varying = axes.find((axis) => before.varying.has(axis));
  if (varying !== undefined && collective.kind !== 'permute')
    return `its operand varies over ${varying}: its ranks hold unrelated values, not shards of one tensor`;
  const absent = axes.find((axis) => before.first.has(axis));
  if (absent !== undefined && collective.kind !== 'broadcast')
    return `only the first rank of ${absent} has its operand`;
  const made = RULES[collective.kind](before, axes, collective as never, sizeOf);
  if (typeof made === 'string') return made;
  const after = placed(output, sizeOf);
  if (collective.kind === 'permute')
    return (
      passesOn(input.border, output.border, axes, collective.to) ?? movesTo(before, after, axes, collective.to, sizeOf)
    );
  const difference = differenceOf(made, after);
  return difference === null ? null : `the declared result differs from the computed one: ${difference}`;
}

/** `size` positions along a dimension, each `stride` from the next. */
interface StridedRun {
  readonly dimension: number;
  readonly stride: number;
  readonly size: number;
}

interface PlacedShard {
  /** The run that each sharding axis chooses. */
  readonly cuts: ReadonlyMap<string, StridedRun>;
  /** The runs that the shard consists of, in the order of its memory. */
  readonly runs: readonly StridedRun[];
  readonly partial: ReadonlyMap<string, Reduction>;
  readonly varying: ReadonlySet<string>;
  readonly first: ReadonlySet<string>;
  /** Padding, spelled out. */
  readonly padding: string;
}

function placed({ layout, varying, first }: RankLayout, sizeOf: AxisSize): PlacedShard {
  const cuts = new Map<string, StridedRun>();
  const runs: StridedRun[] = [];
  for (const [dimension, pieces] of layout.dims.entries()) {
    const digits = pieces.flatMap(({ size, axes }) => [
      ...axes.map((axis) => ({ axis, size: sizeOf(axis) })),
      { axis: null, size: axes.reduce((rest, axis) => rest / sizeOf(axis), size) },
    ]);
    let stride = digits.reduce((product, { size }) => product * size, 1);
    for (const { axis, size } of digits) {
      stride /= size;
      if (axis === null) runs.push({ dimension, stride, size });
      else cuts.set(axis, { dimension, stride, size });
    }
  }
  return {
    cuts,
    runs: joined(runs),
    partial: new Map(layout.partial.map(({ axis, reduction }) => [axis, reduction])),
    varying: new Set(varying),
    first: new Set(first),
    padding: (layout.extents ?? [])
      .map((parts) => parts?.map(({ size, valid }) => `${valid}/${size}`).join() ?? '')
      .join(';'),
  };
}

/** Runs that continue each other as one; those of one position left out. */
function joined(runs: readonly StridedRun[]): readonly StridedRun[] {
  const result: StridedRun[] = [];
  for (const run of runs) {
    const last = result.at(-1);
    if (run.size === 1) continue;
    if (last && last.dimension === run.dimension && last.stride === run.stride * run.size)
      result[result.length - 1] = { ...run, size: last.size * run.size };
    else result.push(run);
  }
  return result;
}

function differenceOf(a: PlacedShard, b: PlacedShard): string | null {
  for (const axis of new Set([...a.partial.keys(), ...b.partial.keys()])) {
    const [left, right] = [a.partial.get(axis), b.partial.get(axis)];
    if (left !== right) return `${partialText(axis, left)} and ${partialText(axis, right)}`;
  }
  for (const axis of new Set([...a.cuts.keys(), ...b.cuts.keys()])) {
    const [left, right] = [a.cuts.get(axis), b.cuts.get(axis)];
    if (runText(left) !== runText(right)) return `${cutText(axis, left)} and ${cutText(axis, right)}`;
  }
  for (const axis of new Set([...a.varying, ...b.varying]))
    if (!a.varying.has(axis) || !b.varying.has(axis)) return `one varies over ${axis}, the other does not`;
  for (const axis of new Set([...a.first, ...b.first]))
    if (!a.first.has(axis) || !b.first.has(axis))
      return `only the first rank of ${axis} holds one, and all ranks hold the other`;
  if (a.runs.map(runText).join() !== b.runs.map(runText).join()) return 'their shards hold different positions';
  return a.padding === b.padding ? null : 'they are padded differently';
}

function partialText(axis: string, reduction: Reduction | undefined): string {
  return reduction === undefined ? `not partial over ${axis}` : `partial over ${axis} (${reduction})`;
}

function cutText(axis: string, run: StridedRun | undefined): string {
  return run ? `sharded over ${axis} in dimension ${run.dimension}` : `not sharded over ${axis}`;
}

function runText(run: StridedRun | undefined): string {
  return run ? `${run.dimension}:${run.stride}:${run.size}` : '';
}

type KindRule<Kind extends CollectiveForm['kind']> = (
  input: PlacedShard,
  axes: readonly string[],
  collective: Extract<CollectiveForm, { readonly kind: Kind }>,
  sizeOf: AxisSize,
) => PlacedShard | string;

/** The result of each collective on its operand, or why there is none. */
const RULES: { readonly [Kind in CollectiveForm['kind']]: KindRule<Kind> } = {
  'all-reduce': (input, axes, { reduction }) => reduced(input, axes, reduction),
  'all-gather': (input, axes, { outer, inner }) => {
    const lifted = withoutCuts(input, axes);
    if (typeof lifted === 'string') return lifted;
    return inserted(lifted.rest, lifted.runs, outer, inner);
  },
  'reduce-scatter': (input, axes, { reduction, outer, inner }, sizeOf) => {
    const whole = reduced(input, axes, reduction);
    return typeof whole === 'string' ? whole : takenOut(whole, axes, outer, inner, sizeOf);
  },
  'all-to-all': (input, axes, { split, concat }, sizeOf) => {
    const lifted = withoutCuts(input, axes);
    if (typeof lifted === 'string') return lifted;
    const scattered = takenOut(lifted.rest, axes, split.outer, split.inner, sizeOf);
    return typeof scattered === 'string' ? scattered : inserted(scattered, lifted.runs, concat.outer, concat.inner);
  },
  permute: (input) => input,
  reduce: (input, axes, { reduction }) => {
    const whole = reduced(input, axes, reduction);
    return typeof whole === 'string' ? whole : { ...whole, first: new Set([...whole.first, ...axes]) };
  },
  broadcast: (input, axes) => {
    const held = axes.find((axis) => !input.first.has(axis));
    if (held !== undefined) return `all ranks of ${held} have its operand`;
    return { ...input, first: new Set([...input.first].filter((axis) => !axes.includes(axis))) };
  },
};

/** The operand with its partial values over `axes` combined. */
function reduced(input: PlacedShard, axes: readonly string[], reduction: Reduction): PlacedShard | string {
  const wrong = axes.find((axis) => input.partial.get(axis) !== reduction);
  if (wrong !== undefined) {
    const found = partialText(wrong, input.partial.get(wrong));
    return `its operand is ${found}, not partial over ${wrong} (${reduction})`;
  }
  return { ...input, partial: new Map([...input.partial].filter(([axis]) => !axes.includes(axis))) };
}

/** The operand without the cuts of `axes`, and the runs that these choose, in their order. */
function withoutCuts(
  input: PlacedShard,
  axes: readonly string[],
): { readonly rest: PlacedShard; readonly runs: readonly StridedRun[] } | string {
  const missing = axes.find((axis) => !input.cuts.has(axis));
  if (missing !== undefined) return `its operand is not sharded over ${missing}`;
  const cuts = new Map([...input.cuts].filter(([axis]) => !axes.includes(axis)));
  return { rest: { ...input, cuts }, runs: axes.map((axis) => input.cuts.get(axis) as StridedRun) };
}

/** Digits put into a shard that has `inner` elements behind them and `outer` before. */
function inserted(input: PlacedShard, runs: readonly StridedRun[], outer: number, inner: number): PlacedShard | string {
  const parts = parted(input.runs, [outer, inner]);
  if (!parts) return NO_ROWS;
  const [before = [], after = []] = parts;
  return { ...input, runs: joined([...before, ...runs, ...after]) };
}

/** Digits taken out of a shard between `outer` and `inner` elements, one for each of the axes, which then choose them. */
function takenOut(
  input: PlacedShard,
  axes: readonly string[],
  outer: number,
  inner: number,
  sizeOf: AxisSize,
): PlacedShard | string {
  const parts = parted(input.runs, [outer, ...axes.map(sizeOf), inner]);
  if (!parts) return NO_ROWS;
  const cuts = new Map(input.cuts);
  for (const [index, axis] of axes.entries()) {
    const [run, ...others] = parts[index + 1] ?? [];
    if (cuts.has(axis)) return `its operand is already sharded over ${axis}`;
    if (!run || others.length > 0) return NO_ROWS;
    cuts.set(axis, run);
  }
  return { ...input, cuts, runs: joined([...(parts[0] ?? []), ...(parts.at(-1) ?? [])]) };
}

const NO_ROWS = 'its rows do not fit the shard of its operand';

/** Runs in consecutive parts of so many elements; null where a part would end inside of a digit that it does not divide. */
function parted(runs: readonly StridedRun[], sizes: readonly number[]): readonly (readonly StridedRun[])[] | null {
  const rest = [...runs].reverse();
  const parts: StridedRun[][] = [];
  for (let size of sizes) {
    const part: StridedRun[] = [];
    while (size > 1) {
      const run = rest.pop();
      if (!run) return null;
      if (size % run.size === 0) {
        part.push(run);
        size /= run.size;
      } else if (run.size % size === 0) {
        const left = run.size / size;
        part.push({ ...run, stride: run.stride * left, size });
        rest.push({ ...run, size: left });
        size = 1;
      } else return null;
    }
    parts.push(part);
  }
  return rest.length === 0 ? parts : null;
}

/** Why sending borders to member `to[k]` does not give every rank those that it shall hold; null where these are none. */
function passesOn(
  before: Border | undefined,
  after: Border | undefined,
  axes: readonly string[],
  to: readonly number[],
): string | null {
  if (!before && !after) return null;
  const fits =
    before?.axes.join() === axes.join() &&
    after?.axes.join() === axes.join() &&
    before.dimension === after.dimension &&
    before.block === after.block;
  if (!before || !after || !fits) return `it brings ${borderText(before)} to ${borderText(after)}`;
  const ranks = (before.from - after.from) / before.block;
  const isMoved = to.every((member, rank) => (rank + ranks - member) % to.length === 0);
  return Number.isInteger(ranks) && isMoved
    ? null
    : `[${to.join(', ')}] does not bring ${borderText(before)} to ${borderText(after)}`;
}

/** A border as types write it. */
export function borderText(border: Border | undefined): string {
  if (!border) return 'no border';
  const { axes, dimension, block, from } = border;
  return `rows(${dimension}, ${axes.join(',')}*${block}${from < 0 ? from : `+${from}`})`;
}

/** Why sending the shard of member k to member `to[k]` does not give every rank what it shall hold. */
function movesTo(
  before: PlacedShard,
  after: PlacedShard,
  axes: readonly string[],
  to: readonly number[],
  sizeOf: AxisSize,
): string | null {
  const others = ({ cuts, ...held }: PlacedShard): PlacedShard => ({
    ...held,
    cuts: new Map([...cuts].filter(([axis]) => !axes.includes(axis))),
  });
  const difference = differenceOf(others(before), others(after));
  if (difference !== null) return `the declared result differs from the computed one: ${difference}`;
  const [held, wanted] = [positions(before, axes, sizeOf), positions(after, axes, sizeOf)];
  if (new Set(to).size !== held.length || to.some((member) => member >= held.length))
    return `[${to.join(', ')}] is not a permutation of ${held.length} ranks`;
  const wrong = held.findIndex((position, member) => position !== wanted[to[member] ?? -1]);
  return wrong < 0 ? null : `the shard of member ${wrong} is not the shard of member ${to[wrong]} in the result`;
}

/** By member of a group: where its shard begins and which summand it is, as far as the group's axes choose that. */
function positions({ cuts, partial }: PlacedShard, axes: readonly string[], sizeOf: AxisSize): readonly string[] {
  let members: readonly ReadonlyMap<string, number>[] = [new Map()];
  for (const axis of axes) {
    const run = cuts.get(axis);
    const chosen = run ? `${run.dimension}` : partial.has(axis) ? axis : null;
    const stride = run?.stride ?? 1;
    members = members.flatMap((start) =>
      Array.from({ length: sizeOf(axis) }, (_, index) =>
        chosen === null ? start : new Map(start).set(chosen, (start.get(chosen) ?? 0) + index * stride),
      ),
    );
  }
  return members.map((start) =>
    [...start]
      .filter(([, at]) => at > 0)
      .sort()
      .join(';'),
  );
}
