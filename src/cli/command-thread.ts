/**
 * @file The thread in which a command does its work, so that `main.ts` stays free for signals and outlives a heap that is full.
 */
import { parentPort, workerData } from 'node:worker_threads';
import { LISTEN } from '../api/words.js';
import { outputFlags, reportFailure, runCommandLine } from './command-line.js';
import { Output } from './output.js';

/** The data passed to the thread. */
export interface CommandSetup {
  readonly line: readonly string[];
  /**
   * How many pieces of work want signals to abort them; at 0 a signal ends the process. Shared: it holds from the moment it is
   * written.
   */
  readonly listeners: Int32Array;
  /** The terminals behind stdout and stderr; empty where the stream is not a terminal. */
  readonly out: Terminal;
  readonly err: Terminal;
}

type Terminal = { readonly isTTY: true; readonly columns: number } | Readonly<Record<string, never>>;

const { line, listeners, out, err } = workerData as CommandSetup;
Object.assign(process.stdout, out);
Object.assign(process.stderr, err);

const interruption = new AbortController();
interruption.signal.addEventListener(LISTEN.start, () => Atomics.add(listeners, 0, 1));
interruption.signal.addEventListener(LISTEN.end, () => Atomics.sub(listeners, 0, 1));
parentPort?.on('message', () => interruption.abort());

const output = new Output({
  ...outputFlags(line),
  onProgress: (text) => parentPort?.postMessage(text),
});

for (const event of ['uncaughtException', 'unhandledRejection'] as const) {
  process.on(event, (error) => end(reportFailure(error, line, output, interruption.signal.aborted)));
}

end(await runCommandLine(line, interruption.signal, output));

/** The thread ends when all that it wrote has been passed on. */
function end(code: number): void {
  process.stdout.write('', () => process.stderr.write('', () => process.exit(code)));
}
