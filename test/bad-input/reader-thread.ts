/**
 * @file The thread of readers.test.ts: reads files with one reader, one after the other, and reports how each ended.
 */
import { dirname } from 'node:path';
import { parentPort, workerData } from 'node:worker_threads';
import { evaluate } from '../../bench/contest/evaluate.js';
import { problemOf, readInstance } from '../../bench/contest/instance.js';
import { calibrate } from '../../src/api/calibrate.js';
import { readArrays } from '../../src/api/execution/arrays.js';
import { readInputs } from '../../src/api/execution/inputs.js';
import { readAnnotations, readParallelConfig } from '../../src/api/requests/annotations.js';
import { diffStrategies, mergeStrategies, ranksForTransform, showStrategy } from '../../src/api/strategy.js';
import { readClusterFile } from '../../src/cost-model/cluster-file.js';
import { AutoparError } from '../../src/ir/error.js';
import { readProgram } from '../../src/program/reader.js';
import { openSafetensors } from '../../src/program/safetensors.js';

/** The reader of each kind of file, with the first work that the commands do on it. */
export const READERS = {
  plan: async (file: string) => {
    await showStrategy(file);
    await diffStrategies(file, file);
  },
  mindspore: async (file: string) => {
    await showStrategy(file);
    await ranksForTransform(file, file, 0).catch(userError);
    await mergeStrategies([file], `${file}.merged.ckpt`);
  },
  annotations: readAnnotations,
  config: readParallelConfig,
  cluster: readClusterFile,
  program: readProgram,
  arrays: readArrays,
  inputs: (file: string) => readInputs(dirname(file), [{ name: 'x', dtype: 'float32', shape: [2, 2] }]),
  safetensors: async (file: string) => {
    const opened = await openSafetensors(file);
    for (const key of opened.entries.keys()) await opened.read(key);
    await opened.close();
  },
  runs: (file: string) => calibrate({ files: [file], cluster: '1x8:a100-sxm-80' }),
  annotated: showStrategy,
  contest: async (file: string) => {
    const instance = readInstance(file);
    problemOf(instance);
    evaluate(
      instance,
      instance.costs.map(() => 0),
    );
  },
} satisfies Readonly<Record<string, (file: string) => Promise<unknown>>>;

export interface Reading {
  readonly reader: keyof typeof READERS;
  readonly files: readonly string[];
}

/** How reading a file ended: null for read or refused, else what was thrown. */
export interface Read {
  readonly file: string;
  readonly fault: string | null;
}

function userError(error: unknown): void {
  if (!(error instanceof AutoparError)) throw error;
}

if (parentPort) {
  const { reader, files } = workerData as Reading;
  for (const file of files) {
    let fault: string | null = null;
    try {
      await READERS[reader](file);
    } catch (error) {
      if (!(error instanceof AutoparError)) fault = error instanceof Error ? `${error.stack}` : String(error);
    }
    parentPort.postMessage({ file, fault } satisfies Read);
  }
}
