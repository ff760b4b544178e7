/**
 * @file Operators of a rehearsal and their counterparts in the plan's model.
 */
import test from 'ava';
import { GraphBuilder } from '../../../models/builder.js';
import { counterparts } from '../../../src/api/rehearsal/counterparts.js';

test('every operator of a model is its own counterpart, where operands are made by operators of its type as well', (t) => {
  const builder = new GraphBuilder('products', 21);
  const [a = '', b = ''] = ['a', 'b'].map((name) => builder.input(name, 'float32', [4, 8]));
  const product = (...inputs: readonly string[]) => builder.operator('Mul', inputs);
  const [first, second] = [product(a, b), product(b, b)];
  builder.output('y', product(product(first, first), product(first, second)));
  const graph = builder.build();
  const names = graph.nodes.map(({ name }) => name);
  t.deepEqual(
    [...counterparts(graph, graph).nodeOf],
    names.map((name) => [name, name]),
  );
});
