/**
 * @file What is recorded of every step of a training run: a line of JSON each in metrics.jsonl.
 */
import { appendFile, readFile } from 'node:fs/promises';
import path from 'node:path';
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

/** A line per step in a folder. */
export class MetricsFile {
  readonly file: string;

  private constructor(directory: string) {
    this.file = path.join(directory, METRICS_FILE);
  }

  /**
   * Begins the file anew; of a run that is resumed, behind the lines of the steps that were taken.
   * @throws AutoparError (cannotWrite)
   */
  static async open(directory: string, steps: number): Promise<MetricsFile> {
    const metrics = new MetricsFile(directory);
    const kept = steps === 0 ? [] : (await readMetrics(metrics.file)).filter(({ step }) => step <= steps);
    await writeFileAtomic(metrics.file, kept.map((line) => `${JSON.stringify(line)}\n`).join(''));
    return metrics;
  }

  async add(metrics: StepMetrics): Promise<void> {
    await appendFile(this.file, `${JSON.stringify(metrics)}\n`).catch((error: unknown) => {
      throw cannotWrite(error, this.file);
    });
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
