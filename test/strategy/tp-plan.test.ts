/**
 * @file A plan as a tp_plan: Megatron's columns and rows by module, and what the form cannot say.
 */
import test from 'ava';
import { importModel } from '../../src/api/index.js';
import { tpPlan } from '../../src/strategy/tp-plan.js';
import { planFor } from './planned.js';

async function tpPlanOf(model: string, dp: number, tp: number) {
  const { graph } = await importModel(`models/${model}.onnx`);
  const { placed } = await planFor(graph, { dp, tp });
  return tpPlan(placed);
}

test('a Llama has columns and rows by layer, and its scores are gathered', async (t) => {
  const { styles, notes } = await tpPlanOf('llama-tiny', 1, 2);
  t.deepEqual(styles, {
    lm_head: 'colwise_rep',
    'model.layers.*.mlp.down_proj': 'rowwise',
    'model.layers.*.mlp.gate_proj': 'colwise',
    'model.layers.*.mlp.up_proj': 'colwise',
    'model.layers.*.self_attn.k_proj': 'colwise',
    'model.layers.*.self_attn.o_proj': 'rowwise',
    'model.layers.*.self_attn.q_proj': 'colwise',
    'model.layers.*.self_attn.v_proj': 'colwise',
  });
  t.deepEqual(notes, []);
});

test('a fused projection, a shared table and other axes are named as what it cannot say', async (t) => {
  const { styles, notes } = await tpPlanOf('gpt-tiny', 2, 2);
  t.is(styles['h.*.mlp.c_fc'], 'colwise');
  t.is(styles['h.*.mlp.c_proj'], 'rowwise');
  t.is(styles['h.*.attn.c_attn'], undefined);
  t.is(styles['wte'], undefined);
  t.true(notes.some((note) => note.startsWith('h.0.attn.c_attn.weight: tp shards parts of its weight')));
  t.true(notes.some((note) => note.startsWith('wte: operators read its weight in different layouts')));
  t.true(notes.includes('dp 2: the format covers tp only'));
});
