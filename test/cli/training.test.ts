/**
 * @file Training on the command line: labels are checked before ranks start, files of weights of classes are read, and the
 * report agrees with the plan.
 */
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import test, { type ExecutionContext } from 'ava';
import { mlp } from '../../models/mlp.js';
import type { ConstantTensor } from '../../src/ir/graph.js';
import { writeOnnx } from '../../src/ir/onnx/writer.js';
import { constant } from '../../src/ir/ops/constants.js';
import { writeNpz } from '../../src/program/arrays/npz.js';
import { slowTests } from '../selection.js';
import { autopar } from './autopar.js';

const slow = slowTests(test);

const [BATCH, INNER, CLASSES] = [8, 6, 4];

interface Folder {
  readonly model: string;
  readonly output: string;
  readonly arrays: (name: string, arrays: Readonly<Record<string, ConstantTensor>>) => string;
}

function folder(t: ExecutionContext): Folder {
  const made = mkdtempSync(join(tmpdir(), 'autopar-test-'));
  t.teardown(() => rmSync(made, { recursive: true, force: true }));
  const model = join(made, 'model.onnx');
  writeFileSync(model, writeOnnx(mlp('small', { batch: BATCH, widths: [INNER, 10, CLASSES] }, 1)));
  const arrays: Folder['arrays'] = (name, values) => {
    const file = join(made, name);
    writeFileSync(file, writeNpz(values));
    return file;
  };
  return { model, output: join(made, 'out'), arrays };
}

const labelled = (labels: readonly number[]) => constant('int64', labels, [labels.length]);
const X = constant('float32', new Array<number>(BATCH * INNER).fill(0.5), [BATCH, INNER]);

slow('labels that are no classes are refused before any rank starts', async (t) => {
  const { model, output, arrays } = folder(t);
  const weights = arrays('weights.npz', { w: constant('float32', [1, 2, 1, 1], [CLASSES]) });
  const line = ['compile', model, '--train', '--ignore-index', '9', '--class-weights', weights];
  const compiled = await autopar([...line, '--label-smoothing', '0.1', '--dp', '2', '--tp', '1', '-o', output]);
  t.is(compiled.code, 0, compiled.stderr);
  const { training } = JSON.parse(readFileSync(join(output, 'plan.json'), 'utf8')) as { training: { loss: unknown } };
  t.deepEqual(training.loss, {
    kind: 'cross_entropy',
    labelSmoothing: 0.1,
    labels: { classes: CLASSES, ignoreIndex: 9, input: 'labels' },
  });
  const run = async (labels: ConstantTensor) => {
    const inputs = arrays('inputs.npz', { x: X, labels });
    const { code, stderr } = await autopar(['run', output, '--inputs', inputs, '--steps', '1']);
    return `${code} ${stderr}`;
  };
  t.regex(await run(labelled([0, 1, 2, 3, 9, 9, 9, 9])), /^0 /);
  t.regex(
    await run(labelled([0, 1, 2, 4, 0, 0, 0, 0])),
    /^3 error\[label-out-of-range\]: labels\[3\] is 4, and there are 4 classes\n.*\n.*labels are 0 to 3, or 9 for none/,
  );
  t.regex(await run(labelled([0, -100, 2, 1, 0, 0, 0, 0])), /label-out-of-range.*labels\[1\] is -100/);
  t.regex(await run(constant('int32', new Array<number>(BATCH).fill(0), [BATCH])), /wrong-input.*int64 \[8\]/);
  t.regex(await run(labelled([0, 1])), /wrong-input.*int64 \[8\].*int64 \[2\]/);
});

test('weights of classes that do not fit are refused', async (t) => {
  const { model, output, arrays } = folder(t);
  const refused = async (weights: string) => {
    const line = ['compile', model, '--train', '--class-weights', weights, '-o', output];
    const { code, stderr } = await autopar(line);
    return `${code} ${stderr}`;
  };
  const three = constant('float32', [1, 1, 1], [3]);
  t.regex(await refused(arrays('three.npz', { three })), /^3 error\[class-weights\]: there are 3 weights of classes/);
  t.regex(await refused(arrays('two.npz', { three, again: three })), /^3 error\[bad-numbers\]: .* holds 2 arrays/);
  t.regex(
    await refused(arrays('whole.npz', { whole: constant('int64', [1, 1, 1, 1], [CLASSES]) })),
    /^3 error\[bad-numbers\]: .* holds int64 \[4\], and one list of floating-point numbers/,
  );
  t.regex(
    await refused(arrays('negative.npz', { w: constant('float32', [1, -1, 1, 1], [CLASSES]) })),
    /^2 error\[bad-option\]: --class-weights: expected finite numbers that are not negative/,
  );
  t.regex(await refused('none.npy'), /^3 error\[missing-inputs\]/);
});

test('globs of weights that decay are checked', async (t) => {
  const { model, output } = folder(t);
  const { code, stderr } = await autopar(['compile', model, '--train', '--decayed', 'fc9*', '-o', output]);
  t.regex(`${code} ${stderr}`, /^2 error\[unknown-parameter\]: no weight has a name that fits 'fc9\*'/);
});
