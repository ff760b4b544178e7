/**
 * @file Whole models to train: those of PyTorch's exporters and the shipped ones, each with a loss behind its output and fixed
 * inputs, so that autopar and PyTorch start from the same file and the same numbers.
 */
import { readdirSync } from 'node:fs';
import { join, resolve } from 'node:path';
import { randomInputs } from '../../src/api/execution/inputs.js';
import { type ImportedModel, importModel } from '../../src/api/models/import.js';
import type { Training } from '../../src/api/models/training.js';
import { importedFor, trainingForm } from '../../src/api/models/training-form.js';
import { isFloating } from '../../src/ir/dtype.js';
import { flattenRegions } from '../../src/ir/fused-regions/flatten-regions.js';
import { type ConstantTensor, type Graph, typeOf, type Weight } from '../../src/ir/graph.js';
import type { SourceGraph } from '../../src/ir/onnx/model.js';
import { readOnnx } from '../../src/ir/onnx/reader.js';
import { loadWeight } from '../../src/ir/onnx/tensors.js';
import { writeOnnx } from '../../src/ir/onnx/writer.js';
import { constant, numbersOf } from '../../src/ir/ops/constants.js';
import { dimsOf, sharedCases } from '../api/shared-models.js';
import { randomValues } from '../ir/ops/values.js';
import type { Arrays, TorchLoss } from './torch.js';

export interface TrainingCase {
  readonly name: string;
  readonly file: string;
  readonly dims: Readonly<Record<string, number>>;
  readonly imported: ImportedModel;
  readonly loss: Training['loss'];
  /** The same loss for PyTorch. */
  readonly torchLoss: TorchLoss;
  /** Inputs, and labels or targets where the loss takes some. */
  readonly arrays: Arrays;
  /** Trained matrices that are the file's transposed. */
  readonly turned: ReadonlySet<string>;
  /** Names of the file's initializers. */
  readonly stored: ReadonlySet<string>;
  /** Computed in half precision somewhere. */
  readonly half: boolean;
}

/** A model's file and inputs before it is read: suites name their tests by it. */
export interface CaseSource {
  readonly name: string;
  readonly file: string;
  readonly open: () => Promise<TrainingCase>;
}

const SHIPPED = resolve('models');

export function shippedSources(): readonly CaseSource[] {
  return readdirSync(SHIPPED)
    .filter((file) => file.endsWith('.onnx'))
    .map((base): CaseSource => {
      const file = join(SHIPPED, base);
      const open = () => openCase(base, file, {}, null);
      return { name: base, file, open };
    });
}

/** [] where the folder of shared models is absent. */
export function sharedSources(): readonly CaseSource[] {
  return sharedCases().map((item): CaseSource => {
    const open = async () => openCase(item.name, item.file, await dimsOf(item), item.inputs);
    return { name: item.name, file: item.file, open };
  });
}

/** Models of images and of classes per text, whose exporters call their logits something else. */
const CLASSIFIERS = /resnet|vit|cnn/;

async function openCase(
  name: string,
  file: string,
  dims: Readonly<Record<string, number>>,
  given: Arrays | null,
): Promise<TrainingCase> {
  const imported = await importModel(file, { dims, ...importedFor({ trainMode: 'as-exported' }) });
  const { graph } = imported;
  const output = graph.outputs.find((tensor) => isFloating(typeOf(graph, tensor).dtype)) ?? '';
  const { dtype, shape } = typeOf(graph, output);
  const inputs = given ?? randomInputs(graph, 1);
  const half = [...graph.tensors.values()].some((type) => type.dtype === 'float16');
  const { graph: source } = await readOnnx(file);
  const turned = await turnedWeights(source, imported);
  const stored = new Set(source.initializers.keys());
  const base = { name, file, dims, imported, turned, stored, half };
  if (shape.length === 0) {
    const loss = { kind: 'model-output', output } as const;
    return { ...base, loss, torchLoss: { kind: 'output', output }, arrays: inputs };
  }
  if (output === 'logits' || CLASSIFIERS.test(name)) {
    const classAxis = shape.length === 3 ? 2 : 1;
    const places = shape.filter((_, axis) => axis !== classAxis);
    const { data } = randomValues({ shape: places, dtype: 'int64', low: 0, high: shape[classAxis] ?? 1 }, 7);
    // One label in eight counts for nothing, as padding does.
    const labels = data.map((label, at) => (at % 8 === 5 ? -100 : Math.floor(label)));
    return {
      ...base,
      loss: { kind: 'cross_entropy', output },
      torchLoss: { kind: 'cross_entropy', output, labels: 'labels' },
      arrays: { ...inputs, labels: constant('int64', labels, places) },
    };
  }
  const { data } = randomValues({ shape, dtype: 'float32', low: -1, high: 1 }, 7);
  return {
    ...base,
    loss: { kind: 'mse', output },
    torchLoss: { kind: 'mse', output, labels: 'target' },
    arrays: { ...inputs, target: constant(dtype, data, shape) },
  };
}

