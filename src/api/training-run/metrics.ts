/**
 * @file The record of each step of a training run: one line of JSON in metrics.jsonl.
 */
import { appendFile, readFile, truncate } from 'node:fs/promises';
import path from 'node:path';
import { AutoparError } from '../../ir/error.js';
import { cannotWrite, writeFileAtomic } from '../../program/atomic.js';

export interface StepMetrics {
  /** Counted from 1. */
  readonly step: number;
  /** Counted from 1. */
  readonly epoch: number;
  /** The mean over the labels of the step that are not ignored. */
  readonly loss: number;
  /**
   * The global gradient norm, for the mean loss and before clipping; null if it is not finite (a step that dynamic loss scaling
   * skips) or if the program does not hold the tensors that it needs.
   */
  readonly gradientNorm: number | null;
  readonly learningRate: number;
  readonly lossScale: number;
  readonly stepSeconds: number;
  /** Samples per second on all ranks; `tokensPerSecond` is null if the inputs are not tokens. */
  readonly samplesPerSecond: number;
  readonly tokensPerSecond: number | null;
  /** The mean loss of the evaluation data after this step, if it was evaluated. */
  readonly evalLoss?: number;
}

export const METRICS_FILE = 'metrics.jsonl';

/** The metrics file of a folder, with one line per step. Lines that do not fit on the disk are written with later ones. */
export class MetricsFile {
  readonly file: string;
  private unwritten = '';
  private failure: AutoparError | null = null;

  private constructor(
    directory: string,
    /** Bytes of the complete lines. */
    private size: number,
  ) {
    this.file = path.join(directory, METRICS_FILE);
  }

  /**
   * Starts a new file; for a resumed run it keeps the lines of completed steps.
   * @throws AutoparError (cannotWrite)
   */
  static async open(directory: string, steps: number): Promise<MetricsFile> {
    const file = path.join(directory, METRICS_FILE);
    const kept = steps === 0 ? [] : (await readMetrics(file)).filter(({ step }) => step <= steps);
    const text = kept.map((line) => `${JSON.stringify(line)}\n`).join('');
    await writeFileAtomic(file, text);
    return new MetricsFile(directory, Buffer.byteLength(text));
  }

  /** Adds a step's line. Returns the error if writing fails and the previous line had no error. */
  async add(metrics: StepMetrics): Promise<AutoparError | null> {
    this.unwritten += `${JSON.stringify(metrics)}\n`;
    const before = this.failure;
    try {
      // Removes a partial line that a full disk left.
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

  /** Called after the last step. @throws AutoparError (cannotWrite) if lines could not be written */
  end(): void {
    if (this.failure) throw this.failure;
  }
}

/** The complete lines of a file; empty if the file does not exist. */
export async function readMetrics(file: string): Promise<readonly StepMetrics[]> {
  const text = await readFile(file, 'utf8').catch(() => '');
  return text.split('\n').flatMap((line) => {
    try {
      return line === '' ? [] : [JSON.parse(line) as StepMetrics];
    } catch {
      // The incomplete last line of a run that was killed.
      return [];
    }
  });
}
