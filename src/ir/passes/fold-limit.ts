/**
 * @file Which folded values become constants. A file of its own, since a fingerprint needs it where nothing is folded.
 */

/** Results with more elements than this stay operators unless a shape, attribute or condition needs them. */
export const FOLD_LIMIT = 64 * 1024;
