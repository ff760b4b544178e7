/**
 * @file Layers of experts as exporters write them: each token is sent to its top k, and every written form computes the same.
 */
import { floats, GraphBuilder } from '../../models/builder.js';
import { embedding, linear } from '../../models/transformer.js';
import type { Graph } from '../../src/ir/graph.js';
import { constant } from '../../src/ir/ops/constants.js';

/**
 * `einsum`: dense dispatch, matmuls and sum by Einsum. `batched`: copies of the tokens through batched MatMuls with biases and a
 * gate beside. `operator`, `quantised`: ONNX Runtime's MoE and QMoE. `capacity`: GShard's masks of tokens, experts and slots.
 * Experts that are modules with weights of their own: `unrolled`, each with its column of the gate, added up; `masked`, each
 * where it was chosen; `together`, put side by side first; `gathered`, of these the chosen ones. `three`: gates, activations and
 * weights in one Einsum. Weights of the chosen experts gathered for each token: `chosen`, as transformers' `batched_mm`;
 * `lookup`, by Einsum.
 */
export const EXPERT_FORMS = [
  'einsum',
  'batched',
  'operator',
  'quantised',
  'capacity',
  'unrolled',
  'masked',
  'together',
  'gathered',
  'three',
  'chosen',
  'lookup',
] as const;
export type ExpertForm = (typeof EXPERT_FORMS)[number];

export interface ExpertSizes {
  readonly batch: number;
  readonly steps: number;
  readonly width: number;
  readonly inner: number;
  readonly experts: number;
  readonly chosen: number;
  readonly layers: number;
  /** Bias of the first expert's score: far above 0 every token chooses it. */
  readonly bias?: number;
  /** Layers begin with attention, so that there is a sequence; they do by default. */
  readonly attends?: boolean;
  /** Gates are zero behind the first tokens of a sample that choose an expert: dropping, written as a mask. */
  readonly capacity?: number;
  /** Parameters of equal values are stored once. */
  readonly merges?: boolean;
}

export const SMALL: ExpertSizes = { batch: 8, steps: 6, width: 16, inner: 12, experts: 4, chosen: 2, layers: 2 };

/** Tokens through layers of experts, each added to what enters it. */
export function routedExperts(form: ExpertForm, sizes: ExpertSizes = SMALL): Graph {
  const { batch, steps, width, layers, attends = true } = sizes;
  const builder = new GraphBuilder(`experts-${form}`, 21, sizes.merges ? 'exported' : 'random');
  const ids = builder.input('ids', 'int64', [batch, steps]);
  let state = embedding(builder, ids, builder.parameter('table.weight', [32, width], { deviation: 1 }));
  for (let layer = 0; layer < layers; layer++)
    state = builder.within(`layers.${layer}`, () => {
      if (attends) state = attended(builder, state, width);
      const flat = builder.operator('Reshape', [state], { shape: [batch * steps, width], allowzero: 0 });
      const made = builder.within('experts', () => FORMS[form](builder, flat, sizes));
      const back = builder.operator('Reshape', [made], { shape: [batch, steps, width], allowzero: 0 });
      return builder.operator('Add', [state, back]);
    });
  builder.output('y', linear(builder, 'head', state, width));
  return builder.build();
}

/** state + softmax(q · kᵀ) · state. */
function attended(builder: GraphBuilder, state: string, width: number): string {
  const [query, key] = ['q', 'k'].map((name) => linear(builder, name, state, width));
  const turned = builder.operator('Transpose', [key ?? ''], { perm: [0, 2, 1] });
  const weights = builder.operator('Softmax', [builder.operator('MatMul', [query ?? '', turned])], { axis: -1 });
  return builder.operator('Add', [state, builder.operator('MatMul', [weights, state])]);
}

type Writer = (builder: GraphBuilder, flat: string, sizes: ExpertSizes) => string;

