/**
 * @file The options of compile.
 */
import type { TrainingPrecision } from '../../ir/autodiff/training-graph.js';
import type { DispatchOptions } from '../../ir/experts/dispatch-experts.js';
import type { ConstantTensor } from '../../ir/graph.js';
import type { Training } from '../models/training.js';
import type { WriteModelOptions } from '../models/write-model.js';
import type { NestedPlanningOptions } from '../plan.js';
import type { Target } from './targets.js';

export const OBJECTIVES = ['time', 'memory', 'cost', 'devices'] as const;
export type Objective = (typeof OBJECTIVES)[number];

export interface NestedCompileOptions extends NestedPlanningOptions, DispatchOptions, WriteModelOptions {
  /** The model file. */
  readonly model: string;
  /** `FAMILY:key=value,…`, where the file was generated from it. */
  readonly generated?: string;
  /** The folder to write; default `./<model file stem>.autopar`. */
  readonly output?: string;
  /** Replace a folder that autopar did not write, and the file of `writeModel`. */
  readonly force?: boolean;
  /** Write the plan, the same that a program is written of, and leave the program out. */
  readonly planOnly?: boolean;
  /** What the plan is chosen by; `time` where it is left out, and `memory` of training alone. */
  readonly objective?: Objective;
  /** Seconds that a step may take, for `devices`. */
  readonly within?: number;
  /** What the program is written for; the bundled runtime by default. */
  readonly target?: Target;
  readonly dims?: Readonly<Record<string, number>>;
  /** Whole shapes of inputs, by name. */
  readonly shapes?: Readonly<Record<string, readonly number[]>>;
  readonly constants?: Readonly<Record<string, ConstantTensor>>;
  readonly globalBatch?: number;
  /** Globs of inputs that are weights. */
  readonly weights?: readonly string[];
  /** What inference computes in; as the file has it by default. Training says it in `training`. */
  readonly precision?: TrainingPrecision;
  /** Compile a step of training instead of inference. */
  readonly training?: Training;
  /** Samples that a rank of dp works through at once; says how many micro-batches there are. */
  readonly microBatch?: number;
  /** Verify the program against the model afterwards. */
  readonly verify?: boolean;
  readonly seed?: number;
  /** Give weights that the file holds no values for random ones. */
  readonly initRandom?: boolean;
}
