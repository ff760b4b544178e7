/**
 * @file A child that does what its case is called, for the test of the runner: ends itself as a native library may, within
 * autopar's modes or within ONNX Runtime's, or sends nothing any more.
 */
import type { CaseOrder } from './pool.js';
import type { CaseMessage } from './report.js';

const send = (message: CaseMessage): Promise<void> =>
  new Promise((resolve) => {
    process.send?.(message, () => resolve());
  });

process.on('message', async ({ reference }: CaseOrder) => {
  await send({ kind: 'begin', mode: 'onnxruntime' });
  if (reference.name === 'native') process.abort();
  await send({ kind: 'end', result: { mode: 'onnxruntime', outcome: 'passed', detail: '' } });
  await send({ kind: 'begin', mode: 'dp 2' });
  if (reference.name === 'crash') process.abort();
  if (reference.name === 'slow') return;
  await send({ kind: 'end', result: { mode: 'dp 2', outcome: 'passed', detail: '' } });
  await send({ kind: 'done' });
});
