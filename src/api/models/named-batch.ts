/**
 * @file Files whose dimension names say that the batch is elsewhere than planning takes it: at dimension 0 of the first input.
 */
import { batchDimensions } from '../../ir/batch.js';
import { AutoparError } from '../../ir/error.js';
import type { Graph } from '../../ir/graph.js';
import type { SourceValue } from '../../ir/onnx/model.js';

/** Names by which exporters and users call the batch. */
const NAMES: ReadonlySet<string> = new Set(['batch', 'batch_size', 'N', 'b']);

/** Which dimension is taken as the batch, and which other one is named so, in words; null where names agree or say nothing. */
export function batchElsewhere(graph: Graph, stated: readonly SourceValue[]): string | null {
  const [first] = batchDimensions(graph);
  const { shape } = stated.find(({ name }) => name === first?.input) ?? {};
  if (!first || !shape) return null;
  const isBatch = (dimension: (typeof shape)[number] | undefined) =>
    typeof dimension === 'string' && NAMES.has(dimension);
  const named = shape.findIndex(isBatch);
  if (named === -1 || isBatch(shape[first.axis])) return null;
  const own = shape[first.axis];
  const called = typeof own === 'string' ? `, '${own}'` : '';
  return (
    `the batch is taken to be dimension ${first.axis} of '${first.input}'${called}, ` +
    `and the file calls dimension ${named} '${shape[named]}'`
  );
}

/** The refusal to resize another dimension than the one that the file calls its batch. */
export function notResized(elsewhere: string, batch: number): AutoparError {
  return new AutoparError(
    'batch-ambiguous',
    'input',
    `the batch cannot be changed to ${batch}: ${elsewhere}`,
    {},
    'bind the dimensions with --dim, or export the model with the batch as the first dimension',
  );
}
