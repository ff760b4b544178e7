/**
 * @file Options that one command has, or none yet, where another is given them: each answers in one sentence.
 */
import { type AutoparError, usageError } from '../api/words.js';

/** Options of one command that others take as well later. */
export const LATER_ELSEWHERE: readonly string[] = [
  '--zero',
  '--recompute',
  '--schedule',
  '--virtual-stages',
  '--offload',
  '--mesh-order',
  '--dtype',
  '--trace',
];

/**
 * The refusal of something that has a name but no code behind it.
 * @param others commands that have it
 */
export function notThereYet(name: string, command = 'autopar', others: readonly string[] = []): AutoparError {
  if (others.length === 0) return usageError('not-there-yet', `${name} is not supported yet.`);
  return usageError(
    'not-there-yet',
    `${command} has no ${name}: it is an option of ${others.join(', ')}`,
    `autopar ${others[0]} --help shows its usage`,
  );
}
