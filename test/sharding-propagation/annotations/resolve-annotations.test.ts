import test from 'ava';
import fc from 'fast-check';
import type { ErrorCode } from '../../../src/ir/error-codes.js';
import type { Graph } from '../../../src/ir/graph.js';
import type { PinRecord } from '../../../src/sharding-propagation/annotations/annotation.js';
import { annotationsIn, annotationsOf } from '../../../src/sharding-propagation/annotations/read-annotations.js';
import { resolveAnnotations } from '../../../src/sharding-propagation/annotations/resolve-annotations.js';
import { parseYaml } from '../../../src/sharding-propagation/annotations/yaml-source.js';
import { layoutText } from '../../../src/sharding-propagation/layout-text.js';
import { deviceCount, indexOn, type Mesh, makeMesh } from '../../../src/sharding-propagation/mesh.js';
import type { OperatorPin, Pin, TensorPin } from '../../../src/sharding-propagation/pin.js';
import { GraphBuilder, mlpGraph } from '../../search/small-graphs.js';
import { refused } from './file.js';

const MESH = makeMesh([
  ['dp', 2],
  ['tp', 4],
]);

/** x [64, 32] · w [32, 8], then + bias [8]. */
function productGraph(): Graph {
  const builder = new GraphBuilder();
  const product = builder.add('fc', 'MatMul', [builder.input('x', [64, 32]), builder.weight('w', [32, 8])]);
  return builder.build([builder.add('sum', 'Add', [product, builder.weight('bias', [8])])]);
}

function pinsOf(pins: readonly PinRecord[], graph: Graph = productGraph(), mesh: Mesh = MESH): readonly Pin[] {
  return resolveAnnotations(annotationsOf({ version: 1, pins }), graph, mesh);
}

function operatorPin(record: Omit<PinRecord, 'match'>, node = 'fc'): OperatorPin {
  const [pin] = pinsOf([{ match: { node }, ...record }]);
  if (pin?.kind !== 'operator') throw new Error('no pin of an operator');
  return pin;
}

function demandsOf(record: Omit<PinRecord, 'match'>, node = 'fc'): { readonly in: unknown; readonly out: unknown } {
  const pin = operatorPin(record, node);
  const written = (demands: OperatorPin['operands']) =>
    (demands ?? []).map((demand) => {
      if (demand === null) return null;
      return demand.kind === 'split' ? demand.counts : layoutText(demand.layout, MESH);
    });
  return { in: written(pin.operands), out: written(pin.results) };
}

test('layouts of an operator: results, or operands and results, some free', (t) => {
  t.deepEqual(demandsOf({ layout: '[dp, tp]' }), { in: [], out: ['[dp, tp]'] });
  t.deepEqual(demandsOf({ layout: { in: ['[dp, -]', '_'], out: [null] } }), { in: ['[dp, -]', null], out: [null] });
});

test('split counts as lists and as Python text', (t) => {
  const expected = {
    in: [
      [4, 1],
      [1, 2],
    ],
    out: [],
  };
  t.deepEqual(
    demandsOf({
      split: [
        [4, 1],
        [1, 2],
      ],
    }),
    expected,
  );
  t.deepEqual(demandsOf({ split: '((4,1),(1,2))' }), expected);
  t.deepEqual(demandsOf({ split: ['(4, 1)', '(1, 2)'] }), expected);
  t.deepEqual(demandsOf({ split: '((4, 1), _)' }), { in: [[4, 1], null], out: [] });
  t.deepEqual(demandsOf({ split: { in: '((4,1),)', out: [[4, 2]] } }), { in: [[4, 1]], out: [[4, 2]] });
});

