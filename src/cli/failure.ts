/**
 * @file The message to the user on a failure: the sentence, the place, the remedy; and the exit code.
 */
import { freemem, totalmem } from 'node:os';
import { memoryUsage } from 'node:process';
import { getHeapStatistics } from 'node:v8';
import type { ErrorPlace, ExitKind } from '../api/index.js';
import { AutoparError, type ErrorCode, EXIT } from '../api/words.js';
import { printable } from './table.js';

export interface Failure {
  readonly exit: ExitKind;
  readonly code: ErrorCode;
  readonly message: string;
  readonly where: ErrorPlace;
  readonly hint?: string;
}

/** Facts in the report of an internal error besides the error itself. */
export interface FailureFacts {
  readonly version: string;
  readonly line: readonly string[];
  readonly interrupted: boolean;
}

/** Error codes of the file system that by themselves mean a failed write. */
const WRITE_ERRORS: ReadonlySet<string> = new Set(['ENOSPC', 'EROFS', 'EDQUOT', 'EFBIG']);
const WRITE_CALLS: ReadonlySet<string> = new Set(['mkdir', 'rename', 'rmdir', 'unlink', 'write', 'ftruncate', 'fsync']);

/** Any thrown value as a failure. Whatever is not an AutoparError is an internal error. */
export function failureOf(error: unknown, circumstances: FailureFacts): Failure {
  const own = error instanceof AutoparError && error.cause instanceof AutoparError ? error.cause : error;
  const isStopped = own instanceof AutoparError && own.code === 'training-stopped';
  if (!isStopped && (circumstances.interrupted || isAbort(error))) {
    return {
      exit: 'interrupted',
      code: 'interrupted',
      message: 'interrupted; no unfinished files remain',
      where: {},
    };
  }
  const named = fullHeap(error, null) ?? error;
  if (named instanceof AutoparError) {
    // A verb's error is in words of JavaScript; its cause is in ours.
    const { exit, code, message, where, hint } = named.cause instanceof AutoparError ? named.cause : named;
    return { exit, code, message, where, ...(hint === undefined ? {} : { hint }) };
  }
  const known = failedWrite(error) ?? outOfMemory(error);
  if (known) return known;
  const message = error instanceof Error ? `${error.name}: ${error.message}` : String(error);
  return {
    exit: 'fault',
    code: 'fault',
    message: `internal error of autopar, not of your input: ${message}`,
    where: {},
    hint:
      `please report it with the model and this line: autopar ${circumstances.version}, Node ${process.version}, ` +
      `${process.platform} ${process.arch}, \`autopar ${circumstances.line.join(' ')}\`; AUTOPAR_DEBUG=1 adds where it happened`,
  };
}

/** `error[code]: message`, then the place and the hint on lines of their own. */
export function failureText(failure: Failure): string {
  const place = placeText(failure.where);
  return [
    `error[${failure.code}]: ${printable(failure.message)}`,
    ...(place === '' ? [] : [`  in ${printable(place)}`]),
    ...(failure.hint === undefined ? [] : [`  hint: ${printable(failure.hint)}`]),
  ].join('\n');
}

/** The object that --json prints on stdout. */
export function failureJson(failure: Failure): Readonly<Record<string, unknown>> {
  const { code, message, where, hint } = failure;
  return { error: { code, message, where, ...(hint === undefined ? {} : { hint }) } };
}

export function exitCode(kind: ExitKind): number {
  return EXIT[kind];
}

function placeText({ file, line, node, tensor }: ErrorPlace): string {
  return [
    file === undefined ? undefined : line === undefined ? file : `${file}:${line}`,
    node === undefined ? undefined : `node ${node}`,
    tensor === undefined ? undefined : `tensor ${tensor}`,
  ]
    .filter((part) => part !== undefined)
    .join(', ');
}

function isAbort(error: unknown): boolean {
  return error instanceof Error && error.name === 'AbortError';
}

/** The error of a thread that ended because its heap was full; `doing`: the work that it had begun last. */
export function fullHeap(error: unknown, doing: string | null): AutoparError | undefined {
  if ((error as NodeJS.ErrnoException | null)?.code !== 'ERR_WORKER_OUT_OF_MEMORY') return undefined;
  // All threads of a process have the same limit.
  const mebibytes = Math.round(getHeapStatistics().heap_size_limit / 2 ** 20);
  return new AutoparError(
    'out-of-memory',
    'noPlan',
    `the JavaScript heap reached its limit of ${mebibytes} MiB${doing === null ? '' : ` (${doing})`}; ` +
      `${gigabytes(freemem())} of this machine's ${gigabytes(totalmem())} are free`,
    {},
    `NODE_OPTIONS=--max-old-space-size=${2 * mebibytes} raises the limit; ` +
      'or plan fewer layers, devices or micro-batches',
  );
}

/** A result that stdout did not take. */
export function unprintable(error: Error): AutoparError {
  return new AutoparError('cannot-write', 'cannotWrite', `cannot write to the output: ${error.message}`);
}

/** How Node, WebAssembly and ONNX Runtime say that an allocation failed. */
const ALLOCATION = /array buffer allocation failed|bad_alloc|failed to allocate|out of memory/i;

function outOfMemory(error: unknown): Failure | undefined {
  if (!(error instanceof Error)) return undefined;
  if (!ALLOCATION.test(error.message)) return undefined;
  return {
    exit: 'noPlan',
    code: 'out-of-memory',
    message:
      `this machine could not allocate memory (${error.message}): autopar holds ` +
      `${gigabytes(memoryUsage().rss)}, and ${gigabytes(freemem())} of ${gigabytes(totalmem())} are free`,
    where: {},
    hint: 'use a machine with more memory, a smaller batch (--global-batch), or --plan-only, which reads no weights',
  };
}

function gigabytes(bytes: number): string {
  return `${(bytes / 1e9).toPrecision(3)} GB`;
}

function failedWrite(error: unknown): Failure | undefined {
  if (!(error instanceof Error)) return undefined;
  const { code, path, syscall } = error as NodeJS.ErrnoException;
  if (code === undefined || !(WRITE_ERRORS.has(code) || WRITE_CALLS.has(syscall ?? ''))) return undefined;
  const full = code === 'ENOSPC' || code === 'EDQUOT';
  return {
    exit: 'cannotWrite',
    code: full ? 'disk-full' : 'cannot-write',
    message: `cannot write ${path ?? 'a file'}: ${error.message}`,
    where: path === undefined ? {} : { file: path },
    hint: full
      ? 'free some disk space, or choose another folder with -o'
      : 'choose a folder that you may write to with -o',
  };
}
