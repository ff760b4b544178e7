/**
 * @file Plans of pipelines: a written plan is read and lowered to the same; each edit of a place, a count or the schedule is
 * refused with its place and both values, or is another plan that is sound.
 */
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import test from 'ava';
import fc from 'fast-check';
import { GraphBuilder } from '../../models/builder.js';
import { linear } from '../../models/transformer.js';
import { importModel } from '../../src/api/models/import.js';
import { type Training, trainedModel } from '../../src/api/models/training.js';
import { type PlannedModel, plan } from '../../src/api/plan.js';
import { lowerPlan } from '../../src/api/planning/lower-plan.js';
import { AutoparError } from '../../src/ir/error.js';
import { writeOnnx } from '../../src/ir/onnx/writer.js';
import { checkSharded } from '../../src/partition/check.js';
import type { LoweredStage } from '../../src/partition/lower-stages.js';
import { SCHEDULE_KINDS } from '../../src/schedule/schedule.js';
import { type StageUnit, stageUnits } from '../../src/search/pipeline/units.js';
import type { Plan } from '../../src/strategy/plan.js';
import { planFromJson, planToJson } from '../../src/strategy/plan-json.js';
import { shardedText } from '../partition/sharded-text.js';
import { singleEdits } from './plan-edits.js';

const MICRO_BATCHES = 4;
const TRAINING: Training = {
  ...{ loss: { kind: 'mse' }, optimizer: { kind: 'adamw', learningRate: 1e-3 } },
  microBatches: MICRO_BATCHES,
};

async function modelOf(name: string, trains: boolean) {
  const at = (globalBatch: number | undefined) =>
    importModel(`models/${name}.onnx`, globalBatch === undefined ? {} : { globalBatch });
  const forward = await at(2 * MICRO_BATCHES);
  const loss = name === 'mlp' ? TRAINING.loss : ({ kind: 'cross_entropy' } as const);
  return trains ? trainedModel(forward, { ...TRAINING, loss }, at) : forward;
}

interface Drawn {
  readonly model: string;
  readonly trains: boolean;
  readonly pp: number;
  readonly dp: number;
  readonly tp: number;
  /** Every other stage has dp and tp swapped, or all of its devices on tp. */
  readonly differ: boolean;
  readonly schedule: (typeof SCHEDULE_KINDS)[number];
  /** Whether micro-batches run as halves. */
  readonly halves: boolean;
  /** Where the parts end, as shares of the units. */
  readonly ends: readonly number[];
}

const drawn: fc.Arbitrary<Drawn> = fc.record({
  model: fc.constantFrom('mlp', 'gpt-tiny', 'mlp'),
  trains: fc.boolean(),
  pp: fc.constantFrom(2, 4, 2),
  dp: fc.constantFrom(1, 2),
  tp: fc.constantFrom(1, 2),
  differ: fc.boolean(),
  schedule: fc.constantFrom(...SCHEDULE_KINDS),
  halves: fc.boolean(),
  ends: fc.array(fc.nat(1000), { minLength: 8, maxLength: 8 }),
});

/** Schedules of two chunks a stage and more. */
const CHUNKED: readonly string[] = ['interleaved-1f1b', 'interleaved-zero-bubble', 'zbv'];

async function planned({ model, trains, pp, dp, tp, differ, schedule, halves, ends }: Drawn): Promise<PlannedModel> {
  const imported = await modelOf(model, trains);
  // Inference has one micro-batch, which is not a group to interleave.
  const hasChunks = CHUNKED.includes(schedule);
  const interleaves = hasChunks && trains;
  const virtualStages = interleaves ? 2 : 1;
  const units = stageUnits(imported.graph, Number.POSITIVE_INFINITY);
  return plan(imported, {
    devices: pp * dp * tp,
    ...(differ ? { degrees: { pp }, meshes: meshesOf({ dp, tp }, pp) } : { degrees: { pp, dp, tp } }),
    ...(trains ? { schedule } : {}),
    ...(trains && !hasChunks && halves ? { interleave: 2 as const } : {}),
    ...(interleaves ? { virtualStages } : {}),
    stages: layoutOf(units, Math.min(pp * virtualStages, units.length), ends),
  });
}

function meshesOf({ dp, tp }: { readonly dp: number; readonly tp: number }, stages: number): string {
  const other = dp === tp ? `tp${dp * tp}` : `dp${tp} tp${dp}`;
  return Array.from({ length: stages }, (_, stage) => (stage % 2 === 0 ? `dp${dp} tp${tp}` : other)).join(' | ');
}

/** Operators in a row, cut at drawn places. */
function layoutOf(units: readonly StageUnit[], parts: number, ends: readonly number[]): string {
  const cuts = new Set<number>();
  for (let index = 0; cuts.size < parts - 1; index++)
    cuts.add(1 + (((ends[index % ends.length] ?? 0) + 7 * Math.floor(index / ends.length)) % (units.length - 1)));
  const sorted = [0, ...[...cuts].sort((a, b) => a - b), units.length];
  return sorted
    .slice(1)
    .map((end, index) => `o*${end - (sorted[index] as number)}`)
    .join(' | ');
}

