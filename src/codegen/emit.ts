/**
 * @file Writes a program folder: program.json, segments/*.onnx, weights/*.safetensors, and of a pipeline schedule.csv.
 */
import { mkdir, writeFile } from 'node:fs/promises';
import path from 'node:path';
import { room } from '../ir/onnx/weight-reader.js';
import { assertSound } from '../partition/check.js';
import type { LoweredStage } from '../partition/lower-stages.js';
import { cannotWrite, writeFileAtomic, writeJsonAtomic } from '../program/atomic.js';
import { checkProgram } from '../program/check-program.js';
import type { GeneratedProgram } from './program-of.js';
import { scheduleCsv } from './schedule-csv.js';
import { writeWeights } from './weights.js';

/**
 * Checks the lowered stages and the generated program, and writes the program and the weight shards of its stages to `directory`,
 * an existing empty folder.
 * @throws Error (an internal error) where the check finds anything, before anything is written; AutoparError (exit cannotWrite)
 * where a file cannot be written; the caller removes the written files.
 */
export async function emitProgram(
  directory: string,
  generated: GeneratedProgram,
  lowered: readonly LoweredStage[],
  signal?: AbortSignal,
): Promise<void> {
  const { program, segments } = generated;
  assertSound(lowered);
  const flaw = checkProgram(program);
  if (flaw !== null) throw new Error(`the program is not valid: ${flaw}`);
  try {
    await mkdir(path.join(directory, 'segments'));
    await mkdir(path.join(directory, 'weights'));
    for (const [file, model] of segments) await writeFile(path.join(directory, file), model);
  } catch (error) {
    throw cannotWrite(error, directory);
  }
  const whole = room();
  for (const [index, { graph, sharded }] of lowered.entries()) {
    const places = program.stages[index]?.weights ?? {};
    await writeWeights(directory, graph, sharded, places, program.mesh, whole, signal);
  }
  const csv = scheduleCsv(
    program,
    lowered.map(({ sharded }) => sharded),
  );
  if (csv !== null) await writeFileAtomic(path.join(directory, 'schedule.csv'), csv);
  await writeJsonAtomic(path.join(directory, 'program.json'), program);
}
