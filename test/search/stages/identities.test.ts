/**
 * @file What stage cuts must be where the answer is known without a search.
 */
import test from 'ava';
import fc from 'fast-check';
import { bestCut, evenCut } from '../../../src/search/stages/best-cut.js';
import { cutStages, type FoundCut, type StageAnswer } from '../../../src/search/stages/cut-stages.js';
import type { LayerPoint, StageProblem } from '../../../src/search/stages/problem.js';
import { draws } from '../../selection.js';

function point(forward: number, backward: number, held: Partial<LayerPoint> = {}): LayerPoint {
  return {
    forwardSeconds: forward,
    backwardSeconds: backward,
    residentBytes: 1,
    savedBytes: 1,
    transientBytes: 0,
    ...held,
  };
}

/** Layers of the given classes on stages of one device each, without transfers or a memory that binds. */
function chain(
  layers: readonly number[],
  points: readonly LayerPoint[],
  devices: number,
  microBatches = 8,
): StageProblem {
  return {
    layers,
    tables: points.map((each) => [[each]]),
    subMeshes: [{ name: 'one', devices: 1, group: 0, memoryBytes: 1e9 }],
    groups: [{ name: 'all', devices }],
    tensors: [],
    links: [() => 0],
    schedule: { kind: '1f1b', microBatches },
  };
}

const found = (answer: StageAnswer): FoundCut => {
  if (answer.kind !== 'cut') throw new Error(JSON.stringify(answer));
  return answer;
};
const lengths = ({ best }: FoundCut) =>
  best.stages.map(({ chunks: [chunk] }) => (chunk?.end ?? 0) - (chunk?.first ?? 0));
const alike = (count: number) => Array.from({ length: count }, () => 0);

test('one stage takes the sum of its layers, for each micro-batch', (t) => {
  const answer = found(cutStages(chain([0, 1, 0], [point(1, 2), point(3, 5)], 1)));
  t.is(answer.closedFormSeconds, 8 * (3 + 8 + 3));
  t.is(answer.best.simulatedSeconds, 8 * (3 + 8 + 3));
});

test('equal layers are cut evenly, and simulation agrees with the closed form to the last digit', (t) => {
  for (const kind of ['naive', 'f-then-b', '1f1b', 'zero-bubble'] as const) {
    const problem = chain(alike(12), [point(1, 2, { weightGradientSeconds: 1 })], 4);
    const answer = found(cutStages({ ...problem, schedule: { kind, microBatches: 8 } }));
    // Naive: one stage works at a time, however layers are cut.
    if (kind !== 'naive') t.deepEqual(lengths(answer), [3, 3, 3, 3], kind);
    t.is(answer.best.simulatedSeconds, answer.closedFormSeconds, kind);
    t.is(answer.gap, 0, kind);
  }
});

test('interleaved 1F1B cuts equal layers into equal chunks, and simulation agrees with its closed form', (t) => {
  const problem = chain(alike(16), [point(1, 2)], 4);
  const answer = found(
    cutStages({ ...problem, schedule: { kind: 'interleaved-1f1b', microBatches: 8, virtualStages: 2 } }),
  );
  t.deepEqual(
    answer.best.stages.map(({ chunks }) => chunks.map(({ first, end }) => [first, end])),
    [0, 2, 4, 6].map((first) => [
      [first, first + 2],
      [first + 8, first + 10],
    ]),
  );
  // m (F + B) + (p − 1)(F + B) / v, with four layers a stage.
  t.is(answer.closedFormSeconds, 8 * 12 + (3 * 12) / 2);
  t.is(answer.best.simulatedSeconds, answer.closedFormSeconds);
  t.is(answer.gap, 0);
});

test('chunks of interleaved 1F1B share a memory: what binds makes them recompute, and the gap is said', (t) => {
  const slow = { ...point(1, 3), savedBytes: 0 };
  const problem: StageProblem = {
    ...chain(alike(16), [], 4),
    tables: [[[point(1, 2), slow]]],
    schedule: { kind: 'interleaved-1f1b', microBatches: 8, virtualStages: 2 },
  };
  const limited = (memoryBytes: number) =>
    found(cutStages({ ...problem, subMeshes: [{ name: 'one', devices: 1, group: 0, memoryBytes }] }));
  // The first stage holds 4 layers and 11 pairs of chunk and micro-batch of 2 layers.
  t.deepEqual([limited(26).closedFormSeconds, limited(26).gap], [114, 0]);
  const tight = limited(20);
  t.true(tight.closedFormSeconds > 114);
  t.true(tight.boundSeconds >= 114 && tight.boundSeconds <= tight.closedFormSeconds);
  t.true(tight.best.stages.every(({ peakBytes }) => peakBytes <= 20));
});

