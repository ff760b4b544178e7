/**
 * @file Writes a program folder: program.json, segments/*.onnx, weights/*.safetensors, and of a pipeline schedule.csv.
 */
import { mkdir, writeFile } from 'node:fs/promises';
import path from 'node:path';
import type { LoweredStage } from '../partition/lower-stages.js';
import { cannotWrite, writeFileAtomic, writeJsonAtomic } from '../program/atomic.js';
import { checkProgram } from '../program/check-program.js';
import type { GeneratedProgram } from './program-of.js';
import { scheduleCsv } from './schedule-csv.js';
import { writeWeights } from './weights.js';

/**
 * Writes `generated` and the weight shards of its stages to `directory`, a folder that is there and empty.
 * @throws AutoparError (exit cannotWrite) where that is impossible; the caller removes what was written. Error (a fault of ours)
 * for a program that does not hang together, before anything is written.
 */
export async function emitProgram(
  directory: string,
  generated: GeneratedProgram,
  lowered: readonly LoweredStage[],
  signal?: AbortSignal,
): Promise<void> {
  const { program, segments } = generated;
  const flaw = checkProgram(program);
  if (flaw) throw new Error(`the program does not hang together: ${flaw}`);
  try {
    await mkdir(path.join(directory, 'segments'));
    await mkdir(path.join(directory, 'weights'));
    for (const [file, model] of segments) await writeFile(path.join(directory, file), model);
  } catch (error) {
    throw cannotWrite(error, directory);
  }
  for (const [index, { graph, sharded }] of lowered.entries()) {
    await writeWeights(directory, graph, sharded, program.stages[index]?.weights ?? {}, program.mesh, signal);
  }
  const csv = scheduleCsv(
    program,
    lowered.map(({ sharded }) => sharded),
  );
  if (csv !== null) await writeFileAtomic(path.join(directory, 'schedule.csv'), csv);
  await writeJsonAtomic(path.join(directory, 'program.json'), program);
}
