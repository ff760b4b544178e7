/**
 * @file A child process of the runner: takes cases one after another and reports message by message.
 */
import { runCase } from './case.js';
import type { CaseOrder } from './pool.js';
import type { CaseMessage } from './report.js';

const send = (message: CaseMessage): void => {
  process.send?.(message);
};

process.on('message', ({ reference, settings }: CaseOrder) => {
  void runCase(reference, settings, send)
    .catch((error: unknown) => {
      send({ kind: 'end', result: { mode: 'reading the case', outcome: 'failed', detail: String(error) } });
    })
    .then(() => send({ kind: 'done' }));
});
