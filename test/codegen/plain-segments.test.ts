/**
 * @file The models in plainer operators that stand beside segments: they compute the same, and are checked before a run.
 */
import { mkdtempSync, readFileSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import test from 'ava';
import { randomInputs } from '../../src/api/execution/inputs.js';
import { AutoparError, compile, runCompiled } from '../../src/api/index.js';
import { openCompiled } from '../../src/api/verify.js';
import { decodeModel } from '../../src/ir/onnx/schema.js';
import { writeOnnx } from '../../src/ir/onnx/writer.js';
import { numbersOf } from '../../src/ir/ops/constants.js';
import { runOnnx } from '../../src/runtime/reference.js';
import { difference } from '../pipelines/difference.js';
import { NORMALISATIONS, normalised } from './normalised.js';

test('a segment in plainer operators computes the same, its nodes named by those that they stand for', async (t) => {
  const folder = mkdtempSync(join(tmpdir(), 'autopar-plain-'));
  const [model, output] = [join(folder, 'norms.onnx'), join(folder, 'out')];
  writeFileSync(model, writeOnnx(normalised()));
  await compile({ model, output, devices: 1 });
  const { imported, program } = await openCompiled(output);
  const at = (name: string) => join(output, 'program', name);
  const [segment, ...others] = Object.values(program.stages[0]?.segments ?? {});
  if (!segment?.plain || others.length > 0) return t.fail(JSON.stringify(segment));
  const plain = readFileSync(at(segment.plain.file));
  const nodes = decodeModel(plain).graph?.node ?? [];
  for (const { op_type: op = '', name = '' } of nodes) {
    t.false(NORMALISATIONS.includes(op), op);
    t.true(Number(/_(\d+)$/.exec(name)?.[1]) < (segment.nodes?.length ?? 0), name);
  }
  const given = randomInputs(imported.graph, 1, {});
  const run = program.stages[0]?.phases['forward']?.find(({ kind }) => kind === 'compute');
  const names = run?.kind === 'compute' ? run.inputs : [];
  const inputs = Object.fromEntries(
    segment.inputs.flatMap((name, index) => {
      const value = given[names[index] ?? ''];
      return value ? [[name, value] as const] : [];
    }),
  );
  const [wanted, got] = [await runOnnx(readFileSync(at(segment.file)), inputs), await runOnnx(plain, inputs)];
  for (const [name, value] of Object.entries(wanted)) {
    const other = got[name];
    t.true(other && difference(numbersOf(value).map(Number), numbersOf(other).map(Number)) < 1e-5, name);
  }
  writeFileSync(at(segment.plain.file), plain.subarray(1));
  const error = await t.throwsAsync(runCompiled({ directory: output }), { instanceOf: AutoparError });
  t.is(error?.code, 'bad-segment');
});
