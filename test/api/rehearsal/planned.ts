/**
 * @file Plans for clusters that no test has, and their rehearsals.
 */
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { ExecutionContext } from 'ava';
import { compile, type NestedCompileOptions } from '../../../src/api/compile.js';
import { generatedFile } from '../../../src/api/models/generated.js';
import type { Training } from '../../../src/api/models/training.js';
import type { Rehearsal } from '../../../src/api/rehearse.js';

const CLUSTER = '2x8:h100-sxm-80';

export const TRAINING: Training = {
  loss: { kind: 'cross_entropy' },
  optimizer: { kind: 'adamw', learningRate: 0.01, clipNorm: 0.5 },
};

export type Asked = Omit<NestedCompileOptions, 'model' | 'output'> & {
  readonly family?: string;
  readonly file?: string;
};

/** The folder of a plan; no program is written. */
export async function planned(t: ExecutionContext, { family, file, ...options }: Asked): Promise<string> {
  const at = mkdtempSync(join(tmpdir(), 'autopar-test-'));
  t.teardown(() => rmSync(at, { recursive: true, force: true }));
  const output = join(at, 'plan');
  const model = family === undefined ? (file ?? '') : await generatedFile(family, options.globalBatch);
  await compile({
    cluster: CLUSTER,
    axes: 'roles',
    planOnly: true,
    ...options,
    ...(family === undefined ? {} : { generated: family }),
    model,
    output,
  });
  return output;
}

/** Problems of a rehearsal, in words. */
export function faults({ problems, coverage, verification }: Rehearsal): readonly string[] {
  const { outputs = [], gradients = [], state = [] } = verification ?? {};
  return [
    ...problems,
    ...coverage.unexplained.map((one) => JSON.stringify(one)),
    ...[...outputs, ...gradients, ...state].flatMap(({ name, passed }) => (passed ? [] : [`${name} differs`])),
  ];
}
