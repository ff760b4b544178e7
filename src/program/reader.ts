/**
 * @file Reading and writing program.json.
 */
import { readFile, stat } from 'node:fs/promises';
import path from 'node:path';
import { AutoparError } from '../ir/error.js';
import { schemaCheck } from '../ir/schema-check.js';
import { writeJsonAtomic } from './atomic.js';
import { checkProgram } from './check-program.js';
import { insideFolder } from './inside-folder.js';
import { PROGRAM_VERSION, type Program } from './program.js';
import { programSchema } from './program-schema.js';

const PROGRAM_FILE = 'program.json';

/**
 * The folder that holds program.json: `dir` itself, or its subfolder `program` (where `compile` wrote `dir`).
 * Throws AutoparError (exit input) where there is none, and where it is a link to another place.
 */
export async function programFolder(dir: string): Promise<string> {
  for (const folder of ['program', '.']) {
    if (await isFile(await insideFolder(dir, path.join(folder, PROGRAM_FILE)))) return path.join(dir, folder);
  }
  const planned = await isFile(path.join(dir, 'plan.json'));
  throw new AutoparError(
    'no-program',
    'input',
    planned ? `${dir} holds a plan but no program` : `${dir} holds no ${PROGRAM_FILE}`,
    { file: path.join(dir, 'program', PROGRAM_FILE) },
    planned
      ? 'compile the model again, without --plan-only; if the model file has no weights, with --init random'
      : 'give the folder that `autopar compile` wrote',
  );
}

/**
 * The program in `dir` (see `programFolder`), checked for its form and for names that refer to nothing.
 * Throws AutoparError (exit input) naming the file and its problem.
 */
export async function readProgram(dir: string): Promise<Program> {
  const file = path.join(await programFolder(dir), PROGRAM_FILE);
  const bytes = await readFile(file, 'utf8').catch((error: unknown) => {
    throw badProgram(file, `cannot be read: ${error instanceof Error ? error.message : String(error)}`);
  });
  let value: unknown;
  try {
    value = JSON.parse(bytes);
  } catch (error) {
    throw badProgram(file, `is not JSON or is truncated: ${error instanceof Error ? error.message : String(error)}`);
  }
  const version = (value as { version?: unknown } | null)?.version;
  if (typeof version === 'number' && version < PROGRAM_VERSION) {
    throw badProgram(
      file,
      `has version ${version}; this autopar runs version ${PROGRAM_VERSION}`,
      'compile the model again',
    );
  }
  if (typeof version === 'number' && version > PROGRAM_VERSION) {
    throw badProgram(file, `has version ${version}; this autopar reads up to ${PROGRAM_VERSION}`, 'update autopar');
  }
  const validate = programCheck();
  if (!validate(value)) {
    const first = validate.errors?.[0];
    throw badProgram(file, `${first?.instancePath || 'the whole'} ${first?.message ?? 'is malformed'}`);
  }
  // A name that every object knows, such as __proto__, is none of the program's.
  for (const { tensors, weights, segments, phases } of value.stages)
    for (const named of [tensors, weights, segments, phases]) Object.setPrototypeOf(named, null);
  const flaw = checkProgram(value);
  if (flaw !== null) throw badProgram(file, flaw);
  return value;
}

const programCheck = schemaCheck<Program>(programSchema);

/** Writes program.json into a folder, atomically. Throws AutoparError (exit cannotWrite). */
export async function writeProgram(folder: string, program: Program): Promise<void> {
  await writeJsonAtomic(path.join(folder, PROGRAM_FILE), program);
}

function badProgram(file: string, what: string, hint = 'compile the model again'): AutoparError {
  return new AutoparError('bad-program', 'input', `the program ${file}: ${what}`, { file }, hint);
}

/** Whether there is such a file. */
export function isFile(file: string): Promise<boolean> {
  return stat(file).then(
    (found) => found.isFile(),
    () => false,
  );
}
