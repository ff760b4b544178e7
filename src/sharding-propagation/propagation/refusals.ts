/**
 * @file Pins that cannot hold: two that contradict each other where they meet, and one that no strategy satisfies.
 */
import { AutoparError } from '../../ir/error.js';
import { pinPlace } from '../annotations/pin-error.js';
import type { PinSource } from '../pin.js';

/** One of two pins that meet, with the nodes and tensors that lead from its target to the meeting place. */
export interface MeetingPin {
  readonly source: PinSource;
  readonly path: readonly string[];
}

/** `clash` ends a sentence: `factor k is on tp by the first and on dp by the second`. */
export function pinsContradict(first: MeetingPin, second: MeetingPin, at: string, clash: string): AutoparError {
  const path = [...first.path, at, ...[...second.path].reverse()];
  const between = path.length > 1 ? `, on the path ${path.join(' → ')}` : '';
  return new AutoparError(
    'pins-contradict',
    'noPlan',
    `${named(first.source)} and ${named(second.source)} contradict each other on ${at}: ${clash}${between}`,
    { ...pinPlace(second.source), node: at },
    'change one of them, or give the one that should win a higher priority',
  );
}

/** `reason` is a clause. */
export function pinCannotBeKept(what: string, sources: readonly PinSource[], reason: string): AutoparError {
  const [first] = sources;
  const written = [...new Set(sources.map(named))].join(' and ');
  return new AutoparError(
    'pin-cannot-be-kept',
    'noPlan',
    `${written}: ${what} cannot satisfy this: ${reason}`,
    first ? pinPlace(first) : {},
    'Pin a layout that the rule allows, or pin less and let the search complete the rest.',
  );
}

function named({ text, line }: PinSource): string {
  return line === null ? text : `${text} (line ${line})`;
}
