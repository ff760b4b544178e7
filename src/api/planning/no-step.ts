/**
 * @file Why a search over training steps finds no step, and how it would find one.
 */
import { type Cluster, clusterSize } from '../../cost-model/cluster.js';
import { bytesForTensors, fixedBytes } from '../../cost-model/predict.js';
import { AutoparError } from '../../ir/error.js';
import type { DegreesVerdict, FoundConfigurations } from '../../search/configurations/best-configurations.js';
import type { Combination, DecidedSettings, SpaceOptions } from '../../search/configurations/space.js';
import { devicesWritten } from '../../search/figures.js';
import { AXIS_ORDER } from '../../sharding-propagation/mesh.js';
import { listedDegrees } from '../../sharding-propagation/roles.js';

/** Every combination is impossible: there are too many pins, or the batch does not divide. */
export function impossible(
  all: readonly Combination[],
  { devices, globalBatch, facts, decided }: SpaceOptions,
): AutoparError {
  // Chunks and schedules need stages: where some combination has stages, its reason says more.
  const needsStages = (decided.virtualStages ?? 1) > 1 || decided.schedule !== undefined;
  const first = (needsStages ? all.find(({ degrees }) => degrees.pp > 1) : undefined) ?? all[0];
  return new AutoparError(
    first ? 'no-combination' : 'degrees-do-not-match-devices',
    first ? 'noPlan' : 'usage',
    first
      ? `no combination of degrees for ${devicesWritten(devices)} is possible: ${first.reason}`
      : noDegrees(devices, facts, decided),
    {},
    first
      ? `a step has ${globalBatch} samples: give another --global-batch, or fewer degrees`
      : 'devices = pp · dp · sp · tp, and ep divides dp · sp and the experts; leave one of them out to fill them',
  );
}

/** Which of the given degrees leave no degrees for the others. */
function noDegrees(devices: number, { experts, sequence }: SpaceOptions['facts'], decided: DecidedSettings): string {
  const { pp, dp, sp, tp, ep = 1 } = decided;
  const given = Object.entries({ pp, dp, sp, tp }).flatMap(([axis, degree]) =>
    degree === undefined ? [] : [{ axis, degree }],
  );
  const product = given.reduce((all, { degree }) => all * degree, 1);
  const text = given.map(({ axis, degree }) => `${axis} ${degree}`).join(' · ');
  if (devices % product !== 0)
    return `${text}${given.length > 1 ? ` is ${product}, which` : ''} does not divide the ${devices} devices`;
  if ((given.length === 4 || sequence === 1) && product !== devices)
    return `${text} is ${product}, not the ${devices} devices`;
  if (experts === 1 && ep > 1) return `ep ${ep} shards experts, and the model has none`;
  if (experts % ep !== 0) return `ep ${ep} does not divide the ${experts} experts of the model`;
  if (ep > 1) return `ep ${ep} divides no dp · sp of ${devices} devices${text === '' ? '' : ` with ${text}`}`;
  return `${text} is ${product}, and sp cannot use the rest of the ${devices} devices on a sequence of ${sequence}`;
}

/** The time limit passed before a configuration that fits was priced, and nothing fits in the default rank order. */
export function outOfTime({ verdicts, priced }: Pick<FoundConfigurations, 'verdicts' | 'priced'>): AutoparError {
  const unseen = verdicts.filter(({ kind }) => kind === 'unseen').length;
  return new AutoparError(
    'out-of-time',
    'noPlan',
    `the time limit ended before any plan was found: nothing fits in the default rank order, ${priced} ` +
      `configurations were priced, and ${unseen} of ${verdicts.length} combinations of degrees were not searched ` +
      'in other orders',
    {},
    'take devices with more memory (--memory); or a longer --time-limit, after which the error says how much memory suffices',
  );
}

/**
 * Nothing fits: the configuration that needs least, and ways to fix it.
 * @param limitsTensors the limit was given for tensors alone, and memory is stated as theirs
 */
export function nothingFits(
  verdicts: readonly DegreesVerdict[],
  limitBytes: number | null,
  cluster: Cluster,
  limitsTensors: boolean,
): AutoparError {
  const large = verdicts.flatMap((verdict) => (verdict.kind === 'too-large' ? [verdict.least] : []));
  const [least] = large.sort((a, b) => a.bytes - b.bytes);
  if (!least || limitBytes === null) throw new Error('no combination was priced');
  const { degrees, zero, recompute, offload = 'none' } = least.configuration;
  const { host } = least;
  const onHost = offload === 'none' ? '' : `, ${offload === 'all' ? 'optimizer and activations' : offload} on the host`;
  const held = host ? `, and ${gigabytes(host.bytes)} of the ${gigabytes(host.memoryBytes)} on a host` : '';
  // Each device has this overhead, whatever it holds; only the rest is divided among devices.
  const fixed = limitsTensors ? 0 : fixedBytes(cluster);
  const [limit, needed] = [limitBytes, least.bytes].map((bytes) =>
    limitsTensors ? bytesForTensors(bytes, cluster) : bytes,
  ) as [number, number];
  const times = limit > fixed ? Math.ceil((needed - fixed) / (limit - fixed)) : null;
  const more =
    times === null
      ? `more of them do not help: context and communication take ${gigabytes(fixed)} of each`
      : `about ${times} times as many devices`;
  return new AutoparError(
    'nothing-fits',
    'noPlan',
    `nothing fits ${gigabytes(limit)} on ${clusterSize(cluster)} devices: the smallest is ` +
      `${listedDegrees(degrees, AXIS_ORDER)}, ZeRO ${zero}, recompute ${recompute}${onHost}, with ${gigabytes(needed)} ` +
      `on stage ${least.stage}${held}`,
    {},
    `take devices with ${gigabytes(needed, 'up')} (--memory)${times === null ? `; ${more}` : `, ${more}`}; ` +
      'or a smaller model',
  );
}

/** @param rounded `up` for a value that is enough when it is typed in again */
function gigabytes(bytes: number, rounded: 'up' | 'near' = 'near'): string {
  if (rounded === 'near' && bytes >= 999.5e9) return `${(bytes / 1e12).toPrecision(3)} TB`;
  const text = (bytes / 1e9).toPrecision(3);
  if (rounded === 'near' || Number(text) * 1e9 >= bytes) return `${text} GB`;
  const unit = 10 ** (Math.floor(Math.log10(bytes / 1e9)) - 2);
  return `${(Math.ceil(bytes / 1e9 / unit) * unit).toPrecision(3)} GB`;
}
