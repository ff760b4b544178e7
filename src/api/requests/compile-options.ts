/**
 * @file The options of compile.
 */
import type { TrainingPrecision } from '../../ir/autodiff/training-graph.js';
import type { DispatchOptions } from '../../ir/experts/dispatch-experts.js';
import type { ImportOptions } from '../models/import.js';
import type { Training } from '../models/training.js';
import type { WriteModelOptions } from '../models/write-model.js';
import type { NestedPlanningOptions } from '../plan.js';
import type { Target } from './targets.js';

export const OBJECTIVES = ['time', 'memory', 'cost', 'devices'] as const;
export type Objective = (typeof OBJECTIVES)[number];

export interface NestedCompileOptions
  extends NestedPlanningOptions,
    DispatchOptions,
    WriteModelOptions,
    Pick<ImportOptions, 'dims' | 'shapes' | 'constants' | 'globalBatch' | 'weights'> {
  /** The model file. */
  readonly model: string;
  /** `FAMILY:key=value,…`, where the file was generated from it. */
  readonly generated?: string;
  /** The folder to write; default `./<model file stem>.autopar`. */
  readonly output?: string;
  /** Replace a folder that autopar did not write, and the file of `writeModel`. */
  readonly force?: boolean;
  /** Write only the plan, which is the same as with a program, and no program. */
  readonly planOnly?: boolean;
  /** The objective that the plan is chosen by; `time` by default; `memory` only for training. */
  readonly objective?: Objective;
  /** Seconds that a step may take, for `devices`. */
  readonly within?: number;
  /** The target that the program is written for; the bundled runtime by default. */
  readonly target?: Target;
  /** Precision of inference; by default that of the file. The precision of training is in `training`. */
  readonly precision?: TrainingPrecision;
  /** Compile a step of training instead of inference. */
  readonly training?: Training;
  /** Samples that a dp rank processes at once; this determines the number of micro-batches. */
  readonly microBatch?: number;
  /** Verify the program against the model afterwards. */
  readonly verify?: boolean;
  readonly seed?: number;
  /** Give random values to weights that have no values in the file. */
  readonly initRandom?: boolean;
}
