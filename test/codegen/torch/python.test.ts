/**
 * @file Statements that are too long for a line, wrapped as ruff wraps them.
 */
import test from 'ava';
import { statement } from '../../../src/codegen/torch/python.js';

const BY_LAYER = '"z": [micros[number]["layers.0.feed_forward"].mul for number in range(2)]';
const OVER_LISTS = 'for number_of_good_steps, mean, gradient in zip(numbers, means, gradients, strict=True)';

/** By what is long: a statement, and its lines. */
const WRAPPED: Readonly<Record<string, readonly [text: string, lines: readonly string[]]>> = {
  'several comprehensions': [
    `results = {"loss": [step.div], "y": [micros[number].add for number in range(2)], ${BY_LAYER}}`,
    [
      'results = {',
      '    "loss": [step.div],',
      '    "y": [micros[number].add for number in range(2)],',
      `    ${BY_LAYER},`,
      '}',
    ],
  ],
  'a comprehension over several lists': [
    `means = [torch.where(number, mean, gradient) ${OVER_LISTS}]`,
    ['means = [', '    torch.where(number, mean, gradient)', `    ${OVER_LISTS}`, ']'],
  ],
  'a call in a list of a list': [
    `a, b = self.stages[0].blocks[1].backward(micro["stages.0.blocks.1"], step["stages.0.blocks.1"], cast, reduced, cast_1)`,
    [
      'a, b = (',
      '    self.stages[0]',
      '    .blocks[1]',
      '    .backward(micro["stages.0.blocks.1"], step["stages.0.blocks.1"], cast, reduced, cast_1)',
      ')',
    ],
  ],
  'a call that takes turns': [
    `a = yield from self.stages[0].blocks[1].backward(micro["stages.0.blocks.1"], step["stages.0.blocks.1"], cast, reduced)`,
    [
      'a = (',
      '    yield from self.stages[0]',
      '    .blocks[1]',
      '    .backward(micro["stages.0.blocks.1"], step["stages.0.blocks.1"], cast, reduced)',
      ')',
    ],
  ],
};

for (const [what, [text, lines]] of Object.entries(WRAPPED))
  test(`in lines: ${what}`, (t) => {
    t.deepEqual(
      statement(text, '    '),
      lines.map((line) => `    ${line}`),
    );
  });
