/**
 * @file The checker of sharded graphs: corruptions of lowered training graphs (graph-corruptions.ts), a few of each kind, are
 * refused; and those that concern two stages. The slow suite tries more, of all shipped models.
 */
import test from 'ava';
import { checkSharded, checkStages, type Finding } from '../../src/partition/check.js';
import { checkOperator } from '../../src/partition/check-operator.js';
import { readsOf, resultsOf } from '../../src/partition/sharded-graph.js';
import { SHIPPED, type ShippedProgram } from '../program/shipped-programs.js';
import { EVERYTHING } from '../selection.js';
import { corruptionsOf, refused } from './graph-corruptions.js';

const SAMPLE = [
  'mlp, training, dp 2, tp 2, axes free',
  'mlp, training, dp 2, tp 2, parameter server',
  'cnn-tiny, training in micro-batches, sp 2',
  'llama-tiny, inference, dp 2, tp 2, axes roles',
  'llama-tiny, {"kind":"interleaved-1f1b","stages":2,"microBatches":2,"chunks":2,"tp":2}',
];
const MOST = 2;

for (const name of EVERYTHING ? SAMPLE : SAMPLE.slice(1, 4))
  test(`corruptions are refused: ${name}`, async (t) => {
    const { tried, passed } = refused((await shipped(name).lowered()).lowered, MOST);
    t.true(tried.size >= 10, [...tried.keys()].join('; '));
    t.deepEqual(passed, []);
  });

test('a tensor that is sent in one type and received in another is a finding', async (t) => {
  const { lowered } = await shipped('mlp, {"kind":"1f1b","stages":2,"microBatches":2,"dp":2,"tp":2}').lowered();
  t.deepEqual(checkStages(lowered), []);
  const [first, ...others] = lowered;
  const pipeline = first?.sharded.pipeline;
  const sent = pipeline?.sends[0];
  const type = first?.sharded.tensors.get(sent?.tensor ?? '');
  if (!first || !pipeline || !sent || !type) throw new Error('nothing is sent');
  const layout = JSON.stringify(type.layout);
  const [other = ''] = [...first.sharded.tensors].find(([, tensor]) => JSON.stringify(tensor.layout) !== layout) ?? [];
  const sends = pipeline.sends.map((one) => (one === sent ? { ...one, tensor: other } : one));
  const wrong = { ...first, sharded: { ...first.sharded, pipeline: { ...pipeline, sends } } };
  const findings = checkStages([wrong, ...others]);
  t.true(findings.some(({ node, problem }) => node === sent.name && /received differently/.test(problem)));
});

test('operators of one kind are checked once, and each that is wrong is found', async (t) => {
  const { lowered } = await shipped('llama-tiny, inference, dp 2, tp 2, axes roles').lowered();
  const [stage] = lowered;
  if (!stage) throw new Error('there is no stage');
  let wrong = 0;
  // Every thirtieth corruption: operators of both layers that differ only in names, one of which is changed.
  for (const [index, { kind, where, graph }] of [...corruptionsOf(stage.sharded)].entries()) {
    if (index % 30 !== 0) continue;
    const alone: Finding[] = [];
    for (const node of graph.nodes)
      if (node.kind === 'compute' && [...readsOf(node), ...resultsOf(node)].every((name) => graph.tensors.has(name)))
        checkOperator(graph, node, (problem) => alone.push({ node: node.name, problem }));
    const found = new Set(checkSharded(graph).map(({ node, problem }) => `${node}: ${problem}`));
    for (const { node, problem } of alone) t.true(found.has(`${node}: ${problem}`), `${kind}, ${where}: ${node}`);
    wrong += alone.length;
  }
  t.true(wrong > 20);
});

function shipped(name: string): ShippedProgram {
  const found = SHIPPED.find((one) => one.name === name);
  if (!found) throw new Error(`no program is named ${name}`);
  return found;
}
