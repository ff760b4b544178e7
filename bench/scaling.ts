/**
 * @file `node dist/bench/scaling.js`: import and planning of models that double in size. Time per operator stays constant
 * if nothing is quadratic; the last column is its growth over the last doubling.
 *
 *     llama    32, 64, 128, 256 layers
 *     chain    operators one after another, without layers
 *     fan      the same, and each reads the input as well
 */
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { GraphBuilder } from '../models/builder.js';
import { llama } from '../models/llama.js';
import { importModel } from '../src/api/models/import.js';
import { plan } from '../src/api/plan.js';
import type { Graph } from '../src/ir/graph.js';
import { writeOnnx } from '../src/ir/onnx/writer.js';

const SIZES = { batch: 8, sequence: 16, width: 64, heads: 8, keyHeads: 4, feedForward: 176, vocabulary: 128 };

const FAMILIES: Readonly<
  Record<string, { readonly sizes: readonly number[]; readonly build: (size: number) => Graph }>
> = {
  llama: { sizes: [32, 64, 128, 256], build: (layers) => llama('llama', { ...SIZES, layers }, 1) },
  chain: { sizes: [4000, 8000, 16_000, 32_000], build: (count) => chain(count, false) },
  fan: { sizes: [4000, 8000, 16_000, 32_000], build: (count) => chain(count, true) },
};

function chain(count: number, fan: boolean): Graph {
  const builder = new GraphBuilder('chain', 1);
  const input = builder.input('x', 'float32', [64, 64]);
  let last = input;
  for (let index = 0; index < count; index++) last = builder.operator('Add', [last, fan ? input : last]);
  builder.output('y', last);
  return builder.build();
}

const processor = (): number => {
  const { user, system } = process.cpuUsage();
  return (user + system) / 1e6;
};

const folder = mkdtempSync(join(tmpdir(), 'autopar-bench-'));
try {
  console.log('processor seconds (all threads), 8 devices');
  console.log('family     size  operators    import      plan   per operator    growth');
  for (const [name, { sizes, build }] of Object.entries(FAMILIES)) {
    let before: number | undefined;
    // The first run includes compiling the program's own code.
    for (const [run, size] of [sizes[0] ?? 1, ...sizes].entries()) {
      const file = join(folder, 'model.onnx');
      writeFileSync(file, writeOnnx(build(size)));
      const start = processor();
      const imported = await importModel(file);
      const read = processor();
      await plan(imported, { cluster: '1x8:h100-sxm-80' });
      const done = processor();
      if (run === 0) continue;
      const operators = imported.graph.nodes.length;
      const each = (done - start) / operators;
      console.log(
        name.padEnd(8) + String(size).padStart(7) + String(operators).padStart(11),
        `${(read - start).toFixed(2)} s`.padStart(9),
        `${(done - read).toFixed(2)} s`.padStart(9),
        `${(each * 1e6).toFixed(0)} µs`.padStart(14),
        (before === undefined ? '' : `${(each / before).toFixed(2)} ×`).padStart(9),
      );
      before = each;
    }
  }
} finally {
  rmSync(folder, { recursive: true, force: true });
}
