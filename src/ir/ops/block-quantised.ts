/**
 * @file Matmuls and lookups with weights that are quantised in blocks, unpacked as they are read (domain com.microsoft).
 * A block stays whole, and so do numbers that share a byte; blocks are sharded together with their scales and zero points.
 *
 *     MatMulNBits   *a (q+ r!), n q+ z!, n q+ -> *a n          q: blocks along the contracted dimension
 */

import type { FactorRule } from '../factor-rule.js';
import type { TensorType } from '../graph.js';
import { elementCount } from '../graph.js';
import type { Operator, OperatorEntry } from '../operator.js';
import { bindRule } from '../rule-text.js';
import { BLOCK_QUANTISED_GRADIENTS } from './block-quantised-gradient.js';
import { entry, readsRows } from './entry.js';
import { ExpansionWriter } from './expansion.js';
import { axisOf, dimensionNames, mismatch, numberOf, ofRank, operand, result } from './operands.js';
import { withGradients } from './operator-gradient.js';

const DOMAIN = 'com.microsoft';

const entries: readonly OperatorEntry[] = [
  entry({
    op: 'MatMulNBits',
    domain: DOMAIN,
    family: 'contraction',
    precision: 'full',
    attributes: { block_size: 'count' },
    infer: (operator) => {
      const type = matmulType(operator);
      const blocks = Math.ceil(numberOf(operator, 'K', 0) / numberOf(operator, 'block_size', 0));
      const bytes = (blocks * numberOf(operator, 'block_size', 0) * numberOf(operator, 'bits', 4)) / 8;
      if (elementCount(operand(operator, 1).shape) !== numberOf(operator, 'N', 0) * bytes)
        throw mismatch(operator, `its weights are not ${numberOf(operator, 'N', 0)} rows of ${blocks} blocks`);
      return [type];
    },
    rule: blocksRule,
    resize: (operator, rule, size) => ({
      ...operator.attributes,
      K: rule.factors.has('u') ? size('u') * size('w') * size('r') : numberOf(operator, 'K', 0),
      N: size('n'),
    }),
    expansion: (operator) => {
      const write = new ExpansionWriter();
      const dims = [...dimensionNames(operand(operator, 0).shape.length - 1).map((name) => [name]), ['n']];
      const operands = operator.inputs.slice(0, 5).map((type, index) => (type ? `in${index}` : null));
      const sum = write.addOf(DOMAIN, operator.op, operands, dims, operator.attributes);
      write.add('Add', [sum, 'in5'], dims, {}, 'out0');
      return write.finish();
    },
    work: (operator) => ({ flops: 2 * elementCount(result(operator, 0).shape) * numberOf(operator, 'K', 0) }),
    parameterInputs: [1, 2, 3, 4, 5],
    note: 'The contracted dimension is not sharded if it is not a multiple of the block size, or columns are reordered.',
  }),
  entry({
    op: 'MatMulBnb4',
    domain: DOMAIN,
    family: 'contraction',
    precision: 'full',
    attributes: { block_size: 'count', quant_type: 'int' },
    infer: (operator) => [matmulType(operator)],
    rule: (operator) => {
      const [k, n, block] = [
        numberOf(operator, 'K', 0),
        numberOf(operator, 'N', 0),
        numberOf(operator, 'block_size', 1),
      ];
      const a = dimensionNames(operand(operator, 0).shape.length - 1).join(' ');
      if (k % block !== 0) return `${a} k!, w!, s! -> ${a} n!`;
      return bindRule(`${a} (q+ r!), (n q+ z!), (n q+) -> ${a} n`, operator, { n, q: k / block });
    },
    resize: (operator, rule, size) =>
      rule.factors.has('q') ? { ...operator.attributes, K: size('q') * size('r'), N: size('n') } : operator.attributes,
    work: (operator) => ({ flops: 2 * elementCount(result(operator, 0).shape) * numberOf(operator, 'K', 0) }),
    parameterInputs: [1, 2],
    note: 'Blocks are not split, and nothing is sharded if rows are not a multiple of the block size.',
  }),
  entry({
    op: 'GatherBlockQuantized',
    domain: DOMAIN,
    family: 'indexing',
    infer: (operator) => {
      const { shape } = ofRank(operator, 0, 1, true);
      const axis = axisOf(operator, 'gather_axis', shape.length, 0);
      const wide = shape.map((size, index) => (index === quantisedAxis(operator) ? size * packed(operator) : size));
      const rows = operand(operator, 1).shape;
      return [{ dtype: operand(operator, 2).dtype, shape: [...wide.slice(0, axis), ...rows, ...wide.slice(axis + 1)] }];
    },
    rule: lookupRule,
    linear: () => [],
    indexInput: 1,
    work: readsRows(1),
    parameterInputs: [0, 2, 3],
    note: 'Blocks are not split, and a quantised dimension that is not a multiple of the block size is not sharded.',
  }),
];

