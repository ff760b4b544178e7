/**
 * @file State-space layers of Mamba-2 (Dao and Gu 2024): each head has a state of `state` by `headWidth` numbers, which each
 * position decays, adds to and reads:
 *
 *     S[t] = exp(−rate[t] · exp(decay)) S[t−1] + rate[t] · key[t] value[t]ᵀ        y[t] = query[t] S[t] + skip · value[t]
 *
 * Training computes it in chunks, as matmuls: inside a chunk like attention with decaying scores, and from chunk to chunk over
 * the states at their ends. The heads of a group share keys and queries; the papers call them B and C.
 */
import { floats, type GraphBuilder } from './builder.js';
import { linear } from './transformer.js';

export interface StateSpaceSizes {
  readonly heads: number;
  /** Values per head. */
  readonly headWidth: number;
  /** Keys per group. */
  readonly state: number;
  /** Divides `heads`. */
  readonly groups: number;
  /** Kernel size, in positions, of the convolution before the scan. */
  readonly kernel: number;
  /** Positions of a chunk, which one matmul computes; divides the sequence if that is longer. */
  readonly chunk: number;
}

/** [batch, sequence, hidden] → the same. */
export function stateSpace(builder: GraphBuilder, input: string, sizes: StateSpaceSizes): string {
  const { heads, headWidth, state, groups } = sizes;
  const [batch = 1, sequence = 1, hidden = 1] = builder.shapeOf(input);
  const width = heads * headWidth;
  const halves = (states: string, half: number) =>
    builder.operators('Split', [states], { axis: 2, split: [half, half] }, 2);
  const [gate = '', raw = ''] = halves(linear(builder, 'gate_value', input, 2 * width), width);
  const shared = halves(linear(builder, 'key_query', input, 2 * groups * state), groups * state);
  const [key, query, value] = (['key', 'query', 'value'] as const).map((name, index) =>
    convolved(builder, `${name}_taps`, [...shared, raw][index] ?? '', sizes),
  ) as [string, string, string];
  const rate = builder.operator('Softplus', [
    builder.operator('Add', [
      linear(builder, 'rate', input, heads),
      builder.parameter('rate_bias', [heads], { deviation: 0.5 }),
    ]),
  ]);
  const read = builder.within('scan', () => scan(builder, { key, query, value, rate }, sizes));
  const opened = builder.operator('Mul', [read, builder.operator('Swish', [gate], { alpha: 1 })]);
  const normed = builder.within('norm', () => {
    const apart = [batch, sequence, groups, width / groups];
    const grouped = builder.operator('Reshape', [opened], { shape: apart, allowzero: 0 });
    const one = builder.constant(
      'one',
      floats(
        Array.from({ length: width / groups }, () => 1),
        [width / groups],
      ),
    );
    const scaled = builder.operator('RMSNormalization', [grouped, one], { axis: -1, epsilon: 1e-5 });
    const joined = builder.operator('Reshape', [scaled], { shape: [batch, sequence, width], allowzero: 0 });
    return builder.operator('Mul', [joined, builder.parameter('weight', [width], { mean: 1, deviation: 0.02 })]);
  });
  return linear(builder, 'output', normed, hidden);
}

/** Causal convolution of each feature over the last few positions, then SiLU: [batch, sequence, features]. */
function convolved(builder: GraphBuilder, name: string, states: string, { kernel }: StateSpaceSizes): string {
  return builder.within(name, () => {
    const features = builder.shapeOf(states).at(-1) ?? 1;
    const weight = builder.parameter('weight', [features, 1, kernel], { deviation: 1 / Math.sqrt(kernel) });
    const bias = builder.parameter('bias', [features], { deviation: 0.1 });
    const along = builder.operator('Transpose', [states], { perm: [0, 2, 1] });
    const sums = builder.operator('Conv', [along, weight, bias], {
      group: features,
      kernel_shape: [kernel],
      pads: [kernel - 1, 0],
      strides: [1],
      dilations: [1],
      auto_pad: 'NOTSET',
    });
    return builder.operator('Swish', [builder.operator('Transpose', [sums], { perm: [0, 2, 1] })], { alpha: 1 });
  });
}

interface Operands {
  readonly key: string;
  readonly query: string;
  readonly value: string;
  readonly rate: string;
}

