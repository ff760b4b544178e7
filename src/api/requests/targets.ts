/**
 * @file Targets that programs are written for (--target).
 */

/** `runtime`: the bundled one. The others get a folder of their name beside it: docs/torch.md, docs/checkpoints.md. */
export const TARGETS = ['runtime', 'torch', 'onnx', 'mindspore'] as const;
export type Target = (typeof TARGETS)[number];
