/** @file How gradients of data-parallel ranks become one, by the words of `--gradient-reduction`. */
export const GRADIENT_REDUCTIONS = ['mean', 'sum'] as const;
export type GradientReduction = (typeof GRADIENT_REDUCTIONS)[number];
