/**
 * @file The ways in which every case is run.
 */
import type { Layout } from './find-cases.js';

export interface Mode {
  readonly name: string;
  readonly ranks: number;
  /** Pinned degrees; left out where the search decides. */
  readonly degrees?: { readonly dp?: number; readonly tp?: number };
  /** `free`: the axes may be on any factor. */
  readonly axes?: 'free';
  /** Rebuild a model of batch 2 at this batch; the mode is left out for other batches. */
  readonly globalBatch?: number;
  /** Largest share of the model's FLOPs that a rank may do; more must be explained by a named operator. */
  readonly largestShare?: number;
}

/** Before any mode: the case's files. */
export const READING = 'reading the case';

/** The file as it is on plain ONNX Runtime, before autopar sees it. */
export const ORIGINAL = 'onnxruntime';

export const UNSHARDED: Mode = { name: 'unsharded', ranks: 1 };

/** The reference of the modes at another batch. */
export const RESIZED: Mode = { name: 'batch 8', ranks: 1, globalBatch: 8 };

/** The batch that models must have for the modes at another batch. */
export const RESIZED_FROM = 2;

const DP: Mode = { name: 'dp 2', ranks: 2, degrees: { dp: 2 } };
const TP: Mode = { name: 'tp 2', ranks: 2, degrees: { tp: 2 } };

/** Exported models: whole layers, so that every degree must pay. */
const MODEL_MODES: readonly Mode[] = [
  { ...DP, largestShare: 0.55 },
  { ...TP, largestShare: 0.6 },
  { name: 'searched, 2 ranks', ranks: 2 },
  { name: 'dp 4', ranks: 4, degrees: { dp: 4 } },
  { name: 'tp 4', ranks: 4, degrees: { tp: 4 } },
  { name: 'searched, 4 ranks', ranks: 4 },
];

/** Operators of a few elements: `free` shards what roles would leave whole. */
const OPERATOR_MODES: readonly Mode[] = [DP, TP, { ...TP, name: 'tp 2 free', axes: 'free' }];

export const SHARDED_MODES: Readonly<Record<Layout, readonly Mode[]>> = {
  listed: MODEL_MODES,
  onnx: OPERATOR_MODES,
  light: OPERATOR_MODES,
  file: OPERATOR_MODES,
};

/** The reference of the modes that train. */
export const TRAINED: Mode = { name: 'train', ranks: 1 };

export const TRAINED_MODES: readonly Mode[] = [
  { ...DP, name: 'train dp 2' },
  { ...TP, name: 'train tp 2' },
];

export const RESIZED_MODES: readonly Mode[] = [
  { name: 'batch 8, dp 2', ranks: 2, degrees: { dp: 2 }, globalBatch: 8, largestShare: 0.55 },
  { name: 'batch 8, dp 4', ranks: 4, degrees: { dp: 4 }, globalBatch: 8 },
];
