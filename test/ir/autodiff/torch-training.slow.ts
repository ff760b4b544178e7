/**
 * @file Steps of training graphs against PyTorch's: losses, the optimizers' options, rates.
 */
import test, { type ExecutionContext } from 'ava';
import { GraphBuilder } from '../../../models/builder.js';
import type { LossOptions } from '../../../src/ir/autodiff/append-loss.js';
import type { OptimizerOptions } from '../../../src/ir/autodiff/optimizer-options.js';
import { type TrainingOptions, trainingGraph } from '../../../src/ir/autodiff/training-graph.js';
import type { ConstantTensor, Graph } from '../../../src/ir/graph.js';
import { writeOnnx } from '../../../src/ir/onnx/writer.js';
import { constant, numbersOf } from '../../../src/ir/ops/constants.js';
import { missing } from '../../missing.js';
import {
  startTorch,
  type Torch,
  type TorchLoss,
  type TorchOptimizer,
  type TorchTrainingJob,
  torchAbsence,
} from '../../reference/torch.js';
import { randomValues } from '../ops/values.js';
import { takeSteps } from './take-steps.js';

const [ROWS, INNER, HIDDEN, CLASSES, STEPS] = [6, 5, 8, 4, 6];
const PARAMETERS = ['a.weight', 'a.bias', 'b.weight', 'b.bias'];
const BIASES = ['a.bias', 'b.bias'];

/** Two layers with biases. */
function model(): Graph {
  const build = new GraphBuilder('layers', 1);
  const x = build.input('x', 'float32', [ROWS, INNER]);
  const layer = (name: string, from: string, inner: number, outer: number) =>
    build.operator('Add', [
      build.operator('MatMul', [from, build.parameter(`${name}.weight`, [inner, outer])]),
      build.parameter(`${name}.bias`, [outer]),
    ]);
  const hidden = build.operator('Tanh', [layer('a', x, INNER, HIDDEN)]);
  build.output('y', layer('b', hidden, HIDDEN, CLASSES));
  return build.build();
}

const drawn = (shape: readonly number[], seed: number) =>
  constant('float32', randomValues({ shape, dtype: 'float32', low: -1, high: 1 }, seed).data, shape);

type Arrays = Readonly<Record<string, ConstantTensor>>;

/** Two batches, the second with fewer labels that count. */
const BATCHES: readonly Arrays[] = [
  { x: drawn([ROWS, INNER], 1), labels: constant('int64', [0, 3, -100, 1, 2, 2], [ROWS]) },
  { x: drawn([ROWS, INNER], 2), labels: constant('int64', [-100, 1, -100, 1, 0, -100], [ROWS]) },
];
const WEIGHTS = [0.5, 2, 1, 3];

interface Setting {
  readonly says: string;
  readonly loss?: LossOptions;
  readonly optimizer?: OptimizerOptions;
  readonly own?: Partial<TrainingOptions>;
  readonly torch?: Partial<TorchTrainingJob>;
  readonly torchLoss?: Partial<Extract<TorchLoss, { kind: 'cross_entropy' }>>;
  readonly torchOptimizer?: Partial<TorchOptimizer>;
  /** Norm-wise; 1e-5 by default. */
  readonly tolerance?: number;
}

const SGD: OptimizerOptions = { kind: 'sgd', learningRate: 0.3 };

const SETTINGS: readonly Setting[] = [
  { says: 'labels that do not count' },
  {
    says: 'weights of classes',
    loss: { kind: 'cross_entropy', classWeights: WEIGHTS },
    torchLoss: { weight: 'weights' },
  },
  {
    says: 'label smoothing with weights',
    loss: { kind: 'cross_entropy', classWeights: WEIGHTS, labelSmoothing: 0.2 },
    torchLoss: { weight: 'weights', labelSmoothing: 0.2 },
  },
  {
    says: "Nesterov's momentum with decay of matrices",
    optimizer: { ...SGD, momentum: 0.9, nesterov: true, weightDecay: 0.1 },
  },
  {
    says: 'Adam with decay, betas and epsilon',
    optimizer: { kind: 'adam', learningRate: 0.05, betas: [0.8, 0.95], epsilon: 1e-4, weightDecay: 0.1 },
  },
  { says: 'AdamW as it is', optimizer: { kind: 'adamw', learningRate: 0.05 }, torchOptimizer: { weightDecay: 0.01 } },
  {
    says: 'other groups of decay',
    optimizer: { kind: 'adamw', learningRate: 0.05, weightDecay: 0.3 },
    own: { decays: (name) => name.startsWith('a.') },
    torchOptimizer: { undecayed: ['b.weight', 'b.bias'] },
  },
  { says: 'LAMB', optimizer: { kind: 'lamb', learningRate: 0.05, weightDecay: 0.1 } },
  {
    says: 'a rate that grows and falls as a cosine',
    optimizer: { ...SGD, schedule: { shape: 'cosine', warmup: 2, total: 5, floor: 0.1 } },
    torch: { schedule: { shape: 'cosine', warmup: 2, total: 5, floor: 0.1 } },
  },
  {
    says: 'a rate that falls evenly',
    optimizer: { kind: 'adamw', learningRate: 0.05, schedule: { shape: 'linear', total: 8, floor: 0.2 } },
    torch: { schedule: { shape: 'linear', total: 8, floor: 0.2 } },
    torchOptimizer: { weightDecay: 0.01 },
  },
  ...(
    [
      ['float16', 'fp16', 2e-3],
      ['bfloat16', 'bf16', 2e-2],
    ] as const
  ).map(
    ([autocast, precision, tolerance]): Setting => ({
      says: `autocast to ${autocast}`,
      optimizer: { kind: 'adam', learningRate: 0.02 },
      own: { precision, isHeldInFloat32: true },
      torch: { autocast, ...(precision === 'fp16' ? { initialScale: 2 ** 16 } : {}) },
      tolerance,
    }),
  ),
  { says: 'clipping of a mean over labels', optimizer: { ...SGD, clipNorm: 0.1 }, torch: { clipNorm: 0.1 } },
];

