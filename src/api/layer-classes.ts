/**
 * @file A model's work per micro-batch on one rank of its tensor-parallel group, under Megatron's strategies: one layer of
 * each class is generated, differentiated and lowered like any graph (Shoeybi et al. 2019: columns, then rows; vocabulary
 * over ranks).
 */
import { type LanguageModelSizes, languageModel } from '../../models/language-model.js';
import type { Cluster } from '../cost-model/cluster.js';
import { deviceLevels } from '../cost-model/levels.js';
import { stepPrice } from '../cost-model/price.js';
import { redistributionBound } from '../cost-model/redistribution-bound.js';
import { readWork } from '../cost-model/step/read-work.js';
import type { ModelWork, PartWork } from '../cost-model/step/work.js';
import { appendLoss } from '../ir/autodiff/append-loss.js';
import { differentiate } from '../ir/autodiff/differentiate.js';
import type { Graph } from '../ir/graph.js';
import { findLayers } from '../ir/passes/find-layers.js';
import { partition } from '../partition/partition.js';
import { propagatedAssignment } from '../search/by-propagation.js';
import type { Style } from '../sharding-propagation/annotations/annotation.js';
import { styleContext, stylePins } from '../sharding-propagation/annotations/styles.js';
import { type Mesh, makeMesh } from '../sharding-propagation/mesh.js';
import type { Pin, PinSource } from '../sharding-propagation/pin.js';
import { propagate } from '../sharding-propagation/propagation/propagate.js';
import { makeRedistributor } from '../sharding-propagation/redistribution.js';

/** Where Megatron puts tp, by the end of a module's path. */
const MEGATRON_STYLES: readonly (readonly [module: string, style: Style])[] = [
  ['embed', 'rowwise'],
  ['head', 'colwise'],
  ['attention/qkv', 'colwise'],
  ['attention/query', 'colwise'],
  ['attention/query_up', 'colwise'],
  ['attention/key_value_up', 'colwise'],
  ['attention/key_value', 'colwise'],
  ['attention/output', 'rowwise'],
  ['feed_forward/up', 'colwise'],
  ['feed_forward/down', 'rowwise'],
  ['shared/up', 'colwise'],
  ['shared/down', 'rowwise'],
];

const BY_MEGATRON: PinSource = { file: null, line: null, text: 'megatron', priority: 0, why: null };

/** The work of a language model; layers that are alike are generated once. */
export function modelWork(sizes: LanguageModelSizes, tp: number, cluster: Cluster): ModelWork {
  const dense = sizes.experts ? Math.min(sizes.experts.dense, sizes.layers) : sizes.layers;
  const classes = sizes.experts
    ? [...(dense > 0 ? [{ layer: 0, count: dense }] : []), { layer: dense > 0 ? 1 : 0, count: sizes.layers - dense }]
    : [{ layer: 0, count: dense }];
  const generated: LanguageModelSizes = {
    ...sizes,
    layers: classes.length,
    ...(sizes.experts ? { experts: { ...sizes.experts, dense: dense > 0 ? 1 : 0 } } : {}),
  };
  const graph = trainingStep(languageModel('layers', generated, 0, 'absent'));
  const mesh = makeMesh([['tp', tp]]);
  const ranks = { ...cluster, nodes: 1, perNode: tp, levels: deviceLevels(cluster.device, 1, tp) };
  const price = stepPrice(ranks, mesh);
  const redistributor = makeRedistributor(mesh, price, redistributionBound(ranks, mesh, price), { allToAll: true });
  const propagation = propagate(graph, mesh, megatronPins(graph, mesh));
  const sharded = partition(graph, propagatedAssignment(graph, mesh, propagation, redistributor), redistributor);
  const parts = readWork(graph, sharded, partNames(graph));
  const part = (name: string): PartWork => {
    const found = parts.get(name);
    if (!found) throw new Error(`the generated model has no part ${name}`);
    return found;
  };
  return {
    first: part('first'),
    layers: classes.map(({ layer, count }) => ({ count, part: part(`layers.${layer}`) })),
    last: part('last'),
    hidden: sizes.hidden,
    chosen: sizes.experts?.chosen ?? 1,
    boundary: sizes.batch * sizes.sequence * sizes.hidden,
    tied: sizes.tied,
  };
}

/** Forward, loss and gradients; the optimizer is priced by bytes. */
function trainingStep(forward: Graph): Graph {
  const { graph: scored, loss } = appendLoss(findLayers(forward), { kind: 'cross_entropy' });
  const trained = [...scored.weights].flatMap(([name, { role }]) => (role === 'parameter' ? [name] : []));
  const { graph, gradients } = differentiate(scored, loss, trained);
  return { ...graph, outputs: [loss, ...gradients.values()] };
}

function megatronPins(graph: Graph, mesh: Mesh): readonly Pin[] {
  if (mesh.axes.every(({ size }) => size === 1)) return [];
  const context = styleContext(graph, mesh);
  const modules = new Map<string, Graph['nodes'][number][]>();
  for (const node of graph.nodes) {
    if (node.phase !== 'forward' || node.module.length === 0) continue;
    const path = node.module.join('/');
    const list = modules.get(path);
    if (list) list.push(node);
    else modules.set(path, [node]);
  }
  return [...modules].flatMap(([path, nodes]) => {
    const found = MEGATRON_STYLES.find(([end]) => path === end || path.endsWith(`/${end}`));
    return found ? stylePins(found[1], path, nodes, context, BY_MEGATRON) : [];
  });
}

/** first, layers.N, or last: by the module of a group's forward operator, else by what its name begins with. */
function partNames(graph: Graph): (group: string) => string {
  const modules = new Map<string, string>();
  for (const node of graph.nodes) if (node.phase === 'forward') modules.set(node.group, node.module[0] ?? '');
  const FIRST = ['embed', 'position', 'rotary'];
  return (group) => {
    const module = modules.get(group) ?? '';
    const step = module === '' ? (/^\/?(layers\.\d+|embed|position|rotary|norm|head)/.exec(group)?.[1] ?? '') : module;
    if (step.startsWith('layers.')) return step;
    return FIRST.includes(step) ? 'first' : 'last';
  };
}
