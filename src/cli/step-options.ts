/**
 * @file Options of a whole step that no operator's strategy holds: what is recomputed, what ZeRO shards, how a pipeline runs.
 */
import type { SimulateOptions } from '../api/simulate.js';
import type { CommandOption } from './command.js';
import { oneOf, wholeNumber } from './values.js';

/** Their values, by the names that the parser gives them. */
export interface StepFlags {
  readonly tpSequence?: 'on' | 'off' | 'auto';
  readonly zero?: 0 | 1 | 2 | 3;
  readonly recompute?: NonNullable<SimulateOptions['recompute']>;
  readonly schedule?: NonNullable<SimulateOptions['schedule']>;
  readonly virtualStages?: number;
}

const SCHEDULES = ['naive', 'f-then-b', '1f1b', 'interleaved-1f1b', 'zero-bubble'];

/** @param otherwise what holds where an option is left out, by option; a search decides what it does not name */
export function stepOptions(otherwise: Readonly<Partial<Record<keyof StepFlags, string>>>): readonly CommandOption[] {
  const says = (text: string, option: keyof StepFlags) => {
    const value = otherwise[option];
    return value === undefined ? text : `${text} (default: ${value})`;
  };
  return [
    {
      flags: '--tp-sequence <on|off|auto>',
      says: says("Megatron's sequence parallelism: norms along the sequence over tp", 'tpSequence'),
      parse: oneOf('--tp-sequence', ['on', 'off', 'auto']),
    },
    {
      flags: '--zero <0..3>',
      says: says('what dp shards: optimizer, gradients, parameters', 'zero'),
      parse: wholeNumber('--zero', 0, 3),
    },
    {
      flags: '--recompute <kind>',
      says: says('none, selective (attention), operators, or full', 'recompute'),
      parse: oneOf('--recompute', ['none', 'selective', 'operators', 'full']),
    },
    {
      flags: '--schedule <kind>',
      says: says(SCHEDULES.join(', '), 'schedule'),
      parse: oneOf('--schedule', SCHEDULES),
    },
    {
      flags: '--virtual-stages <v>',
      says: says('model chunks per stage', 'virtualStages'),
      parse: wholeNumber('--virtual-stages', 1),
    },
  ];
}
