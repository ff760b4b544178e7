/**
 * @file Writes the cluster file of `autopar calibrate`, with one measured layer per line.
 */
import type { ClusterDescription } from '../../cost-model/cluster-schema.js';
import { writeFileAtomic, writeJsonAtomic } from '../../program/atomic.js';

/** Writes a description as YAML, or as JSON if the file's name ends in .json. @throws AutoparError (exit cannotWrite) */
export async function writeClusterFile(file: string, description: ClusterDescription): Promise<void> {
  if (/\.json$/i.test(file)) await writeJsonAtomic(file, description);
  else await writeFileAtomic(file, await clusterYaml(description));
}

/** The YAML text of a description. */
async function clusterYaml(description: ClusterDescription): Promise<string> {
  const { Document, isMap, isSeq } = await import('yaml');
  const document = new Document(description);
  document.commentBefore = ' written by autopar calibrate; docs/clusters.md describes the form';
  for (const key of ['levels', 'nodes', 'measuredLayers']) {
    const list = document.get(key);
    if (isSeq(list)) for (const item of list.items) if (isMap(item)) item.flow = true;
  }
  return document.toString({ lineWidth: 0 });
}
