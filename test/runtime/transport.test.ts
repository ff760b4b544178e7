import { Worker } from 'node:worker_threads';
import test from 'ava';
import { BFLOAT16, FLOAT16 } from '../../src/ir/half.js';
import type { ProgramCollective } from '../../src/program/program.js';
import { asBytes, typedView } from '../../src/program/typed.js';
import { byteLength, type DType } from '../../src/program/values.js';
import { makeControlBuffer } from '../../src/runtime/control.js';
import { makeRegions } from '../../src/runtime/shared-memory.js';
import { bytesSent, type CollectiveCall } from '../../src/runtime/transport.js';
import { EVERYTHING } from '../selection.js';
import type { TransportJob } from './transport-worker.js';

const DTYPES: readonly DType[] = [
  'float32',
  'float64',
  'float16',
  'bfloat16',
  'int8',
  'uint8',
  'int16',
  'uint16',
  'int32',
  'uint32',
  'int64',
  'uint64',
  'bool',
];
const REDUCTIONS = ['sum', 'max', 'min'] as const;

/** A collective of the whole group: every member's values, and the values that each should get. */
interface Case {
  readonly dtype: DType;
  readonly collective: ProgramCollective;
  readonly given: readonly (readonly number[])[];
  readonly expected: readonly (readonly number[])[];
}

for (const ranks of EVERYTHING ? [2, 3, 4] : [3]) {
  test(`every collective for every dtype over ${ranks} ranks`, async (t) => {
    const random = generator(ranks);
    const cases = DTYPES.flatMap((dtype) => casesOf(dtype, ranks, random));
    const results = await communicate(ranks, cases);
    for (const [index, { dtype, collective, expected }] of cases.entries()) {
      for (let rank = 0; rank < ranks; rank++) {
        const name = `${collective.kind} of ${dtype} at rank ${rank}`;
        t.deepEqual(toNumbers(dtype, results[rank]?.[index] as Uint8Array), expected[rank] as number[], name);
      }
    }
  });

  test(`a large all-reduce gives all ${ranks} ranks the same bits`, async (t) => {
    const random = generator(ranks + 10);
    const length = 40_001;
    const given = Array.from({ length: ranks }, () => Array.from({ length }, () => Math.fround(random() - 0.5)));
    const expected = given[0]?.map((_, at) =>
      given.reduce((sum, values) => Math.fround(sum + (values[at] as number)), 0),
    );
    const collective = { kind: 'all-reduce', reduction: 'sum' } as const;
    const cases = Array.from({ length: 3 }, () => ({ dtype: 'float32' as const, collective, given, expected: [] }));
    for (const result of await communicate(ranks, cases)) {
      for (const bytes of result) t.deepEqual(toNumbers('float32', bytes), expected as number[]);
    }
  });
}

test('NaN in one input is NaN in the result', async (t) => {
  for (const reduction of REDUCTIONS) {
    const given = [
      [Number.NaN, 1, 2],
      [3, Number.NaN, 4],
    ];
    const cases = [
      { dtype: 'float32' as const, collective: { kind: 'all-reduce', reduction } as const, given, expected: [] },
    ];
    const [first] = await communicate(2, cases);
    const [left, middle, right] = toNumbers('float32', first?.[0] as Uint8Array);
    t.deepEqual([left, middle], [Number.NaN, Number.NaN]);
    t.is(right, reduction === 'sum' ? 6 : reduction === 'max' ? 4 : 2);
  }
});

test('bytes sent follow the usual formulas', (t) => {
  const call = (collective: ProgramCollective, inputBytes: number, outputBytes: number): CollectiveCall => ({
    collective,
    dtype: 'float32',
    members: [0, 1, 2, 3],
    member: 1,
    inputBytes,
    outputBytes,
    slot: 0,
  });
  t.is(bytesSent(call({ kind: 'all-reduce', reduction: 'sum' }, 100, 100)), 150);
  t.is(bytesSent(call({ kind: 'all-gather', outer: 1, inner: 25 }, 100, 400)), 300);
  t.is(bytesSent(call({ kind: 'reduce-scatter', reduction: 'sum', outer: 1, inner: 25 }, 400, 100)), 300);
  t.is(bytesSent(call({ kind: 'permute', to: [0, 2, 1, 3] }, 100, 100)), 100);
  t.is(bytesSent(call({ kind: 'permute', to: [2, 1, 0, 3] }, 100, 100)), 0);
  for (const collective of [{ kind: 'reduce', reduction: 'sum' }, { kind: 'broadcast' }] as const) {
    t.is(bytesSent(call(collective, 100, 100)), 100);
    t.is(bytesSent({ ...call(collective, 100, 100), member: 0 }), 300);
  }
});

