/**
 * @file What PyTorch's exporter records on values that it computed: parameters behind stored transposed matrices, values that are
 * made of no parameter, and the names of those that are one parameter moved.
 */
import test from 'ava';
import { importModel } from '../../../src/api/models/import.js';
import { importedFor, trainingForm } from '../../../src/api/models/training-form.js';
import { model, node, ramp, recordOf, saved, tensor, traced, value } from '../model-maker.js';

test('a table behind a norm and a stored transposed matrix is trained, as the relative positions of DeBERTa', async (t) => {
  const names = ['table', 'norm.weight', 'norm.bias', 'query.weight'];
  const parameter = { key: 'pkg.torch.export.graph_signature.InputSpec.kind', value: 'PARAMETER' };
  const file = await saved(
    model({
      node: [
        traced('MatMul', ['x', 'val_3'], 'q', 'query.weight'),
        traced('LayerNormalization', ['table', 'norm.weight', 'norm.bias'], 'n', 'table norm.weight norm.bias'),
        traced('MatMul', ['n', 'val_3'], 'p', 'query.weight'),
        node('Transpose', ['p'], ['turned'], { perm: [1, 0] }),
        node('MatMul', ['q', 'turned'], ['y']),
      ],
      initializer: [
        { ...ramp('table', [3, 4]), metadata_props: [parameter] },
        { ...ramp('norm.weight', [4]), metadata_props: [parameter] },
        { ...ramp('norm.bias', [4]), metadata_props: [parameter] },
        ramp('val_3', [4, 4]),
      ],
      input: [value('x', [2, 4])],
      output: [value('y', [2, 3])],
      metadata_props: [recordOf(names)],
    }),
  );
  const { trained } = trainingForm(await importModel(file, importedFor({})), {});
  t.deepEqual([...trained].sort(), [...names].sort());
});

test('what formulas make of a parameter alone is trained, as the position bias of Swin v2', async (t) => {
  const parameter = { key: 'pkg.torch.export.graph_signature.InputSpec.kind', value: 'PARAMETER' };
  const file = await saved(
    model({
      node: [
        node('Sigmoid', ['bias'], ['open']),
        node('Mul', ['open', 'scalar_tensor_default'], ['scaled']),
        node('Add', ['x', 'scaled'], ['y']),
      ],
      initializer: [{ ...ramp('bias', [4]), metadata_props: [parameter] }, ramp('scalar_tensor_default', [1])],
      input: [value('x', [2, 4])],
      output: [value('y', [2, 4])],
      metadata_props: [recordOf(['bias'])],
    }),
  );
  const { trained } = trainingForm(await importModel(file, importedFor({})), {});
  t.deepEqual(trained, ['bias']);
});

test('a folded value is a parameter only if the exporter lists one among what it was computed from', async (t) => {
  const from = (name: string, list: string) => ({
    ...value(name, [4]),
    metadata_props: [{ key: 'pkg.onnxscript.optimizer.folded_from', value: list }],
  });
  const file = await saved(
    model({
      node: [
        traced('MatMul', ['x', 'head.weight'], 'a', 'head.weight'),
        node(
          'Mul',
          ['a', 'slopes'],
          ['b'],
          {},
          { name: 'node_b', metadata_props: [record('%b : (args = (%a, %slopes))')] },
        ),
        node(
          'Add',
          ['b', 'rows'],
          ['y'],
          {},
          { name: 'node_y', metadata_props: [record('%y : (args = (%b, %rows))')] },
        ),
      ],
      initializer: [
        {
          ...ramp('head.weight', [4, 4]),
          metadata_props: [{ key: 'pkg.torch.export.graph_signature.InputSpec.kind', value: 'PARAMETER' }],
        },
        tensor('slopes', [4], [0.31, -0.7, 0.42, 0.9]),
        tensor('rows', [4], [0.2, 0.6, -0.4, 0.1]),
      ],
      value_info: [from('slopes', "['add_1', 'log']"), from('rows', "['positions.weight', 'unsqueeze']")],
      input: [value('x', [2, 4])],
      output: [value('y', [2, 4])],
      metadata_props: [recordOf(['head.weight', 'positions.weight'])],
    }),
  );
  const { trained } = trainingForm(await importModel(file, importedFor({})), {});
  t.deepEqual([...trained].sort(), ['head.weight', 'positions.weight']);
});

test('values that the exporter moved from one parameter have its name, as a matrix that the program turned', async (t) => {
  const from = (name: string, shape: readonly number[], list: string) => ({
    ...value(name, shape),
    metadata_props: [{ key: 'pkg.onnxscript.optimizer.folded_from', value: list }],
  });
  const read = (op: string, inputs: readonly string[], output: string) => {
    const [left, right] = inputs;
    const text = `%${output} : (args = (%${left}, %${right}))`;
    return node(op, inputs, [output], {}, { name: `node_${output}`, metadata_props: [record(text)] });
  };
  const file = await saved(
    model({
      node: [
        read('MatMul', ['x', 'permute'], 'a'),
        read('Add', ['a', 'view_3'], 'b'),
        read('Mul', ['b', 'exp'], 'scaled'),
        read('Mul', ['scaled', 'scale'], 'c'),
        node(
          'Expand',
          ['view_4', 'sizes'],
          ['sinks'],
          {},
          {
            name: 'node_sinks',
            metadata_props: [record('%sinks : (args = (%view_4, [2, 2]))')],
          },
        ),
        node('Concat', ['c', 'sinks'], ['y'], { axis: 1 }),
      ],
      initializer: [
        {
          ...ramp('scale', [4]),
          metadata_props: [{ key: 'pkg.torch.export.graph_signature.InputSpec.kind', value: 'PARAMETER' }],
        },
        ramp('permute', [4, 4]),
        tensor('view_3', [1, 4], [0.2, 0.6, -0.4, 0.1]),
        tensor('exp', [4], [0.31, 0.7, 0.42, 0.9]),
        tensor('view_4', [1, 2], [0.37, -0.2]),
        tensor('sizes', [2], [2, 2], 'int64'),
      ],
      value_info: [
        from('permute', [4, 4], "['fc.weight']"),
        from('view_3', [1, 4], "['fc.bias', 'val_4', 'unsqueeze']"),
        from('exp', [4], "['decay', 'neg']"),
        from('view_4', [1, 2], "['sinks.weight']"),
      ],
      input: [value('x', [2, 4])],
      output: [value('y', [2, 6])],
      metadata_props: [recordOf(['fc.weight', 'fc.bias', 'decay', 'scale', 'sinks.weight'])],
    }),
  );
  const { trained } = trainingForm(await importModel(file, importedFor({})), {});
  t.deepEqual([...trained].sort(), ['exp', 'fc.bias', 'fc.weight', 'scale', 'sinks.weight']);
});

function record(text: string): { readonly key: string; readonly value: string } {
  return { key: 'pkg.torch.onnx.fx_node', value: text };
}
