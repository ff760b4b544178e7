/** @file How tokens reach their experts, by name. */

/**
 * How tokens reach their experts. `padded`: every expert has the same number of slots, filled or not. `variable`: ranks first
 * send which slots are filled, then only the filled ones; the others hold zeros at both ends.
 */
export const DISPATCHES = ['padded', 'variable'] as const;
export type Dispatch = (typeof DISPATCHES)[number];
