/**
 * @file The runs of a table that calibrate a cluster: runs on its devices with its links. Runs of the same configuration are
 * merged into one that was measured several times.
 */
import { type Cluster, clusterSize } from '../../cost-model/cluster.js';
import { firstDevices } from '../../cost-model/describe-named.js';
import type { MeasuredRun } from '../../cost-model/measured-layers/linear-step.js';
import { STEP_CONSTANTS } from '../../cost-model/step/constants.js';
import { priceStepExactly } from '../../cost-model/step/step-price.js';
import type { CsvRow } from './csv.js';
import type { Predictor } from './predictor.js';
import { type MeasuredRow, measuredRow, sweepOf } from './run.js';

/** A run of a table, priced on the cluster on which it ran. */
export interface UsableRun extends MeasuredRun {
  readonly times: number;
  readonly model: string;
  /** The sweep of the run: runs of one model, devices and batch. */
  readonly sweep: string;
  /** Predicted seconds without fitted layers. */
  readonly predictedSeconds: number;
}

/** A step that is off by more than this factor indicates that its row describes another run. */
const MOST_OFF = 10;

/** The run of a row on a cluster, or the reason why it is not usable. */
export async function runOn(row: CsvRow, cluster: Cluster, predictor: Predictor): Promise<UsableRun | string> {
  const run = measuredRow(row);
  if (typeof run === 'string') return run;
  const { seconds, configuration } = run;
  if (seconds === null) return run.fits ? 'no time' : 'ran out of memory';
  if (run.predictions > 0) return 'uses multi-token prediction, which plans do not support';
  const { devices } = run;
  const elsewhere = otherDevices(run, cluster);
  if (elsewhere) return elsewhere;
  const own = firstDevices(cluster, devices);
  if (!own) return `${devices} devices do not fill nodes of ${cluster.nodes} × ${cluster.perNode}`;
  try {
    const work = await predictor.work(run);
    const predictedSeconds = priceStepExactly(work, configuration, own, STEP_CONSTANTS).stepSeconds;
    if (!Number.isFinite(predictedSeconds)) return `not predicted: the step would take ${predictedSeconds} s`;
    const off = seconds / predictedSeconds;
    if (off > MOST_OFF || off < 1 / MOST_OFF)
      return (
        `its step takes more than ${MOST_OFF} times the predicted time, or less than a tenth: the row may ` +
        'describe another run'
      );
    return {
      ...{ work, configuration, cluster: own, seconds, times: 1, predictedSeconds },
      model: run.model,
      sweep: sweepOf(run),
    };
  } catch (error) {
    return `not predicted: ${error instanceof Error ? error.message : error}`;
  }
}

/** Merges runs of one configuration into one with their geometric mean; its weight is the number of runs. */
export function mergedRuns(runs: readonly UsableRun[]): readonly UsableRun[] {
  const known = new Map<string, { readonly run: UsableRun; logs: number[] }>();
  const parts = new Map<object, number>();
  const numberOf = (part: object): number => {
    const number = parts.get(part) ?? parts.size;
    parts.set(part, number);
    return number;
  };
  for (const run of runs) {
    const { work, configuration, cluster, model } = run;
    const layers = work.layers.map(({ part, count }) => `${count} × ${numberOf(part)}`);
    const key = JSON.stringify([model, layers, work.order, numberOf(work.first), configuration, clusterSize(cluster)]);
    const found = known.get(key) ?? { run, logs: [] };
    found.logs.push(Math.log(run.seconds));
    known.set(key, found);
  }
  return [...known.values()].map(({ run, logs }) => {
    // Sorted, since floating-point sums depend on the order.
    const sum = logs.sort((a, b) => a - b).reduce((total, log) => total + log, 0);
    return { ...run, seconds: Math.exp(sum / logs.length), times: logs.length };
  });
}

/** Why a run on other devices or with other links cannot calibrate a cluster; null if it can. */
function otherDevices({ network, devices, cluster: theirs }: MeasuredRow, cluster: Cluster): string | null {
  if (theirs.device.id !== cluster.device.id)
    return `ran on ${theirs.device.id}, and the cluster has ${cluster.device.id}`;
  if (devices > clusterSize(cluster)) return `ran on ${devices} devices, and the cluster has ${clusterSize(cluster)}`;
  if (devices <= Math.min(theirs.perNode, cluster.perNode)) return null;
  if (theirs.perNode !== cluster.perNode)
    return `ran on nodes of ${theirs.perNode} devices, and the cluster has nodes of ${cluster.perNode}`;
  if (network === null) return null;
  const rate = ({ levels }: Cluster) => (8 * (levels.at(-1)?.bandwidth ?? 0)) / 1e9;
  const [stated, own] = [rate(theirs), rate(cluster)];
  if (Math.abs(stated / own - 1) <= NETWORKS_ALIKE) return null;
  return `its nodes are linked by ${Math.round(stated)} Gbit/s a device, and the cluster's by ${Math.round(own)}`;
}

/** Networks whose rates differ by at most this fraction count as the same. */
const NETWORKS_ALIKE = 0.1;
