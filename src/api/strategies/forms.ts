/**
 * @file The forms of strategy checkpoints, and what their readers take.
 */
import type { ImportOptions } from '../models/import.js';
import { integerFrom, type KindsOf, numbers, record, text } from '../options/kinds.js';

/** The forms of strategy checkpoints that `convert` writes and `show` reads. */
export const STRATEGY_FORMS = [
  'plan',
  'mindspore',
  'mindspore-json',
  'onnx',
  'annotations',
  'tp-plan',
  'megatron',
  'torchtitan',
] as const;
export type StrategyForm = (typeof STRATEGY_FORMS)[number];

/** The path of a checkpoint's model, and its import options; by default those of the checkpoint. */
export interface ModelOptions extends Pick<ImportOptions, 'dims' | 'shapes' | 'globalBatch'> {
  readonly model?: string;
}

/** The kinds of their values. */
export const LOCATING = {
  model: text,
  dims: record(integerFrom(1)),
  shapes: record(numbers),
  globalBatch: integerFrom(1),
} satisfies KindsOf<ModelOptions>;
