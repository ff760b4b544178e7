/**
 * @file Names that are fixed already but not there yet: each answers in one sentence.
 */
import { AutoparError } from '../api/words.js';

/** Options of one command that others take as well later. */
export const LATER_ELSEWHERE: readonly string[] = [
  '--tp-sequence',
  '--zero',
  '--recompute',
  '--schedule',
  '--virtual-stages',
  '--offload',
  '--mesh-order',
  '--dtype',
  '--trace',
];

/** The refusal of something that has a name but no code behind it. */
export function notThereYet(name: string): AutoparError {
  return new AutoparError('not-there-yet', 'usage', `${name} is not there yet.`);
}
