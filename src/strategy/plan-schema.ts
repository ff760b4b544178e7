/**
 * @file The JSON schema of plan.json, version 2 (docs/reference/plan.md). Nothing that it does not name is accepted: a
 * misspelt key is an error, not a default.
 */

import { OUTER_MEMORIES } from '../ir/graph.js';
import { listOf, mapOf, record } from '../ir/json-schema.js';
import { OFFLOAD_PARTS } from '../partition/offload-parts.js';
import { SCHEDULE_KINDS } from '../schedule/schedule.js';
import { AXIS_ORDER, MOST_DEVICES, MOST_STAGES } from '../sharding-propagation/mesh.js';
import { EXPERTS, SP_METHODS, SP_ORDERS } from '../sharding-propagation/roles.js';
import { PRICE_LEVELS } from './plan.js';

const text = { type: 'string' } as const;
const count = { type: 'integer', minimum: 0, maximum: Number.MAX_SAFE_INTEGER } as const;
const positive = { ...count, minimum: 1 } as const;
/** A number of devices, or a factor of it. */
const degree = { ...positive, maximum: MOST_DEVICES } as const;
const amount = { type: 'number', minimum: 0 } as const;
const texts = { type: 'array', items: text } as const;

const outside = record({ peakBytes: count, storedBytes: count, loadedBytes: count });

const optimizer = record(
  {
    kind: { enum: ['sgd', 'adam', 'adamw', 'lamb'] },
    learningRate: amount,
    momentum: amount,
    nesterov: { type: 'boolean' },
    betas: { ...listOf(amount), minItems: 2, maxItems: 2 },
    epsilon: amount,
    weightDecay: amount,
    clipNorm: amount,
    schedule: record(
      { warmup: count, shape: { enum: ['constant', 'linear', 'cosine'] }, total: count, floor: amount },
      ['warmup', 'shape', 'total', 'floor'],
    ),
  },
  ['momentum', 'nesterov', 'betas', 'epsilon', 'weightDecay', 'clipNorm', 'schedule'],
);

const reduction = {
  oneOf: [record({ kind: { enum: ['none', 'all-reduce'] } }), record({ kind: { const: 'scatter' }, factor: text })],
};

const operator = record(
  {
    stage: count,
    chunk: positive,
    strategy: mapOf(texts),
    pieces: mapOf(listOf(positive)),
    partial: record({ set: count, axes: texts }),
    reduction,
    recompute: { type: 'boolean' },
    place: { enum: ['device', 'host'] },
  },
  ['chunk', 'pieces', 'partial', 'reduction', 'place'],
);

const mesh = {
  ...listOf(record({ axis: { enum: AXIS_ORDER }, size: degree })),
  maxItems: AXIS_ORDER.length,
};

/** The mesh of a stage: `ep` behind its axes states on how many of their ranks experts are. */
const stageMesh = {
  ...listOf(record({ axis: { enum: [...AXIS_ORDER, EXPERTS] }, size: degree })),
  maxItems: AXIS_ORDER.length + 1,
};

export const PLAN_SCHEMA = record(
  {
    format: { const: 'autopar-plan' },
    version: { const: 2 },
    model: record({
      name: text,
      fingerprint: { type: 'string', pattern: '^[0-9a-f]{64}$' },
      dims: mapOf(count),
      globalBatch: { type: ['integer', 'null'], minimum: 1 },
    }),
    passes: listOf(record({ name: text, options: mapOf({ type: ['string', 'number', 'boolean'] }) }, ['options'])),
    cluster: record({ nodes: degree, perNode: degree, device: text, description: { type: 'object' } }, ['description']),
    mesh,
    meshes: { ...listOf(stageMesh), minItems: 2, maxItems: MOST_STAGES },
    degrees: record({ dp: degree, tp: degree, pp: degree, sp: degree, ep: degree }),
    stages: {
      ...listOf(record({ operators: count, devices: degree })),
      minItems: 1,
      maxItems: MOST_STAGES,
    },
    layerClasses: listOf(
      record(
        {
          name: text,
          instances: { ...texts, minItems: 1 },
          operators: count,
          stages: listOf(count),
          chunks: listOf(count),
          recompute: listOf({ type: 'boolean' }),
        },
        ['operators', 'stages', 'chunks', 'recompute'],
      ),
    ),
    operators: mapOf(operator),
    tensors: mapOf(text),
    redistributions: mapOf(listOf(record({ readers: texts, layout: text, steps: texts }))),
    training: {
      anyOf: [
        { type: 'null' },
        record(
          {
            loss: record(
              {
                kind: text,
                output: text,
                labels: record({ input: text, classes: positive, ignoreIndex: { type: ['integer', 'null'] } }),
                labelSmoothing: amount,
                moeBalance: amount,
              },
              ['output', 'labels', 'labelSmoothing', 'moeBalance'],
            ),
            optimizer,
            trained: count,
            precision: text,
            lossScale: { anyOf: [amount, { const: 'dynamic' }] },
            gradientReduction: { const: 'sum' },
            lossAlone: { const: true },
          },
          ['precision', 'lossScale', 'gradientReduction', 'lossAlone'],
        ),
      ],
    },
    schedule: record(
      {
        kind: { enum: ['single', ...SCHEDULE_KINDS] },
        microBatches: positive,
        interleave: { const: 2 },
        microBatch: positive,
        batch: positive,
        virtualStages: positive,
        bucketBytes: positive,
        bucketMembers: positive,
        recompute: record({ from: { const: 'stage' }, exceptLast: { const: true }, gathers: { const: true } }, [
          ...(['from', 'exceptLast', 'gathers'] as const),
        ]),
      },
      ['interleave', 'microBatch', 'batch', 'virtualStages', 'bucketBytes', 'bucketMembers', 'recompute'],
    ),
    predicted: record(
      {
        stepSeconds: amount,
        priceLevel: { enum: PRICE_LEVELS },
        precision: text,
        peakBytes: listOf(count),
        parts: mapOf(amount),
        hiddenSeconds: amount,
        flopsPerRank: amount,
        flopsTotal: amount,
        bytesCommunicated: amount,
        receivedBytes: listOf(amount),
        outside: listOf(record({ host: outside, disk: outside })),
      },
      ['outside', 'precision', 'hiddenSeconds', 'priceLevel', 'receivedBytes'],
    ),
    search: record(
      { mode: text, costSeconds: amount, boundSeconds: amount, gap: amount, timeLimited: { const: true } },
      ['timeLimited'],
    ),
    pins: texts,
    requested: mapOf({ type: ['string', 'number', 'boolean'] }),
    places: record(Object.fromEntries(OFFLOAD_PARTS.map((part) => [part, { enum: OUTER_MEMORIES }])), OFFLOAD_PARTS),
    server: { ...listOf(text), minItems: 1 },
    sequence: record(
      {
        method: { enum: SP_METHODS },
        attentions: record({ gather: count, ulysses: count, ring: count }, ['gather', 'ulysses', 'ring']),
        order: { enum: SP_ORDERS },
        positions: count,
        why: text,
      },
      ['attentions', 'why'],
    ),
    allToAll: { const: false },
  },
  ['allToAll', 'meshes', 'places', 'requested', 'sequence', 'server'],
);
