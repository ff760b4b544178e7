/**
 * @file One model, from file to plan.json, part by part. The parts are put together here as in `importModel` and `plan`; a
 * check at the end compares fingerprint and cost.
 */
import { basename } from 'node:path';
import { importModel } from '../src/api/models/import.js';
import { type Training, withTraining } from '../src/api/models/training.js';
import { plan } from '../src/api/plan.js';
import { communicationOf, mostExpensiveOperators } from '../src/api/reports/report.js';
import { parseCluster } from '../src/cost-model/cluster.js';
import { stepPrice } from '../src/cost-model/price.js';
import { reshardBound } from '../src/cost-model/reshard-bound.js';
import { batchDimensions } from '../src/ir/batch.js';
import { fingerprint } from '../src/ir/fingerprint.js';
import type { Graph, Node } from '../src/ir/graph.js';
import { readOnnx } from '../src/ir/onnx/reader.js';
import { tracedConstants } from '../src/ir/parameters/recorded.js';
import { assemble } from '../src/ir/passes/assemble.js';
import { findLayers } from '../src/ir/passes/find-layers.js';
import { inlineFunctions } from '../src/ir/passes/inline-functions.js';
import { liftMatMul } from '../src/ir/passes/lift-matmul.js';
import { orderNodes } from '../src/ir/passes/order.js';
import { recogniseRegions } from '../src/ir/passes/recognise-regions.js';
import { resolveValues } from '../src/ir/passes/resolve.js';
import { weightInputs } from '../src/ir/passes/weight-inputs.js';
import { checkSharded } from '../src/partition/check.js';
import { onlyStage } from '../src/partition/lower-stages.js';
import { evaluate } from '../src/runtime/evaluate.js';
import { type CandidateSet, candidatesOf } from '../src/search/candidates.js';
import type { Completion } from '../src/search/completion.js';
import { EdgeCosts } from '../src/search/edge-costs.js';
import { buildGroupGraph } from '../src/search/group-graph.js';
import { plan as search } from '../src/search/plan.js';
import { searchProblem } from '../src/search/search-mesh.js';
import { mergedOnce } from '../src/sharding-propagation/layout.js';
import { makeResharder } from '../src/sharding-propagation/resharding.js';
import { planToJson } from '../src/strategy/plan-json.js';
import { planOf } from '../src/strategy/plan-of.js';
import type { PartClock } from './part-clock.js';

/** The parts of importing a model whose dimensions are all fixed; `fold` is ONNX Runtime's share of resolving and assembling. */
export async function importParts(file: string, clock: PartClock): Promise<Graph> {
  const folding = { seconds: 0, processorSeconds: 0 };
  const timed: typeof evaluate = async (model, inputs) => {
    const [wall, cpu] = [performance.now(), process.cpuUsage()];
    const result = await evaluate(model, inputs);
    const { user, system } = process.cpuUsage(cpu);
    folding.seconds += (performance.now() - wall) / 1000;
    folding.processorSeconds += (user + system) / 1e6;
    return result;
  };
  const foldedIn = (part: string): void => {
    clock.end();
    clock.move(part, 'fold', folding.seconds, folding.processorSeconds);
    folding.seconds = 0;
    folding.processorSeconds = 0;
  };
  clock.begin('read');
  const model = await readOnnx(file);
  clock.begin('inline');
  const expanded = inlineFunctions(model);
  clock.begin('order');
  const nodes = orderNodes(model.graph, expanded, model.file);
  clock.begin('resolve, infer');
  const absent = weightInputs(model, []);
  const resolved = await resolveValues(model.graph, nodes, {
    file: model.file,
    dims: new Map(),
    constants: {},
    kinds: model.kinds,
    absent,
    evaluate: timed,
  });
  foldedIn('resolve, infer');
  clock.begin('assemble');
  const { graph: assembled } = await assemble(resolved, model.graph.name || basename(file, '.onnx'), {
    traced: tracedConstants(model, nodes),
    namesParameters: false,
    inputs: absent,
  });
  foldedIn('assemble');
  clock.begin('lift');
  const lifted = liftMatMul(assembled);
  clock.begin('batch');
  const batched = { ...lifted, batch: batchDimensions(lifted) };
  clock.begin('regions');
  const regions = recogniseRegions(batched);
  clock.begin('layers');
  const graph = findLayers(regions);
  clock.begin('fingerprint');
  const print = fingerprint(graph);
  clock.end();
  const { fingerprint: expected } = await importModel(file);
  if (print !== expected) throw new Error('the parts that are measured are no longer those of importModel');
  return graph;
}