function casesOf(dtype: DType, ranks: number, random: () => number): Case[] {
  const size = () => 1 + Math.floor(random() * 5);
  const inputs = (length: number) =>
    Array.from({ length: ranks }, () =>
      Array.from({ length }, () => Math.floor(random() * (dtype === 'bool' ? 2 : 12))),
    );
  const each = <T>(make: (rank: number) => T) => Array.from({ length: ranks }, (_, rank) => make(rank));
  const cases: Case[] = [];
  for (const reduction of REDUCTIONS) {
    const combine = (values: readonly number[]) =>
      reduction === 'max'
        ? Math.max(...values)
        : reduction === 'min'
          ? Math.min(...values)
          : dtype === 'bool'
            ? Math.max(...values)
            : values.reduce((sum, value) => sum + value, 0);
    const whole = inputs(size() * size());
    const reduced = (whole[0] as number[]).map((_, at) => combine(whole.map((input) => input[at] as number)));
    cases.push({ dtype, collective: { kind: 'all-reduce', reduction }, given: whole, expected: each(() => reduced) });
    // The first rank alone gets it.
    const served = each((rank) => (rank === 0 ? reduced : []));
    cases.push({ dtype, collective: { kind: 'reduce', reduction }, given: whole, expected: served });
    const [outer, inner] = [size(), size()];
    const given = inputs(outer * ranks * inner);
    const expected = each((rank) =>
      grid(outer, inner, (row, at) =>
        combine(given.map((input) => input[(row * ranks + rank) * inner + at] as number)),
      ),
    );
    cases.push({ dtype, collective: { kind: 'reduce-scatter', reduction, outer, inner }, given, expected });
  }
  for (const inner of [1, size(), 40]) {
    const outer = size();
    const given = inputs(outer * inner);
    const gathered = Array.from({ length: outer }, (_, row) =>
      given.flatMap((input) => input.slice(row * inner, (row + 1) * inner)),
    ).flat();
    cases.push({ dtype, collective: { kind: 'all-gather', outer, inner }, given, expected: each(() => gathered) });
  }
  for (const [so, si, co, ci] of [
    [2, 6, 3, 4],
    [1, 12, 4, 3],
    [6, 2, 1, 12],
    [3, 20, 3, 20],
    [4, 1, 2, 2],
  ] as const) {
    const given = inputs(so * ranks * si);
    const slice = (from: number, to: number) =>
      grid(so, si, (row, at) => given[from]?.[(row * ranks + to) * si + at] as number);
    const expected = each((rank) => {
      const slices = each((from) => slice(from, rank));
      return Array.from({ length: co }, (_, row) =>
        slices.flatMap((part) => part.slice(row * ci, (row + 1) * ci)),
      ).flat();
    });
    const collective = {
      kind: 'all-to-all',
      split: { outer: so, inner: si },
      concat: { outer: co, inner: ci },
    } as const;
    cases.push({ dtype, collective, given, expected });
    // Rows of all elements of a slice, and of one: some are zero, all or none.
    for (const filled of [1, si])
      for (const isKept of [() => true, () => false, (value: number) => value % 2 === 0] as const) {
        const sparse = (all: readonly (readonly number[])[]) =>
          all.map((values) => values.map((value) => (isKept(value) ? value : 0)));
        cases.push({ dtype, collective: { ...collective, filled }, given: sparse(given), expected: sparse(expected) });
      }
  }
  const moved = inputs(size());
  const to = each((rank) => (rank + 1) % ranks);
  cases.push({
    dtype,
    collective: { kind: 'permute', to },
    given: moved,
    expected: each((rank) => moved[(rank + ranks - 1) % ranks] as number[]),
  });
  const spread = inputs(size());
  cases.push({ dtype, collective: { kind: 'broadcast' }, given: spread, expected: each(() => spread[0] as number[]) });
  const empty = each(() => []);
  cases.push({ dtype, collective: { kind: 'all-gather', outer: 0, inner: 3 }, given: empty, expected: empty });
  return cases;
}

