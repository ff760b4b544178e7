/**
 * @file emit: writes a planned model as a folder: plan.json, program/, source.json. It writes all files or none.
 */
import { mkdir } from 'node:fs/promises';
import path from 'node:path';
import { emitProgram } from '../../codegen/emit.js';
import type { Graph } from '../../ir/graph.js';
import { listening } from '../../ir/interruption.js';
import { assertSound } from '../../partition/check.js';
import type { LoweredStage } from '../../partition/lower-stages.js';
import { writeFileAtomic, writeFolderAtomic, writeJsonAtomic } from '../../program/atomic.js';
import { planToJson } from '../../strategy/plan-json.js';
import { type Arrays, writeArrays } from '../execution/arrays.js';
import { absentText, refuseWrongData } from '../models/absent-weights.js';
import type { Training } from '../models/training.js';
import type { NestedPlanningOptions, PlannedModel } from '../plan.js';
import { programOfPlan } from '../planning/lower-plan.js';
import type { Target } from '../requests/targets.js';
import { targetFolder } from './emit-target.js';
import { CONSTANTS_FILE, checkTarget, type ProgramSource, type SourceDecisions } from './folder.js';

export interface EmitOptions {
  readonly directory: string;
  /** Replace a folder that autopar did not write. */
  readonly force?: boolean;
  /** Target that is written in addition to the bundled runtime's program. */
  readonly target?: Target;
  /** Write the plan without a program. */
  readonly planOnly?: boolean;
  /** Seed of the model's random weights, or null if it has none. */
  readonly randomWeights?: number | null;
  /** Values to which import fixed inputs of the model. */
  readonly constants?: Arrays;
  /** Globs of inputs that were imported as weights. */
  readonly weights?: readonly string[];
  /** Loss, optimizer and options of the training step. */
  readonly training?: Training;
  /** `FAMILY:key=value,…`, if the model was generated. */
  readonly generated?: string;
  /** The sources of the plan's pins. */
  readonly decisions?: Pick<
    NestedPlanningOptions,
    'mode' | 'annotations' | 'config' | 'axes' | 'memory' | 'searchMode' | 'complete' | 'solver'
  > &
    Pick<SourceDecisions, 'proposals'>;
  readonly signal?: AbortSignal;
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
  const lowered = withWeights(planned.found.lowered, imported.graph);
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
  const write = async (temporary: string) => {
    await writeFileAtomic(path.join(temporary, 'plan.json'), planToJson(plan));
    await writeJsonAtomic(path.join(temporary, 'source.json'), source);
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

/** The stages with the random values of weights, which are generated after planning. */
function withWeights(lowered: readonly LoweredStage[], { weights, initial }: Graph): readonly LoweredStage[] {
  const known = (name: string) => initial?.get(name) ?? weights.get(name);
  const filled = (own: Graph['weights']) => new Map([...own].map(([name, weight]) => [name, known(name) ?? weight]));
  return lowered.map(({ graph, sharded }) => ({
    graph: { ...graph, weights: filled(graph.weights), ...(graph.initial ? { initial: filled(graph.initial) } : {}) },
    sharded,
  }));
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
  return {
    ...(mode ? { mode } : {}),
    ...(annotations?.file ? { annotations: fromHere(annotations.file) } : {}),
    ...(config?.file ? { config: fromHere(config.file) } : {}),
    ...(axes ? { axes } : {}),
    ...(memory === undefined ? {} : { memoryBytes: memory }),
    ...(complete === 'propagate' ? { searchMode: 'sharding_propagation' } : searchMode ? { searchMode } : {}),
    ...(solver ? { solver } : {}),
    ...(proposals ? { proposals } : {}),
  };
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