export const blockQuantisedEntries = withGradients(entries, BLOCK_QUANTISED_GRADIENTS);

/** Type of a matmul with weights of K by N. */
function matmulType(operator: Operator): TensorType {
  const { dtype, shape } = ofRank(operator, 0, 1, true);
  if (shape.at(-1) !== numberOf(operator, 'K', 0))
    throw mismatch(operator, `its input is not ${numberOf(operator, 'K', 0)} wide`);
  return { dtype, shape: [...shape.slice(0, -1), numberOf(operator, 'N', 0)] };
}

function blocksRule(operator: Operator): FactorRule {
  const [k, n] = [numberOf(operator, 'K', 0), numberOf(operator, 'N', 0)];
  const [block, bits] = [numberOf(operator, 'block_size', 1), numberOf(operator, 'bits', 4)];
  const blocks = Math.ceil(k / block);
  const zeros = operator.inputs[3]?.dtype === 'uint8';
  // Packed zero points: the blocks that share a byte stay together.
  const together = zeros ? 8 / bits : 1;
  const whole = k % block !== 0 || blocks % together !== 0 || Boolean(operator.inputs[4]);
  const mark = whole ? '!' : operator.inputs[5] ? '%' : '+';
  const leading = dimensionNames(operand(operator, 0).shape.length - 1).join(' ');
  // Rows of blocks, or the same stored flat.
  const rows = (index: number, dims: string) =>
    operator.inputs[index]?.shape.length === 1 ? `(n ${dims})` : `n ${dims.includes(' ') ? `(${dims})` : dims}`;
  const [u, w] = [`u${mark}`, 'w!'];
  const columns = whole ? 'k!' : `(${u} ${w} r!)`;
  const of = (index: number, own: string) => rows(index, whole ? `x${index}!` : own);
  const operands = [
    `${leading} ${columns}`,
    `${of(1, `${u} ${w}`)} z!`,
    of(2, `${u} ${w}`),
    of(3, zeros ? u : `${u} ${w}`),
    'g!',
    'n',
  ];
  const sizes = whole ? { n } : { n, u: blocks / together, w: together, r: block };
  return bindRule(`${operands.join(', ')} -> ${leading} n`, operator, sizes);
}

/** How many numbers share a byte of the table: 1 where its type is packed itself. */
function packed(operator: Operator): number {
  return operand(operator, 0).dtype === 'uint8' ? 8 / numberOf(operator, 'bits', 4) : 1;
}

function quantisedAxis(operator: Operator): number {
  return axisOf(operator, 'quantize_axis', operand(operator, 0).shape.length, 1);
}

function lookupRule(operator: Operator): FactorRule {
  const { shape } = operand(operator, 0);
  const axis = axisOf(operator, 'gather_axis', shape.length, 0);
  const quantised = quantisedAxis(operator);
  const block = numberOf(operator, 'block_size', 128);
  const size = (shape[quantised] ?? 1) * packed(operator);
  const zeros = operator.inputs[3];
  const together = zeros?.dtype === 'uint8' ? 8 / numberOf(operator, 'bits', 4) : 1;
  const whole = size % block !== 0 || (size / block) % together !== 0 || axis === quantised;
  const names = dimensionNames(shape.length);
  const side = (own: string, looked: string) =>
    names.map((name, index) => (index === axis ? looked : index === quantised ? own : name));
  const looked = axis === quantised ? 'v!' : 'v+mask';
  const [q, w] = ['q', 'w!'];
  const of = (own: string, name: string) =>
    side(whole ? `${name}!` : own, axis === quantised ? `${name}!` : looked).join(' ');
  const indices = dimensionNames(operand(operator, 1).shape.length, 'i');
  const result = side(whole ? 'y!' : `(${q} ${w} r!)`, looked);
  const rows = [...result.slice(0, axis), ...indices, ...result.slice(axis + 1)];
  const operands = [of(`(${q} ${w} z!)`, 'x'), indices.join(' '), of(`(${q} ${w})`, 'c'), of(q, 'p')];
  const sizes = whole ? {} : { q: size / block / together, w: together, r: block };
  return bindRule(`${operands.join(', ')} -> ${rows.join(' ')}`, operator, sizes);
}