/** A case as a step trains it. */
export interface PlacedCase {
  /** For PyTorch: the file, or, where it stores parameters otherwise than training has them, the graph that is trained. */
  readonly model: string | Uint8Array;
  readonly parameters: readonly string[];
  readonly turned: ReadonlySet<string>;
  readonly shapeOf: (name: string) => readonly number[];
}

/** Parameters by place (docs/training.md): weights that the file merged are split, a weight that it stores twice is one. */
export function placedCase({ file, imported, turned, stored }: TrainingCase): PlacedCase {
  const { graph, trained } = trainingForm(imported, { trainMode: 'as-exported' });
  const shapeOf = (name: string) => typeOf(graph, name).shape;
  const isOwn = graph === imported.graph && areOfFile(graph, trained, stored);
  const { model, turned: own } = isOwn ? { model: file, turned } : asWritten(graph);
  return { model, parameters: trained, turned: own, shapeOf };
}

/** For PyTorch, as import has it: the file where it has these weights under these names, else the imported graph. */
export function importedCase({ file, imported, turned, stored }: TrainingCase, wanted: readonly string[]) {
  return areOfFile(imported.graph, wanted, stored) ? { model: file, turned } : asWritten(imported.graph);
}

function areOfFile({ weights }: Graph, names: readonly string[], stored: ReadonlySet<string>): boolean {
  return names.every((name) => stored.has(name) && weights.has(name) && !weights.get(name)?.file);
}

function asWritten(graph: Graph): Pick<PlacedCase, 'model' | 'turned'> {
  return { model: writeOnnx(flattenRegions(graph)), turned: new Set() };
}

/**
 * Names of trained matrices that import holds the other way round than the file does (the weight of a Gemm with transB), found
 * by their values, since square ones have one shape both ways.
 */
async function turnedWeights(source: SourceGraph, { graph }: ImportedModel): Promise<ReadonlySet<string>> {
  const found = new Set<string>();
  for (const [name, weight] of graph.weights) {
    const original = source.initializers.get(name);
    if (!original || weight.shape.length !== 2) continue;
    const [own, theirs] = [await readValue(weight), await readValue(original)];
    if (!own || !theirs || (own.shape.join() === theirs.shape.join() && equal(own, theirs))) continue;
    if (equal(own, transposed(theirs))) found.add(name);
  }
  return found;
}

async function readValue({ dtype, shape, source }: Omit<Weight, 'role'>): Promise<ConstantTensor | null> {
  const data = await loadWeight(source);
  return data && { dtype, shape, data };
}

function equal(left: ConstantTensor, right: ConstantTensor): boolean {
  return left.shape.join() === right.shape.join() && Buffer.compare(left.data, right.data) === 0;
}

export function transposed(tensor: ConstantTensor): ConstantTensor {
  const [rows = 1, columns = 1] = tensor.shape;
  const values = numbersOf(tensor);
  const turned = values.map((_, at) => values[(at % rows) * columns + Math.floor(at / rows)] ?? Number.NaN);
  return constant(tensor.dtype, turned, [columns, rows]);
}
