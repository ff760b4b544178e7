/**
 * @file What programs are written for (--target).
 */

/** `runtime`: the bundled one. The others get a folder of their name beside its program: docs/torch.md, docs/onnx.md, docs/mindspore.md. */
export const TARGETS = ['runtime', 'torch', 'onnx', 'mindspore'] as const;
export type Target = (typeof TARGETS)[number];
