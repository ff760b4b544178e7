/**
 * @file Recurrent replacements of attention as ONNX Runtime fuses them (domain com.microsoft): linear attention with its
 * state, and the short causal convolution before it. Heads and channels pass; positions are sequential.
 */
import type { FactorRule } from '../factor-rule.js';
import { elementCount, type TensorType } from '../graph.js';
import type { OperatorEntry, OperatorView } from '../operator.js';
import { bindRule } from '../rule-text.js';
import { causalConvolutionGradient } from './causal-convolution-gradient.js';
import { entry } from './entry.js';
import { mismatch, numberOf, ofRank, operand, result } from './operands.js';
import { differentiable, inPlainOperators } from './operator-gradient.js';
import { type LinearSizes, plainLinearAttention } from './plain-linear-attention.js';

const DOMAIN = 'com.microsoft';

export const linearAttentionEntries: readonly OperatorEntry[] = [
  inPlainOperators(
    entry({
      op: 'LinearAttention',
      domain: DOMAIN,
      family: 'attention',
      carriesState: () => true,
      precision: 'full',
      attributes: { q_num_heads: 'count', kv_num_heads: 'count' },
      infer: (view) => {
        const { batch, positions, heads, keyHeads, head, valueHead } = sizesOf(view);
        const { dtype } = operand(view, 0);
        const windows = numberOf(view, 'state_window', 0);
        const state = [batch, keyHeads, head, valueHead];
        const types: readonly TensorType[] = [
          { dtype, shape: [batch, positions, Math.max(heads, keyHeads) * valueHead] },
          { dtype: view.inputs[3]?.dtype ?? dtype, shape: windows > 0 ? [windows, ...state] : state },
        ];
        return types.slice(0, view.outputCount);
      },
      rule: linearRule,
      resize: (view, rule, size) =>
        rule.factors.has('h')
          ? { ...view.attributes, q_num_heads: size('h') * size('g'), kv_num_heads: size('h') * size('j') }
          : view.attributes,
      work: (view) => {
        const { batch, positions, heads, keyHeads, head, valueHead } = sizesOf(view);
        return { flops: 6 * batch * positions * Math.max(heads, keyHeads) * head * valueHead };
      },
      note: 'Positions are not sharded (each needs the state of the previous one), nor are the features of a head.',
    }),
    (write) => plainLinearAttention(write, sizesOf(write.view)),
  ),
  differentiable(
    entry({
      op: 'CausalConvWithState',
      domain: DOMAIN,
      family: 'convolution',
      carriesState: () => true,
      infer: (view) => {
        const type = ofRank(view, 0, 3, true);
        const [kernel = 1] = ofRank(view, 1, 3, true).shape.slice(-1);
        const windows = numberOf(view, 'state_window', 0);
        const reach = (kernel - 1) * numberOf(view, 'dilation', 1);
        const last = numberOf(view, 'channels_last', 0) !== 0;
        const { shape } = type;
        const state = last ? [shape[0] ?? 1, reach, ...shape.slice(2)] : [...shape.slice(0, -1), reach];
        return [type, { dtype: type.dtype, shape: windows > 0 ? [windows, ...state] : state }].slice(
          0,
          view.outputCount,
        );
      },
      rule: (view) => {
        const rank = operand(view, 0).shape.length;
        const spatial = Array.from({ length: rank - 3 }, (_, index) => `s${index}!`);
        const last = numberOf(view, 'channels_last', 0) !== 0;
        const image = (along: string) =>
          (last ? ['n', along, ...spatial, 'c'] : ['n', 'c', ...spatial, along]).join(' ');
        const state = `${numberOf(view, 'state_window', 0) > 0 ? 'w! ' : ''}${image('p!')}`;
        const kernel = ['c', '1', ...spatial.map((_, index) => `k${index}!`), 'k!'].join(' ');
        return `${image('t!')}, ${kernel}, c, ${state} -> ${image('t!')}, ${state}`;
      },
      work: (view) => ({
        flops: 2 * elementCount(result(view, 0).shape) * elementCount(operand(view, 1).shape.slice(2)),
      }),
      parameterInputs: [1, 2],
      note: 'Positions are not sharded: each reads the previous ones.',
    }),
    causalConvolutionGradient,
  ),
];

function sizesOf(view: OperatorView): LinearSizes {
  const [batch = 1, positions = 1, width = 1] = ofRank(view, 0, 3).shape;
  const [heads, keyHeads] = [numberOf(view, 'q_num_heads', 0), numberOf(view, 'kv_num_heads', 0)];
  const head = width / heads;
  const valueHead = (ofRank(view, 2, 3).shape[2] ?? 1) / keyHeads;
  const divides = heads % keyHeads === 0 || keyHeads % heads === 0;
  if (!divides || !Number.isInteger(head) || !Number.isInteger(valueHead))
    throw mismatch(view, `queries, keys and values do not make ${heads} and ${keyHeads} heads`);
  return { batch, positions, heads, keyHeads, head, valueHead };
}

function linearRule(view: OperatorView): FactorRule {
  const { heads, keyHeads, head } = sizesOf(view);
  const common = Math.min(heads, keyHeads);
  const keyWidth = ofRank(view, 1, 3).shape[2] ?? 1;
  // Keys may have as few heads as queries where values have more.
  const keys = keyWidth === keyHeads * head ? '(h j! e!)' : '(h e!)';
  const perHead = (index: number) => {
    const width = view.inputs[index]?.shape[2] ?? 1;
    if (width === 1 && keyHeads !== 1) return '1';
    return width === keyHeads ? '(h j!)' : '(h j! e!)';
  };
  const state = `${numberOf(view, 'state_window', 0) > 0 ? 'w! ' : ''}b (h j!) e! f!`;
  const inputs = [
    'b t! (h g! e!)',
    `b t! ${keys}`,
    'b t! (h j! f!)',
    state,
    `b t! ${perHead(4)}`,
    `b t! ${perHead(5)}`,
  ];
  const output = `b t! (h ${heads >= keyHeads ? 'g!' : 'j!'} f!)`;
  const sizes = { h: common, g: heads / common, j: keyHeads / common };
  return bindRule(`${inputs.slice(0, view.inputs.length).join(', ')} -> ${output}, ${state}`, view, sizes);
}
