/**
 * @file The JSON schema of compared.json (docs/reference/plan.md).
 */
import { LAYER_RECOMPUTE_KINDS } from '../../ir/autodiff/recompute-names.js';
import { listOf, record } from '../../ir/json-schema.js';

const text = { type: 'string' } as const;
const amount = { type: 'number', minimum: 0 } as const;
const positive = { type: 'integer', minimum: 1 } as const;
const flag = { type: 'boolean' } as const;
const orNull = (schema: object) => ({ anyOf: [schema, { type: 'null' }] });

const degrees = { type: 'object', additionalProperties: positive };

const settings = {
  schedule: text,
  virtualStages: positive,
  stageLayers: listOf(amount),
  zero: { enum: [0, 1, 2, 3] },
  recompute: { enum: LAYER_RECOMPUTE_KINDS },
  recomputedLayers: listOf(amount),
  offload: { enum: ['none', 'optimizer', 'activations', 'all'] },
};

/** Keys that reports read; the others are those of a step's configuration. */
const configuration = {
  type: 'object',
  properties: { ...settings, degrees, microBatch: positive, globalBatch: positive, tpSequence: flag, inference: flag },
  required: ['degrees', 'virtualStages', 'zero', 'recompute', 'microBatch', 'globalBatch', 'tpSequence'],
};

const priced = {
  configuration,
  stepSeconds: amount,
  priceLevel: { enum: ['estimate', 'simulated'] },
  peakBytes: amount,
  fullestStage: amount,
  hostBytes: amount,
  hostMemoryBytes: amount,
};
const host = ['hostBytes', 'hostMemoryBytes'];

const verdict = {
  oneOf: [
    record({ kind: { const: 'priced' }, degrees, ...priced, timesAsLong: amount, timesAsMuch: amount }, [
      ...host,
      'timesAsLong',
      'timesAsMuch',
    ]),
    record({ kind: { enum: ['slower', 'unseen'] }, degrees, atLeastSeconds: amount }),
    record({ kind: { const: 'too-large' }, degrees, ...priced }, host),
    record({ kind: { const: 'impossible' }, degrees, reason: text }),
  ],
};

const proposals = record(
  {
    objective: { enum: ['time', 'memory'] },
    combinations: amount,
    priced: amount,
    gap: { type: 'number' },
    with: listOf(text),
    timeLimited: { const: true },
    // JSON has no infinite cost.
    preferences: record({ prefer: text, headroom: amount, headroomCost: orNull(amount), near: amount }),
    first: record(priced, host),
    fastest: orNull(record({ ...priced, because: text }, host)),
    leavesHeadroom: flag,
    fewerDevices: orNull(record({ nodes: positive, perNode: positive, stepSeconds: amount })),
    verdicts: listOf(verdict),
  },
  ['timeLimited'],
);

const compared = record(
  {
    degrees,
    microBatches: amount,
    proposed: record(settings, ['schedule', 'stageLayers', 'recomputedLayers', 'offload']),
    axes: { const: 'free' },
    estimate: record({ stepSeconds: amount, peakBytes: amount }),
    stepSeconds: orNull(amount),
    peakBytes: orNull(amount),
    reason: orNull(text),
  },
  ['proposed', 'axes', 'estimate'],
);

const ranked = record({
  ...{ degrees, stepSeconds: amount, boundSeconds: amount, peakBytes: listOf(amount), reason: orNull(text) },
});

export const COMPARISON_SCHEMA = record({
  format: { const: 'autopar-compared' },
  version: { const: 1 },
  plan: { type: 'string', pattern: '^[0-9a-f]{64}$' },
  compared: orNull(listOf(compared)),
  proposals: orNull(proposals),
  top: listOf(ranked),
  rejected: listOf(record({ degrees, reason: text })),
});
