/**
 * @file Which graph inputs are weights whose value the file does not hold: those that exporter metadata names, else
 * floating-point inputs with a dotted name (`h.0.attn.weight`), else those that the user's globs name.
 */
import { isFloating } from '../dtype.js';
import { AutoparError } from '../error.js';
import { matchesGlob } from '../glob.js';
import { offer } from '../nearest.js';
import type { OnnxModel, SourceValue } from '../onnx/model.js';

/** Names of the inputs that are weights. Throws `unknown-weight` for a glob that matches none. */
export function weightInputs(model: OnnxModel, globs: readonly string[]): ReadonlySet<string> {
  const inputs = model.graph.inputs.filter((input) => !model.graph.initializers.has(input.name));
  for (const glob of globs) {
    if (inputs.some((input) => matchesGlob(glob, input.name))) continue;
    throw new AutoparError(
      'unknown-weight',
      'usage',
      `--weights ${glob}: no input of the model has such a name`,
      { file: model.file },
      offer(
        glob,
        inputs.map((input) => input.name),
      ),
    );
  }
  return new Set(inputs.filter((input) => isWeight(input, model, globs)).map((input) => input.name));
}

function isWeight(input: SourceValue, model: OnnxModel, globs: readonly string[]): boolean {
  if (globs.some((glob) => matchesGlob(glob, input.name))) return true;
  const kind = model.kinds.get(input.name);
  if (kind !== undefined) return kind !== 'input';
  const fixed = input.shape?.every((size) => typeof size === 'number') ?? false;
  return fixed && input.dtype !== null && isFloating(input.dtype) && isModulePath(input.name);
}

/** Dotted, but not the exporter's own numbering of equal names (`input.1`). */
function isModulePath(name: string): boolean {
  return /^[A-Za-z_]\w*(\.\w+)*\.[A-Za-z_]\w*$/.test(name);
}
