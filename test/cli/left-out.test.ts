/**
 * @file compile reports what it did not look at where it proposes no steps: steps would contradict the options for operators.
 */
import test from 'ava';
import { slowTests } from '../selection.js';
import { autoparLine, workplace } from './autopar.js';

const slow = slowTests(test);

const MOE = '--model moe:layers=1,hidden=16,heads=2,kv_heads=2,experts=2,seq=8,ffn=16,vocab=16';
const WITHOUT_STAGES = /^--axes fixes how operators are planned; --pp N plans stages$/;

const LINES: readonly (readonly [line: string, leftOut: readonly string[], who: RegExp | null])[] = [
  ['models/mlp.onnx --devices 2', [], null],
  ['models/gpt-tiny.onnx --devices 2', [], null],
  [`${MOE} --devices 2 --global-batch 2`, [], null],
  [`${MOE} --devices 2 --global-batch 2 --axes roles`, ['pp', 'sp', 'ep'], WITHOUT_STAGES],
  ['models/mlp.onnx --devices 2 --axes roles', ['pp'], WITHOUT_STAGES],
  ['models/gpt-tiny.onnx --cluster 1x2:a100-sxm-80 --axes roles', ['pp', 'sp'], WITHOUT_STAGES],
  ['models/gpt-tiny.onnx --cluster 1x2:a100-sxm-80', [], null],
  ['models/mlp.onnx --dp 2 --tp 1', [], null],
  ['models/mlp.onnx --dp 2 --tp 1 --train', [], null],
  ['models/mlp.onnx --dp 2 --tp 1 --train --axes roles', ['recompute'], /^--axes fixes how operators are planned$/],
  ['models/mlp.onnx --devices 1 --train', ['recompute'], /^--objective memory searches them$/],
  ['models/mlp.onnx --devices 1 --train --objective memory', [], null],
  ['models/gpt-tiny.onnx --dp 2 --tp 1 --train --recompute full', [], null],
  [
    'models/mlp.onnx --cluster 1x2:a100-sxm-80 --dp 2 --tp 1 --axes free --train',
    ['recompute', 'offload'],
    /^--axes fixes how operators are planned$/,
  ],
  ['models/mlp.onnx --cluster 1x2:a100-sxm-80 --dp 2 --tp 1 --train', [], null],
];

slow('compile names the dimensions that it did not look at, of those that the model could use', async (t) => {
  const { folder, remove } = workplace();
  t.teardown(remove);
  for (const [line, leftOut, who] of LINES) {
    const { code, stdout, stderr } = await autoparLine(`autopar compile ${line} -o out --force`, { cwd: folder });
    t.is(code, 0, stderr);
    const said = /^not searched: (.*) \((.*)\)$/m.exec(stdout);
    t.deepEqual(said?.[1]?.split(', ') ?? [], leftOut, line);
    if (who) t.regex(said?.[2] ?? '', who, line);
  }
  const { stdout } = await autoparLine('autopar compile models/mlp.onnx --devices 2 --axes roles -o out --json', {
    cwd: folder,
  });
  t.deepEqual((JSON.parse(stdout) as { readonly leftOut: unknown }).leftOut, ['pp']);
});