const FORMS: Readonly<Record<ExpertForm, Writer>> = {
  einsum: (builder, flat, sizes) => {
    const { inner, width, experts } = sizes;
    const up = weight(builder, 'up', [experts, width, inner]);
    const down = weight(builder, 'down', [experts, inner, width]);
    const gate = gateOf(builder, flat, sizes);
    const wide = builder.operator('Einsum', [flat, up], { equation: 'td,edf->tef' });
    const open = builder.operator('Mul', [wide, builder.operator('Sigmoid', [wide])]);
    const narrow = builder.operator('Einsum', [open, down], { equation: 'tef,efd->etd' });
    return builder.operator('Einsum', [narrow, gate], { equation: 'etd,te->td' });
  },
  batched: (builder, flat, sizes) => {
    const { inner, width, experts } = sizes;
    const tokens = sizes.batch * sizes.steps;
    const both = weight(builder, 'gate_up', [experts, width, 2 * inner]);
    const down = weight(builder, 'down', [experts, inner, width]);
    const shift = builder.parameter('gate_up_bias', [experts, 2 * inner]);
    const gate = gateOf(builder, flat, sizes);
    const tiled = builder.operator('Tile', [flat], { repeats: [experts, 1] });
    const each = builder.operator('Reshape', [tiled], { shape: [experts, tokens, width], allowzero: 0 });
    const product = builder.operator('MatMul', [each, both]);
    const wide = builder.operator('Add', [product, builder.operator('Unsqueeze', [shift], { axes: [1] })]);
    const [open = '', value = ''] = builder.operators('Split', [wide], { axis: 2, split: [inner, inner] }, 2);
    const opened = builder.operator('Mul', [builder.operator('Tanh', [open]), value]);
    const narrow = builder.operator('MatMul', [opened, down]);
    const shares = builder.operator('Unsqueeze', [builder.operator('Transpose', [gate], { perm: [1, 0] })], {
      axes: [2],
    });
    const weighted = builder.operator('Mul', [narrow, shares]);
    return builder.operator('ReduceSum', [weighted], { axes: [0], keepdims: 0 });
  },
  operator: (builder, flat, { inner, width, experts, chosen, bias = 0 }) => {
    const first = weight(builder, 'fc1', [experts, inner, width]);
    const shift = builder.parameter('fc1_bias', [experts, inner]);
    const second = weight(builder, 'fc2', [experts, width, inner]);
    const scores = scoresOf(builder, flat, experts, bias);
    const attributes = { k: chosen, activation_type: 'silu', normalize_routing_weights: 1 };
    const [result = ''] = builder.operators(
      'MoE',
      [flat, scores, first, shift, second],
      attributes,
      1,
      'com.microsoft',
    );
    return result;
  },
  quantised: (builder, flat, { inner, width, experts, chosen, bias = 0 }) => {
    const packed = (name: string, rows: number, columns: number) => {
      const values = Array.from({ length: (experts * rows * columns) / 2 }, (_, index) => (index * 37) % 256);
      return builder.constant(`${name}.packed`, constant('uint8', values, [experts, rows, columns / 2]));
    };
    const scales = (name: string, rows: number) =>
      builder.constant(`${name}.scales`, constant('float32', Array(experts * rows).fill(0.05), [experts, rows]));
    const scores = scoresOf(builder, flat, experts, bias);
    const first = [packed('fc1', inner, width), scales('fc1', inner), null];
    const inputs = [flat, scores, ...first, packed('fc2', width, inner), scales('fc2', width)];
    const attributes = { k: chosen, activation_type: 'silu', expert_weight_bits: 4 };
    const [result = ''] = builder.operators('QMoE', inputs, attributes, 1, 'com.microsoft');
    return result;
  },
  capacity: (builder, flat, sizes) => {
    const { inner, width, experts, chosen, batch, steps } = sizes;
    const slots = Math.ceil((1.5 * chosen * batch * steps) / experts);
    const up = weight(builder, 'up', [experts, width, inner]);
    const down = weight(builder, 'down', [experts, inner, width]);
    const gate = gateOf(builder, flat, sizes);
    const zero = builder.constant('zero', floats([0]));
    const isChosen = builder.operator('Not', [builder.operator('Equal', [gate, zero])]);
    const chose = builder.operator('Cast', [isChosen], { to: 1 });
    const place = builder.operator('Mul', [builder.operator('CumSum', [chose], { axis: 0 }), chose]);
    const numbers = Array.from({ length: slots }, (_, slot) => slot + 1);
    const slot = builder.constant('slots', constant('float32', numbers, [1, 1, slots]));
    const isThere = builder.operator('Equal', [builder.operator('Unsqueeze', [place], { axes: [2] }), slot]);
    const mask = builder.operator('Cast', [isThere], { to: 1 });
    const combine = builder.operator('Mul', [mask, builder.operator('Unsqueeze', [gate], { axes: [2] })]);
    const rows = builder.operator('Einsum', [mask, flat], { equation: 'sec,sd->ecd' });
    const wide = builder.operator('Relu', [builder.operator('Einsum', [rows, up], { equation: 'ecd,edf->ecf' })]);
    const narrow = builder.operator('Einsum', [wide, down], { equation: 'ecf,efd->ecd' });
    return builder.operator('Einsum', [combine, narrow], { equation: 'sec,ecd->sd' });
  },
  unrolled: (builder, flat, sizes) => {
    const gate = gateOf(builder, flat, sizes);
    const terms = each(sizes, (index) => {
      const column = builder.operator('Slice', [gate], { starts: [index], ends: [index + 1], axes: [1] });
      return builder.operator('Mul', [column, expertOf(builder, index, flat, sizes)]);
    });
    return terms.reduce((sum, term) => builder.operator('Add', [sum, term]));
  },
  masked: (builder, flat, sizes) => {
    const { batch, steps, width } = sizes;
    const [shares, places] = choiceOf(builder, flat, sizes);
    const value = constant('float32', [0], [1]);
    const none = builder.operator('ConstantOfShape', [], { shape: [batch * steps, width], value });
    const terms = each(sizes, (index) => {
      const isIts = builder.operator('Equal', [
        places,
        builder.constant(`number.${index}`, constant('int64', [index])),
      ]);
      const its = builder.operator('Mul', [shares, builder.operator('Cast', [isIts], { to: 1 })]);
      const share = builder.operator('ReduceSum', [its], { axes: [1], keepdims: 1 });
      return builder.operator('Mul', [expertOf(builder, index, flat, sizes), share]);
    });
    return terms.reduce((sum, term) => builder.operator('Add', [sum, term]), none);
  },
  together: (builder, flat, sizes) => {
    const gate = gateOf(builder, flat, sizes);
    const results = each(sizes, (index) =>
      builder.operator('Unsqueeze', [expertOf(builder, index, flat, sizes)], { axes: [1] }),
    );
    const all = builder.operator('Concat', results, { axis: 1 });
    const shares = builder.operator('Unsqueeze', [gate], { axes: [2] });
    return builder.operator('ReduceSum', [builder.operator('Mul', [all, shares])], { axes: [1], keepdims: 0 });
  },
  gathered: (builder, flat, sizes) => {
    const { batch, steps, width, experts, chosen, bias = 0 } = sizes;
    const scores = builder.operator('Sigmoid', [scoresOf(builder, flat, experts, bias)]);
    const attributes = { k: [chosen], axis: -1, largest: 1, sorted: 1 };
    const [, places = ''] = builder.operators('TopK', [scores], attributes, 2);
    const shares = builder.operator('GatherElements', [scores, places], { axis: 1 });
    const results = each(sizes, (index) =>
      builder.operator('Unsqueeze', [expertOf(builder, index, flat, sizes)], { axes: [1] }),
    );
    const all = builder.operator('Concat', results, { axis: 1 });
    const choice = builder.operator('Unsqueeze', [places], { axes: [2] });
    const spread = builder.operator('Expand', [choice], { shape: [batch * steps, chosen, width] });
    const best = builder.operator('GatherElements', [all, spread], { axis: 1 });
    return builder.operator('Einsum', [best, shares], { equation: 'tkd,tk->td' });
  },
  three: (builder, flat, sizes) => {
    const { inner, width, experts } = sizes;
    const up = weight(builder, 'up', [experts, width, inner]);
    const down = weight(builder, 'down', [experts, inner, width]);
    const wide = builder.operator('Tanh', [builder.operator('Einsum', [flat, up], { equation: 'td,edf->tef' })]);
    return builder.operator('Einsum', [gateOf(builder, flat, sizes), wide, down], { equation: 'te,tef,efd->td' });
  },
  chosen: (builder, flat, sizes) => {
    const { inner, width, experts, chosen, batch, steps } = sizes;
    const both = weight(builder, 'gate_up', [experts, 2 * inner, width]);
    const shift = builder.parameter('gate_up_bias', [experts, 2 * inner]);
    const down = weight(builder, 'down', [experts, width, inner]);
    const [shares, places] = choiceOf(builder, flat, sizes);
    const [tokens, pairs] = [batch * steps, batch * steps * chosen];
    const view = (tensor: string, shape: readonly number[]) =>
      builder.operator('Reshape', [tensor], { shape, allowzero: 0 });
    const number = view(places, [pairs]);
    const own = (stack: string) => builder.operator('Gather', [stack, number], { axis: 0 });
    const product = (stack: string, rows: string) => {
      const column = builder.operator('Unsqueeze', [rows], { axes: [2] });
      return builder.operator('Squeeze', [builder.operator('MatMul', [own(stack), column])], { axes: [2] });
    };
    const each = builder.operator('Unsqueeze', [flat], { axes: [1] });
    const copies = view(builder.operator('Expand', [each], { shape: [tokens, chosen, width] }), [pairs, width]);
    const wide = builder.operator('Add', [product(both, copies), own(shift)]);
    const [open = '', value = ''] = builder.operators('Split', [wide], { axis: 1, split: [inner, inner] }, 2);
    const narrow = product(down, builder.operator('Mul', [builder.operator('Tanh', [open]), value]));
    const weighted = builder.operator('Mul', [narrow, view(shares, [pairs, 1])]);
    return builder.operator('ReduceSum', [view(weighted, [tokens, chosen, width])], { axes: [1], keepdims: 0 });
  },
  lookup: (builder, flat, sizes) => {
    const { inner, width, experts } = sizes;
    const [shares, places] = choiceOf(builder, flat, sizes);
    const own = (name: string, shape: readonly number[]) =>
      builder.operator('Gather', [weight(builder, name, shape), places], { axis: 0 });
    const wide = builder.operator('Einsum', [own('up', [experts, inner, width]), flat], { equation: 'tkfd,td->tkf' });
    const open = builder.operator('Relu', [wide]);
    const narrow = builder.operator('Einsum', [own('down', [experts, width, inner]), open], {
      equation: 'tkdf,tkf->tkd',
    });
    return builder.operator('Einsum', [narrow, shares], { equation: 'tkd,tk->td' });
  },
};

