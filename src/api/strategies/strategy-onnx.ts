/**
 * @file Writes an annotated copy of a model: the file itself, and next to it the data files that it refers to.
 */
import { createHash } from 'node:crypto';
import { createReadStream } from 'node:fs';
import { readFile, realpath, stat } from 'node:fs/promises';
import path from 'node:path';
import { AutoparError } from '../../ir/error.js';
import { dataFile, isMissing, withoutData } from '../../ir/onnx/external-data.js';
import { decodeModel, encodeModel, type GraphProto, type TensorProto } from '../../ir/onnx/schema.js';
import { cannotWrite, makeParents, streamFileAtomic, writeFileAtomic } from '../../program/atomic.js';
import { annotateModel } from '../../strategy/onnx/annotate.js';
import type { PlacedPlan } from '../../strategy/placed-operators.js';
import type { Plan } from '../../strategy/plan.js';

/**
 * Makes a copy of the model `file` with the plan's annotations. Weights stay unchanged; data files are copied if `output` is in
 * another folder.
 * @returns a function that writes it to `output`, and returns notes for the user, one line each
 * @throws AutoparError `same-file` (cannotWrite) if the copy would replace the model; `data-file-differs` (cannotWrite)
 *   if another data file of that name exists
 */
export async function annotatedCopy(
  file: string,
  output: string,
  plan: Plan,
  placed: PlacedPlan,
  training?: object,
): Promise<() => Promise<readonly string[]>> {
  await checkNotSame(file, output, 'annotations');
  const model = decodeModel(await readFile(file));
  const bytes = encodeModel(annotateModel(model, plan, placed, training));
  return async () => {
    const copied = await copyDataFiles(file, output, model.graph ?? {});
    await writeFileAtomic(output, bytes);
    return copied.length === 0 ? [] : [`copied ${copied.join(', ')} beside it: these files hold the model's weights`];
  };
}

/** @throws AutoparError `same-file` (cannotWrite) if a file of another form would replace a model */
export async function checkNoModel(output: string): Promise<void> {
  if (!output.toLowerCase().endsWith('.onnx')) return;
  const exists = await stat(output).then(
    (found) => found.isFile(),
    () => false,
  );
  if (!exists) return;
  throw new AutoparError(
    'same-file',
    'cannotWrite',
    `${output} is a model; a checkpoint of another form would replace it`,
    { file: output },
    'choose another name',
  );
}

/**
 * Refuses to replace a model by a copy of it.
 * @param what the contents of the copy, in the plural
 * @throws AutoparError `same-file` (cannotWrite)
 */
export async function checkNotSame(file: string, output: string, what: string): Promise<void> {
  const target = await realpath(output).catch(() => null);
  if (target === null || target !== (await realpath(file).catch(() => null))) return;
  throw new AutoparError(
    'same-file',
    'cannotWrite',
    `${output} is the model itself; ${what} are written into a copy`,
    { file: output },
    'choose another name',
  );
}

async function copyDataFiles(file: string, output: string, graph: GraphProto): Promise<readonly string[]> {
  const [from, to] = [path.dirname(path.resolve(file)), path.dirname(path.resolve(output))];
  if (from === to) return [];
  const copied: string[] = [];
  for (const location of dataFiles(graph)) {
    const data = dataFile(location, file);
    if (isMissing(data) && data.problem === 'outside') throw withoutData('', data, file);
    if (isMissing(data)) continue;
    const { file: source } = data;
    const target = path.join(to, path.relative(from, source));
    if (await alreadyThere(source, target)) continue;
    await makeParents(path.dirname(target)).catch((error: unknown) => {
      throw cannotWrite(error, target);
    });
    await streamFileAtomic(target, async (write) => {
      for await (const chunk of createReadStream(source)) await write(chunk as Uint8Array);
    });
    copied.push(location);
  }
  return copied;
}

async function alreadyThere(source: string, target: string): Promise<boolean> {
  const there = await stat(target).catch(() => null);
  if (!there) return false;
  if ((await realpath(source)) === (await realpath(target))) return true;
  const same = there.size === (await stat(source)).size && (await digest(source)) === (await digest(target));
  if (same) return true;
  throw new AutoparError(
    'data-file-differs',
    'cannotWrite',
    `${target} is there already and is not the model's data file`,
    { file: target },
    'choose another folder for the copy',
  );
}

async function digest(file: string): Promise<string> {
  const hash = createHash('sha256');
  for await (const chunk of createReadStream(file)) hash.update(chunk as Uint8Array);
  return hash.digest('hex');
}

/** Locations of external data, including those of subgraphs and attributes. */
function dataFiles(graph: GraphProto): readonly string[] {
  const found = new Set<string>();
  const tensor = ({ external_data: entries }: TensorProto) => {
    const location = entries?.find(({ key }) => key === 'location')?.value;
    if (location !== undefined) found.add(location);
  };
  const visit = (inner: GraphProto) => {
    for (const item of inner.initializer ?? []) tensor(item);
    for (const { attribute } of inner.node ?? []) {
      for (const { t, g } of attribute ?? []) {
        if (t) tensor(t);
        if (g) visit(g);
      }
    }
  };
  visit(graph);
  return [...found].sort();
}
