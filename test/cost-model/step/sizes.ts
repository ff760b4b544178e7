/**
 * @file Sizes of language models as tests state them: GPT by default.
 */
import { GPT_STYLE, type LanguageModelSizes } from '../../../models/language-sizes.js';

export function gptSizes(
  given: Partial<LanguageModelSizes> & { readonly hidden: number; readonly heads: number },
): LanguageModelSizes {
  const { hidden, heads } = given;
  return {
    batch: 1,
    sequence: 2048,
    layers: 2,
    keyHeads: heads,
    headWidth: hidden / heads,
    feedForward: 4 * hidden,
    vocabulary: 51200,
    ...GPT_STYLE,
    causal: false,
    dropout: 0,
    ...given,
  };
}
