/** @file The words of `--offload`: checked, and as a step without a program is priced. */
import { badOption } from '../../ir/error.js';
import { offloadParts, offloadWords } from '../../strategy/offload-words.js';
import type { SimulateOptions } from '../simulate.js';

/** The words of `--offload` as they were typed. @throws AutoparError `bad-option` (usage) */
export function checkedOffload(text: string): string {
  offloadParts(text);
  return text;
}

/** The offload that a step without a program is priced with. @throws AutoparError `bad-option` (usage) if there is no price */
export function pricedOffload(text: string | undefined): SimulateOptions['offload'] {
  if (text === undefined || text === 'all' || text === 'all:host') return text && 'all';
  const known = PRICED[offloadWords(offloadParts(text))];
  if (known) return known;
  throw badOption(
    `--offload ${text}: without a program, only optimizer and activations on the host are priced`,
    'give none, optimizer, activations or all; or compile, which plans every part',
  );
}

const PRICED: Readonly<Record<string, NonNullable<SimulateOptions['offload']>>> = {
  none: 'none',
  'optimizer:host': 'optimizer',
  'activations:host': 'activations',
  'optimizer:host,activations:host': 'all',
};
