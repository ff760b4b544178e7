/**
 * @file Feed-forward blocks of language models: one for all tokens, or experts that each take some of them.
 */
import { floats, type GraphBuilder } from './builder.js';
import type { ExpertSizes, LanguageModelSizes } from './language-sizes.js';
import { linear } from './transformer.js';

/** [batch, sequence, hidden] → the same, through an inner width. */
export function feedForward(builder: GraphBuilder, input: string, sizes: LanguageModelSizes, width: number): string {
  const { hidden, gated, bias } = sizes;
  const wide = linear(builder, 'up', input, gated ? 2 * width : width, { bias });
  return linear(builder, 'down', activated(builder, wide, sizes, width), hidden, { bias });
}

/** The activation function between the two matmuls. */
function activated(
  builder: GraphBuilder,
  wide: string,
  { gated, activation }: LanguageModelSizes,
  width: number,
): string {
  if (gated) return gate(builder, wide, width);
  if (activation === undefined) return builder.operator('Gelu', [wide], { approximate: 'tanh' });
  const positive = builder.operator('Relu', [wide]);
  return builder.operator('Mul', [positive, positive]);
}

/** SwiGLU of a projection that holds gate and value side by side: x · sigmoid(x) · y. */
function gate(builder: GraphBuilder, wide: string, width: number): string {
  const axis = builder.shapeOf(wide).length - 1;
  const [open = '', value = ''] = builder.operators('Split', [wide], { axis, split: [width, width] }, 2);
  return builder.operator('Mul', [builder.operator('Swish', [open], { alpha: 1 }), value]);
}

/**
 * Expert-choice routing (Zhou et al. 2022): each expert takes the tokens · chosen / count tokens of a sample that score highest
 * with it. Shapes are static and the load is even, so the cost equals that of balanced routing of `chosen` experts per token, and
 * no sample depends on the others. Experts of a latent width see tokens that were projected to it, and their results are
 * projected back.
 */
export function expertBlock(
  builder: GraphBuilder,
  input: string,
  sizes: LanguageModelSizes,
  experts: ExpertSizes,
): string {
  const { hidden, gated } = sizes;
  const { count, chosen, feedForward: width, shared, latent } = experts;
  const [batch = 1, sequence = 1] = builder.shapeOf(input);
  const taken = Math.max(1, Math.floor((sequence * chosen) / count));
  const slots = count * taken;
  const router = linear(builder, 'router', input, count, { bias: experts.bias === true });
  const [best = '', places = ''] = builder.operators(
    'TopK',
    [builder.operator('Softmax', [router], { axis: -1 })],
    { k: [taken], axis: 1, largest: 1, sorted: 1 },
    2,
  );
  /** [batch, taken, experts] → [batch, experts · taken]. */
  const perExpert = (name: string) =>
    reshaped(builder, builder.operator('Transpose', [name], { perm: [0, 2, 1] }), [batch, slots]);
  const column = builder.operator('Unsqueeze', [perExpert(places)], { axes: [2] });
  const sent = latent === undefined ? input : linear(builder, 'latent_down', input, latent);
  const across = latent ?? hidden;
  const rows = turned(builder, builder.operator('GatherND', [sent, column], { batch_dims: 1 }), [
    ...[batch, count, taken, across],
  ]);
  const product = (name: string, states: string, from: number, to: number) =>
    builder.within(name, () =>
      builder.operator('MatMul', [
        states,
        builder.parameter('weight', [count, from, to], { deviation: 1 / Math.sqrt(from) }),
      ]),
    );
  const wide = product(
    'up',
    reshaped(builder, rows, [count, batch * taken, across]),
    across,
    gated ? 2 * width : width,
  );
  const inner =
    experts.bias || experts.clamp !== undefined
      ? opened(builder, wide, sizes, experts)
      : activated(builder, wide, sizes, width);
  const narrow = product('down', inner, width, across);
  const down = experts.bias
    ? builder.operator('Add', [narrow, expertBias(builder, 'down_bias', count, across)])
    : narrow;
  const back = reshaped(builder, turned(builder, down, [count, batch, taken, across]), [batch, slots, across]);
  const scaled = builder.operator('Mul', [back, builder.operator('Unsqueeze', [perExpert(best)], { axes: [2] })]);
  const always = shared === 0 ? null : builder.within('shared', () => feedForward(builder, input, sizes, shared));
  const nothing = () => builder.operator('Mul', [sent, builder.constant('zero', floats([0]))]);
  const base = latent === undefined ? (always ?? nothing()) : nothing();
  const indices = builder.operator('Expand', [column], { shape: [batch, slots, across] });
  const summed = builder.operator('ScatterElements', [base, indices, scaled], { axis: 1, reduction: 'add' });
  if (latent === undefined) return summed;
  const routed = linear(builder, 'latent_up', summed, hidden);
  return always === null ? routed : builder.operator('Add', [routed, always]);
}

function reshaped(builder: GraphBuilder, input: string, shape: readonly number[]): string {
  return builder.operator('Reshape', [input], { shape, allowzero: 0 });
}

/** The input reshaped to these four dimensions, with the first two transposed. */
function turned(builder: GraphBuilder, input: string, shape: readonly number[]): string {
  return builder.operator('Transpose', [reshaped(builder, input, shape)], { perm: [1, 0, 2, 3] });
}

/** A number for each expert and feature: [experts, 1, features]. */
function expertBias(builder: GraphBuilder, name: string, count: number, features: number): string {
  const bias = builder.parameter(name, [count, features], { deviation: 0.02 });
  return builder.operator('Unsqueeze', [bias], { axes: [1] });
}

/** Gated experts with biases, a clamp or both; biases are added to the halves, in the kernel that multiplies them. */
function opened(
  builder: GraphBuilder,
  wide: string,
  { gated }: LanguageModelSizes,
  { count, feedForward: width, bias, clamp }: ExpertSizes,
): string {
  if (!gated) throw new Error('experts with biases or a clamp are gated');
  const halves = builder.operators('Split', [wide], { axis: 2, split: [width, width] }, 2);
  const [open = '', value = ''] = bias
    ? ['gate_bias', 'value_bias'].map((name, half) =>
        builder.operator('Add', [halves[half] ?? '', expertBias(builder, name, count, width)]),
      )
    : halves;
  if (clamp === undefined) return builder.operator('Mul', [builder.operator('Swish', [open], { alpha: 1 }), value]);
  const most = builder.scalar(clamp);
  const closed = builder.operator('Clip', [open, null, most]);
  const kept = builder.operator('Clip', [value, builder.scalar(-clamp), most]);
  const shifted = builder.operator('Add', [kept, builder.scalar(1)]);
  return builder.operator('Mul', [builder.operator('Swish', [closed], { alpha: 1.702 }), shifted]);
}
