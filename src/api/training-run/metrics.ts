/**
 * @file What is recorded of every step of a training run: a line of JSON each in metrics.jsonl.
 */
import { appendFile, readFile, truncate } from 'node:fs/promises';
import path from 'node:path';
import { AutoparError } from '../../ir/error.js';
import { cannotWrite, writeFileAtomic } from '../../program/atomic.js';

export interface StepMetrics {
  /** From 1 on. */
  readonly step: number;
  /** From 1 on. */
  readonly epoch: number;
  /** The mean over the labels of the step that count. */
  readonly loss: number;
  /**
   * The norm of all gradients together, of the mean loss and before clipping; null where it is not finite (a step that a dynamic
   * loss scale skips) or the program does not hold what it takes.
   */
  readonly gradientNorm: number | null;
  readonly learningRate: number;
  readonly lossScale: number;
  readonly stepSeconds: number;
  /** Labels per second: tokens of a language model, samples of a classifier. */
  readonly tokensPerSecond: number;
  /** The mean loss of the evaluation data after this step, where it was evaluated. */
  readonly evalLoss?: number;
}

export const METRICS_FILE = 'metrics.jsonl';

/** A line per step in a folder. Lines that the disk had no room for are written with later ones. */
export class MetricsFile {
  readonly file: string;
  private unwritten = '';
  private failure: AutoparError | null = null;

  private constructor(
    directory: string,
    /** Bytes of the lines that are whole. */
    private size: number,
  ) {
    this.file = path.join(directory, METRICS_FILE);
  }

  /**
   * Begins the file anew; of a run that is resumed, behind the lines of the steps that were taken.
   * @throws AutoparError (cannotWrite)
   */
  static async open(directory: string, steps: number): Promise<MetricsFile> {
    const file = path.join(directory, METRICS_FILE);
    const kept = steps === 0 ? [] : (await readMetrics(file)).filter(({ step }) => step <= steps);
    const text = kept.map((line) => `${JSON.stringify(line)}\n`).join('');
    await writeFileAtomic(file, text);
    return new MetricsFile(directory, Buffer.byteLength(text));
  }

  /** Adds a step's line. Gives what keeps it from being written, where earlier lines did not meet it. */
  async add(metrics: StepMetrics): Promise<AutoparError | null> {
    this.unwritten += `${JSON.stringify(metrics)}\n`;
    const before = this.failure;
    try {
      // What a full disk took of the lines before.
      if (before) await truncate(this.file, this.size);
      await appendFile(this.file, this.unwritten);
      this.size += Buffer.byteLength(this.unwritten);
      this.unwritten = '';
      this.failure = null;
    } catch (error) {
      const known = cannotWrite(error, this.file);
      if (!(known instanceof AutoparError)) throw known;
      this.failure = known;
    }
    return before ? null : this.failure;
  }

  /** Behind the last step. @throws AutoparError (cannotWrite) where lines could not be written */
  end(): void {
    if (this.failure) throw this.failure;
  }
}

/** The lines of a file that are whole; none where it is not there. */
export async function readMetrics(file: string): Promise<readonly StepMetrics[]> {
  const text = await readFile(file, 'utf8').catch(() => '');
  return text.split('\n').flatMap((line) => {
    try {
      return line === '' ? [] : [JSON.parse(line) as StepMetrics];
    } catch {
      // The last line of a run that was killed.
      return [];
    }
  });
}
