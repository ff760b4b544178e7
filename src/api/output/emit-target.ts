/**
 * @file The folder of a target next to the bundled runtime's program. Unsupported parts of a plan are found before any file is
 * written.
 */
import { mkdir } from 'node:fs/promises';
import path from 'node:path';
import { mindSporeFiles } from '../../codegen/mindspore/files.js';
import { emitOnnx, onnxProgram } from '../../codegen/onnx/emit-onnx.js';
import type { GeneratedProgram } from '../../codegen/program-of.js';
import { emitTorch, torchProgram } from '../../codegen/torch/emit-torch.js';
import type { LoweredStage } from '../../partition/lower-stages.js';
import { writeFileAtomic } from '../../program/atomic.js';
import { type PlacedPlan, placePlan } from '../../strategy/placed-operators.js';
import { valueRanges } from '../execution/labels.js';
import type { Training } from '../models/training.js';
import type { PlannedModel } from '../plan.js';
import type { Target } from '../requests/targets.js';
import { annotatedCopy } from '../strategies/strategy-onnx.js';

/** Writes the target's files into its existing folder; `program` is the folder of the program next to it. */
type WriteTarget = (folder: string, program: string, signal?: AbortSignal) => Promise<void>;

export interface TargetFolder {
  readonly write: WriteTarget;
  /** Parts of the plan that the target does not support, one line each. */
  readonly notes: readonly string[];
}

interface TargetInput {
  readonly planned: PlannedModel;
  readonly lowered: readonly LoweredStage[];
  /** Null if no program is written. */
  readonly program: GeneratedProgram['program'] | null;
  readonly training: Training | undefined;
}

/** @throws AutoparError `target-lacks-plan`, `target-lacks-operator` (exit backendAbsent) */
const TARGETS: Readonly<Record<Exclude<Target, 'runtime'>, (given: TargetInput) => TargetFolder | null>> = {
  torch: ({ planned, lowered, program }) => {
    if (!program) return null;
    const files = torchProgram(lowered, program, valueRanges(program.inputs, planned.plan.training));
    return { write: (folder, beside, signal) => emitTorch(folder, files, beside, signal), notes: [] };
  },
  onnx: ({ planned, lowered, program, training }) => {
    if (!program) return null;
    const models = onnxProgram(lowered, program);
    const { plan, imported } = planned;
    const placed = placedOf(planned);
    const write: WriteTarget = async (folder, beside, signal) => {
      await emitOnnx(folder, models, beside, signal);
      await (await annotatedCopy(imported.file, path.join(folder, 'model.onnx'), plan, placed, training))();
    };
    return { write, notes: [] };
  },
  mindspore: ({ planned }) => {
    const { files, lost } = mindSporeFiles(planned.plan, planned.imported.graph, placedOf(planned));
    const write: WriteTarget = async (folder) => {
      for (const [name, content] of Object.entries(files)) await writeFileAtomic(path.join(folder, name), content);
    };
    return {
      write,
      notes: [`MindSpore's files cannot express ${lost.length} choices of the plan, which mindspore/README.md lists`],
    };
  },
};

function placedOf({ plan, imported }: PlannedModel): PlacedPlan {
  return placePlan(plan, imported.graph);
}

/** The target's folder; null if the target needs a program and there is none. */
export function targetFolder(target: Target, given: TargetInput): TargetFolder | null {
  const made = target === 'runtime' ? null : TARGETS[target](given);
  if (!made) return null;
  return {
    ...made,
    write: async (folder, program, signal) => {
      await mkdir(folder);
      await made.write(folder, program, signal);
    },
  };
}
