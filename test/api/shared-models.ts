/**
 * @file The folder of shared models that some suites use: from AUTOPAR_SHARED, or beside the repository. The suites say so
 * when it is absent.
 */
import { existsSync, readdirSync, readFileSync } from 'node:fs';
import { join, resolve } from 'node:path';
import type { DType } from '../../src/ir/dtype.js';
import type { ConstantTensor } from '../../src/ir/graph.js';

export interface SharedCase {
  readonly name: string;
  readonly file: string;
  readonly inputs: Readonly<Record<string, ConstantTensor>>;
  readonly outputs: Readonly<Record<string, ConstantTensor>>;
  readonly tolerance: { readonly rtol: number; readonly atol: number };
}

interface Stated {
  readonly name: string;
  readonly dtype: DType;
  readonly shape: readonly number[];
  readonly file: string;
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

/** Why a suite is skipped when the folder is absent. */
export const ABSENT = `models of PyTorch's exporters (${FOLDER} is absent; AUTOPAR_SHARED names another folder)`;

function caseOf(name: string): SharedCase {
  const folder = join(FOLDER, name);
  const io = JSON.parse(readFileSync(join(folder, 'io.json'), 'utf8')) as {
    inputs: Stated[];
    outputs: Stated[];
    tolerance: SharedCase['tolerance'];
  };
  const read = (values: readonly Stated[]): Record<string, ConstantTensor> =>
    Object.fromEntries(
      values.map(({ name: key, dtype, shape, file }) => [
        key,
        { dtype, shape, data: new Uint8Array(readFileSync(join(folder, file))) },
      ]),
    );
  return {
    name,
    file: join(folder, 'model.onnx'),
    inputs: read(io.inputs),
    outputs: read(io.outputs),
    tolerance: io.tolerance,
  };
}
