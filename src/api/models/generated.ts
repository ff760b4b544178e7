/**
 * @file `--model FAMILY:key=value,…` for commands that take a file: the generated graph is written as ONNX without weights, and
 * read back like any other file.
 */
import { createHash } from 'node:crypto';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { generatedModel } from '../../../models/families.js';
import { writeOnnx } from '../../ir/onnx/writer.js';
import { cannotWrite, makeParents, writeFileAtomic } from '../../program/atomic.js';

/**
 * The file of a generated model, in the system's folder for temporary files; equal texts share one file.
 * @param batch samples; what the text's `batch=` says where it is left out
 * @throws AutoparError (exit cannotWrite); (usage) `unknown-family`, `unknown-model-key`, `bad-model-value`
 */
export async function generatedFile(text: string, batch?: number): Promise<string> {
  const model = generatedModel(text);
  const bytes = writeOnnx(model.build(batch ?? model.batch), { externalWeights: true, name: model.family });
  const key = createHash('sha256').update(bytes).digest('hex').slice(0, 16);
  const folder = join(tmpdir(), 'autopar-models', key);
  await makeParents(folder).catch((error: unknown) => {
    throw cannotWrite(error, folder);
  });
  const file = join(folder, `${model.family}.onnx`);
  await writeFileAtomic(file, bytes);
  return file;
}
