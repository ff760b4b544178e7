/** @file How tokens reach their experts, by name. */

/**
 * How tokens reach their experts. `padded`: every expert has the same number of slots, filled or not. `variable`: which are
 * filled goes first, then these alone are sent; the others hold zeros at both ends.
 */
export const DISPATCHES = ['padded', 'variable'] as const;
export type Dispatch = (typeof DISPATCHES)[number];
