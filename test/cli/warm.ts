/**
 * @file A process that runs command lines one after the other for its parent. `autopar` of `npm test` uses it,
 * because loading three hundred modules takes longer than most commands do.
 */
import { runCommandLine } from '../../src/cli/command-line.js';

export interface Asked {
  readonly words: readonly string[];
  readonly cwd: string;
  readonly env: Readonly<Record<string, string>>;
}

export interface Answer {
  readonly code: number;
  readonly stdout: string;
  readonly stderr: string;
}

async function answer({ words, cwd, env }: Asked): Promise<Answer> {
  const before = { ...process.env };
  process.chdir(cwd);
  Object.assign(process.env, env);
  const stdout = caught(process.stdout);
  const stderr = caught(process.stderr);
  try {
    const code = await runCommandLine(words, new AbortController().signal);
    return { code, stdout: stdout.text(), stderr: stderr.text() };
  } finally {
    stdout.release();
    stderr.release();
    for (const name of Object.keys(env)) delete process.env[name];
    Object.assign(process.env, before);
  }
}

/** The text that is written to a stream until it is released. */
function caught(stream: NodeJS.WriteStream): { readonly text: () => string; readonly release: () => void } {
  const { write } = stream;
  const chunks: string[] = [];
  stream.write = (chunk: Uint8Array | string, ...rest: unknown[]): boolean => {
    chunks.push(typeof chunk === 'string' ? chunk : Buffer.from(chunk).toString());
    const done = rest.find((value) => typeof value === 'function') as (() => void) | undefined;
    if (done) process.nextTick(done);
    return true;
  };
  return {
    text: () => chunks.join(''),
    release: () => {
      stream.write = write;
    },
  };
}

let last = Promise.resolve();
process.on('message', (asked: Asked) => {
  last = last.then(async () => {
    process.send?.(await answer(asked));
  });
});
process.on('disconnect', () => process.exit());
