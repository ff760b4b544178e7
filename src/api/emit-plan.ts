/**
 * @file emitPlan: a plan as a folder without a program. Apart from what writes programs, so that a plan alone does not load it.
 */
import path from 'node:path';
import { writeFileAtomic, writeFolderAtomic, writeJsonAtomic } from '../program/atomic.js';
import type { Plan } from '../strategy/plan.js';
import { planToJson } from '../strategy/plan-json.js';
import { checkTarget, type ProgramSource } from './folder.js';

/** A plan without a program: the folder holds what it was made from and what it says. @throws AutoparError (exit cannotWrite) */
export async function emitPlan(
  plan: Plan,
  {
    directory,
    force,
    model,
    source,
  }: Readonly<{ directory: string; force: boolean; model: string; source: Omit<ProgramSource, 'format' | 'model'> }>,
): Promise<void> {
  await checkTarget(directory, force, model);
  const written: ProgramSource = {
    format: 'autopar-source',
    model: model === '' ? '' : relativeTo(directory, model),
    ...source,
  };
  await writeFolderAtomic(directory, async (temporary) => {
    await writeFileAtomic(path.join(temporary, 'plan.json'), planToJson(plan));
    await writeJsonAtomic(path.join(temporary, 'source.json'), written);
  });
}

/** A file as seen from a folder, with forward slashes. */
export function relativeTo(directory: string, file: string): string {
  return path.relative(path.resolve(directory), path.resolve(file)).split(path.sep).join('/');
}
