/**
 * @file A family's text with smaller widths: as many layers of the same kinds, so that every operator keeps its name.
 */
import { generatedModel } from './families.js';
import type { LanguageModelSizes } from './language-sizes.js';

/**
 * `least`: the least size from `base` on that may replace `size`, else `size` itself. `mayBe`: whether a size may be replaced by
 * another one at all.
 */
export interface NarrowSizes {
  readonly least: (size: number, base: number) => number;
  readonly mayBe: (size: number, other: number) => boolean;
}

/** Keys of widths in families other than language models, with the least width that their operators support. */
const WIDTHS: Readonly<Record<string, number>> = {
  width: 8,
  hidden: 16,
  inputs: 12,
  outputs: 20,
  ffn: 24,
  classes: 10,
  growth: 4,
};

/**
 * Texts of narrower models, the narrowest first. Equal sizes may be sharded in several ways, which the text does not state.
 */
export function* narrowerTexts(text: string, sizes: NarrowSizes): Generator<string> {
  const seen = new Set<string>();
  for (const scale of SCALES)
    for (const heads of headsOf(text, sizes)) {
      const narrower = narrowerText(text, sizes.least, scale, heads);
      if (!seen.has(narrower)) yield narrower;
      seen.add(narrower);
    }
}

/** Factors of the target sizes. */
const SCALES = [1, 2, 4] as const;
const MOST_HEADS = 8;

interface Heads {
  readonly keyHeads: number;
  readonly groups: number;
}

/** Heads that keys and values may have, and queries for each of them. */
function headsOf(text: string, { mayBe }: NarrowSizes): readonly Heads[] {
  const { language } = generatedModel(text);
  if (!language) return [{ keyHeads: 1, groups: 1 }];
  const { heads, keyHeads } = language;
  const groups = heads / keyHeads;
  const upTo = (size: number) =>
    Array.from({ length: size }, (_, index) => index + 1).filter((other) => size === 1 || other > 1);
  const found = upTo(keyHeads).flatMap((own) =>
    mayBe(keyHeads, own)
      ? upTo(groups).flatMap((each) =>
          mayBe(groups, each) && mayBe(heads, own * each) ? [{ keyHeads: own, groups: each }] : [],
        )
      : [],
  );
  return found.sort((a, b) => a.keyHeads * a.groups - b.keyHeads * b.groups).slice(0, MOST_HEADS);
}

function narrowerText(text: string, least: NarrowSizes['least'], scale: number, heads: Heads): string {
  const model = generatedModel(text);
  const [, family = '', rest = ''] = /^([^:]*):?(.*)$/s.exec(text) ?? [];
  const given = new Map(
    rest
      .split(',')
      .filter((part) => part.trim() !== '')
      .map((part) => {
        const [key = '', value = ''] = part.split('=').map((piece) => piece.trim());
        return [key, value] as const;
      }),
  );
  const narrower = model.language
    ? languageKeys(model.language, new Set(Object.keys(model.defaults)), least, scale, heads)
    : Object.fromEntries(
        Object.entries(WIDTHS).flatMap(([key, base]) => {
          const size = Number(given.get(key) ?? model.defaults[key]);
          return Number.isSafeInteger(size) && size > 0 ? [[key, Math.min(size, least(size, base * scale))]] : [];
        }),
      );
  for (const [key, value] of Object.entries(narrower))
    if (Object.hasOwn(model.defaults, key)) given.set(key, `${value}`);
  given.delete('batch');
  return `${family}:${[...given].map(([key, value]) => `${key}=${value}`).join(',')}`;
}

function languageKeys(
  sizes: Omit<LanguageModelSizes, 'batch'>,
  keys: ReadonlySet<string>,
  least: NarrowSizes['least'],
  scale: number,
  { keyHeads: keyHeadsNow, groups: groupsNow }: Heads,
): Readonly<Record<string, number>> {
  const { heads, keyHeads, headWidth, hidden, feedForward, vocabulary, sequence, experts, stateSpace } = sizes;
  const isEqual = heads === keyHeads;
  const headsNow = keyHeadsNow * groupsNow;
  const width = Math.min(headWidth, least(headWidth, 8));
  let widthNow = width;
  // The width of the model is that of its heads, unless a family says otherwise.
  const isFree = keys.has('head_width');
  if (!isFree) while (widthNow < headWidth && least(hidden, headsNow * widthNow) !== headsNow * widthNow) widthNow += 2;
  const hiddenNow = isFree ? Math.min(hidden, least(hidden, 24 * scale)) : headsNow * widthNow;
  const narrow = (size: number, base: number) => (size === 0 ? 0 : Math.min(size, least(size, base * scale)));
  const chosen = experts ? Math.min(experts.chosen, 2) : 0;
  return {
    heads: headsNow,
    ...(isEqual ? {} : { kv_heads: keyHeadsNow }),
    ...(isFree ? { head_width: widthNow } : {}),
    hidden: hiddenNow,
    ffn: narrow(feedForward, 20),
    vocab: narrow(vocabulary, 28),
    seq: narrow(sequence, 12),
    ...(experts
      ? {
          experts: Math.max(chosen + 1, narrow(experts.count, 4)),
          topk: chosen,
          expert_ffn: narrow(experts.feedForward, 20),
          shared: narrow(experts.shared, 20),
          ...(keys.has('latent') ? { latent: narrow(experts.latent ?? 0, 20) } : {}),
        }
      : {}),
    ...(stateSpace
      ? {
          state_heads: narrow(stateSpace.heads, 4),
          state_width: narrow(stateSpace.headWidth, 8),
          state: narrow(stateSpace.state, 8),
          groups: narrow(stateSpace.groups, 2),
          chunk: sequence > stateSpace.chunk ? narrow(sequence, 12) / 2 : narrow(sequence, 12),
        }
      : {}),
    ...(sizes.window ? { window: Math.min(sizes.window, 4) } : {}),
  };
}
