/**
 * @file Plans in 16 bit against one rank: losses over some steps with clipping active, every gradient and their norm are at most
 * twice as far from one rank's 16-bit run as that run is from its float32 run (the norm: or as one rounding is).
 */
import test from 'ava';
import { numbersOf } from '../../src/ir/ops/constants.js';
import { shortened, thinned } from '../selection.js';
import { type Pipeline, type Task, train } from './compiled-training.js';
import { difference } from './difference.js';

const STEPS = shortened(20);
const MICRO_BATCHES = 4;
const PLANS: readonly Partial<Pipeline>[] = [
  { stages: 2 },
  { stages: 2, dp: 2 },
  { tp: 2 },
  { stages: 2, tp: 2 },
  { sp: 2, spMethod: 'ring' },
];

/** Rounding of one result. By chance the norm, a single number, may be closer to float32 than that. */
const ROUNDING = { fp16: 2 ** -11, bf16: 2 ** -8 } as const;

/** The compared quantities: each list is one. */
type Measured = ReadonlyMap<string, readonly number[]>;

type Precision = NonNullable<NonNullable<Task['training']>['precision']>;

/** A fixed scale of the loss, so that no step is left out: momentum after the first one is the gradient. */
async function measured(model: Task['model'], precision: Precision, plan?: Partial<Pipeline>): Promise<Measured> {
  const optimizer = { kind: 'sgd', momentum: 0.9, learningRate: 0.1 } as const;
  const lossScale = precision === 'fp16' ? { lossScale: 256 } : {};
  const task = (clipNorm?: number): Task => ({
    model,
    microBatches: MICRO_BATCHES,
    training: { precision, ...lossScale, optimizer: clipNorm === undefined ? optimizer : { ...optimizer, clipNorm } },
  });
  const [first, all] = [await train(task(), 1, plan), await train(task(0.05), STEPS, plan)];
  const gradients = Object.entries(first.state).flatMap(([name, tensor]) =>
    name.includes('momentum') ? [[`gradient of ${name}`, numbersOf(tensor).map(Number)] as const] : [],
  );
  const norm = Math.hypot(...gradients.flatMap(([, values]) => values));
  return new Map([['losses', all.losses], ['norm', [norm]], ...gradients]);
}

const CASES = (['gpt', 'llama'] as const).flatMap((model) =>
  (['fp16', 'bf16'] as const).map((precision) => ({ model, precision })),
);

for (const { model, precision } of thinned(CASES, 3)) {
  test.serial(`${model} in ${precision}`, async (t) => {
    const [exact, alone] = [await measured(model, 'fp32'), await measured(model, precision)];
    t.true(alone.size > 4);
    for (const plan of PLANS) {
      const staged = await measured(model, precision, plan);
      t.deepEqual([...staged.keys()].sort(), [...alone.keys()].sort());
      const rows = [...alone].map(([name, values]) => ({
        name,
        off: difference(values, staged.get(name) ?? []),
        own: Math.max(name === 'norm' ? ROUNDING[precision] : 0, difference(exact.get(name) ?? [], values)),
      }));
      const share = ({ off, own }: { readonly off: number; readonly own: number }) => (off === 0 ? 0 : off / own);
      const worst = rows.reduce((most, row) => (share(row) > share(most) ? row : most));
      const text = ({ name, off, own }: (typeof rows)[number]) =>
        `${name} ${off.toExponential(1)} (${own.toExponential(1)})`;
      const ofStep = rows.filter(({ name }) => !name.startsWith('gradient'));
      t.log(`${JSON.stringify(plan)}: ${ofStep.map(text).join(', ')}; largest share ${text(worst)}`);
      t.true(rows.every((row) => share(row) <= 2));
    }
  });
}
