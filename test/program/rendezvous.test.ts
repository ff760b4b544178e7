/**
 * @file Lists of transfers without any buffer: those cut from one linear order finish; a swapped pair does not, and is named.
 */
import test from 'ava';
import fc from 'fast-check';
import { endlessWait, type TransferEnd } from '../../src/program/rendezvous.js';
import { draws } from '../selection.js';

interface Event {
  readonly from: number;
  readonly to: number;
}

const STAGES = 4;

const events = fc.array(
  fc.record({ from: fc.nat(STAGES - 1), to: fc.nat(STAGES - 1) }).filter(({ from, to }) => from !== to),
  { minLength: 1, maxLength: 40 },
);

/** Each stage's part of a linear order of transfers, which are named by their place in it. */
function listsOf(order: readonly (Event & { readonly name: number })[]): readonly (readonly TransferEnd[])[] {
  return Array.from({ length: STAGES }, (_, stage) =>
    order.flatMap(({ from, to, name }): readonly TransferEnd[] => {
      const common = { tensor: `t${name}`, microBatch: null, at: 'phase forward, instruction 0' };
      if (from === stage) return [{ kind: 'send', peer: to, ...common }];
      return to === stage ? [{ kind: 'recv', peer: from, ...common }] : [];
    }),
  );
}

test('stages that run their parts of one linear order finish without a buffer', (t) => {
  fc.assert(
    fc.property(events, (order) => endlessWait(listsOf(order.map((event, name) => ({ ...event, name })))) === null),
    { numRuns: draws(300) },
  );
  t.pass();
});

test('any order that stages can finish in is one linear order: a search over all that may happen next agrees', (t) => {
  let waits = 0;
  fc.assert(
    fc.property(events, fc.infiniteStream(fc.nat()), (order, choices) => {
      const shuffled = listsOf(order.slice(0, 6).map((event, name) => ({ ...event, name }))).map((list) => {
        const left = [...list];
        return list.map(() => left.splice((choices.next().value ?? 0) % left.length, 1)[0] as TransferEnd);
      });
      const ends = canFinish(shuffled);
      if (!ends) waits++;
      return (endlessWait(shuffled) === null) === ends;
    }),
    { numRuns: draws(300) },
  );
  t.true(waits > 0);
});

/** By trying every pair of stages that can meet. */
function canFinish(lists: readonly (readonly TransferEnd[])[]): boolean {
  if (lists.every((list) => list.length === 0)) return true;
  return lists.some((list, stage) => {
    const [own] = list;
    const [other] = own ? (lists[own.peer] ?? []) : [];
    if (own?.kind !== 'send' || other?.kind !== 'recv' || other.peer !== stage || other.tensor !== own.tensor)
      return false;
    return canFinish(lists.map((rest, index) => (index === stage || index === own.peer ? rest.slice(1) : rest)));
  });
}

test('a cycle is named, and a stage that has ended', (t) => {
  const forward = {
    kind: 'send',
    peer: 1,
    tensor: 'h',
    microBatch: 1,
    at: 'phase send forward to 1, instruction 0',
  } as const;
  const back = {
    kind: 'send',
    peer: 0,
    tensor: 'g',
    microBatch: 0,
    at: 'phase send backward to 0, instruction 0',
  } as const;
  const swapped = [
    [forward, { ...back, kind: 'recv', peer: 1 }],
    [back, { ...forward, kind: 'recv', peer: 0 }],
  ] as const;
  t.is(
    endlessWait(swapped),
    'stages wait for one another: ' +
      'stage 0 to send h of micro-batch 1 to stage 1 (phase send forward to 1, instruction 0), ' +
      'stage 1 to send g of micro-batch 0 to stage 0 (phase send backward to 0, instruction 0)',
  );
  t.is(
    endlessWait([[{ ...forward, microBatch: null }], []]),
    'stages wait for one another: ' +
      'stage 0 to send h to stage 1 (phase send forward to 1, instruction 0), which has ended',
  );
});
