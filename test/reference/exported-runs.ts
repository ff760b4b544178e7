/**
 * @file `npm run training:exported [-- WORD…]`: eleven models of two exporters, five optimizers, four meshes: 440 runs, or those
 * whose names (`gpt, dynamo, adamw, dp 2 · tp 1`) have all the words. A row per model as soon as it is done, and what is not
 * PyTorch's as it happens, on stderr; on a terminal the run that is on. Exit code 1 where one is not PyTorch's.
 */
import { ALL_RUNS, type Comparison, ExportedModels, type ExportedRun, MODELS, runName } from './exported-training.js';

const words = process.argv.slice(2);
const asked = ALL_RUNS.filter((run) => words.every((word) => runName(run).includes(word)));
if (asked.length === 0)
  throw new Error(`no run has ${words.join(' and ')} in its name, such as ${ALL_RUNS.slice(0, 1).map(runName)}`);

let [begun, bad] = [0, 0];
console.log(
  '| model | weights | loss, at most | a weight, at most | runs as PyTorch | seconds |\n|---|---|---|---|---|---|',
);
for (const model of MODELS) {
  const runs = asked.filter((run) => run.model === model);
  if (runs.length > 0) await compareAll(model, runs);
}
console.log(`\n${asked.length} runs: ${asked.length - bad} are PyTorch's, ${bad} are not`);
process.exitCode = bad > 0 ? 1 : 0;

/** Runs of one model, and prints its row. */
async function compareAll(model: string, runs: readonly ExportedRun[]): Promise<void> {
  const start = performance.now();
  const done: Comparison[] = [];
  show(`${model}: exported and trained in PyTorch`);
  const models = new ExportedModels(runs);
  try {
    for (const run of runs) {
      show(`${++begun} of ${asked.length}: ${runName(run)}`);
      const compared = await models.compare(run).catch((error: Error) => failed(error.message));
      done.push(compared);
      show('');
      for (const fault of compared.faults) console.error(`${runName(run)}: ${fault}`);
    }
  } finally {
    models.close();
  }
  const most = (read: (one: Comparison) => number) => Math.max(...done.map(read));
  const good = done.filter(({ faults }) => faults.length === 0).length;
  bad += done.length - good;
  const [loss, weights] = [most((one) => one.loss), most((one) => one.weights)].map((value) => value.toExponential(0));
  const seconds = ((performance.now() - start) / 1000).toFixed(0);
  console.log(
    `| ${model} | ${most((one) => one.compared)} | ${loss} | ${weights} | ${good} of ${done.length} | ${seconds} |`,
  );
}

function failed(fault: string): Comparison {
  return { loss: 0, weights: 0, compared: 0, faults: [fault] };
}

/** Replaces the line that says what is on; nothing where no terminal reads it. */
function show(text: string): void {
  if (process.stderr.isTTY) process.stderr.write(`\r\x1b[K${text}`);
}
