/**
 * @file The public interface: one function per verb. The command line uses nothing else.
 */
export { AutoparError, type ErrorPlace, EXIT } from '../ir/error.js';
export type { ConstantTensor, Graph, TensorType } from '../ir/graph.js';
export type { Plan } from '../strategy/plan.js';
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
} from './annotations.js';
export { type CompileOptions, type CompileResult, compile } from './compile.js';
export { type EmitOptions, type Emitted, emit } from './emit.js';
export {
  type Explainable,
  explainablePlan,
  explainTensor,
  type TensorExplanation,
} from './explain.js';
export { type ExplainableFolder, explainMemory, openExplainable } from './explain-compiled.js';
export { explainMesh } from './explain-mesh.js';
export { explainOperator, type OperatorExplanation } from './explain-operator.js';
export { type ImportedModel, type ImportOptions, importModel } from './import.js';
export { type Inspection, type InspectOptions, inspect } from './inspect.js';
export type { AxisUse } from './mesh-axes.js';
export { type Held, type HeldKind, type PeakMemory, peakMemory } from './peak-memory.js';
export { type PlannedModel, type PlanningOptions, plan } from './plan.js';
export { type MachineProfile, type ProfileOptions, profile } from './profile.js';
export { type RunCompiledOptions, type RunReport, runCompiled, runCompiled as run } from './run.js';
export { type SimulateOptions, type Simulation, simulate } from './simulate.js';
export * from './strategy.js';
export { type RecutOptions, recut } from './strategy-weights.js';
export { type Training, withTraining } from './training.js';
export { type VerifyOptions, type VerifyResult, verify } from './verify.js';
