/**
 * @file The profile of a machine: its path, its contents, and whether it was made on this machine.
 */
import { constants } from 'node:fs';
import { access } from 'node:fs/promises';
import { arch, availableParallelism, cpus, homedir, platform, totalmem } from 'node:os';
import path from 'node:path';
import { type Cluster, clusterSize } from '../../cost-model/cluster.js';
import { clusterOfDescription } from '../../cost-model/cluster-file.js';
import type { ClusterDescription, DeviceDescription } from '../../cost-model/cluster-schema.js';
import type { CrowdedRanks, FittedProfile, Measurement } from '../../cost-model/fit-profile.js';
import { QUANTITY_RANGE } from '../../cost-model/quantities.js';
import { AutoparError } from '../../ir/error.js';
import { listOf, mapOf, record } from '../../ir/json-schema.js';
import { schemaCheck } from '../../ir/schema-check.js';
import { cannotWrite, makeParents, writeJsonAtomic } from '../../program/atomic.js';
import { schemaFault } from '../../sharding-propagation/annotations/schema-errors.js';
import { readYaml } from '../../sharding-propagation/annotations/yaml-source.js';
import { busyRanks } from './sweep.js';

/** Version of the form in which `fitProfile` returns figures. */
export const PROFILE_VERSION = 2;

/** Properties of a machine that determine its speed. */
export interface Machine {
  readonly processor: string;
  readonly cores: number;
  readonly memoryBytes: number;
  readonly system: string;
}

export interface MachineProfile {
  readonly format: 'autopar-profile';
  readonly version: typeof PROFILE_VERSION;
  readonly machine: Machine;
  readonly quick: boolean;
  readonly cluster: ClusterDescription;
  readonly alone: FittedProfile['alone'];
  readonly crowded: FittedProfile['crowded'];
  readonly errors: FittedProfile['errors'];
  readonly measured: readonly Measurement[];
}

const positive = { type: 'number', ...QUANTITY_RANGE };
const text = { type: 'string' };

/**
 * The part of a profile that is read; `measured` and `errors` are for people. The cluster's form is checked as that of other
 * files.
 */
const profileCheck = schemaCheck<MachineProfile>(
  {
    type: 'object',
    properties: {
      machine: record({ processor: text, cores: positive, memoryBytes: positive, system: text }),
      cluster: {
        type: 'object',
        properties: { device: { type: 'object' }, levels: { ...listOf({}), minItems: 1, maxItems: 1 } },
        required: ['device', 'levels'],
      },
      alone: record({ compute: positive, memory: positive }),
      crowded: record({
        ...{ ranks: positive, speed: positive, memorySpeed: positive, latency: positive },
        collectiveSeconds: { ...positive, minimum: 0 },
        busBandwidth: mapOf(positive),
      }),
    },
    required: ['machine', 'cluster', 'alone', 'crowded'],
  },
  { allErrors: true, verbose: true },
);

/** The properties of this machine. */
export function thisMachine(): Machine {
  return {
    processor: cpus()[0]?.model.trim() ?? 'unknown',
    cores: availableParallelism(),
    memoryBytes: totalmem(),
    system: `${platform()} ${arch()}`,
  };
}

/** Path of the profile of this machine: in the user's cache folder of each operating system. */
export function defaultProfileFile(env: NodeJS.ProcessEnv = process.env, system: string = platform()): string {
  const given = env['XDG_CACHE_HOME'];
  const folder =
    given && path.isAbsolute(given)
      ? given
      : system === 'win32'
        ? (env['LOCALAPPDATA'] ?? path.join(homedir(), 'AppData', 'Local'))
        : system === 'darwin'
          ? path.join(homedir(), 'Library', 'Caches')
          : path.join(homedir(), '.cache');
  return path.join(folder, 'autopar', 'profile.json');
}

/** Creates the folder of a profile before minutes of measuring, not after. @throws AutoparError (exit cannotWrite) */
export async function makePlace(file: string): Promise<void> {
  const folder = path.dirname(path.resolve(file));
  try {
    // Creates one folder at a time: Node's recursive mkdir does not end if a folder can never be created, as in /proc.
    await makeParents(folder);
    await access(folder, constants.W_OK);
  } catch (error) {
    throw cannotWrite(error, file);
  }
}

/** Writes a profile to an existing folder. @throws AutoparError (exit cannotWrite) */
export async function writeProfile(file: string, profile: MachineProfile): Promise<void> {
  await writeJsonAtomic(file, profile);
}

/** Whether the format of a file is that of a profile. @throws AutoparError (input) for a file that cannot be read */
export async function isProfile(file: string): Promise<boolean> {
  const { value } = await readYaml(file);
  return (value as { readonly format?: unknown } | null)?.format === 'autopar-profile';
}

/**
 * The cluster of a number of ranks of this machine, according to a profile; more ranks than cores share the cores.
 * @throws AutoparError (input) `bad-profile` for a file that is not a profile, `profile-of-another-machine`
 */
