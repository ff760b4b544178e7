/**
 * @file Costs of the bundled runtime around operators, counted by hand.
 */
import test from 'ava';
import { CPU_RANK, profileOf } from '../../src/cost-model/device.js';
import { runtimeSeconds } from '../../src/cost-model/runtime-price.js';
import { partition } from '../../src/partition/partition.js';
import { makeResharder } from '../../src/sharding-propagation/resharding.js';
import { megatron, mlp } from '../partition/mlp.js';

test('two segments and a collective: one call besides, and two results copied', (t) => {
  const assignment = megatron();
  const graph = partition(
    mlp(),
    assignment,
    makeResharder(assignment.mesh, () => 1),
  );
  const { segments, copies } = runtimeSeconds(graph, CPU_RANK);
  t.is(segments, 10e-6);
  // Shards of [4, 16] in float32, read and written at 10 GB/s.
  const copy = (2 * 4 * 4 * 16) / 1e10;
  t.true(Math.abs(copies - 2 * copy) < 1e-15);
  // State is swapped, which copies nothing.
  const state = [{ from: 'a', to: 'x' }];
  t.is(runtimeSeconds({ ...graph, state }, CPU_RANK).copies, copies);
});

test('measured: results at their own rate, and a price for each tensor besides one in and one out', (t) => {
  const assignment = megatron();
  const lowered = partition(
    mlp(),
    assignment,
    makeResharder(assignment.mesh, () => 1),
  );
  const graph = { ...lowered, outputs: [...lowered.outputs, { tensor: 'h', output: 'h' }] };
  const profile = { ...profileOf(CPU_RANK), resultBandwidth: 1e9, tensorSeconds: 1e-6 };
  const { segments, copies } = runtimeSeconds(graph, { ...CPU_RANK, profile });
  t.true(Math.abs(segments - 11e-6) < 1e-15, `${segments}`);
  t.true(Math.abs(copies - (3 * 4 * 4 * 16) / 1e9) < 1e-15, `${copies}`);
});
