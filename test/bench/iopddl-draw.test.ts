/**
 * @file Drawn instances: they have solutions, changes keep what they must, and HiGHS alone, on a program written down here from
 * the instance's numbers, finds the optimum that the solver proves.
 */
import test from 'ava';
import { CHANGES, FROM_SCRATCH, leastPeak } from '../../bench/contest/draw.js';
import { evaluate } from '../../bench/contest/evaluate.js';
import { type ContestInstance, FORBIDDEN, problemOf } from '../../bench/contest/instance.js';
import { boundedSearch } from '../../src/solver/bounds/bounded-search.js';
import { loadSolver } from '../../src/solver/bounds/integer-solvers.js';
import type { Answer } from '../../src/solver/problem.js';
import { programOf } from './contest-program.js';

const highs = await loadSolver('highs');

function solved(instance: ContestInstance, work = 3e7): Answer {
  return boundedSearch(problemOf(instance), { work }, highs);
}

function drawn(kind: string, seed: number): ContestInstance {
  return (FROM_SCRATCH[kind] as (seed: number) => ContestInstance)(seed);
}

function changed(kind: string, instance: ContestInstance): ContestInstance {
  return (CHANGES[kind] as (instance: ContestInstance, seed: number) => ContestInstance)(instance, 3);
}

for (const kind of ['no-nodes', 'one-node', 'small-tight', 'small-forbidden'] as const) {
  test(`${kind}: the solver's optimum is HiGHS's, and the evaluator's`, (t) => {
    const instance = drawn(kind, 2);
    const answer = solved(instance);
    t.is(answer.bound, answer.cost);
    t.deepEqual(evaluate(instance, answer.states ?? []).fault, null);
    t.is(evaluate(instance, answer.states ?? []).cost, BigInt(answer.cost));
    if (instance.costs.length === 0) return;
    const alone = highs.solve(programOf(instance), { seconds: 60, nodes: 1e6, iterations: Infinity });
    t.true(alone.isOptimal);
    t.true(Math.abs(alone.bound - answer.cost) < 0.5, `${alone.bound}, not ${answer.cost}`);
  });
}

test('numbers of nodes and strategies mean nothing; two copies in one memory cost no less than one twice', (t) => {
  const instance = drawn('small-tight', 5);
  const { cost, bound } = solved(instance);
  t.is(cost, bound);
  const other = solved(changed('renumbered', instance));
  t.is(other.cost, cost);
  t.is(other.bound, cost);
  t.true(solved(changed('loose-4', instance)).cost <= cost);
  const twice = changed('twice', instance);
  t.is(twice.edges.length, 2 * instance.edges.length);
  t.true(solved({ ...twice, limit: 2 ** 50 }).cost === 2 * solved({ ...instance, limit: 2 ** 50 }).cost);
});

test('changes give instances of the form: tables as large as their ends, whole costs, a limit as said', (t) => {
  const instance = drawn('small-forbidden', 1);
  for (const kind of Object.keys(CHANGES)) {
    const { costs, usages, intervals, edges, edgeCosts, limit } = changed(kind, instance);
    t.deepEqual([usages.length, intervals.length, edgeCosts.length], [costs.length, costs.length, edges.length], kind);
    edges.forEach(([i, j], edge) => {
      t.is(edgeCosts[edge]?.length, (costs[i]?.length ?? 0) * (costs[j]?.length ?? 0), kind);
    });
    t.true(
      [...costs, ...edgeCosts].flat().every((cost) => cost >= FORBIDDEN || Number.isSafeInteger(cost)),
      kind,
    );
    if (kind.startsWith('tight')) t.is(limit, Math.floor(Number(kind.slice(6)) * leastPeak(instance)));
  }
});
