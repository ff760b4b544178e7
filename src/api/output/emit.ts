/**
 * @file emit: writes a planned model as a folder: plan.json, program/, source.json. It writes all files or none.
 */
import { mkdir } from 'node:fs/promises';
import path from 'node:path';
import { emitProgram } from '../../codegen/emit.js';
import { listening } from '../../ir/interruption.js';
import { withoutUndefined } from '../../ir/without-undefined.js';
import { assertSound } from '../../partition/check.js';
import type { LoweredStage } from '../../partition/lower-stages.js';
import { writeFileAtomic, writeFolderAtomic, writeJsonAtomic } from '../../program/atomic.js';
import { planToJson } from '../../strategy/plan-json.js';
import { type Arrays, writeArrays } from '../execution/arrays.js';
import { absentText, refuseWrongData } from '../models/absent-weights.js';
import { withValuesOf } from '../models/random-weights.js';
import type { PlannedModel } from '../plan.js';
import type { PlanComparison } from '../planning/comparison.js';
import { programOfPlan } from '../planning/lower-plan.js';
import type { NestedCompileOptions } from '../requests/compile-options.js';
import { COMPARISON_FILE, comparisonToJson } from './comparison-file.js';
import { targetFolder } from './emit-target.js';
import { CONSTANTS_FILE, checkTarget, type ProgramSource, type SourceDecisions } from './folder.js';

export interface EmitOptions
  extends Pick<
    NestedCompileOptions,
    'force' | 'target' | 'planOnly' | 'weights' | 'training' | 'generated' | 'signal'
  > {
  readonly directory: string;
  /** Seed of the model's random weights, or null if it has none. */
  readonly randomWeights?: number | null;
  /** Values to which import fixed inputs of the model. */
  readonly constants?: Arrays;
  /** The sources of the plan's pins. */
  readonly decisions?: Pick<
    NestedCompileOptions,
    'mode' | 'annotations' | 'config' | 'axes' | 'memory' | 'searchMode' | 'complete' | 'solver'
  > &
    Pick<SourceDecisions, 'proposals'>;
  /** The plans compared with this one, for reports. */
  readonly comparison?: PlanComparison;
}

/** Whether a program was written, and if not, the reason in a sentence. */
export interface Emitted {
  readonly programWritten: boolean;
  readonly programReason?: string;
  /** Parts of the plan that the target does not support, one line each. */
  readonly targetNotes: readonly string[];
}

/** Writes the folder under a temporary name and then moves it into place. @throws AutoparError (exit cannotWrite). */
export async function emit(planned: PlannedModel, options: EmitOptions): Promise<Emitted> {
  const { imported, plan, pipeline } = planned;
  // Random values of weights are generated after planning.
  const lowered = planned.found.lowered.map(
    ({ graph, sharded }): LoweredStage => ({ graph: withValuesOf(graph, imported.graph), sharded }),
  );
  const { directory, signal } = options;
  await checkTarget(directory, options.force ?? false, imported.file);
  const reason = reasonWithout(planned, options);
  const fromHere = (file: string) => relativeTo(directory, file);
  const decisions = sourceDecisions(options.decisions ?? {}, fromHere);
  const source: ProgramSource = {
    format: 'autopar-source',
    model: fromHere(imported.file),
    ...(options.generated === undefined ? {} : { generated: options.generated }),
    dims: imported.dims,
    globalBatch: plan.model.globalBatch,
    randomWeights: options.randomWeights ?? null,
    constants: Object.keys(options.constants ?? {}).length > 0,
    ...(options.weights?.length ? { weights: options.weights } : {}),
    ...(options.training ? { training: options.training } : {}),
    ...(Object.keys(decisions).length > 0 ? { decisions } : {}),
  };
  const schedule = pipeline?.schedule ?? null;
  const generated = reason === null ? programOfPlan({ lowered, schedule }, plan, planned.cluster) : null;
  // Unsupported parts of the plan are reported before anything is written.
  const { target = 'runtime', training } = options;
  const beside = targetFolder(target, { planned, lowered, program: generated?.program ?? null, training });
  // emitProgram checks the lowered stages together with their program.
  if (!generated) assertSound(lowered);
  const compared = options.comparison ? comparisonToJson(options.comparison, plan) : null;
  const write = async (temporary: string) => {
    await writeFileAtomic(path.join(temporary, 'plan.json'), planToJson(plan));
    await writeJsonAtomic(path.join(temporary, 'source.json'), source);
    if (compared !== null) await writeFileAtomic(path.join(temporary, COMPARISON_FILE), compared);
    if (source.constants) await writeArrays(path.join(temporary, CONSTANTS_FILE), options.constants ?? {});
    const program = path.join(temporary, 'program');
    if (generated) {
      await mkdir(program);
      await emitProgram(program, generated, lowered, signal);
    }
    if (beside) await beside.write(path.join(temporary, target), program, signal);
    signal?.throwIfAborted();
  };
  await listening(signal, () => writeFolderAtomic(directory, write));
  const targetNotes = beside?.notes ?? [];
  return reason === null
    ? { programWritten: true, targetNotes }
    : { programWritten: false, programReason: reason, targetNotes };
}

function sourceDecisions(
  {
    mode,
    annotations,
    config,
    axes,
    memory,
    searchMode,
    complete,
    solver,
    proposals,
  }: NonNullable<EmitOptions['decisions']>,
  fromHere: (file: string) => string,
): SourceDecisions {
  return withoutUndefined({
    mode,
    annotations: annotations?.file ? fromHere(annotations.file) : undefined,
    config: config?.file ? fromHere(config.file) : undefined,
    axes,
    memoryBytes: memory,
    searchMode: complete === 'propagate' ? 'sharding_propagation' : searchMode,
    solver,
    proposals,
  });
}

function reasonWithout({ imported }: PlannedModel, options: EmitOptions): string | null {
  if (options.planOnly) return 'no program was written, as --plan-only says';
  if (imported.weightsPresent) return null;
  refuseWrongData(imported);
  return `no program was written: ${absentText({ ...imported, generated: options.generated })} (--init random makes some)`;
}

/** The path of a file relative to a folder, with forward slashes. */
function relativeTo(directory: string, file: string): string {
  return path.relative(path.resolve(directory), path.resolve(file)).split(path.sep).join('/');
}
