/**
 * @file A page in headless Chromium, by its debugging pipe: JSON messages that end with a zero, to file descriptor 3 and from 4.
 */
import { spawn, spawnSync } from 'node:child_process';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { Readable, Writable } from 'node:stream';

/** The browser's command; undefined where there is none. */
export const BROWSER: string | undefined = [
  'chromium',
  '/usr/lib/chromium/chromium',
  'chromium-browser',
  'google-chrome',
].find((name) => spawnSync(name, ['--version']).status === 0);

/** A page that has loaded. */
export interface OpenPage {
  /** Value of an expression of JavaScript. */
  readonly evaluate: (expression: string) => Promise<unknown>;
  /** Presses a key and lets it go. */
  readonly press: (key: 'Tab' | 'Enter') => Promise<void>;
  /** Errors of the console, of scripts and of the browser. */
  readonly errors: readonly string[];
  /** Addresses that were asked for, the page's own first. */
  readonly requests: readonly string[];
}

interface Message {
  readonly id?: number;
  readonly method?: string;
  readonly params?: {
    readonly type?: string;
    /** Field of Log.entryAdded. */
    readonly entry?: { readonly level: string };
    /** Field of Network.requestWillBeSent. */
    readonly request?: { readonly url: string };
  };
  readonly result?: Readonly<Record<string, unknown>>;
}

type Ask = (method: string, params?: object) => Promise<Readonly<Record<string, unknown>>>;

/** Opens a page in a window of 1,150 × 2,400 in the colours asked for, and closes the browser when `use` is done. */
export async function withPage<Result>(
  url: string,
  colours: 'light' | 'dark',
  use: (page: OpenPage) => Promise<Result>,
): Promise<Result> {
  const folder = mkdtempSync(join(tmpdir(), 'autopar-browser-'));
  const words = ['--headless', '--no-sandbox', '--disable-gpu', '--no-zygote', '--single-process', '--no-first-run'];
  const child = spawn(
    BROWSER ?? '',
    [...words, '--window-size=1150,2400', `--user-data-dir=${folder}`, '--remote-debugging-pipe', 'about:blank'],
    { stdio: ['ignore', 'ignore', 'ignore', 'pipe', 'pipe'] },
  );
  const [, , , input, output] = child.stdio as readonly [null, null, null, Writable, Readable];
  const errors: string[] = [];
  const requests: string[] = [];
  const answers = new Map<number, (message: Message) => void>();
  const events = new Map<string, () => void>();
  let text = '';
  output.on('data', (data: Buffer) => {
    const messages = (text + data.toString()).split('\0');
    text = messages.pop() ?? '';
    for (const message of messages.map((own) => JSON.parse(own) as Message)) {
      const { id, method = '', params } = message;
      if (id !== undefined) answers.get(id)?.(message);
      if (isError(message)) errors.push(JSON.stringify(params));
      if (params?.request) requests.push(params.request.url);
      events.get(method)?.();
    }
  });
  let count = 0;
  const askIn =
    (sessionId?: unknown): Ask =>
    (method, params = {}) =>
      new Promise((resolve) => {
        const id = ++count;
        answers.set(id, ({ result = {} }) => resolve(result));
        input.write(`${JSON.stringify({ id, method, params, ...(sessionId ? { sessionId } : {}) })}\0`);
      });
  try {
    const { targetId } = await askIn()('Target.createTarget', { url: 'about:blank' });
    const { sessionId } = await askIn()('Target.attachToTarget', { targetId, flatten: true });
    const ask = askIn(sessionId);
    for (const domain of ['Page', 'Runtime', 'Log', 'Network']) await ask(`${domain}.enable`);
    await ask('Emulation.setEmulatedMedia', { features: [{ name: 'prefers-color-scheme', value: colours }] });
    const loaded = new Promise<void>((resolve) => events.set('Page.loadEventFired', resolve));
    await ask('Page.navigate', { url });
    await loaded;
    return await use({ ...pageOf(ask), errors, requests });
  } finally {
    child.kill('SIGKILL');
    rmSync(folder, { recursive: true, force: true, maxRetries: 5 });
  }
}

function isError({ method, params }: Message): boolean {
  const isOfConsole = method === 'Runtime.consoleAPICalled' && params?.type === 'error';
  return method === 'Runtime.exceptionThrown' || isOfConsole || params?.entry?.level === 'error';
}

function pageOf(ask: Ask): Omit<OpenPage, 'errors' | 'requests'> {
  return {
    evaluate: async (expression) => {
      const { result } = await ask('Runtime.evaluate', { expression, returnByValue: true });
      return (result as { readonly value?: unknown }).value;
    },
    press: async (key) => {
      const known = { key, code: key, windowsVirtualKeyCode: { Tab: 9, Enter: 13 }[key] };
      await ask('Input.dispatchKeyEvent', { type: 'keyDown', ...known, ...(key === 'Enter' ? { text: '\r' } : {}) });
      await ask('Input.dispatchKeyEvent', { type: 'keyUp', ...known });
    },
  };
}
