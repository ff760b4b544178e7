import test from 'ava';
import { Control, makeControlBuffer, Stopped } from '../../src/runtime/control.js';
import { planSlots } from '../../src/runtime/slots.js';
import { StallWatch, stallLimits } from '../../src/runtime/watch.js';
import { stageOf, tensor } from './tiny-program.js';

function begin(): { control: Control; watch: StallWatch } {
  const control = new Control(makeControlBuffer(3), 3);
  for (const rank of [0, 1, 2]) control.enter(rank, 'running');
  const watch = new StallWatch(control, 3, stallLimits(2, 0, 1), 0);
  watch.look(0);
  return { control, watch };
}

test('a rank without progress has stalled only once others have waited as long', (t) => {
  const { control, watch } = begin();
  control.enter(1, 'computing');
  t.is(watch.look(1000), null);
  t.is(watch.look(5000), null, 'all compute: a long segment');
  control.enter(0, 'waiting');
  control.enter(2, 'finished');
  t.is(watch.look(6000), null);
  t.is(watch.look(7900), null);
  t.like(watch.look(8100), { rank: 1, all: false });
});

test('outside of native calls a stall shows within about a second', (t) => {
  const { control, watch } = begin();
  control.enter(0, 'waiting');
  control.enter(2, 'waiting');
  watch.look(0);
  t.is(watch.look(700), null);
  t.like(watch.look(900), { rank: 1, all: false });
  const { running, computing } = stallLimits(30, 5e8, 4);
  t.is(computing, 30);
  t.is(running, 23.2, 'much to copy, four ranks on a core');
});

test('ranks that all wait for each other are noticed; a finished one does not count', (t) => {
  const { control, watch } = begin();
  control.enter(0, 'finished');
  control.enter(1, 'waiting');
  control.enter(2, 'waiting');
  t.is(watch.look(1000), null);
  t.like(watch.look(3100), { rank: 1, all: true });
});

test('loading has more patience', (t) => {
  const { control, watch } = begin();
  control.enter(0, 'loading');
  control.enter(1, 'waiting');
  control.enter(2, 'waiting');
  watch.look(0);
  t.is(watch.look(30_000), null);
  t.like(watch.look(61_000), { rank: 0, all: false });
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
