/**
 * @file `npm run docs:readme`: runs the commands that README shows, replaces the outputs shown there with theirs, and draws its
 * picture of a pipeline.
 */
import { spawnSync } from 'node:child_process';
import { mkdtempSync, readFileSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { PIPELINE_PICTURE, pipelinePicture } from './pipeline-picture.js';

const root = dirname(dirname(dirname(fileURLToPath(import.meta.url))));
const command = fileURLToPath(new URL('../bundle/cli/main.js', import.meta.url));
const page = join(root, 'README.md');
const folder = mkdtempSync(join(tmpdir(), 'autopar-readme-'));

try {
  symlinkSync(join(root, 'models'), join(folder, 'models'), 'junction');
  const text = readFileSync(page, 'utf8');
  const written = text.replaceAll(/^```console\n\$ (.*)\n[\s\S]*?^```$/gm, (_, line: string) => {
    const words = line.split(' ').slice(line.startsWith('npx ') ? 2 : 1);
    const { status, stdout, stderr } = spawnSync(process.execPath, [command, ...words], {
      cwd: folder,
      encoding: 'utf8',
    });
    if (status !== 0) throw new Error(`${line} ended with ${status}: ${stderr}`);
    return `\`\`\`console\n$ ${line}\n${stdout.trimEnd()}\n\`\`\``;
  });
  writeFileSync(page, written);
  writeFileSync(join(root, PIPELINE_PICTURE), await pipelinePicture());
  console.log(text === written ? 'README.md is as it was' : 'README.md is written anew');
} finally {
  rmSync(folder, { recursive: true, force: true });
}
