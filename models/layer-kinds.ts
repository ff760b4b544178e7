/**
 * @file The kinds of layers in a language model: all of them the same, the first ones dense, or kinds in turns. One layer of each
 * kind is enough to know the cost of all.
 */
import type { LanguageModelSizes, LayerKind, LayerPart } from './language-sizes.js';

/** The kind of each layer, from the first to the last: those of `pattern` in turns where there is one. */
export function layerKinds({
  layers,
  pattern,
  experts,
}: Pick<LanguageModelSizes, 'layers' | 'pattern' | 'experts'>): readonly LayerKind[] {
  const dense = experts ? experts.dense : layers;
  return Array.from({ length: layers }, (_, layer) =>
    pattern ? (pattern[layer % pattern.length] as LayerKind) : layer < dense ? DENSE : ROUTED,
  );
}

const DENSE: LayerKind = ['attention', 'feed-forward'];
const ROUTED: LayerKind = ['attention', 'experts'];

/** Letters that hybrid models are described by (Waleffe et al. 2024): M state space, * attention, - feed-forward, E experts. */
const LETTERS: Readonly<Record<string, LayerPart>> = {
  M: 'state-space',
  '*': 'attention',
  '-': 'feed-forward',
  E: 'experts',
};

/** The layers that a text of such letters names, one each; null if a letter is not one of them. */
export function layersOfLetters(text: string): readonly LayerKind[] | null {
  const kinds = [...text].flatMap((letter) => {
    const part = LETTERS[letter];
    return part ? [[part]] : [];
  });
  return kinds.length === text.length && kinds.length > 0 ? kinds : null;
}
