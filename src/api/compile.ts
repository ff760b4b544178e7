/**
 * @file compile: a model and a cluster in, a folder with plan and program out. Import, plan, emit, and verify where asked.
 */
import type { ConstantTensor } from '../ir/graph.js';
import type { PlanResult } from '../search/plan.js';
import type { Plan } from '../strategy/plan.js';
import { emit } from './emit.js';
import { checkTarget, defaultFolder } from './folder.js';
import { importModel } from './import.js';
import { type PlanningOptions, plan } from './plan.js';
import { withRandomWeights } from './random-weights.js';
import { type Communication, communicationOf, type HeavyOperator, heaviestOf } from './report.js';
import { type VerifyResult, verify } from './verify.js';

export interface CompileOptions extends PlanningOptions {
  /** The model file. */
  readonly model: string;
  /** The folder to write; default `./<model file stem>.autopar`. */
  readonly output?: string;
  /** Replace a folder that autopar did not write. */
  readonly force?: boolean;
  readonly planOnly?: boolean;
  readonly dims?: Readonly<Record<string, number>>;
  readonly constants?: Readonly<Record<string, ConstantTensor>>;
  readonly globalBatch?: number;
  /** Verify the program against the model afterwards. */
  readonly verify?: boolean;
  readonly seed?: number;
  /** Give weights that the file holds no values for random ones. */
  readonly initRandom?: boolean;
  readonly onProgress?: (text: string) => void;
}

export interface CompileResult {
  readonly directory: string;
  readonly plan: Plan;
  /** What import and search want the user to know. */
  readonly notes: readonly string[];
  /** Operators that a pinned degree could not shard, with the reason. */
  readonly exceptions: readonly { readonly operator: string; readonly reason: string }[];
  readonly heaviest: readonly HeavyOperator[];
  readonly communication: readonly Communication[];
  readonly rejected: PlanResult['rejected'];
  readonly programWritten: boolean;
  /** Why there is no program, in a sentence. */
  readonly programReason?: string;
  readonly verification?: VerifyResult;
}

/**
 * Plans, lowers, and writes plan.json, program/ and source.json; nothing is left behind where it fails.
 * @throws AutoparError for everything that the user can mend.
 */
export async function compile(options: CompileOptions): Promise<CompileResult> {
  const progress = options.onProgress ?? (() => undefined);
  const directory = options.output ?? defaultFolder(options.model);
  const seed = options.seed ?? 0;
  await checkTarget(directory, options.force ?? false, options.model);
  progress('importing');
  const read = await importModel(options.model, {
    ...(options.dims ? { dims: options.dims } : {}),
    ...(options.constants ? { constants: options.constants } : {}),
    ...(options.globalBatch === undefined ? {} : { globalBatch: options.globalBatch }),
  });
  const random = options.initRandom === true && !read.weightsPresent;
  const imported = random ? withRandomWeights(read, seed) : read;
  options.signal?.throwIfAborted();
  progress('planning');
  const planned = await plan(imported, options);
  options.signal?.throwIfAborted();
  progress('writing');
  const emitted = await emit(planned, {
    directory,
    randomWeights: random ? seed : null,
    ...(options.constants ? { constants: options.constants } : {}),
    ...(options.force === undefined ? {} : { force: options.force }),
    ...(options.planOnly === undefined ? {} : { planOnly: options.planOnly }),
    ...(options.signal ? { signal: options.signal } : {}),
  });
  const verification =
    options.verify && emitted.programWritten
      ? await verify({
          directory,
          model: options.model,
          seed,
          onProgress: progress,
          ...(options.signal ? { signal: options.signal } : {}),
        })
      : undefined;
  return {
    directory,
    plan: planned.plan,
    notes: imported.notes,
    exceptions: planned.found.exceptions,
    heaviest: heaviestOf(imported.graph, planned.sharded, planned.found.assignment, planned.cluster),
    communication: communicationOf(planned.sharded, planned.cluster),
    rejected: planned.found.rejected,
    ...emitted,
    ...(verification ? { verification } : {}),
  };
}
