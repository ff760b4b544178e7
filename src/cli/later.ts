/**
 * @file Names that are fixed already but not there yet: each answers in one sentence.
 */
import { AutoparError } from '../ir/error.js';
import type { Command } from './command.js';

const LATER_COMMANDS = [{ name: 'train', says: 'train with a compiled program' }] as const;

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

/** They take anything, so that the answer is about the command and not about its options. */
export const laterCommands: readonly Command[] = LATER_COMMANDS.map(({ name, says }) => ({
  name,
  says: `${says} (not there yet)`,
  arguments: [{ name: '[anything...]', says: 'what the command will take' }],
  options: [],
  examples: [],
  run: () => Promise.reject(notThereYet(`autopar ${name}`)),
}));