test('device matrices with tensor maps, by number, by alias, as text', (t) => {
  const onDp = { device_matrix: [2, 4], tensor_map: [1, 0] };
  t.deepEqual(demandsOf({ map: onDp }), { in: [], out: ['[dp, tp]'] });
  const aliases = {
    device_matrix: [2, 4],
    alias_name: ['a', 'b'],
    in: [
      ['a', 'None'],
      ['None', ['b']],
    ],
  };
  t.deepEqual(demandsOf({ map: aliases }), { in: ['[dp, -]', '[-, tp]'], out: [] });
  t.deepEqual(demandsOf({ map: 'Layout((2, 4), ("a", "b"))("a", "b")' }), { in: [], out: ['[dp, tp]'] });
  t.deepEqual(demandsOf({ map: { in: ['Layout((8,), ("a",))("a", "None")', null] } }), {
    in: ['[(dp,tp), -]', null],
    out: [],
  });
  t.deepEqual(demandsOf({ map: { in: [{ device_matrix: [4, 2], tensor_map: [[0, 1], -1] }] } }), {
    in: ['[(tp.1,dp,tp.0), -]'],
    out: [],
  });
});

test('a device matrix gives each rank the shard that MindSpore gives it', (t) => {
  const cases = fc
    .tuple(fc.constantFrom([2, 4], [4, 2], [8], [2, 2, 2], [1, 8], [2, 1, 4]), fc.constantFrom([2, 4], [8, 1], [4, 2]))
    .chain(([matrix, [dp, tp]]) => {
      const axes = matrix.map((_, index) => index);
      return fc.tuple(
        fc.constant(matrix),
        fc.constant([dp ?? 1, tp ?? 1] as const),
        fc.shuffledSubarray(axes),
        fc.array(fc.integer({ min: 0, max: 2 }), { minLength: axes.length, maxLength: axes.length }),
      );
    });
  fc.assert(
    fc.property(cases, ([matrix, [dp, tp], used, places]) => {
      const mesh = makeMesh([
        ['dp', dp],
        ['tp', tp],
      ]);
      const map: number[][] = [[], [], []];
      for (const [position, axis] of used.entries()) map[places[position] ?? 0]?.push(axis);
      const tensor_map = map.map((axes) => (axes.length === 0 ? -1 : axes.map((axis) => matrix.length - 1 - axis)));
      const builder = new GraphBuilder();
      const graph = builder.build([builder.add('y', 'Relu', [builder.input('x', [64, 64, 64])])]);
      const [pin] = pinsOf([{ match: { tensor: 'y' }, map: { device_matrix: matrix, tensor_map } }], graph, mesh);
      const { demand } = pin as TensorPin;
      if (demand.kind !== 'layout') throw new Error('a map is a layout');
      for (let rank = 0; rank < deviceCount(mesh); rank++) {
        const coordinates = coordinatesIn(matrix, rank);
        map.forEach((axes, dimension) => {
          const wanted = axes.reduce((index, axis) => index * (matrix[axis] ?? 1) + (coordinates[axis] ?? 0), 0);
          const pieces = demand.layout.dims[dimension] ?? [];
          t.is(
            indexOn(
              mesh,
              pieces.flatMap((piece) => piece.axes),
              rank,
            ),
            wanted,
          );
        });
      }
    }),
    { numRuns: 300 },
  );
});

/** A rank's place in a device matrix that ranks fill row by row. */
function coordinatesIn(matrix: readonly number[], rank: number): readonly number[] {
  let rest = rank;
  return [...matrix]
    .reverse()
    .map((size) => {
      const own = rest % size;
      rest = Math.floor(rest / size);
      return own;
    })
    .reverse();
}

test('factors by the names of the rule, with pieces', (t) => {
  t.deepEqual(operatorPin({ factors: { n: 'tp', m: ['dp'], k: [] } }).axes, {
    n: ['tp.0', 'tp.1'],
    m: ['dp'],
    k: [],
  });
  const { axes, pieces } = operatorPin({ factors: { n: '(2 | 4:tp)' } });
  t.deepEqual([axes, pieces], [{ 'n.0': [], 'n.1': ['tp.0', 'tp.1'] }, { n: [2, 4] }]);
});

test('globs over operator types, and factors where the rule has them', (t) => {
  const pins = pinsOf([{ match: { op: '*' }, factors: { n: 'tp' } }]);
  t.deepEqual(
    pins.map((pin) => pin.kind === 'operator' && pin.node),
    ['fc'],
  );
});

