/** @file The parts that can be kept outside of the devices, by the words of `--offload`. */
export const OFFLOAD_PARTS = ['parameters', 'gradients', 'optimizer', 'activations'] as const;
export type OffloadPart = (typeof OFFLOAD_PARTS)[number];
