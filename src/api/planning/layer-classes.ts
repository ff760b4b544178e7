/**
 * @file A model's work per micro-batch on one rank of its tensor-parallel group, under Megatron's strategies: one layer of
 * each class is generated, differentiated and lowered like any graph (Shoeybi et al. 2019: columns, then rows; vocabulary
 * over ranks).
 */
import { languageModel } from '../../../models/language-model.js';
import type { LanguageModelSizes } from '../../../models/language-sizes.js';
import { layerClasses } from '../../../models/layer-kinds.js';
import type { Cluster } from '../../cost-model/cluster.js';
import { deviceLevels } from '../../cost-model/levels.js';
import { stepPrice } from '../../cost-model/price.js';
import { redistributionBound } from '../../cost-model/redistribution-bound.js';
import type { PartTensors } from '../../cost-model/step/held-tensors.js';
import { readShared, readTensors, readWork } from '../../cost-model/step/read-work.js';
import type { ModelWork, PartWork } from '../../cost-model/step/work.js';
import type { LossOptions } from '../../ir/autodiff/append-loss.js';
import { drawDropout } from '../../ir/autodiff/dropout.js';
import { withLossGradients } from '../../ir/autodiff/loss-gradients.js';
import type { Graph } from '../../ir/graph.js';
import { findLayers } from '../../ir/passes/find-layers.js';
import type { LayerRun } from '../../ir/passes/first-of-layers.js';
import type { Assignment } from '../../partition/assignment.js';
import { partition } from '../../partition/partition.js';
import { propagatedAssignment } from '../../search/by-propagation.js';
import type { Style } from '../../sharding-propagation/annotations/annotation.js';
import { styleContext, stylePins } from '../../sharding-propagation/annotations/styles.js';
import { type Mesh, makeMesh } from '../../sharding-propagation/mesh.js';
import type { Pin, PinSource } from '../../sharding-propagation/pin.js';
import { propagate } from '../../sharding-propagation/propagation/propagate.js';
import { makeRedistributor, type Redistributor } from '../../sharding-propagation/redistribution.js';
import { WEIGHT_AXIS } from '../../sharding-propagation/roles.js';

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
  ['state_space/gate_value', 'colwise'],
  ['state_space/key_query', 'colwise'],
  ['state_space/rate', 'colwise'],
  ['state_space/output', 'rowwise'],
  ['feed_forward/up', 'colwise'],
  ['feed_forward/down', 'rowwise'],
  ['shared/up', 'colwise'],
  ['shared/down', 'rowwise'],
];

const BY_MEGATRON: PinSource = { file: null, line: null, text: 'megatron', priority: 0, why: null };

/** A model's work, and what it was read off. */
export interface ReadWork {
  readonly work: ModelWork;
  /** One layer of each run, with gradients where it is trained. */
  readonly graph: Graph;
  /** How its operators lie over the tensor-parallel ranks. */
  readonly assignment: Assignment;
  /** Which layers those that are left stand for. */
  readonly runs: readonly LayerRun[];
  /** Tokens of a sample; null where its inputs are none. */
  readonly sequence: number | null;
  /** What its parts hold, by name; made when asked for. */
  readonly tensors: () => PartTensors;
}

/** A language model's layers, one of each class, with their training step. */
export interface LayerGraph {
  readonly sizes: LanguageModelSizes;
  readonly graph: Graph;
}

/**
 * Layers that are alike are generated once.
 * @throws AutoparError where the model's output is none that the loss can be of
 */
export function layerGraph(sizes: LanguageModelSizes, loss: LossOptions = { kind: 'cross_entropy' }): LayerGraph {
  const { classes } = layerClasses(sizes);
  const generated = { ...sizes, layers: classes.length, pattern: classes.map(({ kind }) => kind) };
  return { sizes, graph: trainingStep(languageModel('layers', generated, 0, 'absent'), loss) };
}

/** The work of a language model. */
export function modelWork(sizes: LanguageModelSizes, tp: number, cluster: Cluster): ModelWork {
  return layerWork(layerGraph(sizes), tp, cluster).work;
}

/** The work of a language model whose layers are there, and how its operators lie. */
export function layerWork({ sizes, graph }: LayerGraph, tp: number, cluster: Cluster): ReadWork {
  const mesh = makeMesh([[WEIGHT_AXIS, tp]]);
  const redistributor = redistributorOf(mesh, ranksOf(cluster, tp));
  const propagation = propagate(graph, mesh, megatronPins(graph, mesh));
  const assignment = propagatedAssignment(graph, mesh, propagation, redistributor);
  const sharded = partition(graph, assignment, redistributor);
  const parts = readWork(graph, sharded, partNames(graph), scans(graph));
  const part = (name: string): PartWork => {
    const found = parts.get(name);
    if (!found) throw new Error(`the generated model has no part ${name}`);
    return found;
  };
  const { classes, order } = layerClasses(sizes);
  const work = {
    first: part('first'),
    layers: classes.map(({ count }, layer) => ({ count, part: part(`layers.${layer}`) })),
    ...(inTurns(order) ? { order } : {}),
    last: part('last'),
    boundary: sizes.batch * sizes.sequence * sizes.hidden,
    ...readShared(graph, sharded, partNames(graph)),
  };
  const runs = classes.map((_, index) => {
    const instances = order.flatMap((own, layer) => (own === index ? [`layers.${layer}`] : []));
    return { name: `layers.${index}`, instances };
  });
  const tensors = () => {
    const named = readTensors(graph, sharded, partNames(graph), scans(graph));
    const of = (name: string) => named.get(name) ?? [];
    return { first: of('first'), layers: classes.map((_, layer) => of(`layers.${layer}`)), last: of('last') };
  };
  return { work, graph, assignment, runs, sequence: sizes.sequence, tensors };
}

/** The ranks of a tensor-parallel group: as many devices in one node. */
export function ranksOf({ device }: Cluster, tp: number): Cluster {
  return { nodes: 1, perNode: tp, device, levels: deviceLevels(device, 1, tp), local: false };
}

/** What moves tensors between these ranks. */
export function redistributorOf(mesh: Mesh, ranks: Cluster): Redistributor {
  const price = stepPrice(ranks, mesh);
  return makeRedistributor(mesh, price, redistributionBound(ranks, mesh, price), { allToAll: true });
}

/** Whether layers of one class do not all follow one another. */
function inTurns(order: readonly number[]): boolean {
  return order.some((own, layer) => layer > 0 && own < (order[layer - 1] as number));
}

/** Forward, loss and gradients; the optimizer is priced by bytes. */
function trainingStep(forward: Graph, options: LossOptions): Graph {
  const { graph: drawing } = drawDropout(forward, 0);
  return withLossGradients(placed(findLayers(drawing)), options);
}

/** A layer that stands alone is one too: nothing but its path shows that. */
function placed(graph: Graph): Graph {
  const nodes = graph.nodes.map((node) => {
    const [module = ''] = node.module;
    return module.startsWith('layers.') ? { ...node, layer: module } : node;
  });
  return { ...graph, nodes };
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

/** Groups of the part of a state-space layer that has kernels of its own. */
export function scans(graph: Graph): (group: string) => boolean {
  const inside = new Set(graph.nodes.filter(({ module }) => module.includes('scan')).map(({ group }) => group));
  return (group) => inside.has(group);
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
