/**
 * @file Matmuls and lookups with weights that are quantised in blocks, unpacked as they are read (domain com.microsoft).
 * A block stays whole, and so do numbers that share a byte; blocks are sharded together with their scales and zero points.
 *
 *     MatMulNBits   *a (q+ r!), n q+ z!, n q+ -> *a n          q: blocks along the contracted dimension
 */

import type { FactorRule } from '../factor-rule.js';
import type { TensorType } from '../graph.js';
import { elementCount } from '../graph.js';
import type { OperatorEntry, OperatorView } from '../operator.js';
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
    infer: (view) => {
      const type = matmulType(view);
      const blocks = Math.ceil(numberOf(view, 'K', 0) / numberOf(view, 'block_size', 0));
      const bytes = (blocks * numberOf(view, 'block_size', 0) * numberOf(view, 'bits', 4)) / 8;
      if (elementCount(operand(view, 1).shape) !== numberOf(view, 'N', 0) * bytes)
        throw mismatch(view, `its weights are not ${numberOf(view, 'N', 0)} rows of ${blocks} blocks`);
      return [type];
    },
    rule: blocksRule,
    resize: (view, rule, size) => ({
      ...view.attributes,
      K: rule.factors.has('u') ? size('u') * size('w') * size('r') : numberOf(view, 'K', 0),
      N: size('n'),
    }),
    expansion: (view) => {
      const write = new ExpansionWriter();
      const dims = [...dimensionNames(operand(view, 0).shape.length - 1).map((name) => [name]), ['n']];
      const operands = view.inputs.slice(0, 5).map((type, index) => (type ? `in${index}` : null));
      const sum = write.addOf(DOMAIN, view.op, operands, dims, view.attributes);
      write.add('Add', [sum, 'in5'], dims, {}, 'out0');
      return write.finish();
    },
    work: (view) => ({ flops: 2 * elementCount(result(view, 0).shape) * numberOf(view, 'K', 0) }),
    parameterInputs: [1, 2, 3, 4, 5],
    note: 'The contracted dimension is not sharded if it is not a multiple of the block size, or columns are reordered.',
  }),
  entry({
    op: 'MatMulBnb4',
    domain: DOMAIN,
    family: 'contraction',
    precision: 'full',
    attributes: { block_size: 'count', quant_type: 'int' },
    infer: (view) => [matmulType(view)],
    rule: (view) => {
      const [k, n, block] = [numberOf(view, 'K', 0), numberOf(view, 'N', 0), numberOf(view, 'block_size', 1)];
      const a = dimensionNames(operand(view, 0).shape.length - 1).join(' ');
      if (k % block !== 0) return `${a} k!, w!, s! -> ${a} n!`;
      return bindRule(`${a} (q+ r!), (n q+ z!), (n q+) -> ${a} n`, view, { n, q: k / block });
    },
    resize: (view, rule, size) =>
      rule.factors.has('q') ? { ...view.attributes, K: size('q') * size('r'), N: size('n') } : view.attributes,
    work: (view) => ({ flops: 2 * elementCount(result(view, 0).shape) * numberOf(view, 'K', 0) }),
    parameterInputs: [1, 2],
    note: 'Blocks are not split, and nothing is sharded if rows are not a multiple of the block size.',
  }),
  entry({
    op: 'GatherBlockQuantized',
    domain: DOMAIN,
    family: 'indexing',
    infer: (view) => {
      const { shape } = ofRank(view, 0, 1, true);
      const axis = axisOf(view, 'gather_axis', shape.length, 0);
      const wide = shape.map((size, index) => (index === quantisedAxis(view) ? size * packed(view) : size));
      const rows = operand(view, 1).shape;
      return [{ dtype: operand(view, 2).dtype, shape: [...wide.slice(0, axis), ...rows, ...wide.slice(axis + 1)] }];
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
function matmulType(view: OperatorView): TensorType {
  const { dtype, shape } = ofRank(view, 0, 1, true);
  if (shape.at(-1) !== numberOf(view, 'K', 0)) throw mismatch(view, `its input is not ${numberOf(view, 'K', 0)} wide`);
  return { dtype, shape: [...shape.slice(0, -1), numberOf(view, 'N', 0)] };
}

function blocksRule(view: OperatorView): FactorRule {
  const [k, n] = [numberOf(view, 'K', 0), numberOf(view, 'N', 0)];
  const [block, bits] = [numberOf(view, 'block_size', 1), numberOf(view, 'bits', 4)];
  const blocks = Math.ceil(k / block);
  const zeros = view.inputs[3]?.dtype === 'uint8';
  // Packed zero points: the blocks that share a byte stay together.
  const together = zeros ? 8 / bits : 1;
  const whole = k % block !== 0 || blocks % together !== 0 || Boolean(view.inputs[4]);
  const mark = whole ? '!' : view.inputs[5] ? '%' : '+';
  const leading = dimensionNames(operand(view, 0).shape.length - 1).join(' ');
  // Rows of blocks, or the same stored flat.
  const rows = (index: number, dims: string) =>
    view.inputs[index]?.shape.length === 1 ? `(n ${dims})` : `n ${dims.includes(' ') ? `(${dims})` : dims}`;
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
  return bindRule(`${operands.join(', ')} -> ${leading} n`, view, sizes);
}

/** How many numbers share a byte of the table: 1 where its type is packed itself. */
function packed(view: OperatorView): number {
  return operand(view, 0).dtype === 'uint8' ? 8 / numberOf(view, 'bits', 4) : 1;
}

function quantisedAxis(view: OperatorView): number {
  return axisOf(view, 'quantize_axis', operand(view, 0).shape.length, 1);
}

function lookupRule(view: OperatorView): FactorRule {
  const { shape } = operand(view, 0);
  const axis = axisOf(view, 'gather_axis', shape.length, 0);
  const quantised = quantisedAxis(view);
  const block = numberOf(view, 'block_size', 128);
  const size = (shape[quantised] ?? 1) * packed(view);
  const zeros = view.inputs[3];
  const together = zeros?.dtype === 'uint8' ? 8 / numberOf(view, 'bits', 4) : 1;
  const whole = size % block !== 0 || (size / block) % together !== 0 || axis === quantised;
  const names = dimensionNames(shape.length);
  const side = (own: string, looked: string) =>
    names.map((name, index) => (index === axis ? looked : index === quantised ? own : name));
  const looked = axis === quantised ? 'v!' : 'v+mask';
  const [q, w] = ['q', 'w!'];
  const of = (own: string, name: string) =>
    side(whole ? `${name}!` : own, axis === quantised ? `${name}!` : looked).join(' ');
  const indices = dimensionNames(operand(view, 1).shape.length, 'i');
  const result = side(whole ? 'y!' : `(${q} ${w} r!)`, looked);
  const rows = [...result.slice(0, axis), ...indices, ...result.slice(axis + 1)];
  const operands = [of(`(${q} ${w} z!)`, 'x'), indices.join(' '), of(`(${q} ${w})`, 'c'), of(q, 'p')];
  const sizes = whole ? {} : { q: size / block / together, w: together, r: block };
  return bindRule(`${operands.join(', ')} -> ${rows.join(' ')}`, view, sizes);
}
