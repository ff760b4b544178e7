/**
 * @file JSON Schemas of the files that users write and read, as files for editors and validators.
 */
import { COMPARISON_SCHEMA } from '../../src/api/output/comparison-schema.js';
import { CLUSTER_SCHEMA } from '../../src/cost-model/cluster-schema.js';
import { programSchema } from '../../src/program/program-schema.js';
import { ANNOTATIONS_SCHEMA } from '../../src/sharding-propagation/annotations/annotation-schema.js';
import { PLAN_SCHEMA } from '../../src/strategy/plan-schema.js';

/** By the name of the file. */
export const SCHEMAS: Readonly<Record<string, object>> = {
  'annotations.schema.json': ANNOTATIONS_SCHEMA,
  'cluster.schema.json': CLUSTER_SCHEMA,
  'compared.schema.json': COMPARISON_SCHEMA,
  'plan.schema.json': PLAN_SCHEMA,
  'program.schema.json': programSchema,
};
