/**
 * @file Schemas are not checked where they are used, so they are here; and a check is compiled once.
 */
import { Ajv } from 'ajv';
import test from 'ava';
import { CLUSTER_SCHEMA } from '../../src/cost-model/cluster-schema.js';
import { schemaCheck } from '../../src/ir/schema-check.js';
import { programSchema } from '../../src/program/program-schema.js';
import { ANNOTATIONS_SCHEMA } from '../../src/sharding-propagation/annotations/annotation-schema.js';
import { PLAN_SCHEMA } from '../../src/strategy/plan-schema.js';

for (const [name, schema] of Object.entries({ PLAN_SCHEMA, programSchema, ANNOTATIONS_SCHEMA, CLUSTER_SCHEMA })) {
  test(`a schema that is one: ${name}`, (t) => {
    const ajv = new Ajv();
    t.true(ajv.validateSchema(schema), JSON.stringify(ajv.errors));
  });
}

test('a check is compiled once, and says what is wrong', (t) => {
  const check = schemaCheck<{ readonly a: number }>({
    type: 'object',
    required: ['a'],
    properties: { a: { type: 'integer' } },
  });
  t.is(check(), check());
  t.true(check()({ a: 1 }));
  t.false(check()({ a: 'one' }));
  t.deepEqual(
    check().errors?.map(({ instancePath, message }) => `${instancePath} ${message}`),
    ['/a must be integer'],
  );
});
