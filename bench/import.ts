/**
 * @file `npm run bench:import -- FILE…`: time and memory of importing models; the shipped ones where no file is named.
 */
import { readdirSync, statSync } from 'node:fs';
import { basename, dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { importModel } from '../src/api/import.js';
import { AutoparError } from '../src/ir/error.js';

const models = join(dirname(dirname(dirname(fileURLToPath(import.meta.url)))), 'models');
const named = process.argv.slice(2);
const files =
  named.length > 0
    ? named
    : readdirSync(models).flatMap((file) => (file.endsWith('.onnx') ? [join(models, file)] : []));

let refused = 0;
for (const file of files) {
  const start = performance.now();
  try {
    const { graph, notes } = await importModel(file, {});
    const seconds = (performance.now() - start) / 1000;
    const size = (statSync(file).size / 1e6).toFixed(2);
    const memory = (process.memoryUsage().rss / 1e6).toFixed(0);
    const what = `${graph.nodes.length} operators, ${graph.weights.size} weights, ${notes.length} notes`;
    console.log(`${basename(file)}  ${size} MB  ${seconds.toFixed(3)} s  ${what}, process at ${memory} MB`);
  } catch (error) {
    if (!(error instanceof AutoparError)) throw error;
    refused += 1;
    console.log(`${basename(file)}  refused: ${error.code}: ${error.message}`);
  }
}
console.log(`${files.length - refused} imported, ${refused} refused of ${files.length}`);
