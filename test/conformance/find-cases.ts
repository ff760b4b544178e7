/**
 * @file Where cases are. Three layouts are known:
 *
 *     listed   FOLDER/model.onnx, FOLDER/io.json and the raw files that it names
 *     onnx     FOLDER/model.onnx, FOLDER/test_data_set_N/{input,output}_N.pb     ONNX's backend tests
 *     light    FOLDER/NAME.onnx, FOLDER/NAME_output_0.pb                         ONNX's light models: inputs are not stored
 *     file     NAME.onnx, given by its own path                                  inputs of noise, ONNX Runtime's outputs
 */
import { existsSync, readdirSync, realpathSync, statSync } from 'node:fs';
import { basename, dirname, join } from 'node:path';

export type Layout = 'listed' | 'onnx' | 'light' | 'file';

export interface CaseReference {
  readonly name: string;
  readonly layout: Layout;
  /** The case's folder; for `light` the folder that it shares with others. */
  readonly folder: string;
  readonly model: string;
}

/**
 * All cases in the folders given, and the models given as files, sorted, each once; symbolic links are followed. Throws where a
 * folder does not exist.
 */
export function findCases(folders: readonly string[]): readonly CaseReference[] {
  const found: CaseReference[] = [];
  const seen = new Set<string>();
  const visit = (folder: string): void => {
    const real = realpathSync(folder);
    if (seen.has(real)) return;
    seen.add(real);
    const own = caseIn(folder);
    if (own) {
      found.push(own);
      return;
    }
    for (const name of readdirSync(folder).sort()) {
      const inner = join(folder, name);
      if (statSync(inner, { throwIfNoEntry: false })?.isDirectory()) visit(inner);
      else if (isLight(folder, name)) found.push({ name: stem(name), layout: 'light', folder, model: inner });
    }
  };
  for (const folder of folders) {
    if (folder.endsWith('.onnx') && statSync(folder).isFile())
      found.push({ name: stem(basename(folder)), layout: 'file', folder: dirname(folder), model: folder });
    else visit(folder);
  }
  return found;
}

function caseIn(folder: string): CaseReference | null {
  const model = join(folder, 'model.onnx');
  if (!existsSync(model)) return null;
  const name = basename(folder);
  if (existsSync(join(folder, 'io.json'))) return { name, layout: 'listed', folder, model };
  return dataSets(folder).length > 0 ? { name, layout: 'onnx', folder, model } : null;
}

/** The folders of a case's data sets, in the order of their numbers. */
export function dataSets(folder: string): readonly string[] {
  return readdirSync(folder)
    .filter((name) => /^test_data_set_\d+$/.test(name))
    .sort((a, b) => numberIn(a) - numberIn(b))
    .map((name) => join(folder, name));
}

function numberIn(name: string): number {
  return Number(name.slice(name.lastIndexOf('_') + 1));
}

function isLight(folder: string, name: string): boolean {
  return name.endsWith('.onnx') && existsSync(join(folder, `${stem(name)}_output_0.pb`));
}

function stem(name: string): string {
  return name.replace(/\.onnx$/, '');
}
