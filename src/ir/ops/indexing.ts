/**
 * @file Lookups and scatters by index. A lookup whose table is sharded along the looked-up dimension contributes zero
 * for indices outside its shard (`mask`): vocabulary-parallel embedding. Scatters that add leave sums where updates are sharded,
 * and write their own rows where rows are (scatter-shards.ts); other scatters keep the indexed dimensions whole.
 */
import type { OperatorEntry, OperatorView } from '../operator.js';
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
    infer: (view) => {
      const { dtype, shape } = ofRank(view, 0, 1, true);
      const axis = axisOf(view, 'axis', shape.length, 0);
      return [{ dtype, shape: [...shape.slice(0, axis), ...operand(view, 1).shape, ...shape.slice(axis + 1)] }];
    },
    rule: (view) => {
      const names = dimensionNames(operand(view, 0).shape.length);
      const axis = axisOf(view, 'axis', names.length, 0);
      const indices = dimensionNames(operand(view, 1).shape.length, 'i');
      const table = names.map((name, index) => (index === axis ? `v${lookupMark(view)}` : name));
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
    infer: (view) => [{ dtype: operand(view, 0).dtype, shape: ofRank(view, 1, operand(view, 0).shape.length).shape }],
    rule: (view) => {
      const [data, indices] = [operand(view, 0).shape, operand(view, 1).shape];
      const axis = axisOf(view, 'axis', data.length, 0);
      const side = (own: string, prefix: string) =>
        data.map((size, index) => {
          if (index === axis) return own;
          return size === indices[index] ? `a${index}` : `${prefix}${index}!`;
        });
      const rows = side('j', 'y').join(' ');
      return `${side(`v${lookupMark(view)}`, 'x').join(' ')}, ${rows} -> ${rows}`;
    },
    linear: linearIn([0]),
    indexInput: 1,
    work: readsRows(1),
    note: 'A dimension other than the axis is not sharded if indices cover only a part of it.',
  }),
  entry({
    op: 'GatherND',
    family: 'indexing',
    infer: (view) => {
      const [data, indices] = [ofRank(view, 0, 1, true), ofRank(view, 1, 1, true)];
      const { batch, depth } = tuples(view);
      if (batch + depth > data.shape.length) throw mismatch(view, `indices address ${batch + depth} dimensions`);
      return [{ dtype: data.dtype, shape: [...indices.shape.slice(0, -1), ...data.shape.slice(batch + depth)] }];
    },
    rule: (view) => {
      const { batch, depth } = tuples(view);
      const data = operand(view, 0).shape.map((_, axis) =>
        axis < batch ? `b${axis}` : axis < batch + depth ? `x${axis}!` : `a${axis}`,
      );
      const places = operand(view, 1)
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
    infer: (view) => {
      const type = ofRank(view, 0, 2, true);
      const { batch, time } = reversedAxes(view);
      if (batch === time || ofRank(view, 1, 1).shape[0] !== type.shape[batch])
        throw mismatch(view, 'it must have one length per sequence');
      return [type];
    },
    rule: (view) => {
      const { batch, time } = reversedAxes(view);
      const names = dimensionNames(operand(view, 0).shape.length);
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
    infer: (view) => {
      const data = operand(view, 0);
      if (operand(view, 1).shape.join() !== operand(view, 2).shape.join())
        throw mismatch(view, 'indices and updates must have one shape');
      ofRank(view, 1, data.shape.length);
      return [data];
    },
    rule: elementsRule,
    linear: scatterIsLinear,
    countedOnce: [0],
    indexed: (view, offsets, shardSizes) => {
      const [[name = '', offset] = []] = Object.entries(offsets);
      return scatterElementsOnShard(view, bindRule(elementsRule(view), view), {
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
    infer: (view) => {
      const data = operand(view, 0);
      const indices = ofRank(view, 1, 1, true).shape;
      const expected = [...indices.slice(0, -1), ...data.shape.slice(indices.at(-1))];
      if (operand(view, 2).shape.join() !== expected.join())
        throw mismatch(view, `updates must have shape [${expected.join(', ')}]`);
      return [data];
    },
    rule: rowsRule,
    linear: scatterIsLinear,
    countedOnce: [0],
    indexed: (view, { x0: offset = '' }, { x0: size = 1 }) =>
      scatterRowsOnShard(view, bindRule(rowsRule(view), view), { offset, size }),
    work: moves,
    note: 'Unless it adds, indexed dimensions and index tuples are not sharded: all write one result.',
  }),
];

export const indexingEntries = withGradients(entries, INDEXING_GRADIENTS);

/** A lookup in a sharded table leaves sums with one term; there is no sum of bools. */
function lookupMark(view: OperatorView): '+mask' | '!' {
  const { dtype } = operand(view, 0);
  return dtype === 'bool' || dtype === 'string' ? '!' : '+mask';
}

function reversedAxes(view: OperatorView): { readonly batch: number; readonly time: number } {
  const rank = operand(view, 0).shape.length;
  return { batch: axisOf(view, 'batch_axis', rank, 1), time: axisOf(view, 'time_axis', rank, 0) };
}

/** GatherND's leading batch dimensions, and how many dimensions an index tuple addresses. */
function tuples(view: OperatorView): { readonly batch: number; readonly depth: number } {
  return { batch: numberOf(view, 'batch_dims', 0), depth: operand(view, 1).shape.at(-1) ?? 0 };
}

/** A scatter that adds may be sharded along the axis on either side. */
function elementsRule(view: OperatorView): string {
  const [data, indices] = [operand(view, 0).shape, operand(view, 1).shape];
  const axis = axisOf(view, 'axis', data.length, 0);
  const side = (prefix: string, mark: string) =>
    data.map((size, index) => {
      if (index === axis) return `${prefix}${index}${mark}`;
      return size === indices[index] ? `a${index}` : `${prefix}${index}!`;
    });
  const [rows, sums] = adds(view) ? ['@', '+'] : ['!', '!'];
  const [whole, places] = [side('x', rows).join(' '), side('y', sums).join(' ')];
  return `${whole}, ${places}, ${places} -> ${whole}`;
}

/** A scatter that adds may have its places sharded, and its rows if tuples address one dimension. */
function rowsRule(view: OperatorView): string {
  const indices = operand(view, 1).shape;
  const depth = indices.at(-1) ?? 0;
  const rows = adds(view) && depth === 1 ? '@' : '!';
  const data = operand(view, 0).shape.map((_, axis) => (axis < depth ? `x${axis}${rows}` : `a${axis}`));
  const places = indices.slice(0, -1).map((_, axis) => `i${axis}${adds(view) ? '+' : '!'}`);
  const updates = [...places, ...data.slice(depth)];
  return `${data.join(' ')}, ${[...places, 'q!'].join(' ')}, ${updates.join(' ')} -> ${data.join(' ')}`;
}

function adds(view: OperatorView): boolean {
  return text(view, 'reduction', 'none') === 'add';
}

/** Replacing and adding are linear in data and updates together; other reductions are not. */
function scatterIsLinear(view: OperatorView): readonly (readonly number[])[] {
  return ['none', 'add'].includes(text(view, 'reduction', 'none')) ? [[0, 2]] : [];
}