/** Dimensions inside: [batch, chunk, group, head of the group, position, …]. */
function scan(builder: GraphBuilder, operands: Operands, sizes: StateSpaceSizes): string {
  const { heads, headWidth, state, groups } = sizes;
  const [batch = 1, sequence = 1] = builder.shapeOf(operands.value);
  const positions = Math.min(sizes.chunk, sequence);
  const chunks = sequence / positions;
  const each = heads / groups;
  const add = (op: string, ...inputs: readonly string[]) => builder.operator(op, inputs);
  const form = (tensor: string, shape: readonly number[], perm: readonly number[]) =>
    builder.operator('Transpose', [builder.operator('Reshape', [tensor], { shape, allowzero: 0 })], { perm });
  const wider = (tensor: string, axis: number) => builder.operator('Unsqueeze', [tensor], { axes: [axis] });
  const perHead = (name: string, deviation: number, mean = 0) =>
    builder.operator('Reshape', [builder.parameter(name, [heads], { mean, deviation })], {
      shape: [groups, each, 1],
      allowzero: 0,
    });

  const value = form(operands.value, [batch, chunks, positions, groups, each, headWidth], [0, 1, 3, 4, 2, 5]);
  const [key, query] = [operands.key, operands.query].map((tensor) =>
    form(tensor, [batch, chunks, positions, groups, state], [0, 1, 3, 2, 4]),
  ) as [string, string];
  const rate = form(operands.rate, [batch, chunks, positions, groups, each], [0, 1, 3, 4, 2]);
  const logs = add('Mul', rate, add('Neg', add('Exp', perHead('decay', 0.5))));
  const sums = builder.operator('CumSum', [logs], { axis: 4, exclusive: 0, reverse: 0 });
  const whole = builder.operator('ReduceSum', [logs], { axes: [4], keepdims: 1 });
  const fed = add('Mul', value, wider(rate, 5));

  const turnedKey = builder.operator('Transpose', [key], { perm: [0, 1, 2, 4, 3] });
  const decays = decaysBetween(builder, sums, sums, 1);
  const scores = add('Mul', wider(add('MatMul', query, turnedKey), 3), decays);
  const inside = add('MatMul', scores, fed);

  const left = add('Mul', fed, wider(add('Exp', add('Sub', whole, sums)), 5));
  const ends = add('MatMul', wider(turnedKey, 3), left);
  const before = builder.within('chunks', () => statesBefore(builder, ends, whole));
  const carried = add('Mul', add('MatMul', wider(query, 3), before), wider(add('Exp', sums), 5));

  const skipped = add('Mul', value, wider(perHead('skip', 0.1, 1), 3));
  const total = add('Add', add('Add', inside, carried), skipped);
  const turned = builder.operator('Transpose', [total], { perm: [0, 1, 4, 2, 3, 5] });
  return builder.operator('Reshape', [turned], { shape: [batch, sequence, heads * headWidth], allowzero: 0 });
}

/** The initial state of each chunk: the sum of the states at the ends of earlier chunks, decayed over the chunks between. */
function statesBefore(builder: GraphBuilder, ends: string, whole: string): string {
  const [batch = 1, chunks = 1, groups = 1, each = 1, state = 1, width = 1] = builder.shapeOf(ends);
  const perChunk = builder.operator('Transpose', [builder.operator('Squeeze', [whole], { axes: [4] })], {
    perm: [0, 2, 3, 1],
  });
  const until = builder.operator('CumSum', [perChunk], { axis: 3, exclusive: 1, reverse: 0 });
  const through = builder.operator('Add', [until, perChunk]);
  const decays = decaysBetween(builder, until, through, 0);
  const rows = builder.operator('Reshape', [builder.operator('Transpose', [ends], { perm: [0, 2, 3, 1, 4, 5] })], {
    shape: [batch, groups, each, chunks, state * width],
    allowzero: 0,
  });
  const passed = builder.operator('Reshape', [builder.operator('MatMul', [decays, rows])], {
    shape: [batch, groups, each, chunks, state, width],
    allowzero: 0,
  });
  return builder.operator('Transpose', [passed], { perm: [0, 3, 1, 2, 4, 5] });
}

/**
 * exp(to[i] − from[j]) where j < i (`nearest` 0) or j ≤ i (1), and 0 elsewhere: exponents of later positions are lowered before
 * the exponential, which would grow.
 */
function decaysBetween(builder: GraphBuilder, to: string, from: string, nearest: 0 | 1): string {
  const shape = builder.shapeOf(to);
  const [steps = 1] = shape.slice(-1);
  const axis = shape.length;
  const apart = builder.operator('Sub', [
    builder.operator('Unsqueeze', [to], { axes: [axis] }),
    builder.operator('Unsqueeze', [from], { axes: [axis - 1] }),
  ]);
  const low = builder.operator('ConstantOfShape', [], { shape: [steps, steps], value: floats([-1e9], [1]) });
  const ahead = builder.operator('Trilu', [low], { upper: 1, k: nearest });
  return builder.operator('Exp', [builder.operator('Add', [apart, ahead])]);
}
