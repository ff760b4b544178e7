import test from 'ava';
import fc from 'fast-check';
import { type AxisRun, axisRun, runAfter, runBefore } from '../../../src/ir/fused-regions/axes.js';
import { elementCount, type Node } from '../../../src/ir/graph.js';

function view(op: string, attributes: Node['attributes'] = {}): Node {
  return {
    name: op,
    op,
    domain: '',
    attributes,
    inputs: ['a'],
    outputs: ['b'],
    module: [],
    layer: null,
    forward: null,
    phase: 'forward',
    group: op,
    body: null,
  };
}

const reshape = view('Reshape');

test('a dimension is followed through merging and splitting of others', (t) => {
  t.deepEqual(runBefore(reshape, axisRun(2), [8, 5, 7], [2, 4, 5, 7]), axisRun(3));
  t.deepEqual(runAfter(reshape, axisRun(1), [3, 6, 6], [3, 2, 3, 6]), { start: 1, end: 3 });
  t.deepEqual(runBefore(view('Unsqueeze'), axisRun(3), [2, 1, 5, 7], [2, 5, 7]), axisRun(2));
});

test('a dimension that is merged with another is lost', (t) => {
  t.is(runBefore(reshape, axisRun(2), [2, 5, 4, 8], [2, 5, 32]), null);
  t.is(runAfter(reshape, axisRun(0), [2, 6], [3, 4]), null);
  t.is(runBefore(reshape, axisRun(1), [0, 3], [3, 0]), null);
});

test('a dimension of one is found beside the same neighbours', (t) => {
  t.deepEqual(runBefore(reshape, axisRun(2), [2, 4, 1, 7], [8, 1, 7]), axisRun(1));
  t.is(runBefore(reshape, axisRun(1), [8, 1, 7], [8, 7]), null);
});

test('a Transpose may take a split dimension apart', (t) => {
  const turn = view('Transpose', { perm: [0, 2, 1] });
  t.deepEqual(runBefore(turn, axisRun(1), [2, 7, 5], [2, 5, 7]), axisRun(2));
  t.deepEqual(runAfter(turn, { start: 0, end: 2 }, [2, 3, 5], [2, 5, 3]), null);
});

test('a run that is found counts the same elements', (t) => {
  const sizes = fc.array(fc.integer({ min: 1, max: 4 }), { minLength: 2, maxLength: 5 });
  fc.assert(
    fc.property(sizes, fc.nat(), fc.nat(), (shape, first, cut) => {
      const axis = first % shape.length;
      const place = cut % (shape.length - 1);
      // Two neighbours merged, and the other way round.
      const merged = [
        ...shape.slice(0, place),
        (shape[place] ?? 1) * (shape[place + 1] ?? 1),
        ...shape.slice(place + 2),
      ];
      const run = runAfter(reshape, axisRun(axis), shape, merged);
      if (!run) return axis === place || axis === place + 1 || shape[axis] === 1;
      const back = runBefore(reshape, run, merged, shape);
      return same(shape, axisRun(axis), merged, run) && back !== null && same(merged, run, shape, back);
    }),
  );
  t.pass();
});

/** Whether every element has the same place along both runs. */
function same(from: readonly number[], run: AxisRun, to: readonly number[], other: AxisRun): boolean {
  const along = (shape: readonly number[], { start, end }: AxisRun, flat: number): number =>
    Math.floor(flat / elementCount(shape.slice(end))) % elementCount(shape.slice(start, end));
  return Array.from({ length: elementCount(from) }, (_, flat) => flat).every(
    (flat) => along(from, run, flat) === along(to, other, flat),
  );
}
