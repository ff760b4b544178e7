/**
 * @file The files that the stages of a pipeline wrote, as one: operators side by side, parameters prefixed with `<stage>-`.
 */
import { AutoparError } from '../../ir/error.js';
import { type KeyedStrategy, type MindSporeStrategy, parameterOf, stageDevices } from './document.js';

/** A checkpoint of one stage and the file it came from. */
export interface StageFile {
  readonly file: string;
  readonly document: MindSporeStrategy;
}

/** The value that MindSpore writes into `current_stage` of a merged file. */
const MERGED = 1;

/**
 * Merges the files of all stages, in the order of their stages. Files of one stage must be equal: one is kept.
 * @throws AutoparError `strategy-conflict` (input) naming the files and what they disagree on; `strategy-mismatch` for a
 *   file without operators, one that is merged already, and a stage that is missing
 */
export function mergeStages(files: readonly StageFile[]): MindSporeStrategy {
  const byStage = new Map<number, StageFile>();
  for (const entry of files) {
    const stage = stageOf(entry);
    const before = byStage.get(stage);
    if (before) checkSame(stage, before, entry);
    else byStage.set(stage, entry);
  }
  const stages = [...byStage].sort(([a], [b]) => a - b);
  const missing = stages.findIndex(([stage], index) => stage !== index);
  if (missing >= 0) {
    throw problem(
      'strategy-mismatch',
      `stage ${missing} of the pipeline is missing among the files`,
      files[0]?.file,
      'name the file of every stage',
    );
  }
  checkDevices(stages);
  const operators = new Map<string, KeyedStrategy>();
  for (const [stage, { document, file }] of stages) {
    for (const [key, strategy] of document.operators) {
      const before = operators.get(key);
      if (before) throw clash(key, before.stage, stage, file);
      operators.set(key, strategy);
    }
  }
  const prefixed = <Value>(
    of: (document: MindSporeStrategy) => ReadonlyMap<string, Value>,
  ): ReadonlyMap<string, Value> =>
    new Map(
      stages.flatMap(([stage, { document }]) =>
        [...of(document)].map(([name, value]) => [`${stage}-${name}`, value] as const),
      ),
    );
  const together = <Value>(
    of: (document: MindSporeStrategy) => ReadonlyMap<string, Value>,
  ): ReadonlyMap<string, Value> => new Map(stages.flatMap(([, { document }]) => [...of(document)]));
  return {
    currentStage: MERGED,
    operators,
    parameters: prefixed((document) => document.parameters),
    outputs: together((document) => document.outputs),
    operandLayouts: together((document) => document.operandLayouts),
    resultLayouts: together((document) => document.resultLayouts),
  };
}

/** The stage that all operators of a file are of. */
function stageOf({ file, document }: StageFile): number {
  const stages = new Set([...document.operators.values()].map(({ stage }) => stage));
  const merged = [...document.parameters.keys()].find((name) => parameterOf(name).stage !== null);
  const [stage, ...others] = stages;
  if (stage === undefined)
    throw problem('strategy-mismatch', 'the strategy checkpoint holds no operators, so its stage is not known', file);
  if (others.length > 0 || merged !== undefined) {
    const why =
      merged === undefined ? `has operators of stages ${[...stages].join(', ')}` : `names a parameter ${merged}`;
    throw problem(
      'strategy-mismatch',
      `the strategy checkpoint is merged already: it ${why}`,
      file,
      'name the file of each stage',
    );
  }
  return stage;
}

function checkSame(stage: number, first: StageFile, second: StageFile): void {
  const differing = firstDifference(first.document, second.document);
  if (differing === null) return;
  throw problem(
    'strategy-conflict',
    `${first.file} and ${second.file} are both of stage ${stage} and disagree on ${differing}`,
    second.file,
    'name one file per stage',
  );
}

function firstDifference(first: MindSporeStrategy, second: MindSporeStrategy): string | null {
  const parts = [
    ['operator', first.operators, second.operators],
    ['parameter', first.parameters, second.parameters],
  ] as const;
  for (const [what, a, b] of parts) {
    for (const name of new Set([...a.keys(), ...b.keys()])) {
      const [left, right] = [a.get(name), b.get(name)].map((value) => JSON.stringify(value));
      if (left !== right) return `${what} ${name}`;
    }
  }
  return null;
}

function checkDevices(stages: readonly (readonly [number, StageFile])[]): void {
  let known: { readonly devices: number; readonly file: string } | undefined;
  for (const [, { file, document }] of stages) {
    const { devices, differs } = stageDevices(document);
    if (differs !== undefined)
      throw problem('strategy-conflict', `the strategy checkpoint contradicts itself: ${differs}`, file);
    if (devices === null) continue;
    if (known && known.devices !== devices) {
      throw problem(
        'strategy-conflict',
        `${known.file} is for ${known.devices} devices in a stage, ${file} for ${devices}`,
        file,
        'stages have equally many devices; name files of one run',
      );
    }
    known ??= { devices, file };
  }
}

function clash(key: string, first: number, second: number, file: string): AutoparError {
  return problem(
    'strategy-conflict',
    `operator ${key} is in stage ${first} and in stage ${second}`,
    file,
    'an operator is in one stage; name files of one run',
  );
}

function problem(
  code: 'strategy-conflict' | 'strategy-mismatch',
  message: string,
  file?: string,
  hint?: string,
): AutoparError {
  return new AutoparError(code, 'input', message, file === undefined ? {} : { file }, hint ?? 'save it again');
}
