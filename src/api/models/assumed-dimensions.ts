/**
 * @file Default sizes for dynamic dimensions that are not bound, so that the model can be inspected all the same.
 */
import { AutoparError } from '../../ir/error.js';
import type { OnnxModel } from '../../ir/onnx/model.js';
import { freeDimensions, placeText } from '../../ir/passes/dims.js';
import { bindDimensions } from '../../ir/passes/input-dimensions.js';
import { type ImportedModel, type ImportOptions, importSource } from './import.js';

/** A dynamic dimension of the model that is not bound. */
export interface OpenDimension {
  readonly name: string;
  /** Where it occurs: `ids [batch, 12] axis 0`. */
  readonly places: readonly string[];
  /** The size that was taken for it. */
  readonly assumed: number;
}

/** Sizes to try: for dimension 0, which is usually the batch, and for the others. */
const ATTEMPTS = [
  { first: 4, other: 16 },
  { first: 8, other: 8 },
  { first: 2, other: 64 },
  { first: 1, other: 8 },
  { first: 1, other: 1 },
] as const;

/**
 * Imports a model. Dimensions that are not bound get the first of a few sizes that fits.
 * @throws AutoparError as import does; `unbound-dimension` where none of the sizes fits.
 */
export async function importAssuming(
  model: OnnxModel,
  options: ImportOptions,
): Promise<{ readonly imported: ImportedModel; readonly open: readonly OpenDimension[] }> {
  const bound = bindDimensions(model.graph.inputs, options, model.file);
  const inputs = bound.inputs.filter(
    ({ name }) => !model.graph.initializers.has(name) && !Object.hasOwn(options.constants ?? {}, name),
  );
  const free = [...freeDimensions(inputs, bound.named)];
  if (free.length === 0) return { imported: await importSource(model, options), open: [] };
  for (const { first, other } of ATTEMPTS) {
    const sizes = free.map(([name, places]) => [name, places.some(({ axis }) => axis === 0) ? first : other] as const);
    const dims = { ...options.dims, ...Object.fromEntries(sizes) };
    try {
      const imported = await importSource(model, { ...options, dims });
      const open = free.map(([name, places], index) => ({
        name,
        places: places.map(placeText),
        assumed: sizes[index]?.[1] ?? first,
      }));
      return { imported, open };
    } catch (error) {
      if (!(error instanceof AutoparError) || error.exit !== 'input') throw error;
    }
  }
  // Binding nothing fails too, with the error that lists what to bind.
  return { imported: await importSource(model, options), open: [] };
}
