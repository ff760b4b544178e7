/**
 * @file The profile of a machine: where it lies, what it says, and whether it was made here.
 */
import { mkdir, stat } from 'node:fs/promises';
import { arch, availableParallelism, cpus, homedir, platform, totalmem } from 'node:os';
import path from 'node:path';
import { type Cluster, clusterSize } from '../../cost-model/cluster.js';
import { clusterOfDescription } from '../../cost-model/cluster-file.js';
import type { ClusterDescription } from '../../cost-model/cluster-schema.js';
import type { FittedProfile, Measurement } from '../../cost-model/fit-profile.js';
import { AutoparError } from '../../ir/error.js';
import { cannotWrite, writeJsonAtomic } from '../../program/atomic.js';
import { readYaml } from '../../sharding-propagation/annotations/yaml-source.js';
import { busyRanks } from './sweep.js';

/** What tells one machine from another, as far as its speed goes. */
export interface Machine {
  readonly processor: string;
  readonly cores: number;
  readonly memoryBytes: number;
  readonly system: string;
}

export interface MachineProfile {
  readonly format: 'autopar-profile';
  readonly version: 1;
  readonly machine: Machine;
  readonly quick: boolean;
  readonly cluster: ClusterDescription;
  readonly alone: FittedProfile['alone'];
  readonly errors: FittedProfile['errors'];
  readonly measured: readonly Measurement[];
}

/** This machine. */
export function thisMachine(): Machine {
  return {
    processor: cpus()[0]?.model.trim() ?? 'unknown',
    cores: availableParallelism(),
    memoryBytes: totalmem(),
    system: `${platform()} ${arch()}`,
  };
}

/** Where the profile of this machine lies: in the user's cache folder, as each system has it. */
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

/** Writes a profile, making its folder. @throws AutoparError (exit cannotWrite) */
export async function writeProfile(file: string, profile: MachineProfile): Promise<void> {
  await mkdir(path.dirname(path.resolve(file)), { recursive: true }).catch((error: unknown) => {
    throw cannotWrite(error, file);
  });
  await writeJsonAtomic(file, profile);
}

/** Whether a file that can be read calls itself a profile. @throws AutoparError (input) for one that cannot be read */
export async function isProfile(file: string): Promise<boolean> {
  const { value } = await readYaml(file);
  return (value as { readonly format?: unknown } | null)?.format === 'autopar-profile';
}

/** Whether there is such a file. */
export function profileExists(file: string): Promise<boolean> {
  return stat(file).then(
    (found) => found.isFile(),
    () => false,
  );
}

/**
 * Ranks of this machine as a profile has them; more ranks than cores share them.
 * @throws AutoparError (input) `bad-profile` for a file that is none, `profile-of-another-machine`
 */
export async function readProfile(file: string, machine: Machine = thisMachine()): Promise<(ranks: number) => Cluster> {
  const { value } = await readYaml(file);
  const profile = value as Partial<MachineProfile> | null;
  if (
    profile?.format !== 'autopar-profile' ||
    profile.version !== 1 ||
    !profile.machine ||
    !profile.cluster ||
    !profile.alone
  )
    throw new AutoparError('bad-profile', 'input', 'this is no profile of this version of autopar', { file }, AGAIN);
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
  const { alone } = profile;
  return (ranks) => sizedTo(measured, ranks, speedOf(ranks, machine.cores, alone));
}

const AGAIN = 'measure this machine: autopar profile';

/** Of one of `ranks`: fewer than were measured at once have more of the machine, more than there are cores share them. */
function speedOf(ranks: number, cores: number, alone: number): number {
  const busy = busyRanks(cores);
  if (ranks >= busy) return Math.min(1, cores / ranks);
  return 1 / (1 / alone + ((1 - 1 / alone) * (ranks - 1)) / (busy - 1));
}

/** The measured node with so many ranks. What plan.json keeps of it says the same. */
function sizedTo({ description }: Cluster, ranks: number, speed: number): Cluster {
  const [level] = description?.levels ?? [];
  if (!description || !level) throw new Error('a profile describes one level');
  const sized: ClusterDescription = {
    ...description,
    ...(typeof description.device === 'string' ? {} : { device: sharedDevice(description.device, speed) }),
    levels: [{ ...sharedLevel(level, Math.min(1, speed)), size: ranks }],
    ...(speed === 1 ? {} : { nodes: [{ count: 1, speed }] }),
  };
  const cluster = clusterOfDescription(sized);
  if (clusterSize(cluster) !== ranks) throw new Error('the profile does not describe ranks of one node');
  return cluster;
}

/** Ranks that share a core copy and add in turn. */
function sharedLevel<Level extends ClusterDescription['levels'][number]>(level: Level, speed: number): Level {
  const { latency = 0, busBandwidth = {} } = level;
  const slowed = Object.entries(busBandwidth).map(([kind, rate]) => [kind, Number(rate) * speed] as const);
  return { ...level, latency: Number(latency) / speed, busBandwidth: Object.fromEntries(slowed) };
}

/** Calls take longer, too, on a core that others have their turns on. */
function sharedDevice<Device extends { readonly constants?: Readonly<Record<string, unknown>> }>(
  device: Device,
  speed: number,
): Device {
  const { constants = {} } = device;
  const slowed = ['launchSeconds', 'segmentSeconds', 'collectiveSeconds'].flatMap((key) => {
    const seconds = constants[key];
    const own = key === 'collectiveSeconds' ? Math.min(1, speed) : speed;
    return typeof seconds === 'number' ? [[key, seconds / own] as const] : [];
  });
  return { ...device, constants: { ...constants, ...Object.fromEntries(slowed) } };
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
