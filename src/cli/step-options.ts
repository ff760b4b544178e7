/**
 * @file Options of a training step that no operator's strategy holds: recompute, ZeRO, the pipeline schedule.
 */
import type { SimulateOptions } from '../api/index.js';
import {
  AXIS_ORDER,
  checkedOffload,
  GRADIENT_SYNCS,
  LAYER_RECOMPUTE_KINDS,
  readRecompute,
  SCHEDULE_KINDS,
  TP_SEQUENCES,
} from '../api/words.js';
import type { CommandOption } from './command.js';
import { byteSize, choiceAmong, integerParser, orderOf } from './values.js';

/** Options of programs: reduction of the ranks' gradients, and overlap of communication. */
export const gradientOptions: readonly CommandOption[] = [
  {
    flags: '--bucket <size>',
    says: 'bucket size of overlapped gradient reductions and --zero 3 gathers',
    parse: byteSize,
  },
  {
    flags: '--interleave <1|2>',
    says: '2: overlap communication between two halves of micro-batches (default: 1)',
    parse: integerParser(1, 2),
  },
  {
    flags: '--gradient-sync <kind>',
    says: 'all-reduce (default), or parameter-server: the first dp rank updates',
    parse: choiceAmong(GRADIENT_SYNCS),
  },
];

/** Their values, by the names that the parser gives them. */
export interface ProgramFlags extends Pick<SimulateOptions, 'zero' | 'schedule' | 'virtualStages'> {
  /** A kind; for programs also with the layers that recompute. */
  readonly recompute?: string;
  readonly offload?: string;
}

/** Those, and the options that only a price without a program has. */
export interface StepFlags
  extends ProgramFlags,
    Pick<SimulateOptions, 'tpSequence' | 'meshOrder' | 'software' | 'attention'> {}

/** The option for recompute in a program. */
export const RECOMPUTED_LAYERS: CommandOption = {
  flags: '--recompute <kind[:layers][:except-last]>',
  says: 'none, selective (attention), operators, full, stage; full:0-3,6 names layers',
  parse: (text) => {
    readRecompute(text);
    return text;
  },
};

type DefaultOf = Readonly<Partial<Record<keyof StepFlags, string>>>;

/**
 * Options of programs.
 * @param otherwise the default of an option, by option; a search decides the options that it does not name
 * @param recompute the form of the option for recompute
 */
export function programOptions(
  otherwise: DefaultOf,
  recompute: CommandOption = {
    flags: '--recompute <kind>',
    says: `none, selective (attention), operators, or full (default: ${otherwise.recompute ?? 'searched'})`,
    parse: choiceAmong(LAYER_RECOMPUTE_KINDS),
  },
): readonly CommandOption[] {
  const says = worded(otherwise);
  return [
    {
      flags: '--zero <0..3>',
      says: says('ZeRO level: shards 1 optimizer state, 2 +gradients, 3 +parameters', 'zero'),
      parse: integerParser(0, 3),
    },
    recompute,
    {
      flags: '--schedule <kind>',
      says: says(SCHEDULE_KINDS.join(', '), 'schedule'),
      parse: choiceAmong(SCHEDULE_KINDS),
    },
    {
      flags: '--virtual-stages <v>',
      says: says('model chunks per stage', 'virtualStages'),
      parse: integerParser(1),
    },
    {
      flags: '--offload <parts>',
      says: says('none, all, or PART[:host|disk],… offloaded from devices', 'offload'),
      parse: checkedOffload,
    },
  ];
}

/** Options of a price that needs no program. */
export function stepOptions(otherwise: DefaultOf): readonly CommandOption[] {
  const says = worded(otherwise);
  return [
    {
      flags: '--tp-sequence <on|off|auto>',
      says: says("Megatron's sequence parallelism of norms over tp", 'tpSequence'),
      parse: choiceAmong(TP_SEQUENCES),
    },
    ...programOptions(otherwise),
    {
      flags: '--mesh-order <axes>',
      says: says('axes from outermost to innermost (neighbouring devices)', 'meshOrder'),
      parse: orderOf(AXIS_ORDER),
    },
    {
      flags: '--software <profile>',
      says: 'megatron, megatron-core (default), eager or compiled: launches, fusion, overlap',
      parse: choiceAmong(['megatron', 'megatron-core', 'eager', 'compiled']),
    },
    {
      flags: '--attention <kind>',
      says: 'fused (default), portable (FlashAttention 2), or parts (matmuls and softmax)',
      parse: choiceAmong(['fused', 'portable', 'parts']),
    },
  ];
}

/** An option's description with its default. */
function worded(otherwise: DefaultOf): (text: string, option: keyof StepFlags) => string {
  return (text, option) => {
    const value = otherwise[option];
    return value === undefined ? text : `${text} (default: ${value})`;
  };
}
