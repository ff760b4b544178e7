/**
 * @file explain the degrees of a plan of operators: each other combination with the figure that rules it out, and the effect of
 * changes of the cluster. The folder's plan is planned again for it.
 */
import type { MeshDegrees } from '../../search/degrees.js';
import type { RejectedDegrees } from '../../search/nothing-fits.js';
import type { RankedDegrees } from '../../search/plan.js';
import { endedBy } from '../options/in-javascript.js';
import { callback, checkArguments, countOrAll, flag, options, signal as signalKind, text } from '../options/kinds.js';
import { openReplanning, planAgain } from '../planning/replan.js';
import { type PlanSensitivity, planSensitivities } from './plan-sensitivity.js';

export interface ExplainChoicesOptions {
  /** Number of best combinations that are lowered; their memory is reported. */
  readonly top?: number;
  readonly sensitivity?: boolean;
  readonly model?: string;
  readonly signal?: AbortSignal;
  readonly onProgress?: (text: string) => void;
}

export interface ExplainedChoices {
  /** Seconds of a step as `compile` predicts them. */
  readonly stepSeconds: number;
  /** The number format that most of the step is priced in. */
  readonly precision: string;
  readonly degrees: MeshDegrees;
  /** The best combinations that fit, the chosen one first. */
  readonly top: readonly RankedDegrees[];
  readonly rejected: readonly RejectedDegrees[];
  /** Empty unless requested. */
  readonly sensitivities: readonly PlanSensitivity[];
}

const OPTIONS = options<ExplainChoicesOptions>({
  top: countOrAll,
  sensitivity: flag,
  model: text,
  signal: signalKind,
  onProgress: callback,
});

/** @throws AutoparError as `openReplanning` and `planAgain` */
export async function explainChoices(directory: string, asked: ExplainChoicesOptions): Promise<ExplainedChoices> {
  checkArguments('explainChoices', { directory: [directory, text], asked: [asked, OPTIONS] });
  return endedBy(asked.signal, 'explainChoices', async () => {
    const { top = 1, sensitivity = false, model, signal, onProgress = () => undefined } = asked;
    const replanning = await openReplanning(directory, model);
    onProgress('planning');
    const found = await planAgain(replanning, { top, ...(signal ? { signal } : {}) });
    const { stepSeconds, precision } = found.prediction;
    return {
      stepSeconds,
      precision,
      degrees: found.degrees,
      top: found.top,
      rejected: found.rejected,
      sensitivities: sensitivity ? await planSensitivities(replanning, stepSeconds, signal, onProgress) : [],
    };
  });
}