export async function readProfile(file: string, machine: Machine = thisMachine()): Promise<(ranks: number) => Cluster> {
  const { value, lineOf } = await readYaml(file);
  const validate = profileCheck();
  const profile = value as MachineProfile | null;
  const isOther = profile?.format !== 'autopar-profile' || profile.version !== PROFILE_VERSION;
  if (isOther || !validate(value)) {
    const fault = isOther ? null : schemaFault(validate.errors ?? [], lineOf);
    const line = fault && lineOf(fault.path);
    throw new AutoparError(
      'bad-profile',
      'input',
      fault ? `the profile was edited: ${fault.sentence}` : 'the file is not a profile of this version of autopar',
      { file, ...(line ? { line } : {}) },
      AGAIN,
    );
  }
  const differences = machineDifferences(profile.machine, machine);
  if (differences.length > 0)
    throw new AutoparError(
      'profile-of-another-machine',
      'input',
      `the profile was made on another machine: ${differences.join('; ')}`,
      { file },
      AGAIN,
    );
  const measured = clusterOfDescription(profile.cluster, file);
  const { alone, crowded } = profile;
  const { cores } = machine;
  return (ranks) =>
    ranks > cores ? crowdedTo(measured, ranks, cores, crowded) : sizedTo(measured, ranks, cores, alone);
}

const AGAIN = 'measure this machine: autopar profile';

/** A cluster of ranks with one core each; fewer ranks than in the measurement have a larger share of the machine. */
function sizedTo({ description }: Cluster, ranks: number, cores: number, alone: FittedProfile['alone']): Cluster {
  const busy = busyRanks(cores);
  const share = ranks >= busy ? 0 : (busy - ranks) / (busy - 1);
  const [speed, memory] = [alone.compute, alone.memory].map((gain) => 1 / (1 - share * (1 - 1 / gain)));
  const { device, level } = partsOf(description);
  const faster = withMemory(device, memory as number, speed as number);
  return described({ ...description, levels: [{ ...level, size: ranks }] }, faster, speed as number, ranks);
}

/** A cluster of ranks that share the cores: as measured, in proportion to their number. */
function crowdedTo({ description }: Cluster, ranks: number, cores: number, crowded: CrowdedRanks): Cluster {
  const { device, level } = partsOf(description);
  const [speed, memory] = [crowded.speed, crowded.memorySpeed].map((share) => (share * cores) / ranks);
  // Number of ranks relative to that at which collectives were measured.
  const turns = ranks / Math.max(cores, crowded.ranks);
  const shared = withMemory(device, memory as number, speed as number);
  const slowed = Object.fromEntries(
    ['launchSeconds', 'segmentSeconds', 'tensorSeconds'].map((key) => [
      key,
      Number(shared.constants?.[key] ?? 0) / (speed as number),
    ]),
  );
  const constants = { ...shared.constants, ...slowed, collectiveSeconds: crowded.collectiveSeconds * turns };
  const busBandwidth = Object.fromEntries(
    Object.entries(crowded.busBandwidth).map(([kind, rate]) => [kind, rate / turns] as const),
  );
  const links = { ...level, latency: crowded.latency * turns, busBandwidth, size: ranks };
  return described({ ...description, levels: [links] }, { ...shared, constants }, speed as number, ranks);
}

/** A device with `memory` times the memory bandwidth, if all of it later runs `speed` times as fast. */
function withMemory(device: DeviceDescription, memory: number, speed: number): DeviceDescription {
  const { constants = {}, memoryBandwidth } = device;
  const rates = ['packingBandwidth', 'resultBandwidth'].flatMap((key) =>
    constants[key] === undefined ? [] : [[key, Number(constants[key]) * memory] as const],
  );
  return {
    ...device,
    memoryBandwidth: (Number(memoryBandwidth) * memory) / speed,
    constants: { ...constants, ...Object.fromEntries(rates) },
  };
}

function partsOf(description: ClusterDescription | undefined) {
  const [level] = description?.levels ?? [];
  if (!description || !level || typeof description.device === 'string')
    throw new Error('a profile describes a device and one level');
  return { device: description.device, level };
}

/** The cluster of a description, so that the description in plan.json states the same figures. */
function described(
  description: Partial<ClusterDescription>,
  device: ClusterDescription['device'],
  speed: number,
  ranks: number,
): Cluster {
  const cluster = clusterOfDescription({
    version: 1,
    levels: [],
    ...description,
    device,
    ...(speed === 1 ? {} : { nodes: [{ count: 1, speed }] }),
  });
  if (clusterSize(cluster) !== ranks) throw new Error('the profile does not describe ranks of one node');
  return cluster;
}

function machineDifferences(made: Partial<Machine>, here: Machine): readonly string[] {
  const texts: Readonly<Record<keyof Machine, (machine: Partial<Machine>) => string>> = {
    processor: ({ processor }) => `${processor}`,
    cores: ({ cores }) => `${cores} cores`,
    memoryBytes: ({ memoryBytes = 0 }) => `${(memoryBytes / 2 ** 30).toFixed(1)} GiB of memory`,
    system: ({ system }) => `${system}`,
  };
  return (Object.keys(texts) as (keyof Machine)[])
    .filter((key) => texts[key](made) !== texts[key](here))
    .map((key) => `${texts[key](made)} there, ${texts[key](here)} here`);
}
