/**
 * @file From a model to its parameters, as `inspect` does it.
 */
import { importSource } from '../../../src/api/models/import.js';
import { readOnnx } from '../../../src/ir/onnx/reader.js';
import type { ModelProto } from '../../../src/ir/onnx/schema.js';
import { findParameters } from '../../../src/ir/parameters/find-parameters.js';
import type { ParameterOptions, Parameters } from '../../../src/ir/parameters/parameter.js';
import { sameValues } from '../../../src/ir/parameters/same-values.js';
import { saved } from '../model-maker.js';

/** The parameters of a model; `model` is written to a file first. */
export async function parametersOf(model: ModelProto | string, options: ParameterOptions = {}): Promise<Parameters> {
  const source = await readOnnx(typeof model === 'string' ? model : await saved(model));
  const { graph, evidence } = await importSource(source);
  return findParameters(graph, { ...evidence, values: sameValues(graph.weights) }, options);
}

/** `name elements` of each parameter, sorted. */
export function listed({ parameters }: Parameters): readonly string[] {
  return parameters.map(({ name, elements }) => `${name} ${elements}`).sort();
}