/** Two collectives are in flight at a time. Results by rank, then by case. */
async function communicate(ranks: number, cases: readonly Case[]): Promise<Uint8Array[][]> {
  const bytes = (dtype: DType, values: readonly number[]) => byteLength(dtype, values.length);
  const largest = Math.max(...cases.map(({ dtype, given }) => bytes(dtype, given[0] as number[])));
  // Reduces have slots of their own, with all inputs at the first rank.
  const ofReduces = (rank: number) => (rank === 0 ? ranks * Math.ceil(largest / 8) * 8 : 0);
  const sizes = Array.from({ length: ranks }, (_, rank) => [largest, largest, ofReduces(rank), ofReduces(rank)]);
  const regions = makeRegions(0, sizes);
  const control = makeControlBuffer(ranks);
  const members = Array.from({ length: ranks }, (_, rank) => rank);
  const jobs = members.map((rank): TransportJob => {
    const calls = cases.map(({ dtype, collective, given }, index) => {
      const input = toBytes(dtype, given[rank] as number[]);
      const call: CollectiveCall = {
        collective,
        dtype,
        members,
        member: rank,
        inputBytes: input.byteLength,
        outputBytes: outputBytes(collective, input.byteLength, ranks, rank),
        slot: (index % 2) + (collective.kind === 'reduce' ? 2 : 0),
      };
      return { call, input };
    });
    const rounds = Array.from({ length: Math.ceil(calls.length / 2) }, (_, index) =>
      calls.slice(index * 2, index * 2 + 2),
    );
    return { rank, ranks, control, regions, rounds };
  });
  return Promise.all(
    jobs.map(async (workerData) => {
      const worker = new Worker(new URL('./transport-worker.js', import.meta.url), { workerData, execArgv: [] });
      const rounds = await new Promise<Uint8Array[][]>((resolve, reject) => {
        worker.once('message', resolve);
        worker.once('error', reject);
      });
      return rounds.flat();
    }),
  );
}

function outputBytes(collective: ProgramCollective, given: number, ranks: number, rank: number): number {
  if (collective.kind === 'reduce' && rank > 0) return 0;
  if (collective.kind === 'all-gather') return given * ranks;
  return collective.kind === 'reduce-scatter' ? given / ranks : given;
}

function grid(rows: number, columns: number, value: (row: number, column: number) => number): number[] {
  return Array.from({ length: rows }, (_, row) =>
    Array.from({ length: columns }, (__, column) => value(row, column)),
  ).flat();
}

function toBytes(dtype: DType, values: readonly number[]): Uint8Array {
  const bytes = new Uint8Array(byteLength(dtype, values.length));
  const view = typedView(dtype, bytes);
  for (const [index, value] of values.entries()) {
    if (view instanceof BigInt64Array || view instanceof BigUint64Array) view[index] = BigInt(value);
    else
      view[index] = dtype === 'float16' ? FLOAT16.encode(value) : dtype === 'bfloat16' ? BFLOAT16.encode(value) : value;
  }
  return asBytes(view);
}

function toNumbers(dtype: DType, bytes: Uint8Array): number[] {
  const numbers = Array.from(typedView(dtype, bytes), Number);
  if (dtype === 'float16') return numbers.map((bits) => FLOAT16.decode(bits));
  return dtype === 'bfloat16' ? numbers.map((bits) => BFLOAT16.decode(bits)) : numbers;
}

/** A small deterministic generator of numbers in [0, 1). */
function generator(seed: number): () => number {
  let state = seed * 2654435761;
  return () => {
    state = (Math.imul(state ^ (state >>> 15), 0x2c1b3c6d) + 0x9e3779b9) >>> 0;
    return ((state ^ (state >>> 13)) >>> 0) / 2 ** 32;
  };
}