/** All that a program is made from. */
function textOf(lowered: readonly LoweredStage[]): string {
  return lowered
    .map(({ sharded }) => {
      const { sends, receives, chunkOf } = sharded.pipeline ?? {};
      const nodes = new Set(sharded.nodes.map(({ origin }) => origin));
      const chunks = [...(chunkOf ?? [])].filter(([name]) => nodes.has(name));
      return `${shardedText(sharded)}\n${JSON.stringify([sends, receives, chunks])}`;
    })
    .join('\n\n');
}

test('a drawn plan is read and lowered to what it was written from', async (t) => {
  await fc.assert(
    fc.asyncProperty(drawn, async (one) => {
      const found = await planned(one).catch((error: unknown) => {
        // A part of operators that every stage runs for itself is refused.
        if (error instanceof AutoparError && error.code === 'bad-stages') return null;
        throw error;
      });
      fc.pre(found !== null);
      const text = planToJson(found.plan);
      const read = planFromJson(text, 'plan.json');
      t.is(planToJson(read), text);
      const { lowered, schedule } = lowerPlan(read, found.imported.graph);
      t.is(textOf(lowered), textOf(found.found.lowered));
      t.deepEqual(schedule, found.pipeline?.schedule ?? null);
    }),
    { numRuns: 10, seed: 3, includeErrorInReport: true },
  );
});

test('a plan of a step that returns its loss alone has no entries for what makes other outputs', async (t) => {
  const builder = new GraphBuilder('outputs', 21);
  const middle = linear(builder, 'first', builder.input('x', 'float32', [8, 16]), 16);
  builder.output('y', linear(builder, 'second', middle, 16));
  builder.output('squared', builder.operator('Mul', [middle, middle]));
  const folder = mkdtempSync(join(tmpdir(), 'autopar-test-'));
  t.teardown(() => rmSync(folder, { recursive: true }));
  const file = join(folder, 'outputs.onnx');
  writeFileSync(file, writeOnnx(builder.build()));
  const at = (globalBatch: number | undefined) => importModel(file, globalBatch === undefined ? {} : { globalBatch });
  const training: Training = { ...TRAINING, loss: { kind: 'mse', output: 'y' }, lossAlone: true };
  const imported = await trainedModel(await at(2 * MICRO_BATCHES), training, at);
  const found = await plan(imported, { devices: 2, degrees: { pp: 2, dp: 1, tp: 1 } });
  const squares = imported.graph.nodes.find(({ outputs }) => outputs.includes('squared'))?.name ?? '';
  t.false(Object.hasOwn(found.plan.operators, squares));
  t.is(textOf(lowerPlan(found.plan, imported.graph).lowered), textOf(found.found.lowered));
});

for (const [trains, schedule, meshes] of [
  [true, 'interleaved-1f1b', 'dp2 | dp2'],
  [true, 'zero-bubble', 'dp2 | dp2'],
  [true, '1f1b', 'tp2 | dp2'],
  [false, '1f1b', 'dp2 | dp2'],
] as const)
  test(
    `each edit of a plan of ${schedule} on ${meshes} is refused or is another sound plan: ` +
      `${trains ? 'training' : 'inference'}`,
    async (t) => {
      const imported = await modelOf(trains ? 'mlp' : 'gpt-tiny', trains);
      const { plan: written } = await plan(imported, {
        meshes,
        ...(trains ? { schedule } : {}),
        ...(schedule === 'interleaved-1f1b' ? { virtualStages: 2 } : {}),
      });
      for (const { name, plan: edited } of singleEdits(written))
        t.is(refusalOf(() => planFromJson(JSON.stringify(edited), 'plan.json'))?.code, 'plan-invalid', name);
      let [refused, others] = [0, 0];
      for (const { name, plan: edited } of moves(written)) {
        const error = refusalOf(() => {
          const read = planFromJson(JSON.stringify(edited), 'plan.json');
          const { lowered } = lowerPlan(read, imported.graph);
          for (const { sharded } of lowered) t.deepEqual(checkSharded(sharded), [], name);
        });
        if (error === null) others++;
        else {
          refused++;
          t.regex(error.code, /^plan-/, `${name}: ${error.message}`);
          t.regex(error.message, /stage|chunk|schedule|no entry/, name);
        }
      }
      t.true(refused > 10 && others > 0, `${refused} refused, ${others} others`);
    },
  );

/** @throws Error where it throws anything but what is for the user */
function refusalOf(run: () => unknown): AutoparError | null {
  try {
    run();
    return null;
  } catch (error) {
    if (error instanceof AutoparError) return error;
    throw error;
  }
}

/** Operators that are moved. */
const MOVED = 24;

type Editable = { -readonly [Key in keyof Plan]: Plan[Key] };

