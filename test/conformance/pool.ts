/**
 * @file Cases in a few long-lived child processes. A child that crashes or hangs fails the case that it has and is replaced;
 * results come back in the order of the cases, whatever the order in which they end.
 */
import { type ChildProcess, fork } from 'node:child_process';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import type { BackendName } from '../../src/runtime/backend.js';
import type { CaseSettings } from './case.js';
import type { CaseReference } from './find-cases.js';
import { ORIGINAL, READING } from './modes.js';
import type { CaseMessage, CaseResult, ModeResult } from './report.js';

const CHILD_SCRIPT = fileURLToPath(new URL('./child.js', import.meta.url));

/** A mode that takes longer than this hangs. */
const LIMIT_MILLISECONDS = 180_000;

/** A child is replaced after so many cases: leaks of native libraries stay small. */
const CASES_PER_CHILD = 150;

/** A message to a child. */
export interface CaseOrder {
  readonly reference: CaseReference;
  readonly settings: CaseSettings;
}

export interface PoolOptions {
  /** Children at a time. */
  readonly jobs: number;
  readonly modes?: readonly string[];
  /** Whether whole models are trained as well. */
  readonly train?: boolean;
  readonly backend?: BackendName;
  /** Called with each result in the order of the cases, as soon as those before it are there. */
  readonly onResult?: (result: CaseResult) => void;
  /** The script of the children; tests pass one that crashes. */
  readonly script?: string;
  readonly limitMilliseconds?: number;
}

/** Runs all cases; results are in their order. */
export async function runCases(
  cases: readonly CaseReference[],
  { jobs, modes, train, backend, onResult, script = CHILD_SCRIPT, limitMilliseconds = LIMIT_MILLISECONDS }: PoolOptions,
): Promise<readonly CaseResult[]> {
  const results: (CaseResult | undefined)[] = cases.map(() => undefined);
  let next = 0;
  let told = 0;
  const work = async (): Promise<void> => {
    const worker = new Worker(script, limitMilliseconds, {
      ...(modes ? { modes } : {}),
      ...(train ? { train } : {}),
      ...(backend ? { backend } : {}),
    });
    try {
      for (let index = next++; index < cases.length; index = next++) {
        const reference = cases[index];
        if (!reference) break;
        results[index] = await worker.run(reference);
        for (let result = results[told]; result; result = results[++told]) onResult?.(result);
      }
    } finally {
      worker.end();
    }
  };
  await Promise.all(Array.from({ length: Math.min(jobs, cases.length) }, work));
  return results.flatMap((result) => result ?? []);
}

/** One child at a time, with a scratch folder of its own. */
class Worker {
  private readonly scratch = mkdtempSync(join(tmpdir(), 'autopar-conformance-'));
  private child: ChildProcess | null = null;
  private served = 0;

  constructor(
    private readonly script: string,
    private readonly limitMilliseconds: number,
    private readonly settings: Omit<CaseSettings, 'scratch'>,
  ) {
    process.once('exit', this.remove);
  }

  /** Runs one case; never rejects. */
  run(reference: CaseReference): Promise<CaseResult> {
    const started = Date.now();
    const modes: ModeResult[] = [];
    let current = READING;
    let stderr = '';
    let hung = false;
    const child = this.ready();
    return new Promise((resolve) => {
      const watch = (): NodeJS.Timeout =>
        setTimeout(() => {
          hung = true;
          child.kill('SIGKILL');
        }, this.limitMilliseconds);
      let timer = watch();
      const done = (): void => {
        clearTimeout(timer);
        for (const event of ['message', 'close', 'error']) child.removeAllListeners(event);
        child.stderr?.removeAllListeners('data');
        resolve({ name: reference.name, seconds: (Date.now() - started) / 1000, modes });
      };
      child.stderr?.on('data', (chunk: Buffer) => {
        stderr = `${stderr}${chunk}`.slice(-2000);
      });
      child.on('message', (message: CaseMessage) => {
        clearTimeout(timer);
        timer = watch();
        if (message.kind === 'begin') current = message.mode;
        else if (message.kind === 'end') modes.push(message.result);
        else done();
      });
      child.on('error', () => child.kill('SIGKILL'));
      child.on('close', (code, signal) => {
        this.child = null;
        const how = hung
          ? `no answer for ${this.limitMilliseconds / 1000} s`
          : signal
            ? `ended by ${signal}`
            : `ended with exit code ${code}`;
        modes.push(crashed(current, `${how} ${stderr.trim().split('\n').at(-1) ?? ''}`.trim()));
        done();
      });
      child.send({
        reference,
        settings: { scratch: this.scratch, ...this.settings },
      } satisfies CaseOrder);
    });
  }

  /** Ends the child and removes what it left. */
  end(): void {
    this.stop();
    this.remove();
    process.off('exit', this.remove);
  }

  private readonly remove = (): void => rmSync(this.scratch, { recursive: true, force: true });

  private ready(): ChildProcess {
    if (this.served >= CASES_PER_CHILD || this.child?.connected === false) this.stop();
    this.served++;
    this.child ??= fork(this.script, [], { stdio: ['ignore', 'ignore', 'pipe', 'ipc'] });
    return this.child;
  }

  private stop(): void {
    this.child?.kill();
    this.child = null;
    this.served = 0;
  }
}

/** A crash fails the mode that it was in; that of ONNX Runtime on the file as it is is not autopar's. */
function crashed(mode: string, detail: string): ModeResult {
  if (mode === ORIGINAL) return { mode, outcome: 'refused', reason: 'onnxruntime crashes', detail };
  return { mode, outcome: 'failed', detail };
}
