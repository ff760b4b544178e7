/**
 * @file Segments of a hand-written program: the content and the types that its records must state, read from its files and
 * tensors.
 */
import { createHash } from 'node:crypto';
import type { Program, ProgramSegment, ProgramStage } from './program.js';
import { typeTextIn, weightType } from './tensor-type.js';

/** A segment's record before its file and the tensors around it are known. */
export type SegmentOutline = Omit<ProgramSegment, 'sha256' | 'types'>;

/** A stage whose segments are outlines. */
export type StageOutline = Omit<ProgramStage, 'segments'> & {
  readonly segments: Readonly<Record<string, SegmentOutline>>;
};

/**
 * Completes a program whose segments are outlines. `files`: models by file; each segment's types are its first
 * instruction's.
 */
export function describeSegments(
  program: Omit<Program, 'stages'> & { readonly stages: readonly StageOutline[] },
  files: ReadonlyMap<string, Uint8Array>,
): Program {
  return { ...program, stages: program.stages.map((stage) => describedStage(stage, files)) };
}

function describedStage(stage: StageOutline, files: ReadonlyMap<string, Uint8Array>): ProgramStage {
  const compute = Object.values(stage.phases)
    .flat()
    .flatMap((instruction) => (instruction.kind === 'compute' ? [instruction] : []));
  const typesOf = (names: readonly string[]) => names.map((name) => typeTextIn(stage, name) ?? '');
  const segments = Object.entries(stage.segments).map(([id, outline]) => {
    const { inputs = [], weights = [], outputs = [] } = compute.find(({ segment }) => segment === id) ?? {};
    const sha256 = createHash('sha256')
      .update(files.get(outline.file) ?? new Uint8Array())
      .digest('hex');
    const ofWeights = weights.flatMap((name) => (stage.weights[name] ? [weightType(stage.weights[name])] : ['']));
    return [
      id,
      { ...outline, sha256, types: { inputs: typesOf(inputs), weights: ofWeights, outputs: typesOf(outputs) } },
    ];
  });
  return { ...stage, segments: Object.fromEntries(segments) };
}
