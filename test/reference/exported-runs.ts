/**
 * @file `npm run training:exported [-- WORD…]`: eleven models of two exporters, five optimizers, four meshes: 440 runs, or those
 * whose names have all the words. A line per run that is not PyTorch's, a table at the end. Exit code 1 where one is not.
 */
import { ALL_RUNS, type Comparison, ExportedModels, type ExportedRun, MODELS, runName } from './exported-training.js';

const words = process.argv.slice(2);
const runs = ALL_RUNS.filter((run) => words.every((word) => runName(run).includes(word)));
const models = new ExportedModels(runs);
const done: (Comparison & { readonly run: ExportedRun })[] = [];
try {
  for (const run of runs) {
    const compared = await models
      .compare(run)
      .catch((error: Error) => ({ loss: 0, weights: 0, compared: 0, faults: [error.message] }));
    done.push({ run, ...compared });
    for (const fault of compared.faults) console.log(`${runName(run)}: ${fault}`);
  }
} finally {
  models.close();
}
console.log('| model | weights | loss, at most | a weight, at most | runs as PyTorch |\n|---|---|---|---|---|');
for (const model of MODELS) {
  const own = done.filter(({ run }) => run.model === model);
  if (own.length === 0) continue;
  const most = (read: (one: Comparison) => number) => Math.max(...own.map(read));
  const good = own.filter(({ faults }) => faults.length === 0).length;
  const [loss, weights] = [most(({ loss: value }) => value), most(({ weights: value }) => value)].map((v) =>
    v.toExponential(0),
  );
  console.log(`| ${model} | ${most(({ compared }) => compared)} | ${loss} | ${weights} | ${good} of ${own.length} |`);
}
const bad = done.filter(({ faults }) => faults.length > 0);
console.log(`${done.length} runs: ${done.length - bad.length} are PyTorch's, ${bad.length} are not`);
process.exitCode = bad.length > 0 ? 1 : 0;
