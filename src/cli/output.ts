/**
 * @file Output streams: results go to stdout, notes about them to stderr, progress to a terminal only.
 */
import picocolors from 'picocolors';

type Colors = ReturnType<typeof picocolors.createColors>;

export interface OutputFlags {
  /** One JSON object on stdout instead of text. */
  readonly json: boolean;
  /** Errors only. */
  readonly quiet: boolean;
  /** Called with the current activity, shown or not. */
  readonly onProgress?: (text: string) => void;
}

/** Has the identity of the terminal's last line: a progress line that the next output must erase. */
export class Output {
  readonly colors: Colors;
  readonly json: boolean;
  private readonly quiet: boolean;
  private readonly onProgress: ((text: string) => void) | undefined;
  private progressShown = false;

  constructor(
    flags: OutputFlags,
    private readonly out: NodeJS.WriteStream = process.stdout,
    private readonly err: NodeJS.WriteStream = process.stderr,
  ) {
    this.json = flags.json;
    this.quiet = flags.quiet;
    this.onProgress = flags.onProgress;
    this.colors = picocolors.createColors(wantsColors(out));
  }

  /** A line of the result for people. */
  print(line = ''): void {
    if (this.json || this.quiet) return;
    this.clearProgress();
    this.out.write(`${line}\n`);
  }

  /** The result for programs; printed under --json only. Bigint and non-finite numbers become strings. */
  data(result: Readonly<Record<string, unknown>>): void {
    if (!this.json) return;
    this.clearProgress();
    this.out.write(`${JSON.stringify(result, jsonValue, 2)}\n`);
  }

  /** A remark that is not the result. */
  note(text: string): void {
    if (this.quiet) return;
    this.clearProgress();
    this.err.write(`${text}\n`);
  }

  /** Prints the current activity; replaces the last progress line. */
  progress(text: string): void {
    this.onProgress?.(text);
    if (this.quiet || !this.err.isTTY) return;
    this.err.write(`\r\x1b[K${text.slice(0, (this.err.columns || 80) - 1)}`);
    this.progressShown = true;
  }

  /** Erases the progress line, so that what follows stands alone. */
  clearProgress(): void {
    if (this.progressShown) this.err.write('\r\x1b[K');
    this.progressShown = false;
  }
}

/** NO_COLOR and FORCE_COLOR as everywhere; otherwise colours on a terminal only. */
function wantsColors(stream: NodeJS.WriteStream): boolean {
  if (process.env['NO_COLOR']) return false;
  if (process.env['FORCE_COLOR']) return true;
  return stream.isTTY === true && process.env['TERM'] !== 'dumb';
}

function jsonValue(_key: string, value: unknown): unknown {
  if (typeof value === 'bigint') return value.toString();
  if (typeof value === 'number' && !Number.isFinite(value)) return String(value);
  return value;
}
