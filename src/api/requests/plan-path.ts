/** @file Whether a path is a plan: plan.json, or the folder that holds it. */
import { stat } from 'node:fs/promises';
import path from 'node:path';

export async function isPlanPath(file: string): Promise<boolean> {
  if (path.basename(file) === PLAN_FILE) return true;
  const information = await stat(file).catch(() => null);
  return information?.isDirectory() ?? false;
}

export const PLAN_FILE = 'plan.json';
