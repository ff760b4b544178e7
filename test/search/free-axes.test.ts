/**
 * @file `--axes free`: every plan that roles allow is allowed, so that the best does not cost more; and plans that they do not.
 */
import test from 'ava';
import { parseCluster } from '../../src/cost-model/cluster.js';
import { plan } from '../../src/search/plan.js';
import { slowTests } from '../selection.js';
import { convGraph, llamaGraph, mlpGraph, SMALL_LLAMA } from './small-graphs.js';

const CLUSTER = parseCluster('1x4:a100-sxm-80', undefined);
const GRAPHS = {
  mlp: mlpGraph(8, 64, 256),
  convolutions: convGraph(4),
  llama: llamaGraph({ ...SMALL_LLAMA, batch: 4, layers: 1 }),
};

for (const [name, graph] of Object.entries(GRAPHS)) {
  slowTests(test, name === 'llama')(`lifting the roles costs nothing: ${name}`, async (t) => {
    for (const degrees of [{ dp: 2, tp: 2 }, { dp: 4, tp: 1 }, {}]) {
      const options = { degrees, mode: 'dynamic_programming' } as const;
      const roles = await plan(graph, CLUSTER, options);
      const free = await plan(graph, CLUSTER, { ...options, axes: 'free' });
      t.true(free.costNanoseconds <= roles.costNanoseconds, JSON.stringify(degrees));
      t.is(free.boundNanoseconds, free.costNanoseconds);
    }
  });
}

test('tp lies on the batch where that is cheaper, which roles do not allow', async (t) => {
  const graph = mlpGraph(4096, 512, 2048);
  const degrees = { dp: 1, tp: 4 };
  const placed = async (axes: 'roles' | 'free') => {
    const { assignment, costNanoseconds } = await plan(graph, CLUSTER, { degrees, axes });
    const [first] = graph.nodes;
    return { factors: Object.keys(assignment.strategies.get(first?.group ?? '')?.axes ?? {}), costNanoseconds };
  };
  const [roles, free] = [await placed('roles'), await placed('free')];
  t.deepEqual(roles.factors, ['n']);
  t.deepEqual(free.factors, ['m']);
  t.true(free.costNanoseconds < roles.costNanoseconds);
});
