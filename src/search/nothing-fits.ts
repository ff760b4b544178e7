/**
 * @file The error where no plan fits the memory: what each combination of degrees needs, and what would help.
 */
import { type Cluster, clusterSize } from '../cost-model/cluster.js';
import { clonedOperators } from '../ir/autodiff/recompute.js';
import { AutoparError } from '../ir/error.js';
import { type Graph, isBackward } from '../ir/graph.js';
import type { DegreeChoice, DegreesRuling } from './choose-degrees.js';
import type { MeshDegrees } from './degrees.js';
import { bytesWritten, devicesWritten } from './figures.js';

export type RejectedDegrees = DegreesRuling & { readonly degrees: MeshDegrees };

/** No plan fits the memory; with what each combination of degrees needs, and the least of it. */
export class NothingFits extends AutoparError {
  constructor(
    message: string,
    hint: string,
    readonly figures: {
      readonly rejected: readonly RejectedDegrees[];
      readonly leastBytes: number;
      readonly limitBytes: number;
      /** Whether `leastBytes` is a bound on all plans of these degrees, none of which was searched. */
      readonly isBound: boolean;
    },
  ) {
    super('nothing-fits', 'noPlan', message, {}, hint);
  }
}

/** The error where the plans that were searched are too large. */
export function nothingFits(
  graph: Graph,
  cluster: Cluster,
  rejected: readonly RejectedDegrees[],
  { leastBytes }: Pick<DegreeChoice, 'leastBytes'>,
  limit: number,
  isTimeLimited: boolean,
  remedies: readonly (string | null)[],
): NothingFits {
  const devices = clusterSize(cluster);
  const reasons = rejected.map(({ degrees, reason }) => `${degreesText(degrees)}: ${reason}`).join('; ');
  const enough = devices * 2 ** Math.ceil(Math.log2(Math.max(2, leastBytes / Math.max(1, limit))));
  const isTraining = graph.nodes.some(({ phase }) => isBackward(phase));
  const hints = [
    ...(isTimeLimited ? ['a longer --time-limit'] : []),
    `devices with more memory (--cluster; --memory ${bytesWritten(leastBytes * 1.01).replace(' ', '')} would do)`,
    `more of them (about ${enough}, if everything on them can be sharded)`,
    ...(isTraining ? ['smaller micro-batches (--micro-batch)'] : []),
    ...(isTraining && clonedOperators(graph).size === 0 ? ['--recompute full'] : []),
    'or other degrees (--dp, --tp)',
  ];
  return new NothingFits(
    `no combination of degrees for ${devicesWritten(devices)} is possible: ${reasons}`,
    [...remedies.filter((remedy) => remedy !== null), `use ${hints.join(', ')}`].join('; else '),
    { rejected, leastBytes, limitBytes: limit, isBound: false },
  );
}

/** The error where no plan can fit, which is known before one is searched. */
export function nothingCanFit(
  cluster: Cluster,
  rejected: readonly RejectedDegrees[],
  leastBytes: number,
  limit: number,
): NothingFits {
  const [least, allowed] = [leastBytes, limit].map(bytesWritten);
  return new NothingFits(
    `each of ${devicesWritten(clusterSize(cluster))} needs at least ${least} of ${allowed}, however the model is sharded`,
    'use devices with more memory, or more of them (--cluster)',
    { rejected, leastBytes, limitBytes: limit, isBound: true },
  );
}

/** `dp 2 tp 4`, with sp and ep where they are given. */
function degreesText({ dp, sp, tp, ep }: MeshDegrees): string {
  return [`dp ${dp}`, ...(sp ? [`sp ${sp}`] : []), `tp ${tp}`, ...(ep ? [`ep ${ep}`] : [])].join(' ');
}
