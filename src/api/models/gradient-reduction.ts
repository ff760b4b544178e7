/** @file How gradients of data-parallel ranks are reduced: the values of `--gradient-reduction`. */
export const GRADIENT_REDUCTIONS = ['mean', 'sum'] as const;
export type GradientReduction = (typeof GRADIENT_REDUCTIONS)[number];
