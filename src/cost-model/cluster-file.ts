/**
 * @file Reading a cluster file (docs/clusters.md): YAML or JSON, its form checked, errors with file and line.
 */
import { AutoparError } from '../ir/error.js';
import { schemaCheck } from '../ir/schema-check.js';
import { schemaFault } from '../sharding-propagation/annotations/schema-errors.js';
import { readYaml, type YamlSource } from '../sharding-propagation/annotations/yaml-source.js';
import type { Cluster } from './cluster.js';
import { CLUSTER_SCHEMA, type ClusterDescription } from './cluster-schema.js';
import { describedCluster } from './describe-cluster.js';

/**
 * Reads a file.
 * @throws AutoparError (input): `file-missing`, `bad-yaml`, `bad-cluster-file` with file and line
 */
export async function readClusterFile(file: string): Promise<Cluster> {
  return clusterIn(await readYaml(file));
}

/** The cluster of a description that is data already, as in plan.json and profiles. @throws AutoparError (input) */
export function clusterOfDescription(description: unknown, file: string | null = null): Cluster {
  return clusterIn({ file, value: description, lineOf: () => null });
}

function clusterIn({ file, value, lineOf }: Omit<YamlSource, 'file'> & { readonly file: string | null }): Cluster {
  const refuse = (path: readonly (string | number)[], sentence: string, hint: string): AutoparError => {
    const line = lineOf(path);
    const where = { ...(file ? { file } : {}), ...(line ? { line } : {}) };
    return new AutoparError('bad-cluster-file', 'input', sentence, where, hint);
  };
  const validate = validator();
  if (!validate(value)) {
    const fault = schemaFault(validate.errors ?? [], lineOf);
    throw refuse(fault.path, fault.sentence, fault.hint ?? 'docs/clusters.md describes the form');
  }
  return describedCluster(value, refuse);
}

const validator = schemaCheck<ClusterDescription>(CLUSTER_SCHEMA, {
  allErrors: true,
  verbose: true,
  allowUnionTypes: true,
});
