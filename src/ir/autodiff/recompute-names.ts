/** @file The kinds of recompute by name; recompute-kinds.ts defines the operators of each. */
export const LAYER_RECOMPUTE_KINDS = ['none', 'selective', 'operators', 'full'] as const;
export const RECOMPUTE_KINDS = [...LAYER_RECOMPUTE_KINDS, 'stage'] as const;
export type RecomputeKind = (typeof RECOMPUTE_KINDS)[number];
