/**
 * @file Lookups and scatters by index. A lookup whose table is sharded along the looked-up dimension contributes zero
 * for indices outside its shard (`mask`): vocabulary-parallel embedding. Scatters that add leave sums where updates are sharded,
 * and write their own rows where rows are (scatter-shards.ts); other scatters keep the indexed dimensions whole.
 */
import type { Operator, OperatorEntry } from '../operator.js';
import { bindRule } from '../rule-text.js';
import { axisFromFront, entry, linearIn, moves, readsRows } from './entry.js';
import { INDEXING_GRADIENTS } from './indexing-gradient.js';
import { axisOf, dimensionNames, mismatch, numberOf, ofRank, operand, text } from './operands.js';
import { withGradients } from './operator-gradient.js';
import { scatterElementsOnShard, scatterRowsOnShard } from './scatter-shards.js';

const entries: readonly OperatorEntry[] = [
  entry({
    op: 'Gather',
    family: 'indexing',
    complete: axisFromFront(0),
    infer: (operator) => {
      const { dtype, shape } = ofRank(operator, 0, 1, true);
      const axis = axisOf(operator, 'axis', shape.length, 0);
      return [{ dtype, shape: [...shape.slice(0, axis), ...operand(operator, 1).shape, ...shape.slice(axis + 1)] }];
    },
    rule: (operator) => {
      const names = dimensionNames(operand(operator, 0).shape.length);
      const axis = axisOf(operator, 'axis', names.length, 0);
      const indices = dimensionNames(operand(operator, 1).shape.length, 'i');
      const table = names.map((name, index) => (index === axis ? `v${lookupMark(operator)}` : name));
      const rows = [...names.slice(0, axis), ...indices, ...names.slice(axis + 1)];
      return `${table.join(' ')}, ${indices.join(' ')} -> ${rows.join(' ')}`;
    },
    linear: linearIn([0]),
    indexInput: 1,
    work: readsRows(1),
    parameterInputs: [0],
  }),
  entry({
    op: 'GatherElements',
    family: 'indexing',
    complete: axisFromFront(0),
    infer: (operator) => [
      { dtype: operand(operator, 0).dtype, shape: ofRank(operator, 1, operand(operator, 0).shape.length).shape },
    ],
    rule: (operator) => {
      const [data, indices] = [operand(operator, 0).shape, operand(operator, 1).shape];
      const axis = axisOf(operator, 'axis', data.length, 0);
      const side = (own: string, prefix: string) =>
        data.map((size, index) => {
          if (index === axis) return own;
          return size === indices[index] ? `a${index}` : `${prefix}${index}!`;
        });
      const rows = side('j', 'y').join(' ');
      return `${side(`v${lookupMark(operator)}`, 'x').join(' ')}, ${rows} -> ${rows}`;
    },
    linear: linearIn([0]),
    indexInput: 1,
    work: readsRows(1),
    note: 'A dimension other than the axis is not sharded if indices cover only a part of it.',
  }),
  entry({
    op: 'GatherND',
    family: 'indexing',
    infer: (operator) => {
      const [data, indices] = [ofRank(operator, 0, 1, true), ofRank(operator, 1, 1, true)];
      const { batch, depth } = tuples(operator);
      if (batch + depth > data.shape.length) throw mismatch(operator, `indices address ${batch + depth} dimensions`);
      return [{ dtype: data.dtype, shape: [...indices.shape.slice(0, -1), ...data.shape.slice(batch + depth)] }];
    },
    rule: (operator) => {
      const { batch, depth } = tuples(operator);
      const data = operand(operator, 0).shape.map((_, axis) =>
        axis < batch ? `b${axis}` : axis < batch + depth ? `x${axis}!` : `a${axis}`,
      );
      const places = operand(operator, 1)
        .shape.slice(0, -1)
        .map((_, axis) => (axis < batch ? `b${axis}` : `i${axis}`));
      return `${data.join(' ')}, ${[...places, 'q!'].join(' ')} -> ${[...places, ...data.slice(batch + depth)].join(' ')}`;
    },
    linear: linearIn([0]),
    work: readsRows(1),
    note: 'The dimensions that the index tuples address are not sharded.',
  }),
  entry({
    op: 'ReverseSequence',
    family: 'indexing',
    infer: (operator) => {
      const type = ofRank(operator, 0, 2, true);
      const { batch, time } = reversedAxes(operator);
      if (batch === time || ofRank(operator, 1, 1).shape[0] !== type.shape[batch])
        throw mismatch(operator, 'it must have one length per sequence');
      return [type];
    },
    rule: (operator) => {
      const { batch, time } = reversedAxes(operator);
      const names = dimensionNames(operand(operator, 0).shape.length);
      const side = names.map((name, axis) => (axis === time ? `${name}!` : name)).join(' ');
      return `${side}, ${names[batch]} -> ${side}`;
    },
    linear: linearIn([0]),
    work: moves,
    note: 'Time is not sharded.',
  }),
  entry({
    op: 'ScatterElements',
    family: 'indexing',
    complete: axisFromFront(0),
    infer: (operator) => {
      const data = operand(operator, 0);
      if (operand(operator, 1).shape.join() !== operand(operator, 2).shape.join())
        throw mismatch(operator, 'indices and updates must have one shape');
      ofRank(operator, 1, data.shape.length);
      return [data];
    },
    rule: elementsRule,
    linear: scatterIsLinear,
    countedOnce: [0],
    indexed: (operator, offsets, shardSizes) => {
      const [[name = '', offset] = []] = Object.entries(offsets);
      return scatterElementsOnShard(operator, bindRule(elementsRule(operator), operator), {
        offset: offset ?? '',
        size: shardSizes[name] ?? 1,
      });
    },
    work: moves,
    note: 'The axis is sharded only if the operator adds; a dimension that indices cover in part is not sharded.',
  }),
  entry({
    op: 'ScatterND',
    family: 'indexing',
    infer: (operator) => {
      const data = operand(operator, 0);
      const indices = ofRank(operator, 1, 1, true).shape;
      const expected = [...indices.slice(0, -1), ...data.shape.slice(indices.at(-1))];
      if (operand(operator, 2).shape.join() !== expected.join())
        throw mismatch(operator, `updates must have shape [${expected.join(', ')}]`);
      return [data];
    },
    rule: rowsRule,
    linear: scatterIsLinear,
    countedOnce: [0],
    indexed: (operator, { x0: offset = '' }, { x0: size = 1 }) =>
      scatterRowsOnShard(operator, bindRule(rowsRule(operator), operator), { offset, size }),
    work: moves,
    note: 'Unless it adds, indexed dimensions and index tuples are not sharded: all write one result.',
  }),
];