test('stage, recompute and place are kept beside each other', (t) => {
  const pins = pinsOf([{ match: { node: '*' }, stage: 1, recompute: true, place: 'host', why: 'room' }]);
  t.deepEqual(
    pins.map((pin) => pin.kind),
    ['stage', 'recompute', 'place', 'stage', 'recompute', 'place'],
  );
  t.is(pins[0]?.source.text, 'pins[0]: stage 1 on *');
  t.is(pins[0]?.source.why, 'room');
});

test('notations of one pin that agree are one pin, the layout kept', (t) => {
  t.deepEqual(
    demandsOf({
      layout: { in: ['[dp, -]'] },
      split: [
        [2, 1],
        [1, 4],
      ],
      factors: { m: 'dp', n: 'tp' },
    }),
    { in: ['[dp, -]', [1, 4]], out: [] },
  );
});

test('a higher priority overrules, and only where both speak', (t) => {
  const pins = pinsOf(
    [
      { match: { op: 'MatMul' }, factors: { n: 'tp' } },
      { match: { node: 'layers.0.down' }, factors: { k: 'tp' }, priority: 1 },
      { match: { node: '**' }, stage: 0 },
      { match: { node: 'layers.0.act' }, stage: 1, priority: 2 },
    ],
    mlpGraph(8, 16, 32),
  );
  t.deepEqual(
    pins.flatMap((pin) => (pin.kind === 'operator' ? [[pin.node, Object.keys(pin.axes ?? {}).join()]] : [])),
    [
      ['layers.0.up', 'n'],
      ['layers.0.down', 'k'],
    ],
  );
  t.deepEqual(
    pins.flatMap((pin) => (pin.kind === 'stage' ? [[pin.node, pin.stage]] : [])),
    [
      ['layers.0.up', 0],
      ['layers.0.down', 0],
      ['layers.0.act', 1],
    ],
  );
});

