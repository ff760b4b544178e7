/**
 * @file Layouts of weights in the dimensions of the model's file. In the graph, a weight may have them in another order
 * (FileTensor); layouts that people and other tools read and write refer to the tensor of the file:
 *
 *     weight [32, 8] with layout [-, tp]      w [8, 32] of the file with layout [tp, -]
 */
import { type FileTensor, fileTensorOf, type Graph, typeOf } from '../ir/graph.js';
import type { Layout } from './layout.js';
import { layoutText } from './layout-text.js';
import type { Mesh } from './mesh.js';
import type { LayoutDemand } from './pin.js';

/** A tensor of the file that a tensor of the graph is. */
export interface FileForm {
  readonly name: string;
  readonly shape: readonly number[];
  /** The mapping of the graph's dimensions to the file's; null where they are the same. */
  readonly file: FileTensor | null;
}

/** The tensors of the file that a tensor of the graph may be: for a weight its own, and the result of folded operators on it. */
export function inFile(graph: Graph, tensor: string): readonly FileForm[] {
  const file = fileTensorOf(graph, tensor);
  const { shape } = typeOf(graph, tensor);
  if (!file) return [{ name: tensor, shape, file: null }];
  const own = { name: file.name, shape: file.shape, file };
  return file.result === null ? [own] : [own, { name: file.result, shape, file: null }];
}

/** A tensor's shape; for a weight, the file's. */
export function fileShape(graph: Graph, tensor: string): readonly number[] {
  return fileTensorOf(graph, tensor)?.shape ?? typeOf(graph, tensor).shape;
}

/** The dimension of the file's tensor for a dimension of the graph's. */
export function fileDimension(graph: Graph, tensor: string, dimension: number): number {
  return fileTensorOf(graph, tensor)?.dims[dimension] ?? dimension;
}

/** Values per dimension of the graph's tensor, per dimension of the file's. */
export function inFileOrder<Value>(values: readonly Value[], file: FileTensor | null, added: Value): readonly Value[] {
  if (!file) return values;
  return file.shape.map((_, axis) => {
    const at = file.dims.indexOf(axis);
    return at < 0 ? added : (values[at] ?? added);
  });
}

/** The reverse of `inFileOrder`. */
function inGraphOrder<Value>(values: readonly Value[], file: FileTensor | null, added: Value): readonly Value[] {
  if (!file) return values;
  return file.dims.map((axis) => (axis === null ? added : (values[axis] ?? added)));
}

const WHOLE = [{ size: 1, axes: [] }] as const;

/** A layout of the graph's tensor as one of the file's. */
export function fileLayout(layout: Layout, file: FileTensor | null): Layout {
  return file ? moved(layout, (values, added) => inFileOrder(values, file, added)) : layout;
}

/** A layout of the file's tensor as one of the graph's. */
export function graphLayout(layout: Layout, file: FileTensor | null): Layout {
  return file ? moved(layout, (values, added) => inGraphOrder(values, file, added)) : layout;
}

/** The layout of a tensor as text; for a weight, in the file's dimensions. */
export function tensorLayoutText(graph: Graph, tensor: string, layout: Layout, mesh: Mesh): string {
  return layoutText(fileLayout(layout, fileTensorOf(graph, tensor)), mesh);
}

/** A demand on the file's tensor as one on the graph's. */
export function graphDemand(demand: LayoutDemand, file: FileTensor | null): LayoutDemand {
  if (!file) return demand;
  return demand.kind === 'layout'
    ? { kind: 'layout', layout: graphLayout(demand.layout, file), written: demand }
    : { kind: 'split', counts: inGraphOrder(demand.counts, file, 1), written: demand };
}

function moved(layout: Layout, order: <Value>(values: readonly Value[], added: Value) => readonly Value[]): Layout {
  const { dims, partial, extents } = layout;
  return { dims: order(dims, WHOLE), partial, ...(extents ? { extents: order(extents, null) } : {}) };
}
