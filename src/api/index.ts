/**
 * @file The public interface: one function per verb, which checks its options as the command line does (verbs.ts).
 */
import type { ExplainedResharding } from './explain.js';
import type { LiveTensor, LiveTensorKind } from './reports/peak-memory.js';
import {
  compiledCommunication,
  type GroupCommunication,
  groupCommunication,
  type ProgramCommunication,
} from './reports/rank-communication.js';
import type { TrainingStateBytes } from './reports/training-state.js';

export { AutoparError, type ErrorPlace, EXIT, type ExitKind } from '../ir/error.js';
export type { ErrorCode } from '../ir/error-codes.js';
export type { ConstantTensor, Graph, TensorType } from '../ir/graph.js';
export type { Session, SessionOptions, StepOptions, StepResult } from '../runtime/session.js';
export type { ScheduleKind } from '../schedule/schedule.js';
export type { SearchMode, SolverName } from '../search/search-mode.js';
export type { Plan } from '../strategy/plan.js';
export type { GradientSync, Preference } from '../strategy/request.js';
export type { Calibration, CalibrationScores, Score } from './calibrate.js';
export type { CompileResult } from './compile.js';
export { type Arrays, checkArchiveName, readArray, readArrays, readNumbers, writeArrays } from './execution/arrays.js';
export type { BackendName, RunBackend } from './execution/backends.js';
export {
  type AxisChain,
  type Explainable,
  type ExplainedResharding,
  explainablePlan,
  explainTensor,
  type TensorExplanation,
} from './explain.js';
export type { DroppedPin } from './explanations/dropped-pins.js';
export { type ExplainedChoices, explainChoices } from './explanations/explain-choices.js';
export { type ExplainableFolder, explainMemory, openExplainable } from './explanations/explain-compiled.js';
export { explainMesh } from './explanations/explain-mesh.js';
export { explainOperator, type OperatorExplanation } from './explanations/explain-operator.js';
export {
  type AddedSeconds,
  type ExplainPinsOptions,
  explainPins,
  type OperatorPinPrice,
  type PinsExplanation,
} from './explanations/explain-pins.js';
export { type ExplainedProposals, explainProposals } from './explanations/explain-proposals.js';
export {
  type ExplainedSchedule,
  explainSchedule,
  type ScheduledAction,
  type ScheduledPipeline,
} from './explanations/explain-schedule.js';
export type { Alternative, ExplainedStrategy } from './explanations/operator-alternatives.js';
export type { OperatorReason } from './explanations/operator-reasons.js';
export type { Exported } from './export-weights.js';
export { type Degrees, type GroupKind, type ProcessGroups, placeOf, processGroups } from './groups.js';
export type { Inspection } from './inspect.js';
export { hardware, hardwareById, type LocalDevices, localDevices } from './machine.js';
export type { DispatchOptions } from './models/dispatch.js';
export { generatedFile } from './models/generated.js';
export type { GradientReduction } from './models/gradient-reduction.js';
export type { ImportedModel } from './models/import.js';
export type { BatchStatistics } from './models/statistics-parts.js';
export { type Training, withTraining } from './models/training.js';
export type { TrainingFormOptions } from './models/training-form.js';
export type { Idle } from './options/idle.js';
export type { Emitted } from './output/emit.js';
export type { PlannedModel } from './plan.js';
export type { ComparedPlan } from './planning/compared-plans.js';
export type {
  ComparedRecord,
  PlanComparison,
  PricedRecord,
  ProposalsRecord,
  VerdictRecord,
} from './planning/comparison.js';
export type { DegreesVerdict, PricedConfiguration, StepSearch } from './planning/search-step.js';
export type { Plot } from './plot.js';
export type { MachineProfile } from './profile.js';
export type { Rehearsal } from './rehearse.js';
export type { AxisUse } from './reports/mesh-axes.js';
export { type LiveTensor, type LiveTensorKind, type PeakMemory, peakMemory } from './reports/peak-memory.js';
export { explainPlan, type PlanDetails, type PlanSummary } from './reports/plan-summary.js';
export {
  clusterDevices,
  compiledCommunication,
  type GroupCommunication,
  groupCommunication,
  type ProgramCommunication,
} from './reports/rank-communication.js';
export type { Server } from './reports/server.js';
export { simulatePlan } from './reports/simulate-plan.js';
export type { TrainingStateBytes } from './reports/training-state.js';
export { type Page, type PageSection, type StepSpan, writePage } from './reports/write-page.js';
export {
  type AnnotationEdit,
  type AnnotationRecord,
  type Annotations,
  annotationsOf,
  type ConfigOptions,
  checkAgainstModel,
  editAnnotations,
  optionsOf,
  type ParallelConfig,
  type ParallelSettings,
  type PinRecord,
  readAnnotations,
  readParallelConfig,
  setParallelConfig,
  writeAnnotations,
} from './requests/annotations.js';
export type { Objective } from './requests/compile-options.js';
export type { Mode } from './requests/decisions.js';
export type { DegreeOptions, ParallelAxis } from './requests/degrees.js';
export type { Target } from './requests/targets.js';
export type { OutsideBytes, RunReport } from './run.js';
export type { Simulation } from './simulate.js';
export type { ModelOptions, StrategyForm } from './strategies/forms.js';
export { axesInWords, operatorText } from './strategies/plan-texts.js';
export { type RecutOptions, recut } from './strategies/strategy-weights.js';
export * from './strategy.js';
export type { TokenType, TrainReport } from './train.js';
export { Trainer, type TrainerConfig, type TrainerOptions } from './trainer.js';
export {
  type CalibrateOptions,
  type CompileOptions,
  calibrate,
  compile,
  type EmitOptions,
  type ExportOptions,
  emit,
  exportWeights,
  type ImportOptions,
  type InspectOptions,
  importModel,
  inspect,
  openSession,
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

/** @deprecated older name of `ExplainedResharding` */
export type ExplainedRedistribution = ExplainedResharding;

/** @deprecated older name of `TrainingStateBytes` */
export type KeptState = TrainingStateBytes;

/** @deprecated older name of `LiveTensor` */
export type Held = LiveTensor;

/** @deprecated older name of `LiveTensorKind` */
export type HeldKind = LiveTensorKind;

/** @deprecated older name of `compiledCommunication` */
export const compiledExchanges = compiledCommunication;

/** @deprecated older name of `groupCommunication` */
export const exchangesOf = groupCommunication;

/** @deprecated older name of `GroupCommunication` */
export type GroupExchange = GroupCommunication;

/** @deprecated older name of `ProgramCommunication` */
export type ProgramExchange = ProgramCommunication;
