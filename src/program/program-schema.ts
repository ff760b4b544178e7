/**
 * @file The form of program.json as a JSON Schema: which keys, which types. That names refer to things that exist is
 * `checkProgram`'s part.
 */

import { LIFETIMES, OUTER_MEMORIES } from '../ir/graph.js';
import { type JsonSchema, listOf, mapOf } from '../ir/json-schema.js';
import { PROGRAM_VERSION } from './program.js';

const text: JsonSchema = { type: 'string' };
const count: JsonSchema = { type: 'integer', minimum: 0 };
const integer: JsonSchema = { type: 'integer' };
const amount: JsonSchema = { type: 'number', minimum: 0 };
const textOrNull: JsonSchema = { anyOf: [text, { type: 'null' }] };
const texts = listOf(text);
const shape = listOf(count);
const reduction: JsonSchema = { enum: ['sum', 'max', 'min'] };
const rows = record({ outer: count, inner: count });

const layout = record(
  {
    dims: listOf(listOf(record({ size: count, axes: texts }))),
    partial: listOf(record({ axis: text, reduction })),
  },
  {
    extents: listOf({ anyOf: [{ type: 'null' }, listOf(record({ size: count, valid: count }))] }),
    order: listOf({ anyOf: [{ type: 'null' }, record({ size: count, minor: count, pieces: count })] }),
  },
);

const border = record({ axes: texts, dimension: count, block: { type: 'integer', minimum: 1 }, from: integer });

const collective: JsonSchema = {
  oneOf: [
    record({ kind: { const: 'all-reduce' }, reduction }),
    record({ kind: { const: 'reduce' }, reduction }),
    record({ kind: { const: 'all-gather' }, outer: count, inner: count }),
    record({ kind: { const: 'reduce-scatter' }, reduction, outer: count, inner: count }),
    record({ kind: { const: 'all-to-all' }, split: rows, concat: rows }, { filled: { type: 'integer', minimum: 1 } }),
    record({ kind: { const: 'permute' }, to: listOf(count) }),
    record({ kind: { const: 'broadcast' } }),
  ],
};

const half = { half: { const: 1 } };
const instruction: JsonSchema = {
  oneOf: [
    record(
      { kind: { const: 'compute' }, segment: text, inputs: texts, weights: texts, outputs: texts, label: text },
      { pass: text, ...half },
    ),
    record(
      { kind: { const: 'start' }, id: integer, collective, axes: texts, input: text, output: text, label: text },
      { last: { const: true }, bucket: integer, ...half },
    ),
    record({ kind: { const: 'wait' }, id: integer }, half),
    record({ kind: { enum: ['send', 'recv'] }, tensor: text, stage: count, label: text }, half),
    record({ kind: { const: 'accumulate' }, input: text, output: text, label: text }, half),
    record({ kind: { const: 'move' }, input: text, output: text, label: text }, half),
    record({ kind: { const: 'free' }, tensors: texts }, half),
  ],
};

const axis = record({ axis: text, size: count, subAxes: listOf(record({ name: text, size: count })) });
const value = record(
  { name: text, dtype: text, shape, stage: count, tensor: text },
  { rows: integer, microBatches: record({ axis: count, count }) },
);

const stage = record(
  {
    tensors: mapOf(
      record(
        { dtype: text, localShape: shape, shape, layout, lifetime: { enum: LIFETIMES } },
        { place: { enum: OUTER_MEMORIES }, varying: texts, border, first: texts, source: text },
      ),
    ),
    segments: mapOf(
      record(
        {
          file: text,
          inputs: texts,
          weights: texts,
          outputs: texts,
          sha256: text,
          types: record({ inputs: texts, weights: texts, outputs: texts }),
          flops: amount,
          operators: texts,
        },
        {
          plain: record({ file: text, sha256: text }),
          temporaryBytes: count,
          seconds: amount,
          nodes: listOf(record({ name: text, op: text, dtypes: texts })),
        },
      ),
    ),
    weights: mapOf(
      record(
        { file: textOrNull, key: text, axes: texts, dtype: text, localShape: shape, zeroUnlessFirst: texts },
        { first: texts, source: text, shape, layout },
      ),
    ),
    coordinates: mapOf(record({ axes: texts, block: integer, bias: integer })),
    phases: mapOf(listOf(instruction)),
  },
  { microBatch: text, mesh: listOf(axis) },
);

export const programSchema: JsonSchema = record(
  {
    format: { const: 'autopar-program' },
    version: { const: PROGRAM_VERSION },
    model: record({ name: text, fingerprint: text }, { plan: text }),
    mesh: listOf(axis),
    inputs: listOf(value),
    outputs: listOf(value),
    stages: { ...listOf(stage), minItems: 1 },
    schedule: listOf(
      record({ stage: count, chunk: count, microBatch: { anyOf: [count, { type: 'null' }] }, phase: text }),
    ),
  },
  { state: listOf(record({ stage: count, from: text, to: text })) },
);

/** All keys of `required` must exist; those of `optional` may; unknown keys are accepted, so that keys can be added. */
function record(
  required: Readonly<Record<string, JsonSchema>>,
  optional: Readonly<Record<string, JsonSchema>> = {},
): JsonSchema {
  return { type: 'object', required: Object.keys(required), properties: { ...required, ...optional } };
}
