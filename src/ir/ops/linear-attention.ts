/**
 * @file Recurrent replacements of attention as ONNX Runtime fuses them (domain com.microsoft): linear attention with its
 * state, and the short causal convolution before it. Heads and channels pass; positions are sequential.
 */
import type { FactorRule } from '../factor-rule.js';
import { elementCount, type TensorType } from '../graph.js';
import type { Operator, OperatorEntry } from '../operator.js';
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
      infer: (operator) => {
        const { batch, positions, heads, keyHeads, head, valueHead } = sizesOf(operator);
        const { dtype } = operand(operator, 0);
        const windows = numberOf(operator, 'state_window', 0);
        const state = [batch, keyHeads, head, valueHead];
        const types: readonly TensorType[] = [
          { dtype, shape: [batch, positions, Math.max(heads, keyHeads) * valueHead] },
          { dtype: operator.inputs[3]?.dtype ?? dtype, shape: windows > 0 ? [windows, ...state] : state },
        ];
        return types.slice(0, operator.outputCount);
      },
      rule: linearRule,
      resize: (operator, rule, size) =>
        rule.factors.has('h')
          ? { ...operator.attributes, q_num_heads: size('h') * size('g'), kv_num_heads: size('h') * size('j') }
          : operator.attributes,
      work: (operator) => {
        const { batch, positions, heads, keyHeads, head, valueHead } = sizesOf(operator);
        return { flops: 6 * batch * positions * Math.max(heads, keyHeads) * head * valueHead };
      },
      note: 'Positions are not sharded (each needs the state of the previous one), nor are the features of a head.',
    }),
    (write) => plainLinearAttention(write, sizesOf(write.operator)),
  ),
  differentiable(
    entry({
      op: 'CausalConvWithState',
      domain: DOMAIN,
      family: 'convolution',
      carriesState: () => true,
      infer: (operator) => {
        const type = ofRank(operator, 0, 3, true);
        const [kernel = 1] = ofRank(operator, 1, 3, true).shape.slice(-1);
        const windows = numberOf(operator, 'state_window', 0);
        const reach = (kernel - 1) * numberOf(operator, 'dilation', 1);
        const last = numberOf(operator, 'channels_last', 0) !== 0;
        const { shape } = type;
        const state = last ? [shape[0] ?? 1, reach, ...shape.slice(2)] : [...shape.slice(0, -1), reach];
        return [type, { dtype: type.dtype, shape: windows > 0 ? [windows, ...state] : state }].slice(
          0,
          operator.outputCount,
        );
      },
      rule: (operator) => {
        const rank = operand(operator, 0).shape.length;
        const spatial = Array.from({ length: rank - 3 }, (_, index) => `s${index}!`);
        const last = numberOf(operator, 'channels_last', 0) !== 0;
        const image = (along: string) =>
          (last ? ['n', along, ...spatial, 'c'] : ['n', 'c', ...spatial, along]).join(' ');
        const state = `${numberOf(operator, 'state_window', 0) > 0 ? 'w! ' : ''}${image('p!')}`;
        const kernel = ['c', '1', ...spatial.map((_, index) => `k${index}!`), 'k!'].join(' ');
        return `${image('t!')}, ${kernel}, c, ${state} -> ${image('t!')}, ${state}`;
      },
      work: (operator) => ({
        flops: 2 * elementCount(result(operator, 0).shape) * elementCount(operand(operator, 1).shape.slice(2)),
      }),
      parameterInputs: [1, 2],
      note: 'Positions are not sharded: each reads the previous ones.',
    }),
    causalConvolutionGradient,
  ),
];

function sizesOf(operator: Operator): LinearSizes {
  const [batch = 1, positions = 1, width = 1] = ofRank(operator, 0, 3).shape;
  const [heads, keyHeads] = [numberOf(operator, 'q_num_heads', 0), numberOf(operator, 'kv_num_heads', 0)];
  const head = width / heads;
  const valueHead = (ofRank(operator, 2, 3).shape[2] ?? 1) / keyHeads;
  const divides = heads % keyHeads === 0 || keyHeads % heads === 0;
  if (!divides || !Number.isInteger(head) || !Number.isInteger(valueHead))
    throw mismatch(operator, `queries, keys and values do not make ${heads} and ${keyHeads} heads`);
  return { batch, positions, heads, keyHeads, head, valueHead };
}

function linearRule(operator: Operator): FactorRule {
  const { heads, keyHeads, head } = sizesOf(operator);
  const common = Math.min(heads, keyHeads);
  const keyWidth = ofRank(operator, 1, 3).shape[2] ?? 1;
  // Keys may have as few heads as queries where values have more.
  const keys = keyWidth === keyHeads * head ? '(h j! e!)' : '(h e!)';
  const perHead = (index: number) => {
    const width = operator.inputs[index]?.shape[2] ?? 1;
    if (width === 1 && keyHeads !== 1) return '1';
    return width === keyHeads ? '(h j!)' : '(h j! e!)';
  };
  const state = `${numberOf(operator, 'state_window', 0) > 0 ? 'w! ' : ''}b (h j!) e! f!`;
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
  return bindRule(`${inputs.slice(0, operator.inputs.length).join(', ')} -> ${output}, ${state}`, operator, sizes);
}
