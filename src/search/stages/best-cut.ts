/**
 * @file Cuts into a given number of stages on equal sub-meshes: what a search over degrees asks hundreds of times.
 */
import { cutStages, type StageAnswer } from './cut-stages.js';
import type { StageProblem } from './problem.js';

/** The best cut into so many stages that all run on one kind of sub-mesh; by the closed form, nothing is simulated. */
export function bestCut(problem: StageProblem, subMesh: number, stages: number): StageAnswer {
  const pins = { ...problem.pins, subMeshes: Array.from({ length: stages }, () => subMesh) };
  return cutStages({ ...problem, pins }, { simulate: 0 });
}

/**
 * Ends of stages of as many layers each, give or take one; earlier stages take what is left over.
 * As `pins.ends` they make `cutStages` price that cut, with each stage's best points.
 */
export function evenCut(layers: number, stages: number): readonly number[] {
  const each = Math.floor(layers / stages);
  return Array.from({ length: stages }, (_, stage) => (stage + 1) * each + Math.min(stage + 1, layers % stages));
}
