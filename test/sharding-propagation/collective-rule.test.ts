/**
 * @file Typing rules of collectives against a simulation: every collective between every two layouts of a small tensor is
 * accepted exactly where moving the elements from rank to rank, one by one, gives each rank what the result's layout says.
 */
import test from 'ava';
import {
  type CollectiveForm,
  collectiveProblem,
  type RankLayout,
  rankLayoutDifference,
} from '../../src/sharding-propagation/collective-rule.js';

const SHAPE = [4, 2];
const SIZES: Readonly<Record<string, number>> = { x: 2, y: 2 };
const sizeOf = (axis: string) => SIZES[axis] ?? 1;
/** x is the major axis of the ranks. */
const RANKS = [0, 1, 2, 3];
const coordinate = (rank: number, axis: string) => (axis === 'x' ? rank >> 1 : rank & 1);

type Layout = RankLayout['layout'];
type Pieces = Layout['dims'][number];

/** All ways to shard a dimension over axes of size 2, in their order; every piece is sharded over at most one. */
function cutsOf(size: number, axes: readonly string[]): readonly Pieces[] {
  if (axes.length === 0) return [[{ size, axes: [] }]];
  const result: Pieces[] = [];
  for (const axis of axes) {
    const rest = axes.filter((other) => other !== axis);
    for (let before = 1; before * 2 <= size; before *= 2) {
      const head: Pieces = before > 1 ? [{ size: before, axes: [] }] : [];
      for (const tail of cutsOf(size / before / 2, rest)) result.push([...head, { size: 2, axes: [axis] }, ...tail]);
    }
  }
  return result;
}

/** All layouts: each axis shards a dimension, is partial, or replicates. */
function layouts(): readonly Layout[] {
  const result: Layout[] = [];
  const roles = ['none', 'sum', 'max', 0, 1] as const;
  for (const x of roles)
    for (const y of roles) {
      const of = (role: (typeof roles)[number]) => [...(x === role ? ['x'] : []), ...(y === role ? ['y'] : [])];
      const partial = (['sum', 'max'] as const).flatMap((reduction) =>
        of(reduction).map((axis) => ({ axis, reduction })),
      );
      for (const rows of cutsOf(SHAPE[0] ?? 1, of(0)))
        for (const columns of cutsOf(SHAPE[1] ?? 1, of(1))) result.push({ dims: [rows, columns], partial });
    }
  return result;
}

/** One element of a shard: its place in the whole tensor, and on each partial axis which summand it is. */
interface Element {
  readonly at: number;
  readonly parts: Readonly<Record<string, string>>;
}

const text = (element: Element) => `${element.at} ${JSON.stringify(Object.entries(element.parts).sort())}`;

/** The elements of a rank's shard in the order of its memory. */
function shardOf({ dims, partial }: Layout, rank: number): readonly Element[] {
  let positions = [0];
  for (const [dimension, pieces] of dims.entries()) {
    let along = [0];
    for (const { size, axes } of pieces) {
      const [axis] = axes;
      const digits = axis === undefined ? Array.from({ length: size }, (_, digit) => digit) : [coordinate(rank, axis)];
      along = along.flatMap((position) => digits.map((digit) => position * size + digit));
    }
    positions = positions.flatMap((position) => along.map((index) => position * (SHAPE[dimension] ?? 1) + index));
  }
  const parts = Object.fromEntries(
    partial.map(({ axis, reduction }) => [axis, `${reduction}${coordinate(rank, axis)}`]),
  );
  return positions.map((at) => ({ at, parts }));
}

type AllShards = readonly (readonly Element[])[];

/** The shards of all ranks after a collective; null where it has no meaning. */
function simulate(collective: CollectiveForm, axes: readonly string[], shards: AllShards): AllShards | null {
  const members = (rank: number) => {
    const group = RANKS.filter((other) =>
      ['x', 'y'].every((axis) => axes.includes(axis) || coordinate(other, axis) === coordinate(rank, axis)),
    );
    const index = (other: number) => axes.reduce((sum, axis) => sum * sizeOf(axis) + coordinate(other, axis), 0);
    return group.sort((a, b) => index(a) - index(b));
  };
  const results = RANKS.map((rank) => {
    const group = members(rank);
    const own = group.indexOf(rank);
    const given = group.map((member) => shards[member] ?? []);
    const mine = given[own] ?? [];
    if (collective.kind === 'all-reduce') return reduced(given, axes, collective.reduction);
    if (collective.kind === 'all-gather') return joined(given, collective);
    if (collective.kind === 'reduce-scatter') {
      const whole = reduced(given, axes, collective.reduction);
      return whole && slice(whole, collective, own, group.length);
    }
    if (collective.kind === 'permute') return given[collective.to.indexOf(own)] ?? null;
    if (collective.kind === 'broadcast' || collective.kind === 'reduce') return null;
    const slices = given.map((shard) => slice(shard, collective.split, own, group.length));
    return mine.length > 0 && slices.every((part) => part !== null)
      ? joined(slices as AllShards, collective.concat)
      : null;
  });
  return results.every((shard) => shard !== null) ? (results as AllShards) : null;
}

