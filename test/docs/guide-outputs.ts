/**
 * @file A page with all outputs of its commands made anew.
 */
import { execFile } from 'node:child_process';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';

const WRITE = fileURLToPath(new URL('../../scripts/write-guides.js', import.meta.url));

/** Its process has the options of this one, as those that ava starts do. */
export async function madeAnew(page: string): Promise<string> {
  const { stdout } = await promisify(execFile)(process.execPath, [...process.execArgv, WRITE, '--print', page], {
    encoding: 'utf8',
  });
  return stdout;
}