export const indexingEntries = withGradients(entries, INDEXING_GRADIENTS);

/** A lookup in a sharded table leaves sums with one term; there is no sum of bools. */
function lookupMark(operator: Operator): '+mask' | '!' {
  const { dtype } = operand(operator, 0);
  return dtype === 'bool' || dtype === 'string' ? '!' : '+mask';
}

function reversedAxes(operator: Operator): { readonly batch: number; readonly time: number } {
  const rank = operand(operator, 0).shape.length;
  return { batch: axisOf(operator, 'batch_axis', rank, 1), time: axisOf(operator, 'time_axis', rank, 0) };
}

/** GatherND's leading batch dimensions, and how many dimensions an index tuple addresses. */
function tuples(operator: Operator): { readonly batch: number; readonly depth: number } {
  return { batch: numberOf(operator, 'batch_dims', 0), depth: operand(operator, 1).shape.at(-1) ?? 0 };
}

/** A scatter that adds may be sharded along the axis on either side. */
function elementsRule(operator: Operator): string {
  const [data, indices] = [operand(operator, 0).shape, operand(operator, 1).shape];
  const axis = axisOf(operator, 'axis', data.length, 0);
  const side = (prefix: string, mark: string) =>
    data.map((size, index) => {
      if (index === axis) return `${prefix}${index}${mark}`;
      return size === indices[index] ? `a${index}` : `${prefix}${index}!`;
    });
  const [rows, sums] = adds(operator) ? ['@', '+'] : ['!', '!'];
  const [whole, places] = [side('x', rows).join(' '), side('y', sums).join(' ')];
  return `${whole}, ${places}, ${places} -> ${whole}`;
}

/** A scatter that adds may have its places sharded, and its rows if tuples address one dimension. */
function rowsRule(operator: Operator): string {
  const indices = operand(operator, 1).shape;
  const depth = indices.at(-1) ?? 0;
  const rows = adds(operator) && depth === 1 ? '@' : '!';
  const data = operand(operator, 0).shape.map((_, axis) => (axis < depth ? `x${axis}${rows}` : `a${axis}`));
  const places = indices.slice(0, -1).map((_, axis) => `i${axis}${adds(operator) ? '+' : '!'}`);
  const updates = [...places, ...data.slice(depth)];
  return `${data.join(' ')}, ${[...places, 'q!'].join(' ')}, ${updates.join(' ')} -> ${data.join(' ')}`;
}

function adds(operator: Operator): boolean {
  return text(operator, 'reduction', 'none') === 'add';
}

/** Replacing and adding are linear in data and updates together; other reductions are not. */
function scatterIsLinear(operator: Operator): readonly (readonly number[])[] {
  return ['none', 'add'].includes(text(operator, 'reduction', 'none')) ? [[0, 2]] : [];
}
