/**
 * @file The JSON Schema of annotation files, published as docs/reference/annotations.schema.json. `description` of a form with
 * alternatives says in words what is expected: error messages use it.
 */
import { MOST_DEVICES, MOST_STAGES } from '../mesh.js';
import { PARALLEL_AXES } from '../roles.js';
import { ANNOTATIONS_VERSION, MATCH_KINDS, PLACES, STYLES } from './annotation.js';

type AnnotationSchema = Readonly<Record<string, unknown>>;

const text: AnnotationSchema = { type: 'string' };
/** Degrees, split counts and sizes of a device matrix. */
const positive: AnnotationSchema = { type: 'integer', minimum: 1, maximum: MOST_DEVICES };
const glob: AnnotationSchema = { type: 'string', minLength: 1, maxLength: 1024 };

const counts: AnnotationSchema = { type: 'array', items: positive };
const splitItem = oneOf('a list of split counts, or null where nothing is asked', [counts, text, { type: 'null' }]);
const splitList = oneOf('split counts per tensor, such as [[4, 1], [1, 2]] or "((4,1),(1,2))"', [
  text,
  list(splitItem),
]);

const mapEntry = oneOf(
  "an axis of the device matrix counted from the right, -1 or 'None', an alias, or a list of them",
  [{ type: 'integer', minimum: -1 }, text, list({ anyOf: [{ type: 'integer', minimum: -1 }, text] })],
);
const tensorMap = list(mapEntry);
const matrix = { device_matrix: { ...list(positive), minItems: 1 }, alias_name: list(text) };
const deviceMatrixMap = record({ ...matrix, tensor_map: tensorMap }, ['device_matrix', 'tensor_map']);
const orNull = (schema: AnnotationSchema, says: string): AnnotationSchema => oneOf(says, [schema, { type: 'null' }]);
const ownMaps = list(
  oneOf('a device matrix with a tensor map, the text Layout(…)(…), or null', [text, deviceMatrixMap, { type: 'null' }]),
);
const sharedMaps = list(orNull(tensorMap, 'a tensor map, or null where nothing is asked'));
const layouts = list(orNull(text, 'a layout such as "[dp, -, tp]", or null where nothing is asked'));

const pin: AnnotationSchema = record(
  {
    match: {
      ...record(Object.fromEntries(MATCH_KINDS.map((kind) => [kind, glob])), []),
      minProperties: 1,
      maxProperties: 1,
      description: `exactly one of ${MATCH_KINDS.join(', ')} with a glob`,
    },
    layout: oneOf('a layout such as "[dp, -, tp]", or {in: [...], out: [...]} with one for each tensor', [
      text,
      sides(layouts),
    ]),
    split: oneOf('split counts: [4, 1] for a tensor, [[4, 1], [1, 2]] for operands, {in, out}, or "((4,1),(1,2))"', [
      text,
      counts,
      list(splitItem),
      sides(splitList),
    ]),
    map: oneOf(
      "{device_matrix, tensor_map, alias_name?}, {in, out} with such, or \"Layout((4,2), ('dp','mp'))('dp','mp')\"",
      [
        text,
        deviceMatrixMap,
        record({ ...matrix, in: sharedMaps, out: sharedMaps }, ['device_matrix']),
        sides(ownMaps),
      ],
    ),
    factors: {
      type: 'object',
      minProperties: 1,
      additionalProperties: oneOf('axes such as tp, (dp,tp), -, (3 | 64:tp) or [dp, tp]', [text, list(text)]),
    },
    style: { enum: STYLES },
    stage: { type: 'integer', minimum: 0, maximum: MOST_STAGES - 1 },
    chunk: { type: 'integer', minimum: 0, maximum: MOST_STAGES - 1 },
    recompute: { type: 'boolean' },
    place: { enum: PLACES },
    priority: { type: 'integer' },
    why: text,
  },
  ['match'],
);

export const ANNOTATIONS_SCHEMA: AnnotationSchema = {
  $schema: 'http://json-schema.org/draft-07/schema#',
  title: 'autopar annotations',
  description: 'What a user has decided about single operators and tensors; see docs/annotations.md.',
  ...record(
    {
      version: { const: ANNOTATIONS_VERSION },
      mesh: record(Object.fromEntries(PARALLEL_AXES.map((axis) => [axis, positive])), []),
      pins: list(pin),
    },
    ['version', 'pins'],
  ),
};

/** An object with no other keys than these. */
function record(properties: Readonly<Record<string, AnnotationSchema>>, required: readonly string[]): AnnotationSchema {
  return { type: 'object', properties, required, additionalProperties: false };
}

function sides(tensors: AnnotationSchema): AnnotationSchema {
  return { ...record({ in: tensors, out: tensors }, []), minProperties: 1 };
}

function list(items: AnnotationSchema): AnnotationSchema {
  return { type: 'array', items };
}

function oneOf(description: string, anyOf: readonly AnnotationSchema[]): AnnotationSchema {
  return { description, anyOf };
}
