/**
 * @file What programs are written for (--target).
 */

/** `runtime`: the bundled one. `torch`: beside it a folder for torchrun (docs/torch.md). */
export const TARGETS = ['runtime', 'torch'] as const;
export type Target = (typeof TARGETS)[number];
