/**
 * @file A measured run: converts a row of canonical columns (columns.ts) to model, configuration and cluster.
 */
import { type ExpertSizes, type LanguageModelSizes, LLAMA_STYLE } from '../../../models/language-sizes.js';
import { type Cluster, parseCluster } from '../../cost-model/cluster.js';
import type { DeviceSpec } from '../../cost-model/device.js';
import { findDevice } from '../../cost-model/find-device.js';
import { deviceLevels } from '../../cost-model/levels.js';
import type { Degrees, StepConfiguration } from '../../cost-model/step/configuration.js';
import { withoutUndefined } from '../../ir/without-undefined.js';
import { baseConfiguration } from '../simulate.js';
import { recordOfRow } from './columns.js';
import type { CsvRow } from './csv.js';

export interface MeasuredRow {
  /** Name of the model: cross-validation leaves out all runs of one model together. */
  readonly model: string;
  readonly sizes: LanguageModelSizes;
  readonly configuration: StepConfiguration;
  readonly cluster: Cluster;
  readonly devices: number;
  /** Network bandwidth of a device in Gbit/s; null if the row does not state it. */
  readonly network: number | null;
  /** Number of tokens beyond the next token that the model predicts. */
  readonly predictions: number;
  /** Measured seconds per step; null if the row has none, or if the run does not fit. */
  readonly seconds: number | null;
  /** Measured peak bytes per device. */
  readonly memoryBytes: number | null;
  /** Whether that device is one of the last stage; otherwise it is the fullest device. */
  readonly memoryOfLast: boolean;
  readonly fits: boolean;
}

/** The values of a row's fields, in the places of columns.ts; fields that are not required may be absent. */
interface StatedRun {
  readonly model: string;
  readonly device: string;
  readonly devices: number;
  readonly perNode?: number;
  readonly network?: number;
  readonly figures?: Partial<Pick<DeviceSpec, 'memoryBytes' | 'memoryBandwidth'> & DeviceSpec['scaleUp']>;
  readonly sizes: Partial<Omit<LanguageModelSizes, 'experts'>> & {
    readonly experts?: Omit<ExpertSizes, 'shared' | 'dense'> & Partial<ExpertSizes>;
  } & Pick<LanguageModelSizes, 'layers' | 'hidden' | 'heads' | 'feedForward' | 'vocabulary' | 'sequence'>;
  readonly configuration: Partial<Omit<StepConfiguration, 'degrees' | 'overlap'>> &
    Pick<StepConfiguration, 'microBatch' | 'globalBatch'> & {
      readonly degrees?: Partial<Degrees>;
      readonly overlap?: Partial<StepConfiguration['overlap']>;
    };
  readonly predictions?: number;
  readonly seconds?: number;
  readonly memoryBytes?: number;
  readonly memoryOfLast?: boolean;
  readonly fits?: boolean;
}

/** The run of a row, or the reason why there is none. */
export function measuredRow(row: CsvRow): MeasuredRow | string {
  const record = recordOfRow(row);
  if (typeof record === 'string') return record;
  const stated = record as unknown as StatedRun;
  const { model, devices, network, predictions = 0, seconds, memoryBytes, memoryOfLast = false, fits = true } = stated;
  const { tp = 1, pp = 1, sp = 1, ep = 1, dp = devices / (tp * pp * sp) } = stated.configuration.degrees ?? {};
  if (!Number.isInteger(dp) || tp * pp * sp * dp !== devices) return 'degrees do not multiply to the devices';
  const { experts, ...sizes } = stated.sizes;
  const { layers, hidden, heads } = sizes;
  if (pp > layers) return 'more stages than layers';
  if (sizes.headWidth === undefined && hidden % heads !== 0) return 'heads do not divide the hidden size';
  const cluster = clusterOf(stated);
  if (typeof cluster === 'string') return cluster;
  const { precision, software, attention, gradientBytes, overlap, ...asked } = stated.configuration;
  const { inference: _, ...base } = baseConfiguration(
    cluster,
    withoutUndefined({ precision, software, attention }),
    asked.globalBatch,
  );
  return {
    ...{ model, cluster, devices, network: network ?? null, predictions, memoryOfLast, fits },
    ...{ seconds: fits ? (seconds ?? null) : null, memoryBytes: memoryBytes ?? null },
    sizes: {
      ...{ keyHeads: heads, headWidth: hidden / heads, ...LLAMA_STYLE, ...sizes },
      ...(experts ? { experts: { shared: 0, dense: 0, ...experts } } : {}),
      ...{ batch: asked.microBatch, dropout: 0 },
    },
    configuration: {
      ...{ ...base, virtualStages: 1, tpSequence: tp > 1, zero: 0, recompute: 'none', ...asked },
      ...withoutUndefined({ gradientBytes }),
      degrees: { tp, pp, sp, dp, ep },
      overlap: { ...base.overlap, ...overlap },
    },
  };
}

/** The cluster of a run with its links, or the reason why its devices are unknown. */
function clusterOf({ device: id, devices, perNode, network, figures = {} }: StatedRun): Cluster | string {
  const known = findDevice(id);
  if (!known) return `device ${id} is not in the catalogue`;
  const { memoryBytes = known.memoryBytes, memoryBandwidth = known.memoryBandwidth, ...links } = figures;
  // For links of another topology the row states all figures.
  const scaleUp = links.topology ? (links as DeviceSpec['scaleUp']) : { ...known.scaleUp, ...links };
  const scaleOut = network === undefined ? known.scaleOut : { ...known.scaleOut, bandwidth: (network / 8) * 1e9 };
  const device: DeviceSpec = { ...known, memoryBytes, memoryBandwidth, scaleUp, scaleOut };
  const inNode = Math.min(perNode ?? scaleUp.domainSize, devices);
  const named = parseCluster(`${Math.ceil(devices / inNode)}x${inNode}:${id}`, undefined);
  return { ...named, device, levels: deviceLevels(device, named.nodes, named.perNode) };
}

/** Name of the sweep of a run: runs of one model on the same devices with the same batch. */
export function sweepOf({ model, sizes, devices, cluster, configuration }: MeasuredRow): string {
  return `${model}, ${sizes.sequence} tokens, ${devices} ${cluster.device.id}, batch ${configuration.globalBatch}`;
}