function reduced(given: AllShards, axes: readonly string[], reduction: string): readonly Element[] | null {
  const [first = []] = given;
  const result = first.map((element, position): Element | null => {
    const others = given.map((shard) => shard[position]);
    const rest = Object.fromEntries(Object.entries(element.parts).filter(([axis]) => !axes.includes(axis)));
    const summands = new Set(others.map((other) => axes.map((axis) => other?.parts[axis] ?? 'none').join()));
    const isWhole =
      summands.size === given.length &&
      [...summands].every((one) => one.split(',').every((part) => part.startsWith(reduction)));
    return others.every((other) => other?.at === element.at) && isWhole ? { at: element.at, parts: rest } : null;
  });
  return result.every((element) => element !== null) ? (result as Element[]) : null;
}

/** Shards of [outer, inner] as [outer, n, inner]. */
function joined(
  shards: AllShards,
  { outer, inner }: { readonly outer: number; readonly inner: number },
): readonly Element[] | null {
  if (shards.some((shard) => shard.length !== outer * inner)) return null;
  return Array.from({ length: outer }, (_, row) =>
    shards.flatMap((shard) => shard.slice(row * inner, (row + 1) * inner)),
  ).flat();
}

/** Slice k of a shard of [outer, n, inner]. */
function slice(
  shard: readonly Element[],
  { outer, inner }: { readonly outer: number; readonly inner: number },
  own: number,
  count: number,
): readonly Element[] | null {
  if (shard.length !== outer * inner * count) return null;
  return Array.from({ length: outer }, (_, row) =>
    shard.slice((row * count + own) * inner, (row * count + own + 1) * inner),
  ).flat();
}

function rowsOf(elements: number): readonly { readonly outer: number; readonly inner: number }[] {
  return [1, 2, 4, 8].filter((outer) => elements % outer === 0).map((outer) => ({ outer, inner: elements / outer }));
}

/** Every collective over a group on a shard of so many elements. */
function collectives(elements: number, count: number): readonly CollectiveForm[] {
  const parts = rowsOf(elements / count).filter(({ inner }) => Number.isInteger(inner) && inner > 0);
  const orders =
    count === 2
      ? [
          [0, 1],
          [1, 0],
        ]
      : [
          [0, 1, 2, 3],
          [0, 2, 1, 3],
          [1, 0, 3, 2],
          [1, 2, 3, 0],
          [3, 2, 1, 0],
        ];
  return [
    { kind: 'all-reduce', reduction: 'sum' },
    { kind: 'all-reduce', reduction: 'max' },
    ...rowsOf(elements).map((rows) => ({ kind: 'all-gather', ...rows }) as const),
    ...parts.flatMap((rows) =>
      (['sum', 'max'] as const).map((reduction) => ({ kind: 'reduce-scatter', reduction, ...rows }) as const),
    ),
    ...parts.flatMap((split) => parts.map((concat) => ({ kind: 'all-to-all', split, concat }) as const)),
    ...orders.map((to) => ({ kind: 'permute', to }) as const),
  ];
}

test('a collective is accepted exactly where it gives every rank what the layout of its result says', (t) => {
  const all = layouts();
  const expected = new Map(
    all.map((layout) => [layout, RANKS.map((rank) => shardOf(layout, rank).map(text).join()).join('\n')]),
  );
  const counts = new Map<string, number>();
  const wrong: string[] = [];
  for (const input of all) {
    const shards = RANKS.map((rank) => shardOf(input, rank));
    for (const axes of [['x'], ['y'], ['x', 'y'], ['y', 'x']])
      for (const collective of collectives(shards[0]?.length ?? 0, axes.length * 2)) {
        const made = simulate(collective, axes, shards);
        const key = made?.map((shard) => shard.map(text).join()).join('\n');
        for (const output of all) {
          const accepted = collectiveProblem(collective, axes, { layout: input }, { layout: output }, sizeOf) === null;
          if (accepted) counts.set(collective.kind, (counts.get(collective.kind) ?? 0) + 1);
          if (accepted !== (key === expected.get(output)))
            wrong.push(`${JSON.stringify({ collective, axes, input, output })} ${accepted ? 'accepted' : 'refused'}`);
        }
      }
  }
  t.deepEqual(wrong.slice(0, 5), []);
  t.is(counts.size, 5);
  t.log([...counts].map(([kind, count]) => `${kind} ${count}`).join(', '));
});

