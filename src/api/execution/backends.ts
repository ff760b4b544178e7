/**
 * @file What ranks of this machine can run on, by name.
 */
import { BACKENDS, type BackendName } from '../../runtime/backend.js';

export type { BackendName };

/** Those that compute. */
export const COMPUTING_BACKENDS = Object.keys(BACKENDS) as readonly BackendName[];

/** `emulated` waits in their place. */
export type RunBackend = BackendName | 'emulated';

export const RUN_BACKENDS: readonly RunBackend[] = [...COMPUTING_BACKENDS, 'emulated'];
