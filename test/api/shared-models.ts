/**
 * @file The folder of shared models that some suites use: from AUTOPAR_SHARED, or beside the repository. The suites say so
 * when it is absent.
 */
import { existsSync, readdirSync } from 'node:fs';
import { join, resolve } from 'node:path';
import type { ConstantTensor } from '../../src/ir/graph.js';
import { readOnnx } from '../../src/ir/onnx/reader.js';
import { readListing } from '../conformance/case-files.js';

export interface SharedCase {
  readonly name: string;
  readonly file: string;
  readonly inputs: Readonly<Record<string, ConstantTensor>>;
  readonly outputs: Readonly<Record<string, ConstantTensor>>;
  readonly tolerance: { readonly rtol: number; readonly atol: number };
}

const FOLDER = resolve(process.env['AUTOPAR_SHARED'] ?? '../shared', 'models');

/** The 20 models of PyTorch's exporters with inputs and expected outputs; [] where the folder is absent. */
export function sharedCases(): readonly SharedCase[] {
  if (!existsSync(FOLDER)) return [];
  return readdirSync(FOLDER)
    .filter((name) => name.startsWith('torch-'))
    .sort()
    .map((name) => caseOf(name));
}

/** Open dimensions of the case's model, as its stored inputs have them. */
export async function dimsOf({ file, inputs }: SharedCase): Promise<Record<string, number>> {
  const { graph } = await readOnnx(file);
  return Object.fromEntries(
    graph.inputs.flatMap(({ name, shape }) =>
      (shape ?? []).flatMap((size, axis) =>
        typeof size === 'string' ? [[size, inputs[name]?.shape[axis] ?? 1] as const] : [],
      ),
    ),
  );
}

/** Why a suite is skipped when the folder is absent. */
export const ABSENT = `models of PyTorch's exporters (${FOLDER} is absent; AUTOPAR_SHARED names another folder)`;

function caseOf(name: string): SharedCase {
  const { model, ...rest } = readListing(join(FOLDER, name));
  return { name, file: model, ...rest };
}
