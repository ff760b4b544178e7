/**
 * @file Options of a whole step that no operator's strategy holds: what is recomputed, what ZeRO shards, how a pipeline runs.
 */
import { PIPELINE_SCHEDULES, type ScheduleKind } from '../api/schedule-kinds.js';
import type { SimulateOptions } from '../api/simulate.js';
import { AutoparError } from '../ir/error.js';
import type { CommandOption } from './command.js';
import { notThereYet } from './later.js';
import { oneOf, orderOf, wholeNumber } from './values.js';

/** Their values, by the names that the parser gives them. */
export interface StepFlags {
  readonly tpSequence?: 'on' | 'off' | 'auto';
  readonly zero?: 0 | 1 | 2 | 3;
  readonly recompute?: NonNullable<SimulateOptions['recompute']>;
  readonly schedule?: ScheduleKind;
  readonly virtualStages?: number;
  readonly meshOrder?: NonNullable<SimulateOptions['meshOrder']>;
  readonly offload?: NonNullable<SimulateOptions['offload']>;
  readonly software?: NonNullable<SimulateOptions['software']>;
  readonly attention?: NonNullable<SimulateOptions['attention']>;
}

/**
 * @param otherwise what holds where an option is left out, by option; a search decides what it does not name
 * @param schedules those that there are
 */
export function stepOptions(
  otherwise: Readonly<Partial<Record<keyof StepFlags, string>>>,
  schedules: readonly ScheduleKind[] = PIPELINE_SCHEDULES,
): readonly CommandOption[] {
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
      says: says('what dp shards: 1 optimizer state, 2 gradients too, 3 parameters too', 'zero'),
      parse: wholeNumber('--zero', 0, 3),
    },
    {
      flags: '--recompute <kind>',
      says: says('none, selective (attention), operators, or full', 'recompute'),
      parse: oneOf('--recompute', ['none', 'selective', 'operators', 'full']),
    },
    {
      flags: '--schedule <kind>',
      says: says(schedules.join(', '), 'schedule'),
      parse: oneOf('--schedule', schedules),
    },
    {
      flags: '--virtual-stages <v>',
      says: says('model chunks per stage', 'virtualStages'),
      parse: wholeNumber('--virtual-stages', 1),
    },
    {
      flags: '--mesh-order <axes>',
      says: says('axes from outermost to innermost, the last over neighbouring devices', 'meshOrder'),
      parse: orderOf('--mesh-order', ['pp', 'dp', 'sp', 'tp']),
    },
    {
      flags: '--offload <parts>',
      says: says("what lies in the host's memory: none, optimizer, activations, or all", 'offload'),
      parse: offloadOf,
    },
    {
      flags: '--software <profile>',
      says: 'megatron, megatron-core (default), eager or compiled: launches, fusion, overlap',
      parse: oneOf('--software', ['megatron', 'megatron-core', 'eager', 'compiled']),
    },
    {
      flags: '--attention <kind>',
      says: 'fused (default), portable (FlashAttention 2 on newer devices), or parts (products and softmax)',
      parse: oneOf('--attention', ['fused', 'portable', 'parts']),
    },
  ];
}

const PARTS = ['optimizer', 'activations'] as const;

/** `optimizer,activations:host`: parts, and where they go. The host is the only place that is priced. */
function offloadOf(text: string): NonNullable<StepFlags['offload']> {
  const [named = '', place = 'host'] = text.split(':');
  const parts = named.split(',').map((part) => part.trim());
  if (place === 'disk') throw notThereYet('--offload to disk');
  if (place === 'host' && (named === 'none' || named === 'all')) return named;
  const known = parts.every((part) => (PARTS as readonly string[]).includes(part));
  if (place !== 'host' || !known || new Set(parts).size !== parts.length)
    throw new AutoparError(
      'bad-option',
      'usage',
      `--offload ${text}: expected none, all, or some of ${PARTS.join(', ')}, with commas between`,
    );
  const [part] = parts;
  return parts.length === PARTS.length ? 'all' : (part as (typeof PARTS)[number]);
}
