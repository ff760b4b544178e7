/** @file Layouts of stages as text. */
import test from 'ava';
import { stageLayoutText } from '../../src/cli/degrees.js';

test('long rows of equal stages are counted, short ones written out', (t) => {
  const many = Array.from({ length: 78 }, () => 't').join(' | ');
  t.is(stageLayoutText(`E t*2 | ${many} | t H`), 'E t*2 | 78 times t | t H');
  for (const short of ['E t*2 | t*2 | t*2 | t*2 H', 'E t H']) t.is(stageLayoutText(short), short);
});