/** Pins, code and what the message and its hint say. */
const BAD: readonly (readonly [title: string, pins: readonly PinRecord[], code: ErrorCode, says: RegExp])[] = [
  [
    'a node that is not there',
    [{ match: { node: 'fcc' }, stage: 0 }],
    'pin-matches-nothing',
    /'fcc'.*did you mean fc\?/s,
  ],
  [
    'a tensor that is not there',
    [{ match: { tensor: 'bais' }, layout: '[-]' }],
    'pin-matches-nothing',
    /did you mean bias\?/,
  ],
  [
    'an operator that is not there',
    [{ match: { op: 'MatMull' }, stage: 0 }],
    'pin-matches-nothing',
    /did you mean MatMul\?/,
  ],
  [
    'a module that is not there',
    [{ match: { module: 'mlp' }, style: 'colwise' }],
    'pin-matches-nothing',
    /none is available/,
  ],
  [
    'an axis unknown',
    [{ match: { node: 'fc' }, factors: { n: 'tpp' } }],
    'pin-does-not-fit',
    /no axis 'tpp'.*did you mean tp\?/s,
  ],
  [
    'an axis unknown in a layout',
    [{ match: { tensor: 'x' }, layout: '[ddp, -]' }],
    'pin-does-not-fit',
    /no axis 'ddp'.*dp/s,
  ],
  [
    'an axis twice in a tensor',
    [{ match: { tensor: 'x' }, layout: '[tp, tp]' }],
    'pin-does-not-fit',
    /tp\.0 is used twice/,
  ],
  [
    'an axis on two factors',
    [{ match: { node: 'fc' }, factors: { n: 'tp', m: 'tp' } }],
    'pin-does-not-fit',
    /shards both/,
  ],
  ['an unknown factor', [{ match: { node: 'fc' }, factors: { q: 'tp' } }], 'pin-does-not-fit', /has no factor 'q'/],
  [
    'a layout of the wrong rank',
    [{ match: { tensor: 'x' }, layout: '[dp]' }],
    'pin-does-not-fit',
    /1 dimensions.*has 2/,
  ],
  [
    'a strategy of the wrong rank',
    [{ match: { node: 'fc' }, split: [[4]] }],
    'pin-does-not-fit',
    /1 counts.*2 dimensions/,
  ],
  [
    'a strategy for too many operands',
    [
      {
        match: { node: 'fc' },
        split: [
          [4, 1],
          [1, 2],
          [1, 1],
        ],
      },
    ],
    'pin-does-not-fit',
    /3 operands, and the operator has 2/,
  ],
  [
    'one list of counts for an operator',
    [{ match: { node: 'fc' }, split: [4, 1] }],
    'pin-does-not-fit',
    /one per operand/,
  ],
  [
    'counts that multiply to too much',
    [{ match: { tensor: 'x' }, split: [4, 4] }],
    'pin-does-not-fit',
    /16 parts, more than the 8 devices/,
  ],
  [
    'a strategy that cuts into too much',
    [
      {
        match: { node: 'fc' },
        split: [
          [4, 2],
          [2, 4],
        ],
      },
    ],
    'pin-does-not-fit',
    /32 parts in all, more than the 8/,
  ],
  [
    'counts that no axes make',
    [{ match: { tensor: 'x' }, split: [3, 1] }],
    'pin-does-not-fit',
    /3 parts, and no unused axes/,
  ],
  [
    'a split that does not divide',
    [{ match: { tensor: 'bias' }, layout: '[(3 | 3:dp)]' }],
    'pin-does-not-fit',
    /multiply to 9/,
  ],
  [
    'a factor that does not divide',
    [
      { match: { node: 'sum' }, factors: { a1: '(dp,tp)', a0: '-' } },
      { match: { node: 'fc' }, factors: { n: '(4 | 2:tp)' } },
    ],
    'pin-does-not-fit',
    /cuts the 2 elements of dimension \d into 4 parts/,
  ],
  [
    'a negative count',
    [{ match: { node: 'fc' }, split: '((-4,1),(1,2))' }],
    'pin-does-not-fit',
    /-4, which is not a number/,
  ],
  [
    'text that is no strategy',
    [{ match: { node: 'fc' }, split: '((4,1),(1,2)' }],
    'pin-does-not-fit',
    /cannot be read/,
  ],
  [
    'operands that cut k differently',
    [
      {
        match: { node: 'fc' },
        split: [
          [1, 2],
          [4, 1],
        ],
      },
    ],
    'pin-does-not-fit',
    /factor k is cut into 2 in one place and cut into 4 in another/,
  ],
  [
    'a matrix for other devices',
    [{ match: { tensor: 'x' }, map: { device_matrix: [2, 2], tensor_map: [1, 0] } }],
    'pin-does-not-fit',
    /for 4 devices.*has 8/,
  ],
  [
    'a map of the wrong rank',
    [{ match: { tensor: 'x' }, map: { device_matrix: [8], tensor_map: [0] } }],
    'pin-does-not-fit',
    /1 entries.*2 dimensions/,
  ],
  [
    'a map that uses an axis twice',
    [{ match: { tensor: 'x' }, map: { device_matrix: [8], tensor_map: [0, 0] } }],
    'pin-does-not-fit',
    /axis 0 .*twice/,
  ],
  [
    'a map beyond its matrix',
    [{ match: { tensor: 'x' }, map: { device_matrix: [8], tensor_map: [1, -1] } }],
    'pin-does-not-fit',
    /names axis 1/,
  ],
  [
    'an alias that is none',
    [{ match: { tensor: 'x' }, map: 'Layout((2,4),("dp","mp"))("dp","mq")' }],
    'pin-does-not-fit',
    /'mq'.*did you mean mp/s,
  ],
  [
    'two notations that differ',
    [{ match: { node: 'fc' }, layout: '[dp, -]', split: { out: [[4, 1]] } }],
    'pin-does-not-fit',
    /notations differ on fc: result 0 is \[dp, -\] in one notation and \(4, 1\) in another/,
  ],
  [
    'two notations of a tensor that differ',
    [{ match: { tensor: 'x' }, layout: '[dp, -]', split: [4, 1] }],
    'pin-does-not-fit',
    /\[dp, -\] is not \(4, 1\)/,
  ],
  [
    'factors beside a split that differ',
    [{ match: { node: 'fc' }, factors: { n: 'tp' }, split: [null, [1, 2]] }],
    'pin-does-not-fit',
    /factor n is cut into 2 .*on tp\.0, tp\.1/,
  ],
  [
    'two pins of a factor',
    [
      { match: { node: 'fc' }, factors: { n: 'tp' } },
      { match: { op: 'MatMul' }, factors: { n: 'dp' } },
    ],
    'pins-contradict',
    /pins\[0\].*pins\[1\].*node fc: factor n is on tp\.0, tp\.1 by the first and on dp by the second/,
  ],
  [
    'two pins of one axis',
    [
      { match: { node: 'fc' }, factors: { n: 'tp' } },
      { match: { node: 'fc' }, factors: { k: 'tp' } },
    ],
    'pins-contradict',
    /tp\.0 shards factor n by the first and k by the second/,
  ],
  [
    'two pins of a tensor',
    [
      { match: { tensor: 'x' }, layout: '[dp, -]' },
      { match: { tensor: 'x' }, split: [8, 1] },
    ],
    'pins-contradict',
    /tensor x: it is \[dp, -\] by the first and \(8, 1\) by the second/,
  ],
  [
    'a tensor and its maker',
    [
      { match: { tensor: 'sum' }, layout: '[dp, -]' },
      { match: { node: 'sum' }, factors: { a0: 'tp' } },
    ],
    'pins-contradict',
    /node sum: factor a0/,
  ],
  [
    'a weight and its reader',
    [
      { match: { tensor: 'w' }, layout: '[-, tp]' },
      { match: { node: 'fc' }, factors: { n: [] } },
    ],
    'pins-contradict',
    /node fc: factor n is on no axis|node fc: factor n is on tp/,
  ],
  [
    'two stages',
    [
      { match: { node: 'fc' }, stage: 0 },
      { match: { node: 'f*' }, stage: 1 },
    ],
    'pins-contradict',
    /its stage is 0 by the first and 1 by the second/,
  ],
];

