/**
 * @file `--offload` in words: `none`, `all`, or parts with the memory of each, `optimizer,activations:disk`.
 */
import { type AutoparError, badOption } from '../ir/error.js';
import { OUTER_MEMORIES, type OuterMemory } from '../ir/graph.js';
import type { OffloadPlaces } from '../partition/offload.js';
import { OFFLOAD_PARTS, type OffloadPart } from '../partition/offload-parts.js';

/** The memory of each part. @throws AutoparError `bad-option` (usage) */
export function offloadParts(text: string): OffloadPlaces['parts'] {
  if (text === 'none') return {};
  const parts: Partial<Record<OffloadPart, OuterMemory>> = {};
  for (const word of text.split(',')) {
    const [name = '', memory = 'host', ...more] = word.trim().split(':');
    const named = name === 'all' ? OFFLOAD_PARTS : OFFLOAD_PARTS.filter((part) => part === name);
    const place = OUTER_MEMORIES.find((known) => known === memory);
    const repeated = named.find((part) => parts[part] !== undefined);
    if (named.length === 0 || !place || more.length > 0 || repeated !== undefined) throw badWord(text, word, repeated);
    for (const part of named) parts[part] = place;
  }
  return parts;
}

/** The same in one form: every part with its memory, in the order of the parts. */
export function offloadWords(parts: OffloadPlaces['parts']): string {
  const words = OFFLOAD_PARTS.flatMap((part) => (parts[part] ? [`${part}:${parts[part]}`] : []));
  return words.length === 0 ? 'none' : words.join(',');
}

function badWord(text: string, word: string, repeated: string | undefined): AutoparError {
  const reason =
    repeated === undefined
      ? `${word.trim() || 'an empty word'} is not a part with its memory`
      : `${repeated} is named twice`;
  return badOption(
    `--offload ${text}: ${reason}`,
    `none, all, or some of ${OFFLOAD_PARTS.join(', ')}, each followed by :host or :disk (default: host), with commas between`,
  );
}