test('a heavier head leaves fewer layers beside it', (t) => {
  const layers = [...alike(12), 1];
  t.deepEqual(lengths(found(cutStages(chain(layers, [point(1, 2), point(2, 4)], 2)))), [7, 6]);
  t.deepEqual(lengths(found(cutStages(chain(layers, [point(1, 2), point(4, 8)], 2)))), [8, 5]);
});

test('a node of half the speed gets fewer layers, and none of its own is idle', (t) => {
  const problem = chain(alike(12), [], 2);
  const both = (slowdown: number): StageProblem => ({
    ...problem,
    tables: [[[point(1, 2)], [point(slowdown, 2 * slowdown)]]],
    subMeshes: [0, 1].map((group) => ({ name: `group ${group}`, devices: 1, group, memoryBytes: 1e9 })),
    groups: [
      { name: 'fast', devices: 1 },
      { name: 'other', devices: 1 },
    ],
  });
  t.deepEqual(lengths(found(cutStages(both(1)))), [6, 6]);
  t.deepEqual(lengths(found(cutStages(both(2)))), [8, 4]);
});

test('1F1B: the first stage, which holds most, takes fewer layers or recomputes; the last does not', (t) => {
  const points = [point(1, 2, { savedBytes: 10 }), point(1, 3, { savedBytes: 1 })];
  const problem: StageProblem = {
    ...chain(alike(8), [], 4),
    tables: [[points]],
    subMeshes: [{ name: 'one', devices: 1, group: 0, memoryBytes: 50 }],
  };
  const answer = found(cutStages({ ...problem, pins: { ends: [2, 4, 6, 8] } }));
  // In flight 4, 3, 2, 1: two layers resident, and 4 · (10 + 1) or 3 · (10 + 1) beside them.
  t.deepEqual(
    answer.best.stages.map(({ chunks }) => chunks[0]?.points),
    [
      [0, 1],
      [0, 1],
      [0, 0],
      [0, 0],
    ],
  );
  t.deepEqual(
    answer.best.stages.map(({ peakBytes }) => peakBytes),
    [46, 35, 42, 22],
  );
});

test('a skip connection is paid at every cut that it crosses', (t) => {
  const problem: StageProblem = {
    ...chain(alike(3), [point(1, 2)], 3, 1),
    tensors: [
      { producer: 0, lastReader: 2, bytes: 5 },
      { producer: 1, lastReader: 2, bytes: 7 },
    ],
    links: [(bytes) => bytes],
  };
  // Cuts: 5 there and back; 5 + 7 there and back.
  t.is(found(cutStages(problem)).closedFormSeconds, 9 + 10 + 24);
});

test('a tied embedding is held once by one stage, and copied by another', (t) => {
  const problem: StageProblem = {
    ...chain(alike(4), [point(1, 2)], 2),
    shared: [
      {
        name: 'embedding',
        users: [0, 3],
        home: 0,
        copy: [{ residentBytes: 100, stepSeconds: 5 }],
        exchange: [{ stepSeconds: 5 }],
      },
    ],
  };
  const two = found(cutStages(problem));
  t.deepEqual(
    two.best.stages.map(({ chunks }) => [chunks[0]?.residentBytes, chunks[0]?.stepSeconds]),
    [
      [2, 5],
      [102, 5],
    ],
  );
  t.is(two.closedFormSeconds, 2 * 6 + 7 * 6 + 5);
  const one = found(cutStages({ ...problem, pins: { stages: 1 }, groups: [{ name: 'all', devices: 1 }] }));
  t.is(one.best.stages[0]?.chunks[0]?.stepSeconds, 0);
});

test('stages, ends and sub-meshes are kept where they are pinned', (t) => {
  const problem = chain(alike(8), [point(1, 2)], 4);
  t.deepEqual(lengths(found(cutStages({ ...problem, pins: { ends: [1, 2, 3, 8] } }))), [1, 1, 1, 5]);
  t.is(found(cutStages({ ...problem, idleDevices: true, pins: { stages: 3 } })).best.stages.length, 3);
  t.deepEqual(lengths(found(cutStages({ ...problem, idleDevices: true, pins: { subMeshes: [0, 0] } }))), [4, 4]);
});

test('the fast way gives the cut of the search over devices; an even cut is no better', (t) => {
  fc.assert(
    fc.property(
      fc.array(fc.integer({ min: 0, max: 2 }), { minLength: 4, maxLength: 12 }),
      fc.integer({ min: 1, max: 4 }),
      fc.integer({ min: 1, max: 9 }),
      fc.integer({ min: 6, max: 60 }),
      (layers, stages, microBatches, memoryBytes) => {
        const problem: StageProblem = {
          ...chain(layers, [], stages, microBatches),
          tables: [1, 2, 5].map((seconds) => [
            [point(seconds, 2 * seconds, { savedBytes: 4 }), point(seconds, 3 * seconds, { savedBytes: 1 })],
          ]),
          subMeshes: [{ name: 'one', devices: 1, group: 0, memoryBytes }],
        };
        const fast = bestCut(problem, 0, stages);
        const whole = cutStages(problem, { simulate: 0 });
        const even = cutStages({ ...problem, pins: { ends: evenCut(layers.length, stages) } }, { simulate: 0 });
        if (whole.kind !== 'cut') return fast.kind === whole.kind && even.kind !== 'cut';
        if (fast.kind !== 'cut' || fast.closedFormSeconds !== whole.closedFormSeconds) return false;
        return even.kind !== 'cut' || even.closedFormSeconds >= whole.closedFormSeconds;
      },
    ),
    { numRuns: draws(300), seed: 3 },
  );
  t.pass();
});