test('two layouts are held alike exactly where all ranks hold the same elements', (t) => {
  const all = layouts();
  const shards = all.map((layout) => RANKS.map((rank) => shardOf(layout, rank).map(text).join()).join('\n'));
  for (const [index, one] of all.entries())
    for (const [place, other] of all.entries())
      t.is(rankLayoutDifference({ layout: one }, { layout: other }, sizeOf) === null, shards[index] === shards[place]);
});

const whole: RankLayout = { layout: { dims: [[{ size: 4, axes: [] }]], partial: [] } };

test('a reduce takes partial sums to the first rank alone, and a broadcast takes them back to all', (t) => {
  const [reduce, broadcast] = [{ kind: 'reduce', reduction: 'sum' } as const, { kind: 'broadcast' } as const];
  const of = (axes: readonly string[]) => axes.map((axis) => ({ axis, reduction: 'sum' as const }));
  const held = (partial: readonly string[], first: readonly string[]): RankLayout => ({
    layout: { ...whole.layout, partial: of(partial) },
    first,
  });
  const sets: readonly (readonly string[])[] = [[], ['x'], ['y'], ['x', 'y']];
  const types = sets.flatMap((partial) =>
    sets.filter((first) => !first.some((axis) => partial.includes(axis))).map((first) => ({ partial, first })),
  );
  const without = (all: readonly string[], axes: readonly string[]) => all.filter((axis) => !axes.includes(axis));
  const same = (a: readonly string[], b: readonly string[]) => [...a].sort().join() === [...b].sort().join();
  for (const axes of sets.slice(1))
    for (const from of types)
      for (const to of types) {
        const isReduced =
          axes.every((axis) => from.partial.includes(axis)) &&
          same(to.partial, without(from.partial, axes)) &&
          same(to.first, [...from.first, ...axes]);
        const isSpread =
          axes.every((axis) => from.first.includes(axis)) &&
          same(to.partial, from.partial) &&
          same(to.first, without(from.first, axes));
        const problem = (collective: CollectiveForm) =>
          collectiveProblem(collective, axes, held(from.partial, from.first), held(to.partial, to.first), sizeOf);
        t.is(problem(reduce) === null, isReduced, JSON.stringify([axes, from, to]));
        t.is(problem(broadcast) === null, isSpread, JSON.stringify([axes, from, to]));
        if (from.first.some((axis) => axes.includes(axis)))
          t.regex(
            problem({ kind: 'all-reduce', reduction: 'sum' }) ?? '',
            /only the first rank of \w+ has its operand/,
          );
      }
});

test('values that vary between ranks are moved, and nothing else', (t) => {
  const varying = { ...whole, varying: ['x'] };
  t.is(collectiveProblem({ kind: 'permute', to: [1, 0] }, ['x'], varying, varying, sizeOf), null);
  t.regex(collectiveProblem({ kind: 'broadcast' }, ['x'], varying, whole, sizeOf) ?? '', /varies over x/);
  t.regex(
    collectiveProblem({ kind: 'all-gather', outer: 1, inner: 4 }, ['x'], varying, whole, sizeOf) ?? '',
    /varies over x/,
  );
});

test('problems name the axis and the kind', (t) => {
  const partial: RankLayout = { layout: { ...whole.layout, partial: [{ axis: 'x', reduction: 'sum' }] } };
  const reduce = (reduction: 'sum' | 'max', axes: readonly string[], from: RankLayout) =>
    collectiveProblem({ kind: 'all-reduce', reduction }, axes, from, whole, sizeOf) ?? '';
  t.regex(reduce('sum', [], partial), /over no axes/);
  t.regex(reduce('sum', ['y'], partial), /not partial over y/);
  t.regex(reduce('max', ['x'], partial), /is partial over x \(sum\), not partial over x \(max\)/);
  t.regex(reduce('sum', ['x'], whole), /is not partial over x/);
});
