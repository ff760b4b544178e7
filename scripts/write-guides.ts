/**
 * @file `npm run docs:guides`: runs the commands that the guides show and replaces the outputs shown there with theirs; with
 * `--print PAGE` it prints the new text of that page instead.
 */
import { mkdtempSync, readFileSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { runCommandLine } from '../src/cli/command-line.js';
import { PAGES, withOutputs } from './guides.js';

const root = dirname(dirname(dirname(fileURLToPath(import.meta.url))));
const [option, only = ''] = process.argv.slice(2);
const write = process.stdout.write.bind(process.stdout);
const folder = mkdtempSync(join(tmpdir(), 'autopar-guides-'));

try {
  symlinkSync(join(root, 'models'), join(folder, 'models'), 'junction');
  process.chdir(folder);
  for (const name of option === '--print' ? [only] : PAGES) {
    const page = readFileSync(join(root, name), 'utf8');
    const anew = await withOutputs(page, printed, writeFileSync);
    if (option === '--print') write(anew);
    else writeFileSync(join(root, name), anew);
  }
} finally {
  process.chdir(root);
  rmSync(folder, { recursive: true, force: true });
}

/** The output of a command on stdout. @throws Error if it fails, after it printed its own message */
async function printed(words: readonly string[]): Promise<string> {
  let text = '';
  process.stdout.write = (chunk: string | Uint8Array) => {
    text += chunk.toString();
    return true;
  };
  try {
    const code = await runCommandLine([...words], new AbortController().signal);
    if (code !== 0) throw new Error(`autopar ${words.join(' ')} ended with ${code}`);
  } finally {
    process.stdout.write = write;
  }
  return text;
}
