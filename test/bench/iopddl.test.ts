/**
 * @file The contest's benchmark: its example, its own evaluator, files that are not as they should be.
 */
import { spawnSync } from 'node:child_process';
import { mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { gzipSync } from 'node:zlib';
import test from 'ava';
import { evaluate } from '../../bench/contest/evaluate.js';
import { type ContestInstance, problemOf, readInstance } from '../../bench/contest/instance.js';
import { boundedSearch } from '../../src/solver/bounds/bounded-search.js';
import { generator } from '../../src/solver/generator.js';
import { NoAssignment } from '../../src/solver/problem.js';
import { slowTests } from '../selection.js';

const slow = slowTests(test);

/** The contest's own example: five nodes, whose best solution costs 445 and takes 50 of 50 bytes. */
const EXAMPLE = {
  problem: {
    name: 'example',
    nodes: {
      intervals: [
        [30, 70],
        [40, 70],
        [50, 120],
        [110, 140],
        [110, 150],
      ],
      costs: [[15], [55, 65], [25, 45, 35], [85, 75], [95]],
      usages: [[10], [25, 25], [15, 20, 15], [10, 10], [15]],
    },
    edges: {
      nodes: [
        [0, 1],
        [0, 2],
        [1, 3],
        [2, 4],
        [3, 4],
      ],
      costs: [
        [30, 40],
        [50, 10, 40],
        [90, 10, 20, 80],
        [60, 20, 30],
        [70, 60],
      ],
    },
    usage_limit: 50,
  },
};

/** Solutions that cost more are refused: doubles do not hold their sums. */
const MOST = BigInt(Number.MAX_SAFE_INTEGER);

const bench = fileURLToPath(new URL('../../bench/iopddl.js', import.meta.url));
const folder = mkdtempSync(join(tmpdir(), 'autopar-contest-'));
test.after.always(() => rmSync(folder, { recursive: true, force: true }));

function written(name: string, content: string | Buffer): string {
  const file = join(folder, name);
  writeFileSync(file, content);
  return file;
}

function run(...words: string[]) {
  return spawnSync(process.execPath, [...process.execArgv, bench, ...words], { encoding: 'utf8' });
}

test('the example is solved to its optimum, from JSON and from gzip, and written', (t) => {
  const plain = written('example.json', JSON.stringify(EXAMPLE));
  const packed = written('packed.json.gz', gzipSync(JSON.stringify(EXAMPLE)));
  const { status, stdout, stderr } = run(
    plain,
    packed,
    '--seconds',
    '20',
    '--solutions',
    join(folder, 'out'),
    '--json',
  );
  t.is(status, 0, stderr);
  const { schema, instances } = JSON.parse(stdout) as { schema: string; instances: readonly Record<string, unknown>[] };
  t.is(schema, 'autopar-bench-iopddl-v1');
  t.deepEqual(
    instances.map(({ cost, bound, gap, fault }) => [cost, bound, gap, fault]),
    [
      [445, 445, 0, null],
      [445, 445, 0, null],
    ],
  );
  const solution = JSON.parse(readFileSync(join(folder, 'out', 'example.json'), 'utf8')) as number[];
  t.deepEqual(evaluate(readInstance(plain), solution), { cost: 445n, peak: 50n, fault: null });
});

test('more seconds than a timer counts are as good as no limit; a mark of byte order is no fault', (t) => {
  for (const seconds of ['3e6', '1e12']) {
    const { status, stdout, stderr } = run(
      written('marked.json', `\uFEFF${JSON.stringify(EXAMPLE)}`),
      '--seconds',
      seconds,
    );
    t.is(status, 0, stderr);
    t.is(stderr, '');
    t.regex(stdout, /optimal/);
  }
});

test('a file that is not as it should be is told, and the others are solved; costs that doubles round are no solution', (t) => {
  const { costs, ...nodes } = EXAMPLE.problem.nodes;
  const dear = { ...nodes, costs: costs.map((row) => row.map(() => 2 ** 53 - 1)) };
  const { status, stdout, stderr } = run(
    written('cut.json', '{"problem"'),
    written('dear.json', JSON.stringify({ problem: { ...EXAMPLE.problem, nodes: dear } })),
    written('whole.json', JSON.stringify(EXAMPLE)),
    '--seconds',
    '20',
    '--json',
  );
  t.is(status, 3);
  t.regex(stderr, /^error\[bad-contest-file\]: the file/);
  const { instances, refused } = JSON.parse(stdout) as Record<string, readonly Record<string, unknown>[]>;
  t.deepEqual(
    refused?.map(({ code }) => code),
    ['bad-contest-file'],
  );
  t.regex(String(instances?.[0]?.fault), /^costs \d+: sums above 2\^53 are not exact$/);
  t.is(instances?.[1]?.cost, 445);
});

test('the table ends in totals', (t) => {
  const { status, stdout } = run(written('table.json', JSON.stringify(EXAMPLE)), '--seconds', '20');
  t.is(status, 0);
  t.regex(stdout, /table +5 +445 +445 +optimal/);
  t.regex(stdout.trim().split('\n').at(-1) ?? '', /^iopddl: 1 solved \(1 optimal\), 0 failed of 1 in [\d.]+ s$/);
});

test('the evaluator counts what the contest counts, and says what is wrong', (t) => {
  const instance = readInstance(written('again.json', JSON.stringify(EXAMPLE)));
  // 15+65+45+75+95, edges 40+10+80+20+60; nodes 0, 1 and 2 live together at 50: 10+25+20.
  t.deepEqual(evaluate(instance, [0, 1, 1, 1, 0]), { cost: 505n, peak: 55n, fault: 'takes 55 of 50 bytes' });
  t.is(evaluate(instance, [0, 1]).fault, '2 strategies for 5 nodes');
  t.is(evaluate(instance, [0, 2, 0, 0, 0]).fault, 'node 1 has no strategy 2');
  const forbidden = { ...instance, edgeCosts: [[30, 1e18], ...instance.edgeCosts.slice(1)] };
  t.is(evaluate(forbidden, [0, 1, 0, 0, 0]).fault, 'edge 0 (0, 1): the pair is forbidden');
  t.is(
    evaluate({ ...instance, costs: [[1e18], ...instance.costs.slice(1)] }, [0, 0, 0, 0, 0]).fault,
    'node 0: strategy 0 is forbidden',
  );
});

test('without usage_limit memory does not matter, and that is said; usages may be missing then', (t) => {
  const { usage_limit: _, nodes, ...rest } = EXAMPLE.problem;
  const { status, stdout, stderr } = run(
    written('free.json', JSON.stringify({ problem: { ...rest, nodes } })),
    written('bare.json', JSON.stringify({ problem: { ...rest, nodes: { costs: nodes.costs }, usage_limit: null } })),
    '--seconds',
    '20',
    '--json',
  );
  t.is(status, 0, stderr);
  t.regex(stderr, /^note: .*free\.json has no usage_limit: memory does not matter\n/);
  const { instances } = JSON.parse(stdout) as { instances: readonly { cost: number; bound: number }[] };
  const { cost } = bruteForce(readInstance(join(folder, 'free.json')));
  t.deepEqual(
    instances.map((row) => [row.cost, row.bound]),
    [
      [Number(cost), Number(cost)],
      [Number(cost), Number(cost)],
    ],
  );
});

test('corners of the form: loops, several edges either way round, empty intervals, single strategies, numbers past 2^53', (t) => {
  const random = generator(11);
  for (let trial = 0; trial < 300; trial++) {
    const instance = corner(random);
    const best = bruteForce(instance);
    try {
      const { states, cost, bound } = boundedSearch(problemOf(instance), { work: 2e6 }, null);
      t.deepEqual([BigInt(cost), BigInt(bound)], [best.cost, best.cost], `trial ${trial}`);
      t.deepEqual(evaluate(instance, states ?? []).fault, null);
    } catch (error) {
      if (!(error instanceof NoAssignment)) throw error;
      t.is(best.cost, null, `trial ${trial}`);
    }
  }
});

/** A few nodes, with all that the form allows. */
function corner(random: ReturnType<typeof generator>): ContestInstance {
  const count = 1 + random.below(5);
  const costOf = () =>
    (random.below(12) === 0 ? [1e18, 2 ** 53, 3e18, 2 ** 60][random.below(4)] : random.below(40)) as number;
  const list = (length: number, make: () => number) => Array.from({ length }, make);
  const costs = list(count, () => 1 + random.below(3)).map((size) => list(size, costOf));
  const edges = list(random.below(9), () => 0).map(() => [random.below(count), random.below(count)] as const);
  const problem = {
    nodes: {
      costs,
      usages: costs.map(({ length }) => list(length, () => (random.below(15) === 0 ? 2 ** 60 : random.below(9)))),
      intervals: costs.map(() => [random.below(4), random.below(6)].sort((from, until) => from - until)),
    },
    edges: {
      nodes: edges,
      costs: edges.map(([i, j]) => list((costs[i]?.length ?? 0) * (costs[j]?.length ?? 0), costOf)),
    },
    usage_limit: random.below(5) === 0 ? undefined : random.below(24),
  };
  return readInstance(written('corner.json', JSON.stringify({ problem })));
}

/** The least cost by the evaluator of any strategies within the limit; null if it finds fault with all. */
function bruteForce(instance: ContestInstance): { readonly cost: bigint | null } {
  const states = instance.costs.map(() => 0);
  let cost: bigint | null = null;
  for (let at = 0; at < states.length; ) {
    const found = evaluate(instance, states);
    if (found.fault === null && found.cost <= MOST && (cost === null || found.cost < cost)) cost = found.cost;
    for (at = 0; at < states.length; at++) {
      states[at] = ((states[at] as number) + 1) % (instance.costs[at] as readonly number[]).length;
      if (states[at] !== 0) break;
    }
  }
  return { cost };
}

/** Changes of the example, and the error for each. */
const MALFORMED: readonly (readonly [string, (problem: (typeof EXAMPLE)['problem']) => unknown, RegExp])[] = [
  ['no nodes', ({ nodes: _, ...rest }) => rest, /problem\.nodes: expected an object, found nothing/],
  [
    'a missing usage',
    (p) => ({ ...p, nodes: { ...p.nodes, usages: p.nodes.usages.slice(1) } }),
    /problem\.nodes\.usages: expected 5 lists, found 4/,
  ],
  [
    'no strategy',
    (p) => ({ ...p, nodes: { ...p.nodes, costs: [[], ...p.nodes.costs.slice(1)] } }),
    /problem\.nodes\.costs\[0\]: expected at least one strategy, found an empty list/,
  ],
  [
    'a short edge',
    (p) => ({ ...p, edges: { ...p.edges, costs: [[30], ...p.edges.costs.slice(1)] } }),
    /problem\.edges\.costs\[0\]: expected 2 numbers, found 1/,
  ],
  [
    'a node that is not',
    (p) => ({ ...p, edges: { ...p.edges, nodes: [[0, 7], ...p.edges.nodes.slice(1)] } }),
    /problem\.edges\.nodes\[0\]: expected two nodes from 0 to 4, found 7/,
  ],
  [
    'a word for a cost',
    (p) => ({ ...p, nodes: { ...p.nodes, costs: [['x'], ...p.nodes.costs.slice(1)] } }),
    /problem\.nodes\.costs\[0\]\[0\]: expected a whole number from 0, found "x"/,
  ],
  [
    'a negative cost',
    (p) => ({ ...p, nodes: { ...p.nodes, costs: [[-1], ...p.nodes.costs.slice(1)] } }),
    /expected a whole number from 0, found -1/,
  ],
  [
    'half a cost',
    (p) => ({ ...p, nodes: { ...p.nodes, costs: [[15.5], ...p.nodes.costs.slice(1)] } }),
    /expected a whole number from 0, found 15\.5/,
  ],
  [
    'a word for a limit',
    (p) => ({ ...p, usage_limit: '50' }),
    /problem\.usage_limit: expected a number of bytes, found "50"/,
  ],
  [
    'no usages under a limit',
    ({ nodes: { usages: _, ...nodes }, ...rest }) => ({ ...rest, nodes }),
    /problem\.nodes\.usages: expected a list of lists, found nothing/,
  ],
  [
    'a long word for a cost',
    (p) => ({ ...p, nodes: { ...p.nodes, costs: [['x'.repeat(1e6)], ...p.nodes.costs.slice(1)] } }),
    /expected a whole number from 0, found a string of 1000000 characters$/,
  ],
  [
    'lists that are none',
    (p) => ({ ...p, nodes: { ...p.nodes, intervals: 3 } }),
    /problem\.nodes\.intervals: expected a list of lists, found a number/,
  ],
  [
    'an end before its start',
    (p) => ({ ...p, nodes: { ...p.nodes, intervals: p.nodes.intervals.with(1, [70, 30]) } }),
    /problem\.nodes\.intervals\[1\]: expected an end of 70 or later, found 30/,
  ],
];

for (const [name, change, message] of MALFORMED) {
  test(`a malformed file, ${name}: the place, what was expected, a remedy`, (t) => {
    const file = written(`${name.replaceAll(' ', '-')}.json`, JSON.stringify({ problem: change(EXAMPLE.problem) }));
    const error = t.throws(() => readInstance(file), { message }) as { code?: string; hint?: string } | undefined;
    t.is(error?.code, 'bad-contest-file');
    t.truthy(error?.hint);
  });
}

slow(
  'files that cannot be read or hold no JSON, a limit that nothing meets, and bad options end without a stack trace',
  (t) => {
    const dear = { ...EXAMPLE.problem.nodes, costs: EXAMPLE.problem.nodes.costs.map((row) => row.map(() => 2 ** 54)) };
    const blocked = join(folder, 'blocked');
    mkdirSync(join(blocked, 'blocked.json'), { recursive: true });
    const cases: readonly (readonly [readonly string[], number, RegExp])[] = [
      [[join(folder, 'absent.json')], 3, /^error\[unreadable-contest-file\]: cannot read the contest file \(ENOENT\)/],
      [
        [written('text.json', '{\n"problem": {} "more"}')],
        3,
        /^error\[bad-contest-file\]: the file, line 2: expected JSON, or JSON in gzip/,
      ],
      [
        [written('bytes.json', Buffer.of(0x7b, 0x1b, 0x9b, 0, 7))],
        3,
        /^error\[bad-contest-file\]: the file[^\n]*: expected JSON, or JSON in gzip, found [\x20-\x7e]+\n/,
      ],
      [
        [
          written(
            'nested.json',
            `{"problem": {"nodes": {"costs": [[${'['.repeat(1e5)}${']'.repeat(1e5)}]]}, "edges": {}}}`,
          ),
        ],
        3,
        /^error\[bad-contest-file\]: problem\.nodes\.costs\[0\]\[0\]: expected a whole number from 0, found a list\n/,
      ],
      [
        ['x.json', '--solutions', written('taken.json', '')],
        2,
        /^error\[bad-option\]: cannot write solutions to .*taken\.json \(EEXIST\)/,
      ],
      [
        [written('small.json', JSON.stringify({ problem: { ...EXAMPLE.problem, usage_limit: 3 } }))],
        3,
        /^error\[bad-contest-file\]: every assignment exceeds the limit: usage_limit 3/,
      ],
      [
        [written('dear.json', JSON.stringify({ problem: { ...EXAMPLE.problem, nodes: dear } }))],
        3,
        /every assignment is forbidden: usage_limit 50\n.*\n {2}hint: costs past 2\^53 are not taken/,
      ],
      [
        [written('blocked.json', JSON.stringify(EXAMPLE)), '--solutions', blocked],
        3,
        /^error\[cannot-write\]: cannot write the solution \(EISDIR\)\n {2}in .*blocked\.json\n/,
      ],
      [
        ['a/x.json', 'b/x.json.gz', '--solutions', folder],
        2,
        /^error\[bad-usage\]: a\/x\.json and b\/x\.json\.gz would both have the solution x\.json/,
      ],
      [['x.json', '--seconds', 'Infinity'], 2, /^error\[bad-usage\]: --seconds takes a number above 0, not Infinity/],
      [[], 2, /^error\[bad-usage\]: no instance is named/],
      [['x.json', '--seconds', 'soon'], 2, /^error\[bad-usage\]: --seconds takes a number above 0, not soon/],
      [['x.json', '--solver', 'other'], 2, /^error\[bad-usage\]: --solver takes highs, glpk, none, not other/],
      [['x.json', '--fast'], 2, /^error\[bad-usage\]: Unknown option '--fast'/],
    ];
    for (const [words, status, message] of cases) {
      const result = run(...words);
      t.is(result.status, status, result.stderr);
      t.regex(result.stderr, message);
      t.regex(result.stderr, /\n {2}hint: /);
      t.notRegex(result.stderr, /\n {4}at /);
    }
  },
);
