/**
 * @file profile: measures the local devices through the runtime that runs programs, fits the figures of the cost model, and
 * writes them for `--cluster local`.
 */
import { fitProfile, type Measurement } from '../cost-model/fit-profile.js';
import { measure } from './profile/measured-program.js';
import {
  defaultProfileFile,
  type MachineProfile,
  makePlace,
  PROFILE_VERSION,
  thisMachine,
  writeProfile,
} from './profile/profile-file.js';
import { type PlannedMeasurement, sweep } from './profile/sweep.js';

export type { MachineProfile } from './profile/profile-file.js';

export interface ProfileOptions {
  /** The file to write; by default it is in the user's cache folder. */
  readonly output?: string;
  /** Measure for about ten seconds instead of two minutes. */
  readonly quick?: boolean;
  readonly signal?: AbortSignal;
  readonly onProgress?: (progress: {
    readonly done: number;
    readonly of: number;
    readonly next: PlannedMeasurement;
  }) => void;
  /** Replaces the measurement on this machine in tests; returns seconds. */
  readonly measure?: (planned: PlannedMeasurement) => Promise<number>;
}

/** Measures, fits and writes. @throws AutoparError `interrupted`, `rank-failed`, or (exit cannotWrite) for the file */
export async function profile(
  options: ProfileOptions = {},
): Promise<{ readonly file: string; readonly profile: MachineProfile }> {
  const machine = thisMachine();
  const { quick = false, output: file = defaultProfileFile() } = options;
  const timed =
    options.measure ??
    (({ subject, ranks, timing }: PlannedMeasurement) => measure(subject, ranks, timing, options.signal));
  await makePlace(file);
  const planned = sweep(machine.cores, quick);
  const measured: Measurement[] = [];
  for (const [done, next] of planned.entries()) {
    options.onProgress?.({ done, of: planned.length, next });
    measured.push({ ...next.subject, ranks: next.ranks, seconds: await timed(next) });
  }
  const made: MachineProfile = {
    format: 'autopar-profile',
    version: PROFILE_VERSION,
    machine,
    quick,
    ...fitProfile(measured),
    measured,
  };
  await writeProfile(file, made);
  return { file, profile: made };
}
