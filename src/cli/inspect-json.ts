/**
 * @file The output of `autopar inspect --json`.
 */
import type { Inspection } from '../api/index.js';
import { writtenModelJson } from './write-model.js';

export type InspectedParameter = Inspection['parameters']['parameters'][number];

/** The object of schema `autopar-inspect-v1`. */
export function inspectionJson(inspection: Inspection): Readonly<Record<string, unknown>> {
  const { parameters, buffers, constants, generated, decisions } = inspection.parameters;
  const trainable = parameters.filter((parameter) => parameter.trainable);
  const { path, bytes, ...file } = inspection.file;
  return {
    schema: 'autopar-inspect-v1',
    model: { name: inspection.name, fingerprint: inspection.fingerprint, dims: inspection.dims },
    file: { path, fileBytes: bytes, ...file },
    openDimensions: inspection.open,
    batch: inspection.batch,
    inputs: inspection.inputs.map(({ dimensions, ...tensor }) => ({
      ...tensor,
      dimensions: dimensions.map(({ size, role, operatorsByKind }) => ({ size, role, operatorsByKind })),
    })),
    outputs: inspection.outputs.map(({ dimensions, ...tensor }) => ({
      ...tensor,
      dimensions: dimensions.map(({ size, role, from }) => ({ size, role, from })),
    })),
    parameters: {
      count: parameters.length,
      elements: sum(parameters),
      weightBytes: parameters.reduce((total, parameter) => total + parameter.bytes, 0),
      trainableCount: trainable.length,
      trainableElements: sum(trainable),
      list: parameters.map(parameterJson),
      decisions,
      folded: inspection.folded,
      generated: generated.map(({ tensor, dtype, shape, elements, place }) => ({
        tensor,
        dtype,
        shape,
        elements,
        node: place.node,
        operand: place.operand,
        use: place.use,
      })),
    },
    buffers: buffers.map(parameterJson),
    constants: constants.map(parameterJson),
    operators: inspection.operators.map(({ bytes: moved, ...row }) => ({ ...row, movedBytes: moved })),
    layers: inspection.layers.map(({ bytes: moved, ...row }) => ({ ...row, movedBytes: moved })),
    units: inspection.units,
    fusedRegions: inspection.fusedRegions,
    blocks: inspection.blocks,
    replicated: inspection.replicated.map(({ bytes: moved, ...row }) => ({ ...row, movedBytes: moved })),
    totalFlops: inspection.totalFlops,
    totalMovedBytes: inspection.totalBytes,
    flopsPerByte: inspection.totalBytes > 0 ? inspection.totalFlops / inspection.totalBytes : 0,
    ...(inspection.training ? { training: inspection.training } : {}),
    notes: inspection.notes,
    ...writtenModelJson(inspection),
  };
}

function parameterJson(parameter: InspectedParameter): Readonly<Record<string, unknown>> {
  const { name, dtype, shape, elements, bytes, weights, present, role, trainable, why, places } = parameter;
  return {
    name,
    dtype,
    shape,
    elements,
    weightBytes: bytes,
    weights,
    present,
    role,
    trainable,
    why,
    places: places.map(({ node, op, operand, module, layer, transposed, weight }) => ({
      node,
      op,
      operand,
      module,
      layer,
      transposed,
      weight,
    })),
  };
}

function sum(parameters: readonly InspectedParameter[]): number {
  return parameters.reduce((total, { elements }) => total + elements, 0);
}