for (const [title, pins, code, says] of BAD)
  test(`refused: ${title}`, async (t) => {
    const error = await refused(t, () => pinsOf(pins));
    t.is(error.code, code, error.message);
    t.regex(`${error.message}\n${error.hint}`, says);
  });

test('a contradiction names both pins with their lines', async (t) => {
  const text =
    'version: 1\npins:\n  - match: {node: fc}\n    factors: {n: tp}\n  - match: {node: fc}\n    factors: {n: dp}\n';
  const annotations = annotationsIn(await parseYaml(text, 'pins.yaml'));
  const error = await refused(t, () => resolveAnnotations(annotations, productGraph(), MESH));
  t.regex(error.message, /on fc \(line 4\) and .* on fc \(line 6\) contradict/);
  t.deepEqual(error.where, { file: 'pins.yaml', line: 6, node: 'fc' });
});

test('a glob whose stars end too early is told so', async (t) => {
  const error = await refused(t, () => pinsOf([{ match: { node: 'l*up' }, stage: 0 }], mlpGraph(8, 16, 32)));
  t.regex(error.hint ?? '', /'l\*\*up' fits layers\.0\.up/);
});

test('a pin for each of 9,000 operators', (t) => {
  const graph = mlpGraph(8, 16, 32, 3000);
  const pins: PinRecord[] = graph.nodes.map(({ name, op }) => ({
    match: { node: name },
    factors: op === 'MatMul' ? { n: 'tp' } : { a1: 'tp' },
  }));
  t.is(pinsOf([...pins, { match: { node: '**.down' }, stage: 0 }], graph).length, 12_000);
});
