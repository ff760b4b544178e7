/**
 * @file The public interface: one function per verb, which checks its options as the command line does (verbs.ts).
 */
export { AutoparError, type ErrorPlace, EXIT } from '../ir/error.js';
export type { ConstantTensor, Graph, TensorType } from '../ir/graph.js';
export {
  openSession,
  type Session,
  type SessionOptions,
  type StepOptions,
  type StepResult,
} from '../runtime/session.js';
export type { Plan } from '../strategy/plan.js';
export type { CompileResult } from './compile.js';
export {
  type Explainable,
  explainablePlan,
  explainTensor,
  type TensorExplanation,
} from './explain.js';
export { type ExplainableFolder, explainMemory, openExplainable } from './explanations/explain-compiled.js';
export { explainMesh } from './explanations/explain-mesh.js';
export { explainOperator, type OperatorExplanation } from './explanations/explain-operator.js';
export type { Exported } from './export-weights.js';
export type { Inspection } from './inspect.js';
export type { ImportedModel } from './models/import.js';
export { type Training, withTraining } from './models/training.js';
export type { Emitted } from './output/emit.js';
export type { PlannedModel } from './plan.js';
export type { Plot } from './plot.js';
export type { MachineProfile } from './profile.js';
export type { Rehearsal } from './rehearse.js';
export type { AxisUse } from './reports/mesh-axes.js';
export { type Held, type HeldKind, type PeakMemory, peakMemory } from './reports/peak-memory.js';
export { explainPlan, type PlanSummary } from './reports/plan-summary.js';
export {
  type AnnotationEdit,
  type AnnotationRecord,
  type Annotations,
  annotationsOf,
  type ConfigOptions,
  checkAgainstModel,
  checkConfig,
  editAnnotations,
  optionsOf,
  type ParallelConfig,
  type ParallelSettings,
  type PinRecord,
  readAnnotations,
  readParallelConfig,
  resolveAnnotations,
  setParallelConfig,
  writeAnnotations,
} from './requests/annotations.js';
export type { RunReport } from './run.js';
export type { Simulation } from './simulate.js';
export { type RecutOptions, recut } from './strategies/strategy-weights.js';
export * from './strategy.js';
export type { TrainReport } from './train.js';
export { Trainer, type TrainerConfig, type TrainerOptions } from './trainer.js';
export {
  type CompileOptions,
  compile,
  type EmitOptions,
  type ExportOptions,
  emit,
  exportWeights,
  type ImportOptions,
  type InspectOptions,
  importModel,
  inspect,
  type PlanningOptions,
  type ProfileOptions,
  plan,
  plot,
  profile,
  type RehearseOptions,
  type RunCompiledOptions,
  rehearse,
  runCompiled,
  runCompiled as run,
  type SimulateOptions,
  simulate,
  type TrainOptions,
  train,
  type VerifyOptions,
  verify,
} from './verbs.js';
export type { VerifyResult } from './verify.js';
