import { spawnSync } from 'node:child_process';
import { mkdtempSync, readdirSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import test from 'ava';
import { ROOT } from '../cli/autopar.js';
import { missing } from '../missing.js';

const NPM = process.platform === 'win32' ? 'npm.cmd' : 'npm';
const NPX = process.platform === 'win32' ? 'npx.cmd' : 'npx';

function run(
  program: string,
  words: readonly string[],
  cwd: string,
): { readonly status: number | null; readonly text: string } {
  const { status, stdout, stderr } = spawnSync(program, words, {
    cwd,
    encoding: 'utf8',
    env: { ...process.env, ONNXRUNTIME_NODE_INSTALL: 'skip' },
  });
  return { status, text: `${stdout}${stderr}` };
}

const offline = missing(
  run(NPM, ['ping'], tmpdir()).status !== 0,
  'installing the packed package (the npm registry cannot be reached)',
);
(offline ? test.skip : test)('the packed package installs elsewhere and compiles, runs and verifies there', (t) => {
  const folder = mkdtempSync(join(tmpdir(), 'autopar-pack-'));
  t.teardown(() => rmSync(folder, { recursive: true, force: true }));
  // A project of its own: npm installs into a folder further up where that is one.
  writeFileSync(join(folder, 'package.json'), '{"private": true}\n');
  const packed = run(NPM, ['pack', '--ignore-scripts', '--pack-destination', folder], ROOT);
  t.is(packed.status, 0, packed.text);
  const [tarball = ''] = readdirSync(folder).filter((name) => name.endsWith('.tgz'));
  const installed = run(NPM, ['install', '--no-save', '--no-audit', '--no-fund', `./${tarball}`], folder);
  t.is(installed.status, 0, installed.text);
  t.regex(run(NPX, ['--no-install', 'autopar', '--version'], folder).text, /\d+\.\d+\.\d+/);
  const model = 'node_modules/autopar/models/llama-tiny.onnx';
  const compiled = run(NPX, ['--no-install', 'autopar', 'compile', model, '--verify'], folder);
  t.is(compiled.status, 0, compiled.text);
  t.regex(compiled.text, /verified: 1 output/);
  const api = "import('autopar').then((api) => console.log(Object.keys(api).sort().join()))";
  t.regex(run(process.execPath, ['-e', api], folder).text, /compile.*importModel.*verify/);
});