function each<Result>({ experts }: ExpertSizes, make: (index: number) => Result): readonly Result[] {
  return Array.from({ length: experts }, (_, index) => make(index));
}

/** A module with a gated layer of its own; the bias begins as zero, and exporters would store one for all. */
function expertOf(builder: GraphBuilder, index: number, flat: string, { width, inner }: ExpertSizes): string {
  return builder.within(`experts.${index}`, () => {
    const wide = builder.operator('MatMul', [flat, weight(builder, 'up', [width, 2 * inner])]);
    const shifted = builder.operator('Add', [wide, builder.parameter('up.bias', [2 * inner])]);
    const [open = '', value = ''] = builder.operators('Split', [shifted], { axis: -1, split: [inner, inner] }, 2);
    const opened = builder.operator('Mul', [builder.operator('Tanh', [open]), value]);
    const narrow = builder.operator('MatMul', [opened, weight(builder, 'down', [inner, width])]);
    return builder.operator('Add', [narrow, builder.uniformParameter('down.bias', [width], 0)]);
  });
}

function weight(builder: GraphBuilder, name: string, shape: readonly number[]): string {
  return builder.parameter(`${name}.weight`, shape, { deviation: 0.3 });
}

function scoresOf(builder: GraphBuilder, flat: string, experts: number, bias: number): string {
  const scores = builder.within('router', () => linear(builder, 'linear', flat, experts));
  const first = Array.from({ length: experts }, (_, expert) => (expert === 0 ? bias : 0));
  return bias === 0
    ? scores
    : builder.operator('Add', [scores, builder.constant('skew', constant('float32', first, [experts]))]);
}

