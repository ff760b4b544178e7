/**
 * @file The search over orders of the mesh's axes and the host's memory, against all of them on small clusters.
 */
import test from 'ava';
import { thinned } from '../../selection.js';
import { againstBruteForce, ORDERED_STEP } from './every-order.js';

const CASES = [
  ['2x2:a100-sxm-80', {}, [2.15e9, 2.2e9, 2.3e9, 2.35e9, 8e10]],
  ['2x4:a100-pcie-80', { sp: 2, recompute: 'none' }, [2.15e9, 2.2e9, 2.3e9]],
  ['4x2:h100-sxm-80', { recompute: 'full', zero: 1 }, [2.15e9, 2.2e9, 8e10]],
  [
    '2x2:a100-sxm-80',
    { generate: 'moe:layers=4,hidden=512,heads=8,kv_heads=8,ffn=512,seq=256,vocab=1024,experts=4' },
    [3e9],
  ],
] as const;

for (const [cluster, options, limits] of thinned(CASES, 2)) {
  test(
    `the search finds what brute force over all orders and offload finds: ${cluster} ` + `${JSON.stringify(options)}`,
    async (t) => {
      const taken = await againstBruteForce(t, { ...ORDERED_STEP, ...options, cluster }, limits);
      const offloads = taken.map((configuration) => configuration?.offload ?? 'none');
      t.log(offloads.join(' '));
    },
  );
}
