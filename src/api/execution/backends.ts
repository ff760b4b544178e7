/**
 * @file Backends that ranks of this machine can run on, by name.
 */
import { BACKENDS, type BackendName } from '../../runtime/backend.js';

export type { BackendName };

/** Backends that compute. */
export const COMPUTING_BACKENDS = Object.keys(BACKENDS) as readonly BackendName[];

/** `emulated` does not compute: ranks wait for the predicted time instead. */
export type RunBackend = BackendName | 'emulated';

export const RUN_BACKENDS: readonly RunBackend[] = [...COMPUTING_BACKENDS, 'emulated'];
