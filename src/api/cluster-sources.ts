/**
 * @file What `--cluster` names besides the catalogue: a file, or this machine as it was measured.
 */
import type { ClusterHints } from '../cost-model/cluster.js';
import { readClusterFile } from '../cost-model/cluster-file.js';
import { defaultProfileFile, isProfile, profileExists, readProfile } from './profile/profile-file.js';

/**
 * Reads what `--cluster` names: a cluster file, a profile, or for `local` the profile in the user's cache folder, if there
 * is one. With nothing said nothing is read, so that plans do not depend on what was measured.
 * @throws AutoparError (input) `file-missing`, `bad-yaml`, `bad-cluster-file`, `profile-of-another-machine`
 */
export async function clusterSources(text: string | undefined): Promise<Pick<ClusterHints, 'file' | 'local'>> {
  if (text === 'local') {
    const file = defaultProfileFile();
    return (await profileExists(file)) ? { local: await readProfile(file) } : {};
  }
  if (text === undefined || !/\.(ya?ml|json)$/i.test(text)) return {};
  return (await isProfile(text)) ? { local: await readProfile(text) } : { file: await readClusterFile(text) };
}
