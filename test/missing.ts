/**
 * @file Requirements that this machine lacks: its tests are skipped with one visible line, counted as skipped, never as passed.
 */
import { spawnSync } from 'node:child_process';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';

/** Says why tests are skipped and hands the reason back; null where nothing is missing. */
export function missing(lacks: boolean, why: string): string | null {
  if (!lacks) return null;
  console.log(`skipped: ${why}`);
  return why;
}

/** Permissions do not hold for root, so that what they forbid cannot be tried. */
export function runsAsRoot(): boolean {
  return process.getuid?.() === 0;
}

/** Whether a small file system can be mounted, to be filled up. */
export function canMount(): boolean {
  const folder = mkdtempSync(join(tmpdir(), 'autopar-mount-'));
  try {
    if (spawnSync('mount', ['-t', 'tmpfs', '-o', 'size=64k', 'none', folder]).status !== 0) return false;
    return spawnSync('umount', [folder]).status === 0;
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
}
