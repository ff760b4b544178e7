#!/usr/bin/env node
/**
 * @file The `autopar` command: interruption, broken pipes and the last resort; everything else is in command-line.ts.
 */
import { setFlagsFromString } from 'node:v8';
import { LISTEN } from '../api/interruption.js';
import { AutoparError } from '../ir/error.js';
import { reportFailure, runCommandLine } from './command-line.js';
import { Output } from './output.js';

/**
 * Node 20's optimising compiler takes over after four times as much work of a function as by default. A command runs for seconds:
 * half of its processor time went into optimised code that hardly ran, on cores that searching and garbage collection could use.
 * Later versions have no such flag, and a compiler between that is cheap.
 */
if (process.versions.node.startsWith('20.')) setFlagsFromString('--interrupt-budget=500000');

const line = process.argv.slice(2);
const interruption = new AbortController();

const SIGNALS = ['SIGINT', 'SIGTERM'] as const;
const interrupt = () => {
  // A second one does not wait for the tidying up.
  if (interruption.signal.aborted) process.exit(130);
  interruption.abort();
};
let listeners = 0;
interruption.signal.addEventListener(LISTEN.start, () => {
  if (listeners++ === 0) for (const signal of SIGNALS) process.on(signal, interrupt);
});
interruption.signal.addEventListener(LISTEN.end, () => {
  if (--listeners === 0) for (const signal of SIGNALS) process.off(signal, interrupt);
});

/** A reader that went away (`| head`) is no error, and changes no exit code; a full disk behind stdout is one. */
let unwritten: Error | undefined;
for (const stream of [process.stdout, process.stderr]) {
  stream.on('error', (error: NodeJS.ErrnoException) => {
    if (error.code !== 'EPIPE' && error.code !== 'ERR_STREAM_DESTROYED') unwritten ??= error;
  });
}

for (const event of ['uncaughtException', 'unhandledRejection'] as const) {
  process.on(event, (error) => {
    const output = new Output({ json: line.includes('--json'), quiet: line.includes('--quiet') });
    process.exit(reportFailure(error, line, output, interruption.signal.aborted));
  });
}

const code = await runCommandLine(line, interruption.signal);
process.stdout.write('', () => setImmediate(() => process.exit(unwritten ? unprinted(unwritten, code) : code)));

/** The words for a result that could not be printed go to stderr; a failure keeps its own code. */
function unprinted(error: Error, ended: number): number {
  const failure = new AutoparError('cannot-write', 'cannotWrite', `cannot write to the output: ${error.message}`);
  const exit = reportFailure(failure, line, new Output({ json: false, quiet: false }), false);
  return ended === 0 ? exit : ended;
}
