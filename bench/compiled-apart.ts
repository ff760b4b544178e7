/**
 * @file `autopar compile` in a process of its own, like the command: its output with `--json`, and the resources that it used.
 */
import { spawnSync } from 'node:child_process';
import { fileURLToPath } from 'node:url';

export interface CompiledApart {
  readonly figures: {
    readonly degrees: Readonly<Record<string, number>>;
    readonly predicted: { readonly stepSeconds: number; readonly peakBytes: readonly number[] };
  };
  readonly used: { readonly processorSeconds: number; readonly memoryBytes: number };
}

/** A command that ended without a plan: its exit code and its output. */
export class NotCompiled extends Error {
  constructor(
    readonly exit: number,
    said: string,
  ) {
    super(said);
  }
}

const COMMAND = fileURLToPath(new URL('../bundle/cli/main.js', import.meta.url));

/** Code that runs before the command line. Its last line states the resources of the process, threads included. */
const USED = `process.on('exit', () => {
  const { userCPUTime, systemCPUTime, maxRSS } = process.resourceUsage();
  console.error(JSON.stringify({ processorSeconds: (userCPUTime + systemCPUTime) / 1e6, memoryBytes: maxRSS * 1024 }));
});`;

/** @throws NotCompiled if the command ends without a plan */
export function compiledApart(words: readonly string[]): CompiledApart {
  const { stdout, stderr, status } = spawnSync(
    process.execPath,
    ['--import', `data:text/javascript,${encodeURIComponent(USED)}`, COMMAND, 'compile', ...words, '--json'],
    { encoding: 'utf8', maxBuffer: 2 ** 30 },
  );
  if (status !== 0) throw new NotCompiled(status ?? -1, stderr || stdout);
  const used = JSON.parse(stderr.trim().split('\n').at(-1) ?? '') as CompiledApart['used'];
  return { figures: JSON.parse(stdout) as CompiledApart['figures'], used };
}
