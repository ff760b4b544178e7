/**
 * @file The files of a case: a model and, per data set, its inputs and expected outputs, whatever the layout.
 */
import { existsSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { type DType, isDType } from '../../src/ir/dtype.js';
import { type ConstantTensor, elementCount } from '../../src/ir/graph.js';
import type { SourceGraph, SourceValue } from '../../src/ir/onnx/model.js';
import { readOnnx } from '../../src/ir/onnx/reader.js';
import { decodeModel, encodeModel } from '../../src/ir/onnx/schema.js';
import { readTensorProto } from '../../src/ir/onnx/tensor-file.js';
import { constant } from '../../src/ir/ops/constants.js';
import { asTensors, containersOf, readByType, withElements } from './elements.js';
import { type CaseReference, dataSets } from './find-cases.js';

export type Arrays = Readonly<Record<string, ConstantTensor>>;

export interface Tolerance {
  readonly rtol: number;
  readonly atol: number;
}

export interface DataSet {
  readonly inputs: Arrays;
  /** Expected outputs of the case; empty where only ONNX Runtime can compute them. */
  readonly outputs: Arrays;
}

export interface CaseFiles {
  readonly model: string;
  readonly sets: readonly DataSet[];
  readonly tolerance: Tolerance;
  /** Inputs and outputs that are not tensors and stand as their elements in `model`, which then is a copy. */
  readonly unpacked?: readonly string[];
}

/** ONNX's own backend tests compare so (docs/reference/conformance.md). */
const ONNX_TOLERANCE: Tolerance = { rtol: 1e-3, atol: 1e-7 };

/** Exported models are longer sums than single operators, and their references come from another framework. */
const MODEL_TOLERANCE: Tolerance = { rtol: 1e-3, atol: 1e-4 };

/**
 * Reads a case; a model with elements for sequences is written to `scratch`. Throws AutoparError for a model or a tensor that
 * autopar refuses to read, a Refusal for values that are not tensors and whose elements are not tensors.
 */
export function readCase(reference: CaseReference, scratch: string): Promise<CaseFiles> {
  return READERS[reference.layout](reference, scratch);
}

const READERS: Readonly<
  Record<CaseReference['layout'], (reference: CaseReference, scratch: string) => Promise<CaseFiles>>
> = {
  listed: readListed,
  onnx: readOnnxLayout,
  light: readLight,
  file: readFile,
};

interface Listed {
  readonly name: string;
  readonly dtype: string;
  readonly shape: readonly number[];
  readonly file: string;
}

interface Listing {
  readonly inputs: readonly Listed[];
  readonly outputs: readonly Listed[];
  readonly tolerance?: Partial<Tolerance>;
}

/** A listed case, read without looking at its model. */
export function readListing(folder: string): DataSet & Pick<CaseFiles, 'model' | 'tolerance'> {
  const listing = JSON.parse(readFileSync(join(folder, 'io.json'), 'utf8')) as Listing;
  const read = (listed: readonly Listed[]): Arrays =>
    Object.fromEntries(
      listed.map(({ name, dtype, shape, file }) => [
        name,
        { dtype: knownDtype(dtype, name), shape, data: new Uint8Array(readFileSync(join(folder, file))) },
      ]),
    );
  return {
    model: join(folder, 'model.onnx'),
    inputs: read(listing.inputs),
    outputs: read(listing.outputs),
    tolerance: { ...MODEL_TOLERANCE, ...listing.tolerance },
  };
}

async function readListed({ folder }: CaseReference): Promise<CaseFiles> {
  const { model, tolerance, ...set } = readListing(folder);
  return { model, tolerance, sets: [set] };
}

async function readOnnxLayout({ folder, model }: CaseReference, scratch: string): Promise<CaseFiles> {
  const { graph } = await readOnnx(model);
  // A string has no dtype either, but a shape.
  const isOpen = [...graph.inputs, ...graph.outputs].some(({ dtype, shape }) => dtype === null && shape === null);
  if (isOpen) return readWithElements(folder, model, scratch);
  const sets = dataSets(folder).map((set) => ({
    inputs: numbered(set, 'input', fedOf(graph), readTensor),
    outputs: numbered(set, 'output', graph.outputs, readTensor),
  }));
  return { model, sets, tolerance: ONNX_TOLERANCE };
}

/** A case with values that are not tensors. Every data set has as many elements as the first, or ONNX Runtime refuses it. */
async function readWithElements(folder: string, model: string, scratch: string): Promise<CaseFiles> {
  const proto = decodeModel(readFileSync(model));
  const given = new Set((proto.graph?.initializer ?? []).map(({ name }) => name));
  const fed = (proto.graph?.input ?? []).filter(({ name }) => !given.has(name));
  const sets = dataSets(folder).map((set) => ({
    inputs: numbered(set, 'input', fed, readByType),
    outputs: numbered(set, 'output', proto.graph?.output ?? [], readByType),
  }));
  const [first = { inputs: {}, outputs: {} }] = sets;
  const bytes = encodeModel(withElements(proto, first.inputs, first.outputs));
  const copy = join(scratch, 'elements.onnx');
  writeFileSync(copy, bytes);
  return {
    model: copy,
    sets: sets.map(({ inputs, outputs }) => ({ inputs: asTensors(inputs, false), outputs: asTensors(outputs, true) })),
    tolerance: ONNX_TOLERANCE,
    unpacked: containersOf(proto),
  };
}

/**
 * ONNX's runner feeds light models 0, 1/n, 2/n, …, for which their outputs are stored. A second data set of noise, whose
 * outputs ONNX Runtime computes, does not rise from pixel to pixel.
 */
async function readLight({ folder, name, model }: CaseReference): Promise<CaseFiles> {
  const { graph } = await readOnnx(model);
  const feeds = (values: (index: number, count: number) => number): Arrays =>
    Object.fromEntries(fedOf(graph).map((input) => [input.name, filled(input, values)]));
  return {
    model,
    sets: [
      {
        inputs: feeds((index, count) => index / count),
        outputs: numbered(folder, `${name}_output`, graph.outputs, readTensor),
      },
      { inputs: feeds((index) => Math.sin(index * 12.9898) * 0.5), outputs: {} },
    ],
    tolerance: ONNX_TOLERANCE,
  };
}

/** A model alone: noise, and what ONNX Runtime makes of it. Open dimensions are 2. */
async function readFile({ model }: CaseReference): Promise<CaseFiles> {
  const inputs = fedOf((await readOnnx(model)).graph).map(
    (input) => [input.name, filled(input, (index) => Math.sin(index * 12.9898), 2)] as const,
  );
  return { model, sets: [{ inputs: Object.fromEntries(inputs), outputs: {} }], tolerance: MODEL_TOLERANCE };
}

function fedOf({ inputs, initializers }: SourceGraph): readonly SourceValue[] {
  return inputs.filter(({ name }) => !initializers.has(name));
}

/** PREFIX_0.pb, PREFIX_1.pb, … are the values in their order; those without a file are left out. */
function numbered<V extends { readonly name?: string }, T>(
  folder: string,
  prefix: string,
  values: readonly V[],
  read: (bytes: Uint8Array, value: V, file: string) => T,
): Readonly<Record<string, T>> {
  return Object.fromEntries(
    values.flatMap((value, index) => {
      const file = join(folder, `${prefix}_${index}.pb`);
      return existsSync(file) ? [[value.name ?? '', read(readFileSync(file), value, file)]] : [];
    }),
  );
}

function readTensor(bytes: Uint8Array, _value: SourceValue, file: string): ConstantTensor {
  return readTensorProto(bytes, file);
}

function filled(input: SourceValue, values: (index: number, count: number) => number, open = 1): ConstantTensor {
  const shape = (input.shape ?? []).map((size) => (typeof size === 'number' ? size : open));
  const count = elementCount(shape);
  const numbers = Array.from({ length: count }, (_, index) => values(index, count));
  return constant(input.dtype ?? 'float32', numbers, shape);
}

function knownDtype(dtype: string, name: string): DType {
  if (!isDType(dtype)) throw new Error(`io.json gives ${name} the unknown type ${dtype}`);
  return dtype;
}