/** The parts of planning, and of reporting the plan. */
export async function planningParts(file: string, clusterText: string, clock: PartClock): Promise<void> {
  const imported = await importModel(file);
  const { graph } = imported;
  const cluster = parseCluster(clusterText, undefined);
  clock.begin('questions');
  const found = await search(graph, cluster, { completion: measured(clock) });
  clock.begin('plan.json');
  planToJson(planOf(found, imported, cluster));
  clock.begin('report');
  mostExpensiveOperators(found.lowered, found.assignment, cluster);
  communicationOf(found.lowered, cluster);
  clock.end();
  const planned = await plan(imported, { cluster: clusterText });
  if (planned.found.costNanoseconds !== found.costNanoseconds)
    throw new Error('the parts that are measured are no longer those of plan');
}

/** From a file to the plan of a training step, part by part; degrees are given, so that one mesh is solved. */
export async function trainingParts(
  file: string,
  clusterText: string,
  degrees: { readonly dp: number; readonly tp: number },
  globalBatch: number,
  clock: PartClock,
): Promise<string> {
  clock.begin('import');
  const model = await importModel(file, { globalBatch });
  clock.begin('gradients, optimizer');
  const training: Training = { loss: { kind: 'cross_entropy' }, optimizer: { kind: 'adamw', learningRate: 1e-3 } };
  const step = withTraining(model, training);
  const cluster = parseCluster(clusterText, undefined);
  clock.begin('questions');
  const options = { degrees, memoryBytes: Number.MAX_SAFE_INTEGER, completion: measured(clock) };
  const found = await search(step.graph, cluster, options);
  clock.begin('check');
  const findings = checkSharded(onlyStage(found.lowered));
  if (findings.length > 0) throw new Error(`the plan is not sound: ${findings[0]?.problem}`);
  clock.begin('plan.json');
  planToJson(planOf(found, step, cluster));
  clock.end();
  const { costNanoseconds: cost, boundNanoseconds: bound } = found;
  return (
    `${step.graph.nodes.length} operators, ${(cost / 1e6).toFixed(1)} ms a step, gap ` +
    `${(100 * (1 - bound / cost)).toFixed(2)} %`
  );
}

/** The search on one mesh, as in search-mesh.ts. The lowering of the best solution follows it. */
function measured(clock: PartClock): Completion {
  return {
    mode: 'dynamic_programming',
    solve: async (graph, mesh, cluster, { axes, pinned, factsOf: questions, allToAll, deadline }) => {
      clock.begin('candidates');
      const sets = new Map<string, CandidateSet>();
      const merged = mergedOnce(mesh);
      const candidates = (node: Node): CandidateSet => {
        const question = questions(node);
        const set = sets.get(question.key) ?? candidatesOf({ ...question, mesh, cluster, axes, pinned, merged });
        sets.set(question.key, set);
        return set;
      };
      for (const node of graph.nodes) candidates(node);
      clock.begin('edges');
      const price = stepPrice(cluster, mesh);
      const bound = reshardBound(cluster, mesh, price);
      const resharder = makeResharder(mesh, price, bound, { allToAll });
      const groups = buildGroupGraph(graph, mesh, candidates, new EdgeCosts(resharder, bound));
      clock.begin('elimination');
      const options = { mode: 'dynamic_programming', solver: 'none', deadline } as const;
      const solution = await searchProblem({ groups, mesh }, options);
      clock.begin('lowering');
      const assignment = groups.assignmentOf(solution.states);
      return { assignment, resharder, cost: solution.cost, bound: solution.bound, exceptions: [] };
    },
  };
}