/** [tokens, k]: the softmax of the top k, which add up to one, and their experts. */
function choiceOf(builder: GraphBuilder, flat: string, { experts, chosen, bias = 0 }: ExpertSizes): [string, string] {
  const scores = builder.operator('Softmax', [scoresOf(builder, flat, experts, bias)], { axis: -1 });
  const attributes = { k: [chosen], axis: -1, largest: 1, sorted: 1 };
  const [best = '', places = ''] = builder.operators('TopK', [scores], attributes, 2);
  const sum = builder.operator('ReduceSum', [best], { axes: [1], keepdims: 1 });
  return [builder.operator('Div', [best, sum]), places];
}

/** [tokens, experts]: the softmax of the top k, which add up to one; zero elsewhere. */
function gateOf(builder: GraphBuilder, flat: string, sizes: ExpertSizes): string {
  const { batch, steps, experts, capacity } = sizes;
  const [shares, places] = choiceOf(builder, flat, sizes);
  const value = constant('float32', [0], [1]);
  const none = builder.operator('ConstantOfShape', [], { shape: [batch * steps, experts], value });
  const gate = builder.operator('ScatterElements', [none, places, shares], { axis: 1 });
  if (capacity === undefined) return gate;
  const apart = builder.operator('Reshape', [gate], { shape: [batch, steps, experts], allowzero: 0 });
  const isChosen = builder.operator('Not', [builder.operator('Equal', [apart, builder.scalar(0)])]);
  const place = builder.operator('CumSum', [builder.operator('Cast', [isChosen], { to: 1 })], { axis: 1 });
  const isKept = builder.operator('LessOrEqual', [place, builder.scalar(capacity)]);
  const kept = builder.operator('Mul', [apart, builder.operator('Cast', [isKept], { to: 1 })]);
  return builder.operator('Reshape', [kept], { shape: [batch * steps, experts], allowzero: 0 });
}
