/**
 * @file Pins of single tensors and operators that follow from a configuration: vocab_emb_dp for the word embedding,
 * dataset_strategy for the inputs.
 */
import { AutoparError } from '../../ir/error.js';
import { type Graph, typeOf } from '../../ir/graph.js';
import { tensorDemands } from '../../sharding-propagation/annotations/demands.js';
import type { Mesh } from '../../sharding-propagation/mesh.js';
import type { OperatorPin, Pin, PinSource } from '../../sharding-propagation/pin.js';
import { axesTaking, dataAxes, weightAxis } from '../../sharding-propagation/roles.js';
import { dataInputs } from '../execution/inputs.js';
import { keepsTableWhole } from './config-options.js';
import { pinsDegrees } from './config-rules.js';
import type { ConfigKey, ParallelConfig } from './parallel-config.js';
import { wordEmbedding } from './word-embedding.js';

/**
 * The pins that follow from a configuration on a mesh.
 * @throws AutoparError (input) `pin-does-not-fit` where dataset_strategy does not fit the inputs, `config-rule` where it is
 * for another number of them
 */
export function pinsOfConfig(config: ParallelConfig, graph: Graph, mesh: Mesh): readonly Pin[] {
  if (!config.useParallel) return [];
  return [...embeddingPins(config, graph, mesh), ...inputPins(config, graph, mesh)];
}

function embeddingPins(config: ParallelConfig, graph: Graph, mesh: Mesh): readonly Pin[] {
  const tp = weightAxis(mesh)?.subAxes.map(({ name }) => name) ?? [];
  const embedding =
    config.given.has('vocabEmbDp') && pinsDegrees(config) && tp.length > 0 ? wordEmbedding(graph) : null;
  if (!embedding) return [];
  const whole = keepsTableWhole(config);
  const source = sourceOf(config, 'vocabEmbDp', `vocab_emb_dp: ${whole ? 'True' : 'False'}`);
  const pin = { kind: 'operator', node: embedding.node.name, source } as const;
  const asked: OperatorPin = whole
    ? { ...pin, without: tp }
    : { ...pin, axes: { [embedding.rows]: tp }, reduced: true };
  return [asked];
}

function inputPins(config: ParallelConfig, graph: Graph, mesh: Mesh): readonly Pin[] {
  const { datasetStrategy, fullBatch, file, given } = config;
  if (fullBatch || datasetStrategy === 'full_batch') return [];
  if (datasetStrategy === 'data_parallel')
    return batchPins(graph, mesh, sourceOf(config, 'datasetStrategy', 'dataset_strategy: data_parallel'));
  if (datasetStrategy === null)
    return given.has('fullBatch') ? batchPins(graph, mesh, sourceOf(config, 'fullBatch', 'full_batch: False')) : [];
  const source = sourceOf(config, 'datasetStrategy', 'dataset_strategy');
  const inputs = dataInputs(graph);
  if (datasetStrategy.length !== inputs.length) {
    const line = given.get('datasetStrategy');
    throw new AutoparError(
      'config-rule',
      'input',
      `dataset_strategy has ${datasetStrategy.length} entries, the model has ${inputs.length} inputs ` +
        `(${inputs.join(', ')})`,
      { ...(file === null ? {} : { file }), ...(typeof line === 'number' ? { line } : {}) },
      'give one list of split counts per input, in the model’s order',
    );
  }
  return inputs.flatMap((tensor, index): readonly Pin[] => {
    const split = datasetStrategy[index] ?? [];
    const subject = { says: `input ${tensor}`, shape: typeOf(graph, tensor).shape };
    const [demand] = tensorDemands({ split }, subject, mesh, source);
    return demand ? [{ kind: 'tensor', tensor, source, demand }] : [];
  });
}

/**
 * Inputs are sharded over dp along the batch: each rank is fed its own samples. If sequences are sharded too, there are no
 * pins: the plan chooses the input layouts that attention needs.
 */
function batchPins(graph: Graph, mesh: Mesh, source: PinSource): readonly Pin[] {
  const ranks = dataAxes(mesh).reduce((product, { size }) => product * size, 1);
  if (ranks === 1 || axesTaking(mesh, 'sequence').some(({ size }) => size > 1)) return [];
  const inputs = new Set(dataInputs(graph));
  return graph.batch.flatMap(({ input, axis }): readonly Pin[] => {
    const { shape } = typeOf(graph, input);
    if (!inputs.has(input) || (shape[axis] ?? 1) % ranks !== 0) return [];
    const counts = shape.map((_, dimension) => (dimension === axis ? ranks : 1));
    return [{ kind: 'tensor', tensor: input, source, demand: { kind: 'split', counts } }];
  });
}

function sourceOf({ file, given }: ParallelConfig, key: ConfigKey, text: string): PinSource {
  return { file, line: given.get(key) ?? null, text, priority: 0, why: null };
}
