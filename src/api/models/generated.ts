/**
 * @file `--model FAMILY:key=value,…` for commands that take a file: the generated graph is written as ONNX, its weights as
 * inputs without values, and read back like any other file.
 */
import { createHash } from 'node:crypto';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { generatedModel } from '../../../models/families.js';
import { writeOnnx } from '../../ir/onnx/writer.js';
import { cannotWrite, makeParents, writeFileAtomic } from '../../program/atomic.js';
import { checkArguments, integerFrom, leftOut, text as textKind } from '../options/kinds.js';

/**
 * The file of a generated model, in the system's folder for temporary files; equal texts share one file.
 * @param batch samples; by default the value of `batch=` in the text
 * @throws AutoparError (exit cannotWrite); (usage) `unknown-family`, `unknown-model-key`, `bad-model-value`
 */
export async function generatedFile(text: string, batch?: number): Promise<string> {
  checkArguments('generatedFile', { text: [text, textKind], batch: [batch, leftOut(integerFrom(1))] });
  const { family, bytes } = generatedOnnx(text, batch);
  const key = createHash('sha256').update(bytes).digest('hex').slice(0, 16);
  const folder = join(tmpdir(), 'autopar-models', key);
  await makeParents(folder).catch((error: unknown) => {
    throw cannotWrite(error, folder);
  });
  const file = join(folder, `${family}.onnx`);
  await writeFileAtomic(file, bytes);
  return file;
}

/** The same file where the user wants it. @throws AutoparError as `generatedFile` */
export async function writeGenerated(file: string, text: string, batch?: number): Promise<void> {
  await writeFileAtomic(file, generatedOnnx(text, batch).bytes);
}

function generatedOnnx(text: string, batch?: number): { readonly family: string; readonly bytes: Uint8Array } {
  const { family, build, batch: stated } = generatedModel(text);
  return { family, bytes: writeOnnx(build(batch ?? stated), { weights: 'inputs', name: family }) };
}
