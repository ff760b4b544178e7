import test from 'ava';
import { Control, makeControlBuffer, Stopped } from '../../src/runtime/control.js';
import { planSlots } from '../../src/runtime/slots.js';
import { LOOK_MILLISECONDS, type Stall, StallWatch, stallLimits } from '../../src/runtime/watch.js';
import { stageOf, tensor } from './tiny-program.js';

/** A watch that looks as often as it does in a run. */
interface Watched {
  readonly control: Control;
  /** Ranks that get no processor time. */
  readonly starved: Set<number>;
  /** Threads that share a core. */
  readonly crowd: (perCore: number) => void;
  /** Looks until then; the last look's result. */
  readonly until: (milliseconds: number) => Stall | null;
  /** Gets no processor time until then, and looks. */
  readonly stoppedUntil: (milliseconds: number) => Stall | null;
}

function begin(): Watched {
  const control = new Control(makeControlBuffer(3), 3);
  for (const rank of [0, 1, 2]) control.enter(rank, 'running');
  let crowd = 1;
  const watch = new StallWatch(control, 3, () => stallLimits(2, 0, crowd), 0);
  const starved = new Set<number>();
  let now = 0;
  const until = (milliseconds: number) => {
    let stall = watch.look(now);
    while (now < milliseconds) {
      now += LOOK_MILLISECONDS;
      for (const rank of [0, 1, 2]) if (!starved.has(rank)) control.lookedInVain(rank);
      stall = watch.look(now);
    }
    return stall;
  };
  const stoppedUntil = (milliseconds: number) => {
    now = milliseconds;
    return watch.look(now);
  };
  until(0);
  return {
    control,
    starved,
    crowd: (perCore) => {
      crowd = perCore;
    },
    until,
    stoppedUntil,
  };
}

test('a rank without progress has stalled only once others have waited as long', (t) => {
  const { control, until } = begin();
  control.enter(1, 'computing');
  t.is(until(1000), null);
  t.is(until(5000), null, 'all compute: a long segment');
  control.enter(0, 'waiting');
  control.enter(2, 'finished');
  t.is(until(6900), null);
  t.like(until(7100), { rank: 1, all: false });
});

test('outside of native calls a stall shows within about a second', (t) => {
  const { control, until } = begin();
  control.enter(0, 'waiting');
  control.enter(2, 'waiting');
  until(0);
  t.is(until(700), null);
  t.like(until(900), { rank: 1, all: false });
  const { running, computing } = stallLimits(30, 5e8, 4);
  t.is(computing, 30);
  t.is(running, 23.2, 'much to copy, four ranks on a core');
});

test('a rank gets as much more time as the machine has become crowded', (t) => {
  const { control, crowd, until } = begin();
  control.enter(0, 'waiting');
  control.enter(2, 'waiting');
  until(0);
  crowd(2);
  t.is(until(1500), null);
  t.like(until(1700), { rank: 1, all: false });
});

test('ranks that all wait for each other are noticed; a finished one does not count', (t) => {
  const { control, until } = begin();
  control.enter(0, 'finished');
  control.enter(1, 'waiting');
  control.enter(2, 'waiting');
  t.is(until(700), null);
  t.like(until(900), { rank: 1, all: true });
});

test('a waiting rank that gets no turn on a crowded machine may have what it waits for: no deadlock', (t) => {
  const { control, starved, until } = begin();
  control.enter(0, 'finished');
  control.enter(1, 'waiting');
  control.enter(2, 'waiting');
  starved.add(2);
  t.is(until(60_000), null);
  starved.delete(2);
  t.is(until(60_100), null, 'a look that may have begun before');
  t.like(until(60_200), { rank: 1, all: true });
});

test('time in which the process was stopped is no stall', (t) => {
  for (const other of ['waiting', 'running'] as const) {
    const { control, until, stoppedUntil } = begin();
    control.enter(0, other);
    control.enter(1, 'waiting');
    control.enter(2, 'waiting');
    t.is(until(500), null);
    t.is(stoppedUntil(60_000), null);
    t.is(until(60_100), null);
    t.like(until(60_500), { rank: 0 });
  }
});

test('loading has more patience', (t) => {
  const { control, until } = begin();
  control.enter(0, 'loading');
  control.enter(1, 'waiting');
  control.enter(2, 'waiting');
  until(0);
  t.is(until(30_000), null);
  t.like(until(61_000), { rank: 0, all: false });
});

test('a rank that was told to stop begins nothing more', (t) => {
  const { control } = begin();
  control.stop();
  t.throws(() => control.begin(0, 0, 0), { instanceOf: Stopped });
  t.throws(() => control.enterNative(0, 'computing'), { instanceOf: Stopped });
  t.is(control.position(0).state, 'running');
  t.throws(() => control.blockUntil(0, new Int32Array(new SharedArrayBuffer(4)), 0, 1), { instanceOf: Stopped });
});

test('collectives share a buffer unless they are in flight together', (t) => {
  const start = (id: number, input: string) =>
    ({
      kind: 'start',
      id,
      collective: { kind: 'all-reduce', reduction: 'sum' },
      axes: [],
      input,
      output: input,
      label: '',
    }) as const;
  const stage = stageOf({
    tensors: { small: tensor([2], [2], [[]]), large: tensor([8], [8], [[]]) },
    phases: {
      forward: [
        start(0, 'small'),
        { kind: 'wait', id: 0 },
        start(1, 'large'),
        start(2, 'small'),
        { kind: 'wait', id: 1 },
        start(1, 'large'),
        { kind: 'wait', id: 2 },
        { kind: 'wait', id: 1 },
      ],
    },
  });
  t.deepEqual(planSlots(stage, []), {
    capacities: [[32, 8]],
    places: ['device', 'device'],
    slotAt: { forward: [0, -1, 0, 1, -1, 0, -1, -1] },
  });
});
