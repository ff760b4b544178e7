/**
 * @file The form of cluster files as JSON Schema (docs/clusters.md). Quantities are numbers in base units or text with a unit,
 * which `describe-cluster.ts` reads.
 */
import { closedRecord } from '../ir/json-schema.js';
import { MOST_DEVICES } from '../sharding-propagation/mesh.js';
import { COLLECTIVE_KINDS, TOPOLOGIES, type Topology } from './levels.js';
import type { MeasuredLayer } from './measured-layers/layer-factors.js';
import { QUANTITY_RANGE, type QuantityKind } from './quantities.js';

export type Quantity = number | string;

export interface DeviceDescription {
  /** The catalogue's device that supplies all values left out here. */
  readonly like: string;
  readonly name?: string;
  readonly memory?: Quantity;
  readonly memoryBandwidth?: Quantity;
  /** The device's link to its node's host, and its share of that host. */
  readonly host?: HostDescription;
  readonly peak?: Readonly<Record<string, Quantity>>;
  /** Constants of the cost model (docs/cost-model.md), as `autopar profile` measures them. */
  readonly constants?: Readonly<Record<string, unknown>>;
}

export interface HostDescription {
  readonly bandwidth: Quantity;
  readonly memory: Quantity;
  readonly memoryBandwidth: Quantity;
}

export interface LevelDescription {
  readonly name: string;
  readonly size: number;
  readonly topology?: Topology;
  readonly dimensions?: number;
  readonly bandwidth?: Quantity;
  readonly latency?: Quantity;
  readonly cards?: number;
  readonly busBandwidth?: Readonly<Record<string, Quantity>>;
  readonly reducing?: Quantity;
  readonly fill?: Quantity;
}

export interface NodeDescription {
  readonly count: number;
  readonly device?: string | DeviceDescription;
  readonly speed?: number;
}

export interface ClusterDescription {
  readonly version: 1;
  readonly name?: string;
  readonly device: string | DeviceDescription;
  readonly levels: readonly LevelDescription[];
  readonly nodes?: readonly NodeDescription[];
  /** Seconds of layers measured in training runs, as `autopar calibrate` writes them (docs/clusters.md). */
  readonly measuredLayers?: readonly MeasuredLayer[];
}

/** The quantities of a device and of a level, with their kinds. */
export const DEVICE_QUANTITIES = { memory: 'bytes', memoryBandwidth: 'bytesPerSecond' } as const satisfies Readonly<
  Record<string, QuantityKind>
>;
export const LEVEL_QUANTITIES = {
  bandwidth: 'bytesPerSecond',
  latency: 'seconds',
  reducing: 'bytesPerSecond',
  fill: 'seconds',
} as const satisfies Readonly<Record<string, QuantityKind>>;

const quantity = { type: ['number', 'string'] };
const text = { type: 'string', minLength: 1 };
const count = { type: 'integer', minimum: 1, maximum: MOST_DEVICES };
const amount = { type: 'number', minimum: 0, maximum: QUANTITY_RANGE.maximum };
const positive = { type: 'number', ...QUANTITY_RANGE };

const PEAKS = ['fp32', 'tf32', 'bf16', 'fp16', 'fp8', 'fp4', 'int8'];

const quantities = (names: readonly string[]) =>
  closedRecord(Object.fromEntries(names.map((name) => [name, quantity])), []);

/** Text or a mapping: the required keys of a mapping do not apply to text. */
const device = {
  ...closedRecord(
    {
      like: text,
      name: text,
      memory: quantity,
      memoryBandwidth: quantity,
      host: closedRecord({ bandwidth: quantity, memory: quantity, memoryBandwidth: quantity }, [
        'bandwidth',
        'memory',
        'memoryBandwidth',
      ]),
      peak: quantities(PEAKS),
      constants: closedRecord(
        {
          matmulCeiling: positive,
          vectorCeiling: positive,
          halfDepth: amount,
          memory: closedRecord(
            {
              ceiling: positive,
              halfBytes: amount,
              // Beyond 1 fewer bytes would take longer than more of them.
              power: { ...positive, maximum: 1 },
              cacheBytes: amount,
              cacheGain: { ...amount, minimum: 1 },
            },
            ['ceiling', 'halfBytes', 'power'],
          ),
          packingBandwidth: positive,
          resultBandwidth: positive,
          launchSeconds: amount,
          segmentSeconds: amount,
          tensorSeconds: amount,
          collectiveSeconds: amount,
        },
        [],
      ),
    },
    ['like'],
  ),
  type: ['string', 'object'],
};

/** Layers that equations are solved for together, whenever the file is read. */
export const MOST_LAYERS = 500;

const measuredLayer = closedRecord(
  {
    software: { enum: ['megatron', 'megatron-core', 'eager', 'compiled'] },
    precision: { enum: ['fp32', 'bf16', 'fp16', 'fp8', 'fp4'] },
    attention: { enum: ['fused', 'portable', 'early', 'parts'] },
    tpSequence: { type: 'boolean' },
    ...{ tp: count, sp: count, ep: count },
    ...{ tokens: amount, products: amount, scores: amount, exchanged: amount },
    factor: { type: 'number', minimum: 0.01, maximum: 100 },
    runs: { type: 'integer', minimum: 1 },
  },
  [
    ...['software', 'precision', 'attention', 'tpSequence', 'tp', 'sp', 'ep'],
    ...['tokens', 'products', 'scores', 'exchanged', 'factor', 'runs'],
  ],
);

export const CLUSTER_SCHEMA = closedRecord(
  {
    version: { const: 1 },
    name: text,
    device,
    levels: {
      type: 'array',
      minItems: 1,
      maxItems: 8,
      items: closedRecord(
        {
          name: text,
          size: count,
          topology: { enum: TOPOLOGIES },
          dimensions: { type: 'integer', minimum: 1, maximum: 6 },
          bandwidth: quantity,
          latency: quantity,
          cards: count,
          busBandwidth: quantities(COLLECTIVE_KINDS),
          reducing: quantity,
          fill: quantity,
        },
        ['name', 'size'],
      ),
    },
    nodes: {
      type: 'array',
      minItems: 1,
      items: closedRecord({ count, device, speed: positive }, ['count']),
    },
    measuredLayers: { type: 'array', minItems: 1, maxItems: MOST_LAYERS, items: measuredLayer },
  },
  ['version', 'device', 'levels'],
);