/** Operators and layers in other places, with the stages' counts as they then are and as they were, and other schedules. */
function moves(written: Plan): readonly { readonly name: string; readonly plan: Plan }[] {
  const edits: { readonly name: string; readonly plan: Plan }[] = [];
  const edit = (name: string, change: (copy: Editable) => void) => {
    const copy = structuredClone(written) as Editable;
    change(copy);
    edits.push({ name, plan: copy });
  };
  const counted = (copy: Editable, from: number, to: number, count: number) => {
    copy.stages = copy.stages.map((stage, index) => {
      const operators = stage.operators + (index === to ? count : 0) - (index === from ? count : 0);
      return { ...stage, operators };
    });
  };
  const { virtualStages = 1 } = written.schedule;
  for (const [name, operator] of Object.entries(written.operators).slice(0, MOVED)) {
    const other = 1 - operator.stage;
    edit(`${name} on stage ${other}`, (copy) => {
      copy.operators = { ...copy.operators, [name]: { ...operator, stage: other } };
    });
    edit(`${name} on stage ${other}, counted`, (copy) => {
      copy.operators = { ...copy.operators, [name]: { ...operator, stage: other } };
      counted(copy, operator.stage, other, 1);
    });
    if (virtualStages > 1)
      edit(`${name} in chunk ${1 - (operator.chunk ?? 0)}`, (copy) => {
        const { chunk = 0, ...rest } = operator;
        copy.operators = { ...copy.operators, [name]: chunk === 1 ? rest : { ...rest, chunk: 1 } };
      });
  }
  for (const [index, own] of written.layerClasses.entries())
    for (const [place, stage] of (own.stages ?? []).entries())
      for (const isCounted of [false, true])
        edit(`layerClasses.${index}.stages.${place}, counted ${isCounted}`, (copy) => {
          const stages = own.stages?.with(place, 1 - stage) ?? [];
          copy.layerClasses = copy.layerClasses.with(index, { ...own, stages });
          if (isCounted) counted(copy, stage, 1 - stage, own.operators ?? 0);
        });
  // Requests for the schedule are pins of the plan.
  const unasked = (copy: Editable) => {
    copy.pins = copy.pins.filter((pin) => !/^(schedule|virtual-stages)=/.test(pin));
  };
  for (const kind of SCHEDULE_KINDS)
    for (const chunks of [1, 2, 3])
      edit(`schedule ${kind} of ${chunks}`, (copy) => {
        unasked(copy);
        const { virtualStages: _before, ...schedule } = copy.schedule;
        copy.schedule = { ...schedule, kind, ...(chunks > 1 ? { virtualStages: chunks } : {}) };
      });
  edit('schedule.kind against what was asked', (copy) => {
    copy.pins = [...copy.pins.filter((pin) => !pin.startsWith('schedule=')), 'schedule=naive'];
  });
  return edits;
}

test('what is wrong with a place is said with both values', async (t) => {
  const imported = await modelOf('gpt-tiny', false);
  const { plan: written } = await plan(imported, { devices: 2, degrees: { pp: 2, dp: 1, tp: 1 } });
  const messageOf = (change: (copy: Editable) => void) => {
    const copy = structuredClone(written) as Editable;
    change(copy);
    return refusalOf(() => lowerPlan(planFromJson(JSON.stringify(copy), 'plan.json'), imported.graph))?.message ?? '';
  };
  const move = (copy: Editable, name: string, stage: number) => {
    copy.operators = {
      ...copy.operators,
      [name]: { ...(written.operators[name] as Plan['operators'][string]), stage },
    };
  };
  const [first, second] = written.stages as [Plan['stages'][number], Plan['stages'][number]];
  t.regex(
    messageOf((copy) => move(copy, '/wte/Gather', 1)),
    /stages\.0\.operators is 26; operators, .*, has 25 on stage 0/,
  );
  t.regex(
    messageOf((copy) => {
      move(copy, '/wte/Gather', 1);
      copy.stages = [
        { ...first, operators: first.operators - 1 },
        { ...second, operators: second.operators + 1 },
      ];
    }),
    /operator \/Add on stage 0, and it reads .*Gather.* makes on stage 1/,
  );
  t.regex(
    messageOf((copy) => {
      copy.layerClasses = copy.layerClasses.map((own) => ({ ...own, stages: [1, 1] }));
    }),
    /operator \/h\.0\/.* on stage 0, and its layer h\.0 on stage 1/,
  );
  t.regex(
    messageOf((copy) => {
      copy.schedule = { ...copy.schedule, kind: 'interleaved-1f1b' };
    }),
    /schedule\.kind is interleaved-1f1b.*1 virtual stage is one chunk/,
  );
  t.regex(
    messageOf((copy) => {
      copy.pins = [...copy.pins, 'schedule=f-then-b'];
    }),
    /pins\.3 is schedule=f-then-b, schedule\.kind is 1f1b/,
  );
});
