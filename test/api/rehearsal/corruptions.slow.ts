/**
 * @file Corruptions of plans for clusters, in plan.json, in the lowered plan, in its reduced form and in that one's program, fail
 * their rehearsals.
 */
import test from 'ava';
import { thinned } from '../../selection.js';
import { formsOf, triedEdits, triedProgram, triedStages } from './corrupted-plans.js';
import { type Asked, planned, TRAINING } from './planned.js';

const CLUSTER = '8x8:h100-sxm-80';
const STEP = { globalBatch: 64, cluster: CLUSTER, training: { ...TRAINING, microBatches: 8 } };

interface Corrupted extends Asked {
  /** How many of each kind are tried. */
  readonly most: number;
}

const PLANS: Readonly<Record<string, Corrupted>> = {
  'mlp, dp 4 · tp 4 · pp 4': {
    ...STEP,
    family: 'mlp:layers=4,hidden=64',
    degrees: { dp: 4, tp: 4, pp: 4 },
    training: { ...STEP.training, loss: { kind: 'mse' } },
    most: 1,
  },
  'llama, dp 2 · sp 2 · tp 4 · pp 4': {
    ...STEP,
    family: 'llama:layers=4,hidden=64,heads=4,kv_heads=4,ffn=64,vocab=100,seq=16',
    degrees: { dp: 2, sp: 2, tp: 4, pp: 4 },
    most: 1,
  },
  'moe, dp 4 · sp 2 · tp 2 · pp 4, ep 4': {
    ...STEP,
    family: 'moe:layers=4,hidden=64,heads=4,kv_heads=4,ffn=64,experts=8,vocab=100,seq=16',
    degrees: { dp: 4, sp: 2, tp: 2, pp: 4, ep: 4 },
    most: 1,
  },
};

for (const [name, { most, ...asked }] of thinned(Object.entries(PLANS), 2))
  test.serial(`no corruption of a plan for 64 devices passes: ${name}`, async (t) => {
    const directory = await planned(t, asked);
    const { plan, lowered, program } = await formsOf(directory);
    const tried = {
      'plan.json': await triedEdits(directory, most),
      'the lowered plan': triedStages(plan, most),
      'the lowered rehearsal': triedStages(lowered, most),
      'its program': triedProgram(program, most),
    };
    for (const [form, { count, passed }] of Object.entries(tried)) {
      t.log(`${form}: ${count} corruptions`);
      t.true(count > 20, `${form}: ${count}`);
      t.deepEqual(passed, [], form);
    }
  });
