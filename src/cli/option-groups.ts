/**
 * @file The order of options in help: by topic, and those that are used most first.
 */
import type { CommandOption } from './command.js';

/** Help of a command with fewer options is one list. */
const LEAST_IN_GROUPS = 20;

const GROUPS: Readonly<Record<string, string>> = {
  Model: 'model dim shape const global-batch weights init seed',
  Cluster: 'devices cluster memory software attention',
  Parallelism:
    'dp tp pp sp ep config annotations mode axes mesh mesh-order stages meshes schedule virtual-stages micro-batches ' +
    'micro-batch ' +
    'sp-method sp-order dispatch capacity-factor tp-sequence bucket interleave gradient-sync',
  'Memory of a step': 'zero recompute offload',
  Training:
    'train loss optimizer learning-rate precision dtype gradients clip-norm weight-decay momentum nesterov betas ' +
    'epsilon schedule-lr ' +
    'warmup total-steps min-lr-ratio loss-scale gradient-reduction ' +
    'loss-output ignore-index class-weights label-smoothing moe-balance ' +
    'train-mode batch-statistics ' +
    'freeze-batch-statistics dropout-seed parameters trainable frozen tie untie decayed undecayed',
  Search: 'objective within prefer headroom top time-limit complete search-mode solver',
  Output: 'output report write-model force plan-only target verify trace',
};

const PLACES: ReadonlyMap<string, { readonly group: string; readonly place: number }> = new Map(
  Object.entries(GROUPS)
    .flatMap(([group, names]) => names.split(' ').map((name) => [name, group] as const))
    .map(([name, group], place) => [name, { group, place }]),
);

/** Where a test would find one that is in no group. */
const ELSEWHERE = { group: 'Others', place: Number.POSITIVE_INFINITY };

/** Options in the order of help, each with the heading it stands under; null where the command has few. */
export function groupedOptions(
  options: readonly CommandOption[],
): readonly { readonly option: CommandOption; readonly group: string | null }[] {
  if (options.length < LEAST_IN_GROUPS) return options.map((option) => ({ option, group: null }));
  return options
    .map((option) => ({ option, ...(PLACES.get(longName(option)) ?? ELSEWHERE) }))
    .sort((a, b) => a.place - b.place);
}

function longName({ flags }: CommandOption): string {
  return /--([\w-]+)/.exec(flags)?.[1] ?? '';
}
