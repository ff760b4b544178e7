/**
 * @file Predicted time and memory of each method of sequence parallelism, over heads, positions and nodes.
 */
import { join } from 'node:path';
import { compile } from '../../src/api/compile.js';
import { generatedFile } from '../../src/api/models/generated.js';
import type { SpMethod } from '../../src/sharding-propagation/roles.js';

export interface PricedCase {
  readonly positions: number;
  readonly heads: number;
  readonly keyHeads: number;
  /** As `--cluster` has it, of eight devices. */
  readonly nodes: string;
  /** The fastest method, and the one that needs least memory. */
  readonly fastest: Exclude<SpMethod, 'auto'>;
  readonly least: Exclude<SpMethod, 'auto'>;
}

/** `seconds` and `bytes` are null where sp does not divide the heads. */
export interface PricedMethod {
  readonly method: Exclude<SpMethod, 'auto'>;
  readonly seconds: number | null;
  readonly bytes: number | null;
}

const SP = 8;

export const PRICED: readonly PricedCase[] = [
  { positions: 1024, heads: 8, keyHeads: 1, nodes: '8x1', fastest: 'gather', least: 'gather' },
  { positions: 16384, heads: 8, keyHeads: 8, nodes: '1x8', fastest: 'ulysses', least: 'ring' },
  { positions: 16384, heads: 8, keyHeads: 1, nodes: '1x8', fastest: 'ulysses', least: 'ring' },
  { positions: 16384, heads: 8, keyHeads: 8, nodes: '8x1', fastest: 'ulysses', least: 'ring' },
  { positions: 65536, heads: 8, keyHeads: 8, nodes: '8x1', fastest: 'ulysses', least: 'ring' },
  { positions: 65536, heads: 8, keyHeads: 1, nodes: '8x1', fastest: 'ulysses', least: 'ring' },
  { positions: 65536, heads: 4, keyHeads: 4, nodes: '1x8', fastest: 'ring', least: 'ring' },
];

/** Plans of a training step by gather, ulysses and ring, written below `folder`. */
export async function pricedMethods(
  { positions, heads, keyHeads, nodes }: PricedCase,
  folder: string,
): Promise<readonly PricedMethod[]> {
  const sizes = `layers=1,hidden=1024,heads=${heads},kv_heads=${keyHeads},seq=${positions},vocab=64,ffn=1024,batch=1`;
  const model = await generatedFile(`llama:${sizes}`);
  const priced: PricedMethod[] = [];
  for (const method of ['gather', 'ulysses', 'ring'] as const) {
    if (method === 'ulysses' && heads % SP !== 0) {
      priced.push({ method, seconds: null, bytes: null });
      continue;
    }
    const { plan } = await compile({
      ...{ model, output: join(folder, 'priced'), force: true, planOnly: true, spMethod: method },
      cluster: `${nodes}:a100-sxm-80`,
      degrees: { dp: 1, tp: 1, sp: SP },
      training: { loss: { kind: 'cross_entropy' }, optimizer: { kind: 'adamw', learningRate: 1e-3 } },
    });
    const { stepSeconds, peakBytes } = plan.predicted;
    priced.push({ method, seconds: stepSeconds, bytes: Math.max(...peakBytes) });
  }
  return priced;
}