test('even cuts', (t) => {
  t.deepEqual(evenCut(8, 4), [2, 4, 6, 8]);
  t.deepEqual(evenCut(9, 4), [3, 5, 7, 9]);
});

test('where nothing fits: the stage that lacks most in the cut that lacks least, and how much', (t) => {
  const problem = { ...chain(alike(8), [], 2), tables: [[[point(1, 2, { residentBytes: 10, savedBytes: 5 })]]] };
  const subMeshes = [{ name: 'one', devices: 1, group: 0, memoryBytes: 60 }];
  // The first stage holds two micro-batches, 20 bytes a layer; the second one, 15 a layer: 3 and 5 layers.
  t.deepEqual(cutStages({ ...problem, subMeshes }), {
    kind: 'too-large',
    stage: 1,
    stages: 2,
    first: 3,
    end: 8,
    subMesh: 0,
    inFlight: 1,
    needBytes: 75,
    limitBytes: 60,
  });
  for (const kind of ['zero-bubble', 'interleaved-1f1b'] as const) {
    const schedule = { kind, microBatches: 8, virtualStages: kind === 'zero-bubble' ? 1 : 2 };
    t.is(cutStages({ ...problem, subMeshes, schedule }).kind, 'too-large', kind);
  }
});

test('where there is no cut at all it is said why', (t) => {
  const problem = chain(alike(4), [point(1, 2)], 4);
  const interleaved = { kind: 'interleaved-1f1b', microBatches: 8, virtualStages: 2 } as const;
  const reasons: readonly (readonly [Partial<StageProblem>, RegExp])[] = [
    [{ layers: [] }, /no layers/],
    [{ pins: { stages: 5 } }, /4 layers do not fill 5 stages/],
    [{ pins: { stages: 0 } }, /0 is no number of stages/],
    [{ pins: { ends: [2, 1, 4] } }, /2, 1, 4 do not rise to 4/],
    [{ pins: { ends: [2, 4], stages: 3 } }, /2 ends are pinned, and 3 stages/],
    [{ pins: { subMeshes: [0, 3] } }, /no sub-mesh 3/],
    [{ pins: { subMeshes: [0, 0], ends: [4] } }, /2 sub-meshes are pinned, and 1 ends/],
    [{ pins: { subMeshes: [0, 0] } }, /leave devices of group all idle/],
    [{ pins: { subMeshes: [0, 0, 0, 0, 0] } }, /stage 4 \(one\) does not follow/],
    [{ schedule: { kind: '1f1b', microBatches: 0 } }, /0 is no number of micro-batches/],
    [{ schedule: { kind: '1f1b', microBatches: 1, virtualStages: 2 } }, /one chunk per stage, not 2/],
    [{ schedule: { ...interleaved, virtualStages: 1 } }, /2 virtual stages or more/],
    [{ schedule: { ...interleaved, microBatches: 6 }, pins: { stages: 4 } }, /6 is no multiple of 4/],
    [{ tables: [[[]]] }, /layer 0 runs on none/],
    [{ groups: [{ name: 'all', devices: 5 }] }, /no sub-meshes \(one\) cover 5 devices with 4 layers/],
  ];
  for (const [change, words] of reasons) {
    const answer = cutStages({ ...problem, ...change });
    t.regex(answer.kind === 'no-cut' ? answer.reason : answer.kind, words);
  }
});

test('a search that is ended early says so, or gives its best with what is proven', (t) => {
  const problem = chain([...alike(12), 1, 2], [point(1, 2), point(3, 5), point(2, 9)], 4);
  const signal = AbortSignal.abort();
  const none = cutStages(problem, { signal });
  t.regex(none.kind === 'no-cut' ? none.reason : none.kind, /ended before any cut/);
  const exact = found(cutStages(problem, { simulate: 0 }));
  for (let work = 1; work < exact.work; work += 3) {
    const answer = cutStages(problem, { work, simulate: 0 });
    if (answer.kind !== 'cut') continue;
    t.true(answer.boundSeconds <= exact.closedFormSeconds && exact.closedFormSeconds <= answer.closedFormSeconds);
  }
  t.deepEqual(cutStages(problem), cutStages(problem));
});
