/**
 * @file The tasks of users, from pages alone: every autopar command of a page's shell blocks, in their order, by a reader who has
 * the repository, token data and a model of their own. Pages that show outputs, plans of known models (README) and cluster files
 * (docs/clusters.md) among them, are compared with these by guides.slow.ts and readme.test.ts.
 */
import { copyFileSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import test from 'ava';
import { autopar, ROOT, workplace } from '../cli/autopar.js';

/** A page's blocks of a language; for shell, commands indented by four blanks as well. */
function blocksOf(page: string, language: string): readonly string[] {
  const text = readFileSync(join(ROOT, page), 'utf8');
  const fenced = [...text.matchAll(new RegExp(`^\`\`\`${language}\\n([^\`]*)^\`\`\``, 'gm'))].map(
    ([, own = '']) => own,
  );
  const indented = language === 'sh' ? [...text.matchAll(/^ {4}(autopar .*)$/gm)].map(([, own = '']) => own) : [];
  return [...fenced, ...indented];
}

/** Words of the commands, without quotes; other programs (cd, pip, torchrun) are for another environment. */
function commandsIn(block: string): readonly (readonly string[])[] {
  const lines = block.replaceAll('\\\n', ' ').split('\n');
  return lines.flatMap((line) => {
    const [, words] = /^(?:npm ci && )?(?:npx )?autopar (.*)$/.exec(line) ?? [];
    return words === undefined ? [] : [(words.match(/'[^']*'|\S+/g) ?? []).map((word) => word.replaceAll("'", ''))];
  });
}

/** The files that a page's commands name: tokens, the reader's model, and the first annotations that it shows. */
function prepare(folder: string, page: string): void {
  writeFileSync(
    join(folder, 'tokens.bin'),
    Uint16Array.from({ length: 2000 }, (_, index) => (index * 7) % 64),
  );
  copyFileSync(join(ROOT, 'models/gpt-tiny.onnx'), join(folder, 'model.onnx'));
  writeFileSync(join(folder, 'pins.yaml'), blocksOf(page, 'yaml')[0] ?? '');
}

const TASKS: readonly (readonly [task: string, page: string, commands: number])[] = [
  ['a first plan, and training', 'docs/getting-started.md', 4],
  ['a model of one’s own with annotations', 'docs/annotations.md', 1],
  ['training, resumed and exported', 'docs/training.md', 7],
  ['plans in other forms, and for other engines', 'docs/checkpoints.md', 9],
  ['a program for torchrun', 'docs/torch.md', 2],
];

for (const [task, page, count] of TASKS)
  test.serial(`${task}: ${page}`, async (t) => {
    const { folder, remove } = workplace();
    t.teardown(remove);
    prepare(folder, page);
    const commands = blocksOf(page, 'sh').flatMap(commandsIn);
    t.is(commands.length, count);
    for (const words of commands) {
      const { code, stderr } = await autopar(words, { cwd: folder });
      t.is(code, 0, `autopar ${words.join(' ')}\n${stderr}`);
    }
  });
