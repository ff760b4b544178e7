/**
 * @file Operators that an exporter folded away and that training would need: BatchNormalization made part of a convolution,
 * Dropout made an Identity. Only evidence in the file is reported:
 *
 *     a module's running statistics in PyTorch's record of the exported program, and no initializer of that name
 *     kernel and bias of a convolution whose names are the exporter's own (onnx::Conv_193), beside parameters with modules' names
 *     Identity operators that are called dropout
 *     values that onnxscript computed from parameters (`exp` from ['logit_scale']), which are not in the file
 */
import type { OnnxModel, SourceNode } from '../onnx/model.js';
import { operatorFamily } from '../ops/index.js';
import { computedParameters, valuesIn } from '../parameters/recorded.js';

const RUNNING = /\.running_(mean|var)$/;
const COMPUTED = /^onnx::\w+_\d+$/;
const DROPOUT = /(^|[/._])dropout(_?\d+)?([/._]|$)/i;

/** One line for the user; null where there is no sign of folding. `nodes`: the file's, functions inlined. */
export function foldedAway(model: OnnxModel, nodes: readonly SourceNode[]): string | null {
  const { initializers } = model.graph;
  // Statistics that begin equal to other tensors are stored once, and the operator that reads them is there.
  const read = new Set(nodes.flatMap(({ op, traced = '' }) => (op === 'BatchNormalization' ? valuesIn(traced) : [])));
  const gone = model.recorded.flatMap(({ name, placeholder }) =>
    RUNNING.test(name) && !initializers.has(name) && !read.has(placeholder) ? [name] : [],
  );
  const modules = [...new Set(gone.map((name) => name.replace(RUNNING, '')))];
  const computed = modules.length > 0 ? [] : computedKernels(model, nodes);
  const identities = nodes.filter(({ op, domain, name }) => op === 'Identity' && domain === '' && DROPOUT.test(name));
  const values = computedParameters(model);
  const parts = [
    ...(modules.length > 0
      ? [
          `the file lacks the running statistics of ${counted(modules.length, 'module', 'modules')} that ` +
            `${modules.length === 1 ? 'was' : 'were'} exported (${some(modules)}): BatchNormalization was folded ` +
            'into other weights or removed',
        ]
      : []),
    ...(computed.length > 0
      ? [
          `kernel and bias of ${counted(computed.length, 'convolution', 'convolutions')} were computed by the ` +
            `exporter (${some(computed)}), for example by folding BatchNormalization`,
        ]
      : []),
    ...(identities.length > 0
      ? [
          `${counted(identities.length, 'Identity', 'Identities')} called dropout ` +
            `(${some(identities.map(({ name }) => name))}) ${identities.length === 1 ? 'has' : 'have'} no ratio`,
        ]
      : []),
    ...(values.length > 0
      ? [
          `the file has only values computed from ${counted(values.length, 'parameter', 'parameters')} of the module ` +
            `(${some(values)})`,
        ]
      : []),
  ];
  const remedy = gone.length + values.length > 0 ? ' (torch.onnx.export(…, optimize=False) keeps the parameters)' : '';
  return parts.length > 0 ? `${parts.join('; ')}; training starts from the values of the file${remedy}` : null;
}

/** Kernels with made-up names whose biases have such too, in a file that keeps modules' names. */
function computedKernels({ graph: { initializers } }: OnnxModel, nodes: readonly SourceNode[]): readonly string[] {
  const named = [...initializers.keys()].some((name) => /^[A-Za-z_]\w*(\.\w+)+$/.test(name));
  if (!named) return [];
  const kernels = nodes.flatMap(({ op, domain, inputs: [, kernel, bias] }) => {
    const computed = [kernel, bias].every((name) => name && COMPUTED.test(name) && initializers.has(name));
    return computed && kernel && operatorFamily({ op, domain }) === 'convolution' ? [kernel] : [];
  });
  return [...new Set(kernels)];
}

function counted(count: number, singular: string, plural: string): string {
  return count === 1 ? `one ${singular}` : `${count} ${plural}`;
}

function some(names: readonly string[]): string {
  return names.length > 2 ? `${names[0]}, …` : names.join(', ');
}
