/**
 * @file The check that most import tests rest on: ONNX Runtime gives the same for the file as it is and for the imported
 * graph written back.
 */
import type { ExecutionContext } from 'ava';
import { type ImportedModel, type ImportOptions, importModel } from '../../src/api/models/import.js';
import type { ConstantTensor } from '../../src/ir/graph.js';
import { elementCount } from '../../src/ir/graph.js';
import { encodeModel, type ModelProto } from '../../src/ir/onnx/schema.js';
import { writeOnnx } from '../../src/ir/onnx/writer.js';
import { constant, numbersOf } from '../../src/ir/ops/constants.js';
import { runOnnx } from '../../src/runtime/reference.js';
import { saved } from './model-maker.js';

export type Feeds = Readonly<Record<string, ConstantTensor>>;

/** Values between -1 and 1 that are the same in every run. */
export function noise(shape: readonly number[], seed = 1): ConstantTensor {
  let state = seed;
  const values = Array.from({ length: elementCount(shape) }, () => {
    state = (state * 48271) % 2147483647;
    return (state / 2147483647) * 2 - 1;
  });
  return constant('float32', values, shape);
}

/** Imports `model`, runs it as it was and as it became, compares all outputs; returns the import. */
export async function sameResults(
  t: ExecutionContext,
  model: ModelProto,
  feeds: Feeds,
  options: ImportOptions = {},
): Promise<ImportedModel> {
  const imported = await importModel(await saved(model), options);
  const given = Object.fromEntries(Object.entries(feeds).filter(([name]) => imported.graph.inputs.includes(name)));
  const before = await runOnnx(encodeModel(model), feeds);
  const after = await runOnnx(writeOnnx(imported.graph), given);
  compare(t, after, before);
  for (const node of imported.graph.nodes) {
    for (const name of [...node.inputs, ...node.outputs])
      if (name !== null) t.true(imported.graph.tensors.has(name), `${name} has a type`);
  }
  return imported;
}

/** All of `expected` in `actual`, equal in type and within tolerance in value. */
export function compare(t: ExecutionContext, actual: Feeds, expected: Feeds, relative = 1e-4, absolute = 1e-5): void {
  for (const [name, value] of Object.entries(expected)) {
    const found = actual[name];
    if (!found) {
      t.fail(`output ${name} is missing`);
      continue;
    }
    t.is(found.dtype, value.dtype);
    t.deepEqual([...found.shape], [...value.shape], name);
    const wanted = numbersOf(value);
    const off = numbersOf(found).findIndex((number, index) => {
      const target = wanted[index] ?? Number.NaN;
      // An expected infinity would make the tolerance infinite: nothing but itself is near it.
      const near = Number.isFinite(target) && Math.abs(number - target) <= absolute + relative * Math.abs(target);
      return !(near || number === target || Object.is(number, target));
    });
    t.is(off, -1, `${name} differs at element ${off}`);
  }
}

/** The operators of the imported graph in order. */
export function operators(imported: ImportedModel): readonly string[] {
  return imported.graph.nodes.map((node) => node.op);
}
