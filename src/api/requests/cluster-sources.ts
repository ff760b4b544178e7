/**
 * @file Sources that `--cluster` can name besides the catalogue: a file, or the measured profile of this machine.
 */

import type { ClusterHints } from '../../cost-model/cluster.js';
import { isFile } from '../../program/reader.js';

/**
 * Reads the source that `--cluster` names: a cluster file, a profile, or for `local` the profile in the user's cache folder, if
 * there is one. Without `--cluster` nothing is read, so that plans do not depend on measurements.
 * @throws AutoparError (input) `file-missing`, `bad-yaml`, `bad-cluster-file`, `profile-of-another-machine`
 */
export async function clusterSources(text: string | undefined): Promise<Pick<ClusterHints, 'file' | 'local'>> {
  if (text === undefined || (text !== 'local' && !/\.(ya?ml|json)$/i.test(text))) return {};
  const { defaultProfileFile, isProfile, readProfile } = await import('../profile/profile-file.js');
  if (text === 'local') {
    const file = defaultProfileFile();
    return (await isFile(file)) ? { local: await readProfile(file) } : {};
  }
  if (await isProfile(text)) return { local: await readProfile(text) };
  const { readClusterFile } = await import('../../cost-model/cluster-file.js');
  return { file: await readClusterFile(text) };
}
