/**
 * @file The JSON Schema of annotation files, published as docs/reference/annotations.schema.json. `description` of a form with
 * alternatives says in words what is expected: error messages use it.
 */
import { closedRecord, type JsonSchema, listOf } from '../../ir/json-schema.js';
import { AXIS_ORDER, MOST_DEVICES, MOST_STAGES } from '../mesh.js';
import { EXPERTS } from '../roles.js';
import { ANNOTATIONS_VERSION, MATCH_KINDS, PLACES, STYLES } from './annotation.js';

const text: JsonSchema = { type: 'string' };
/** Degrees, split counts and sizes of a device matrix. */
const positive: JsonSchema = { type: 'integer', minimum: 1, maximum: MOST_DEVICES };
const glob: JsonSchema = { type: 'string', minLength: 1, maxLength: 1024 };

const counts: JsonSchema = { type: 'array', items: positive };
const splitItem = oneOf('a list of split counts, or null for no request', [counts, text, { type: 'null' }]);
const splitList = oneOf('split counts per tensor, such as [[4, 1], [1, 2]] or "((4,1),(1,2))"', [
  text,
  listOf(splitItem),
]);

const mapEntry = oneOf(
  "an axis of the device matrix counted from the right, -1 or 'None', an alias, or a list of them",
  [{ type: 'integer', minimum: -1 }, text, listOf({ anyOf: [{ type: 'integer', minimum: -1 }, text] })],
);
const tensorMap = listOf(mapEntry);
const matrix = { device_matrix: { ...listOf(positive), minItems: 1 }, alias_name: listOf(text) };
const deviceMatrixMap = closedRecord({ ...matrix, tensor_map: tensorMap }, ['device_matrix', 'tensor_map']);
const orNull = (schema: JsonSchema, says: string): JsonSchema => oneOf(says, [schema, { type: 'null' }]);
const ownMaps = listOf(
  oneOf('a device matrix with a tensor map, the text Layout(…)(…), or null', [text, deviceMatrixMap, { type: 'null' }]),
);
const sharedMaps = listOf(orNull(tensorMap, 'a tensor map, or null for no request'));
const layouts = listOf(orNull(text, 'a layout such as "[dp, -, tp]", or null for no request'));

const pin: JsonSchema = closedRecord(
  {
    match: {
      ...closedRecord(Object.fromEntries(MATCH_KINDS.map((kind) => [kind, glob])), []),
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
      listOf(splitItem),
      sides(splitList),
    ]),
    map: oneOf(
      "{device_matrix, tensor_map, alias_name?}, {in, out} with such, or \"Layout((4,2), ('dp','mp'))('dp','mp')\"",
      [
        text,
        deviceMatrixMap,
        closedRecord({ ...matrix, in: sharedMaps, out: sharedMaps }, ['device_matrix']),
        sides(ownMaps),
      ],
    ),
    factors: {
      type: 'object',
      minProperties: 1,
      additionalProperties: oneOf('axes such as tp, (dp,tp), -, (3 | 64:tp) or [dp, tp]', [text, listOf(text)]),
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

export const ANNOTATIONS_SCHEMA: JsonSchema = {
  $schema: 'http://json-schema.org/draft-07/schema#',
  title: 'autopar annotations',
  description: 'Pins of single operators and tensors; see docs/annotations.md.',
  ...closedRecord(
    {
      version: { const: ANNOTATIONS_VERSION },
      mesh: closedRecord(Object.fromEntries([...AXIS_ORDER, EXPERTS].map((axis) => [axis, positive])), []),
      pins: listOf(pin),
    },
    ['version', 'pins'],
  ),
};

/** An object with no other keys than these. */
function sides(tensors: JsonSchema): JsonSchema {
  return { ...closedRecord({ in: tensors, out: tensors }, []), minProperties: 1 };
}

function oneOf(description: string, anyOf: readonly JsonSchema[]): JsonSchema {
  return { description, anyOf };
}