const absence = torchAbsence();
if (missing(absence !== null, absence ?? '') !== null) test.skip(`${absence}`, () => undefined);
else {
  let torch: Torch;
  test.before(async () => {
    torch = await startTorch();
  });
  test.after.always(() => torch.close());

  for (const setting of SETTINGS)
    test.serial(setting.says, async (t) => {
      const { loss = { kind: 'cross_entropy' }, optimizer = SGD } = setting;
      const forward = model();
      const { graph } = trainingGraph(forward, { loss, optimizer, ...setting.own });
      const own = await takeSteps(graph, BATCHES, STEPS);
      const { kind, learningRate, schedule: _schedule, clipNorm: _clip, ...options } = optimizer;
      const reference = await torch.train({
        model: writeOnnx(forward),
        parameters: PARAMETERS,
        batches: BATCHES.map((batch) => ({ ...batch, weights: constant('float32', WEIGHTS, [CLASSES]) })),
        loss: { kind: 'cross_entropy', output: 'y', labels: 'labels', ...setting.torchLoss },
        optimizer: { name: kind, learningRate, undecayed: BIASES, ...options, ...setting.torchOptimizer },
        steps: STEPS,
        ...setting.torch,
      });
      const { tolerance } = setting;
      near(t, own.losses, reference.losses, 'losses', tolerance);
      for (const name of PARAMETERS)
        near(t, values(own.state[name]), values(reference.parameters[name]), name, tolerance && 5 * tolerance);
    });

  test.serial('a scale of the loss that is too high comes down as it does in GradScaler', async (t) => {
    const forward = model();
    const { graph } = trainingGraph(forward, {
      loss: { kind: 'cross_entropy' },
      optimizer: { kind: 'adam', learningRate: 0.02 },
      precision: 'fp16',
      isHeldInFloat32: true,
    });
    const initialScale = 2 ** 21;
    const scale = graph.initial?.get('optimizer/loss-scale');
    if (!scale) throw new Error('no scale');
    const source = { kind: 'inline' as const, data: constant('float32', [initialScale]).data };
    const initial = new Map(graph.initial).set('optimizer/loss-scale', { ...scale, source });
    const batch = { ...BATCHES[0], labels: constant('int64', [0, 3, 1, 1, 2, 2], [ROWS]) };
    const own = await takeSteps({ ...graph, initial }, [batch], STEPS);
    const reference = await torch.train({
      model: writeOnnx(forward),
      parameters: PARAMETERS,
      batches: [batch],
      loss: { kind: 'cross_entropy', output: 'y', labels: 'labels' },
      optimizer: { name: 'adam', learningRate: 0.02 },
      steps: STEPS,
      autocast: 'float16',
      initialScale,
    });
    t.true((reference.scales.at(-1) ?? 0) < initialScale, 'steps are not taken');
    t.deepEqual(values(own.state['optimizer/loss-scale']), [reference.scales.at(-1)]);
    near(t, own.losses, reference.losses, 'losses', 2e-3);
  });
}

function values(tensor: ConstantTensor | undefined): readonly number[] {
  return tensor ? numbersOf(tensor) : [];
}

/** Norm-wise. */
function near(
  t: ExecutionContext,
  got: readonly number[],
  wanted: readonly number[],
  says = 'losses',
  tolerance = 1e-5,
): void {
  t.is(got.length, wanted.length);
  const error = Math.hypot(...got.map((value, index) => value - (wanted[index] ?? Number.NaN)));
  t.true(error <= tolerance * Math.hypot(...wanted), `${says}: off by ${error}: ${got} / ${wanted}`);
}
