/**
 * @file `npm run conformance -- FOLDER… [--json FILE]`: cases through import, export, sharding and running.
 *
 * A case is a folder with model.onnx and io.json; folders are searched for cases, symbolic links followed. Every case runs
 * in a process of its own, so that one crash ends one case. Exit code 1 only where a case fails.
 */
import { fork } from 'node:child_process';
import { existsSync, mkdtempSync, readdirSync, realpathSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { basename, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import {
  type CaseMessage,
  type CaseResult,
  caseLines,
  type ModeResult,
  overLimit,
  totalLine,
  verdictOf,
} from './report.js';

const CASE_SCRIPT = fileURLToPath(new URL('./case.js', import.meta.url));

/** A case that takes longer than this hangs. */
const LIMIT_MILLISECONDS = 300_000;

/** All case folders in the folders given, sorted, each once. Throws where a folder does not exist. */
export function findCases(folders: readonly string[]): readonly string[] {
  const found = new Set<string>();
  const seen = new Set<string>();
  const visit = (folder: string): void => {
    const real = realpathSync(folder);
    if (seen.has(real)) return;
    seen.add(real);
    if (existsSync(join(folder, 'model.onnx')) && existsSync(join(folder, 'io.json'))) {
      found.add(folder);
      return;
    }
    for (const name of readdirSync(folder).sort()) {
      const inner = join(folder, name);
      if (statSync(inner, { throwIfNoEntry: false })?.isDirectory()) visit(inner);
    }
  };
  for (const folder of folders) visit(folder);
  return [...found];
}

/** Runs one case in a child process; a crash or a hang is a failure of the mode it was in. */
export function runCase(folder: string, script = CASE_SCRIPT): Promise<CaseResult> {
  const started = Date.now();
  const scratch = mkdtempSync(join(tmpdir(), 'autopar-conformance-'));
  const modes: ModeResult[] = [];
  let current = 'reading the case';
  let stderr = '';
  const child = fork(script, [folder, scratch], {
    stdio: ['ignore', 'ignore', 'pipe', 'ipc'],
  });
  child.stderr?.on('data', (chunk: Buffer) => {
    stderr = `${stderr}${chunk}`.slice(-2000);
  });
  child.on('message', (message: CaseMessage) => {
    if (message.kind === 'begin') current = message.mode;
    else modes.push(message.result);
  });
  const timer = setTimeout(() => child.kill('SIGKILL'), LIMIT_MILLISECONDS);
  return new Promise((resolve) => {
    child.on('close', (code, signal) => {
      clearTimeout(timer);
      rmSync(scratch, { recursive: true, force: true });
      if (code !== 0) {
        const how = signal ? `ended by ${signal}` : `ended with exit code ${code}`;
        modes.push({
          mode: current,
          outcome: 'failed',
          detail: `${how} ${stderr.trim().split('\n').at(-1) ?? ''}`.trim(),
        });
      }
      resolve({ name: basename(folder), seconds: (Date.now() - started) / 1000, modes });
    });
  });
}

/** Runs all cases one after another and prints as it goes. Returns the results. */
export async function runCases(
  folders: readonly string[],
  print: (line: string) => void,
): Promise<readonly CaseResult[]> {
  const results: CaseResult[] = [];
  for (const folder of findCases(folders)) {
    const result = await runCase(folder);
    results.push(result);
    for (const line of caseLines(result)) print(line);
  }
  const exceptions = overLimit(results);
  if (exceptions.length > 0) print(`\nnot sharded enough:\n${exceptions.map((line) => `  ${line}`).join('\n')}\n`);
  print(totalLine(results));
  return results;
}

async function main(line: readonly string[]): Promise<number> {
  const at = line.indexOf('--json');
  const file = at < 0 ? undefined : line[at + 1];
  const folders = line.filter((_, index) => at < 0 || (index !== at && index !== at + 1));
  const missing = folders.filter((folder) => !existsSync(folder));
  if (folders.length === 0 || missing.length > 0 || (at >= 0 && file === undefined)) {
    console.error(
      missing.length > 0
        ? `there is no folder ${missing.join(', ')}`
        : 'usage: npm run conformance -- FOLDER… [--json FILE]',
    );
    return 2;
  }
  const results = await runCases(folders, (text) => console.log(text));
  if (file !== undefined)
    writeFileSync(file, `${JSON.stringify({ schema: 'autopar-conformance-v1', cases: results }, null, 2)}\n`);
  return results.some((result) => verdictOf(result) === 'failed') ? 1 : 0;
}

if (process.argv[1] === fileURLToPath(import.meta.url)) process.exitCode = await main(process.argv.slice(2));
