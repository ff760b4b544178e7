/**
 * @file Every operator of the table of torch functions against ONNX Runtime, on the samples that prove the registry's rules.
 */
import { resolve } from 'node:path';
import test from 'ava';
import { INDENT } from '../../../src/codegen/torch/body.js';
import { operatorsFile } from '../../../src/codegen/torch/files/texts.js';
import { HELPERS } from '../../../src/codegen/torch/operators/helpers.js';
import { CASES, operatorOfCase } from '../../ir/ops/cases.js';
import { makeRun, type Values } from '../../ir/ops/one-node.js';
import { difference, randomValues } from '../../ir/ops/values.js';
import { missing } from '../../missing.js';
import { torchAbsence } from '../../reference/torch.js';
import { python } from './emitted.js';
import { FORMS } from './forms.js';
import { torchLines } from './sampled.js';

const absence = torchAbsence();

interface Answer {
  readonly error?: string;
  readonly results?: readonly { readonly dtype: string; readonly shape: readonly number[]; readonly data: string[] }[];
}

const NUMBERS: Readonly<Record<string, number>> = {
  True: 1,
  False: 0,
  nan: Number.NaN,
  inf: Number.POSITIVE_INFINITY,
  '-inf': Number.NEGATIVE_INFINITY,
};

if (missing(absence !== null, absence ?? '') !== null) test.skip(`${absence}`, () => undefined);
else {
  const samples = [...CASES, ...FORMS]
    .map((sample, number) => ({ sample, number, lines: torchLines(sample) }))
    .filter(({ lines }) => lines !== null);
  const inputsOf = ({ sample, number }: (typeof samples)[number]) =>
    sample.inputs.map((input, index) => (input ? randomValues(input, number * 16 + index) : null));
  const run = makeRun();
  let answers: readonly Answer[] = [];
  test.before(() => {
    const operators = operatorsFile(
      Object.keys(HELPERS)
        .map((name) => `${name}(`)
        .join(' '),
    );
    const jobs = samples.map((item) => ({
      text: (item.lines ?? []).map((line) => line.slice(INDENT.length)).join('\n'),
      results: operatorOfCase(item.sample).outputs.length,
      inputs: inputsOf(item),
      operators,
    }));
    answers = JSON.parse(python([resolve('test/codegen/torch/evaluate.py')], JSON.stringify(jobs))) as Answer[];
  });

  for (const [index, item] of samples.entries()) {
    const { sample, number } = item;
    test(`${number} ${sample.domain}:${sample.op} ${item.lines?.at(-1)?.trim()}`, async (t) => {
      const { outputs } = operatorOfCase(sample);
      const wanted = await run(
        { op: sample.op, domain: sample.domain, attributes: sample.attributes },
        inputsOf(item),
        outputs,
      );
      const answer = answers[index];
      t.is(answer?.error, undefined);
      for (const [place, value] of wanted.entries()) {
        const result = answer?.results?.[place];
        if (!value) continue;
        const data = result?.data.map((number) => NUMBERS[number] ?? Number(number)) ?? [];
        t.is(result?.dtype, value.dtype);
        const got: Values = { dtype: value.dtype, shape: result?.shape ?? [], data };
        t.is(difference(got, value, sample.tolerance ?? 1e-4), null);
      }
    });
  }
}
