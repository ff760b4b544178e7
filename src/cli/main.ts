#!/usr/bin/env node
/**
 * @file The `autopar` command: the thread that does its work, and the tasks that this thread cannot do: signals, broken pipes,
 * and a clear message where the JavaScript heap is full.
 */
import { setFlagsFromString } from 'node:v8';
import { SHARE_ENV, Worker } from 'node:worker_threads';
import type { CommandSetup } from './command-thread.js';

/**
 * Node 20's optimising compiler takes over after four times as much work of a function as by default. A command runs for seconds:
 * half of its processor time went into optimised code that hardly ran, on cores that searching and garbage collection could use.
 * Later versions have no such flag, and a compiler between that is cheap.
 */
if (process.versions.node.startsWith('20.')) setFlagsFromString('--interrupt-budget=500000');

const line = process.argv.slice(2);
const { stdout, stderr } = process;

/** A closed reader (`| head`) is not an error, and changes no exit code; a full disk behind stdout is an error. */
let unwritten: Error | undefined;
for (const stream of [stdout, stderr]) {
  stream.on('error', (error: NodeJS.ErrnoException) => {
    if (error.code !== 'EPIPE' && error.code !== 'ERR_STREAM_DESTROYED') unwritten ??= error;
  });
}

const listeners = new Int32Array(new SharedArrayBuffer(4));
const setup: CommandSetup = { line, listeners, out: terminalOf(stdout), err: terminalOf(stderr) };
const thread = new Worker(new URL('./command-thread.js', import.meta.url), {
  name: 'autopar',
  workerData: setup,
  env: SHARE_ENV,
  stdout: true,
  stderr: true,
});

/** The system's own action for a signal ends all threads at once; a second signal does not wait for the tidying up. */
let isInterrupted = false;
for (const signal of ['SIGINT', 'SIGTERM'] as const) {
  process.on(signal, () => {
    if (isInterrupted || Atomics.load(listeners, 0) === 0) {
      process.removeAllListeners(signal);
      process.kill(process.pid, signal);
      return;
    }
    isInterrupted = true;
    thread.postMessage('interrupt');
  });
}

let doing: string | null = null;
thread.on('message', (text: string) => {
  doing = text;
});

let thrown: Error | undefined;
thread.on('error', (error) => {
  thrown = error;
});

const ended = new Promise<number>((resolve) => thread.once('exit', resolve));
await Promise.all([passed(thread.stdout, stdout), passed(thread.stderr, stderr)]);
let code = await ended;
if (thrown) code = await failed(thrown);
stdout.write('', () => setImmediate(async () => process.exit(unwritten ? await unprinted(unwritten, code) : code)));

/** Forwards the output of the thread, to its end. A closed reader does not affect the thread. */
function passed(from: NodeJS.ReadableStream, to: NodeJS.WriteStream): Promise<void> {
  from.on('data', (chunk: Uint8Array) => to.write(chunk));
  return new Promise((resolve) => from.once('end', resolve));
}

function terminalOf({ isTTY, columns }: NodeJS.WriteStream): CommandSetup['out'] {
  return isTTY ? { isTTY, columns } : {};
}

/** The thread's end by something else than the command's. */
async function failed(error: NodeJS.ErrnoException): Promise<number> {
  const [{ fullHeap }, { outputFlags, reportFailure }, { Output }] = await modules();
  const output = new Output(outputFlags(line));
  // The thread's last line on the terminal, which the error takes the place of.
  if (doing !== null) output.progress(doing);
  return reportFailure(fullHeap(error, doing) ?? error, line, output, isInterrupted);
}

/** The words for a result that could not be printed go to stderr; a failure keeps its own code. */
async function unprinted(error: Error, ended: number): Promise<number> {
  const [{ unprintable }, { reportFailure }, { Output }] = await modules();
  const exit = reportFailure(unprintable(error), line, new Output({ json: false, quiet: false }), false);
  return ended === 0 ? exit : ended;
}

/** Loaded where they are needed: a command that ends well pays for its thread alone. */
function modules() {
  return Promise.all([import('./failure.js'), import('./command-line.js'), import('./output.js')]);
}
