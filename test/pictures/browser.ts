/**
 * @file A page in headless Chromium, by its debugging pipe: JSON messages that end with a zero, to file descriptor 3 and from 4.
 */
import { spawn, spawnSync } from 'node:child_process';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { Readable, Writable } from 'node:stream';

/** The browser's command; undefined where there is none. */
export const BROWSER: string | undefined = ['chromium', 'chromium-browser', 'google-chrome'].find(
  (name) => spawnSync(name, ['--version']).status === 0,
);

export interface Shown {
  /** Value of the expression when the page had loaded. */
  readonly value: unknown;
  /** Errors of the console and of scripts. */
  readonly errors: readonly string[];
}

interface Message {
  readonly id?: number;
  readonly method?: string;
  readonly params?: Readonly<Record<string, unknown>>;
  readonly result?: Readonly<Record<string, unknown>>;
}

/** Opens a page and evaluates an expression in it, in the colours asked for. */
export async function show(url: string, expression: string, colours: 'light' | 'dark'): Promise<Shown> {
  const folder = mkdtempSync(join(tmpdir(), 'autopar-browser-'));
  const words = ['--headless', '--no-sandbox', '--disable-gpu', '--no-zygote', '--single-process', '--no-first-run'];
  const child = spawn(
    BROWSER ?? '',
    [...words, `--user-data-dir=${folder}`, '--remote-debugging-pipe', 'about:blank'],
    {
      stdio: ['ignore', 'ignore', 'ignore', 'pipe', 'pipe'],
    },
  );
  const [, , , input, output] = child.stdio as readonly [null, null, null, Writable, Readable];
  const errors: string[] = [];
  const answers = new Map<number, (message: Message) => void>();
  const events = new Map<string, () => void>();
  let text = '';
  output.on('data', (data: Buffer) => {
    const messages = (text + data.toString()).split('\0');
    text = messages.pop() ?? '';
    for (const message of messages.map((own) => JSON.parse(own) as Message)) {
      if (message.id !== undefined) answers.get(message.id)?.(message);
      if (message.method === 'Runtime.exceptionThrown') errors.push(JSON.stringify(message.params));
      if (message.method === 'Runtime.consoleAPICalled' && message.params?.['type'] === 'error')
        errors.push(JSON.stringify(message.params));
      events.get(message.method ?? '')?.();
    }
  });
  let count = 0;
  const ask = (method: string, params: object = {}, sessionId?: unknown) =>
    new Promise<Readonly<Record<string, unknown>>>((resolve) => {
      const id = ++count;
      answers.set(id, ({ result = {} }) => resolve(result));
      input.write(`${JSON.stringify({ id, method, params, ...(sessionId ? { sessionId } : {}) })}\0`);
    });
  try {
    const { targetId } = await ask('Target.createTarget', { url: 'about:blank' });
    const { sessionId } = await ask('Target.attachToTarget', { targetId, flatten: true });
    await ask('Page.enable', {}, sessionId);
    await ask('Runtime.enable', {}, sessionId);
    await ask(
      'Emulation.setEmulatedMedia',
      { features: [{ name: 'prefers-color-scheme', value: colours }] },
      sessionId,
    );
    const loaded = new Promise<void>((resolve) => events.set('Page.loadEventFired', resolve));
    await ask('Page.navigate', { url }, sessionId);
    await loaded;
    const { result } = await ask('Runtime.evaluate', { expression, returnByValue: true }, sessionId);
    return { value: (result as { readonly value?: unknown }).value, errors };
  } finally {
    child.kill('SIGKILL');
    rmSync(folder, { recursive: true, force: true, maxRetries: 5 });
  }
}
