/**
 * @file Inputs and outputs of a stage, and their tables in emitted code.
 */

import type { TensorOrder } from '../../ir/graph.js';
import type { ValueRange } from '../../ir/value-range.js';
import type { ShardedGraph } from '../../partition/sharded-graph.js';
import type { Layout, Piece } from '../../sharding-propagation/layout.js';
import type { ProgramAxes } from './axes.js';
import { dtypeText, tuple } from './operators/operator.js';
import { statement } from './python.js';
import { type TorchTensors, tensorOf } from './tensors.js';

export interface InterfaceTensor {
  readonly name: string;
  readonly tensor: string;
}

export function inputsOf({ inputs, state, microBatches }: ShardedGraph): readonly InterfaceTensor[] {
  const kept = new Set(state.map(({ to }) => to));
  return inputs
    .filter(({ tensor, input }) => !kept.has(tensor) && input !== microBatches?.index)
    .map(({ tensor, input }) => ({ tensor, name: input }));
}

export function outputsOf({ outputs, state }: ShardedGraph): readonly InterfaceTensor[] {
  const left = new Set(state.map(({ from }) => from));
  return outputs.filter(({ tensor }) => !left.has(tensor)).map(({ tensor, output }) => ({ tensor, name: output }));
}

/** A layout as Python: per dimension its pieces, each a size and axes. */
function layoutTable({ dims }: Layout, { named }: ProgramAxes): string {
  const piece = ({ size, axes }: Piece) => {
    const names = named(axes).map((axis) => `"${axis}"`);
    return `(${size}, (${names.join(', ')}${names.length === 1 ? ',' : ''}))`;
  };
  return `[${dims.map((pieces) => `[${pieces.map(piece).join(', ')}]`).join(', ')}]`;
}

/** Per dimension None, or its parts with their sizes and how many of their places have a meaning. */
function extentsTable({ extents = [] }: Layout): string {
  const parts = extents.map((own) => own && `[${own.map(({ size, valid }) => `(${size}, ${valid})`).join(', ')}]`);
  return `[${parts.map((text) => text ?? 'None').join(', ')}]`;
}

/** Per dimension None, or the part of it that is in zig-zag order. */
function orderTable(order: TensorOrder): string {
  return `[${order.map((own) => (own ? `(${own.size}, ${own.minor}, ${own.pieces})` : 'None')).join(', ')}]`;
}

/** A table of inputs or outputs by name; `ranges`: the values that inputs may hold. */
export function valuesTable(
  name: string,
  values: readonly InterfaceTensor[],
  { sharded, axes }: TorchTensors,
  ranges: ReadonlyMap<string, ValueRange> = new Map(),
): string {
  const rows = values.map(({ name: own, tensor }) => {
    const { dtype, shape, layout } = tensorOf(sharded, tensor);
    const axis = sharded.microBatches?.cut.get(own);
    const count = sharded.microBatches?.count ?? 1;
    const whole = axis === undefined ? shape : shape.map((size, index) => (index === axis ? size * count : size));
    const cut = axis === undefined ? 'None, None' : `${axis}, ${count}`;
    const order = sharded.ordered?.get(own);
    const padding = layout.extents || order ? `, ${extentsTable(layout)}` : '';
    const range = ranges.get(own);
    const within = range ? `, within=(${range.from}, ${range.below}, ${range.ignored ?? 'None'})` : '';
    const more = `${padding}${order ? `, ${orderTable(order)}` : ''}${within}`;
    return `${JSON.stringify(own)}: Value(${dtypeText(dtype)}, ${tuple(whole)}, ${layoutTable(layout, axes)}, ${cut}${more})`;
  });
  if (rows.length === 0) return `${name} = {}`;
  return [`${name} = {`, ...rows.flatMap((row) => statement(`${row},`, '    ')), '}'].join('\n');
}
