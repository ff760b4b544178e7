/**
 * @file Mixtures of experts as exporters write them, every token through every expert: matmuls with weights
 * [experts, rows, columns] (Einsum or MatMul, dimensions in any order), token-wise operators between them, a multiplication with
 * the gate of each expert for each token, and the sum over experts.
 *
 *     root [tokens, d] ─► matmuls ─► activation ─► matmuls ─► · gate [tokens, experts] ─► Σ experts ─► result [tokens, d]
 *
 * The same where each token goes through its chosen experts only, whose weights are gathered for it (chosen-weights.ts): the
 * experts are the chosen ones then.
 */
import { isFloating } from '../dtype.js';
import { elementCount, type Graph, type Node, typeOf } from '../graph.js';
import { appendTo } from '../group-by.js';
import { type Makers, makersOf } from '../makers-and-readers.js';
import { weightTensors } from '../of-weights.js';
import { operatorOf } from '../operator-of.js';
import { isReshaped, operatorFamily, ruleOf } from '../ops/index.js';
import { type ChosenWeights, chosenWeights } from './chosen-weights.js';
import {
  expertRolesOf,
  factorRoles,
  plainRoles,
  type RoleDims,
  roleList,
  roleSize,
  rolesBehind,
  sidesOf,
} from './roles.js';

/** An operator between root and gate. `cut`: an operator that splits features. */
export interface ExpertStep {
  readonly node: Node;
  readonly kind: 'matmul' | 'plain' | 'cut' | 'move' | 'weights';
  /** Roles of the dimensions of each operand; null for operands that are left out, and for weights of matmuls. */
  readonly operands: readonly (RoleDims | null)[];
}

export interface ExpertMixture {
  readonly experts: number;
  /** Where weights are gathered: the experts of each token, [..., chosen]; null where every token goes through every expert. */
  readonly choice: string | null;
  /** [..., features], tokens in their order. */
  readonly root: string;
  readonly steps: readonly ExpertStep[];
  /** The weight of each expert for each token, with the roles of its dimensions. */
  readonly gate: { readonly tensor: string; readonly roles: RoleDims };
  /** The tensor that the gate is multiplied with. */
  readonly weighted: string;
  /** The last operator, whose result is the root's tokens after the experts. */
  readonly end: Node;
  /** All operators of the mixture. */
  readonly nodes: ReadonlySet<Node>;
  readonly tensors: ReadonlySet<string>;
}

const MOVES: ReadonlySet<string> = new Set(['Transpose', 'Expand', 'Tile']);
const CUTS: ReadonlySet<string> = new Set(['Split', 'Slice']);

/** Whether an operator changes no value. */
function isMove(node: Node): boolean {
  return isReshaped(node) || (MOVES.has(node.op) && node.domain === '');
}

/** The mixtures of experts of a graph, in its order. */
export function findExperts(graph: Graph): readonly ExpertMixture[] {
  const weights = expertWeights(graph);
  const seeds = new Map<string, Seed[]>();
  for (const node of graph.nodes) {
    const seed = seedOf(graph, node, weights);
    if (seed) appendTo(seeds, seed.root, seed);
  }
  return [...seeds.values()].flatMap((group) => new ExpertWalk(graph, weights, group).mixture() ?? []);
}

/** The numbers of experts in matmuls that have a matrix for each expert. */
export function expertCounts(graph: Graph): ReadonlySet<number> {
  const weights = expertWeights(graph);
  return new Set(graph.nodes.flatMap((node) => stackOf(graph, node, weights)?.experts ?? []));
}

interface ExpertWeights {
  readonly makers: Makers<Node>;
  /** Weights, and tensors that are computed from weights alone. */
  readonly constant: ReadonlySet<string>;
  /** Weights gathered from them, by the result. */
  readonly chosen: ReadonlyMap<string, ChosenWeights>;
}

function expertWeights(graph: Graph): ExpertWeights {
  const makers = makersOf(graph.nodes);
  // State that is not a weight (a cache) has no matrix for each expert.
  const constant = weightTensors({ ...graph, state: [] });
  return { makers, constant, chosen: chosenWeights(graph, makers, constant) };
}

/** A matmul of tokens with a matrix per expert. */
interface Seed extends ExpertMatrices {
  readonly node: Node;
  readonly root: string;
  /** The roles of its operands, by their places; null for its weights. */
  readonly operands: readonly (RoleDims | null)[];
}

/** The matrices of a matmul. */
interface ExpertMatrices {
  /** The operand that they are: [experts, rows, columns], or those that tokens chose. */
  readonly place: number;
  readonly experts: number;
  /** Positions of experts in the result: all, or the chosen ones of a token. */
  readonly copies: number;
  readonly choice: string | null;
  readonly roles: RoleDims;
  /** The factor with a position for each expert. */
  readonly each: string;
}

/** The operand of a matmul with a matrix for each expert; null where it has none. */
function stackOf(graph: Graph, node: Node, { constant, chosen }: ExpertWeights): ExpertMatrices | null {
  if (node.phase !== 'forward' || operatorFamily(node) !== 'contraction') return null;
  if (node.inputs.length !== 2) return null;
  const rule = ruleOf(operatorOf(graph, node));
  const made = rule.outputs[0]?.flat() ?? [];
  for (const [place, input] of node.inputs.entries()) {
    const gathered = chosen.get(input ?? '');
    if (input === null || !(constant.has(input) || gathered)) continue;
    const { dtype, shape } = typeOf(graph, input);
    const lead = rule.inputs[place]?.slice(0, -2) ?? [];
    const isEach = lead.flat().every((name) => made.includes(name));
    const [experts = 1] = gathered ? typeOf(graph, gathered.weights).shape : shape;
    const isOwn = gathered ? typeOf(graph, gathered.weights).shape.length === 3 : shape.length === 3;
    const each = lead.at(-1)?.at(-1);
    if (!isOwn || !isEach || each === undefined || experts < 2 || !isFloating(dtype)) continue;
    const roles = gathered?.roles ?? plainRoles(shape, (axis) => (axis === 0 ? 'expert' : 'feature'));
    return { place, experts, copies: gathered?.chosen ?? experts, choice: gathered?.choice ?? null, roles, each };
  }
  return null;
}

function seedOf(graph: Graph, node: Node, weights: ExpertWeights): Seed | null {
  const stack = stackOf(graph, node, weights);
  const data = stack && node.inputs[1 - stack.place];
  if (!data || weights.constant.has(data)) return null;
  const { copies, place, each } = stack;
  const isCopied = ruleOf(operatorOf(graph, node)).inputs[1 - place]?.flat().includes(each) === true;
  const tokens = elementCount(typeOf(graph, data).shape) / (isCopied ? copies : 1);
  const path: Node[] = [];
  let from = data;
  for (;;) {
    const maker = weights.makers.get(from);
    const size = elementCount(typeOf(graph, from).shape);
    const [source] = maker?.inputs ?? [];
    if (!maker || !source || !(size > tokens ? isMove(maker) : isReshaped(maker))) break;
    if (elementCount(typeOf(graph, source).shape) < tokens) break;
    path.push(maker);
    from = source;
  }
  const { shape } = typeOf(graph, from);
  if (elementCount(shape) !== tokens || shape.length < 2) return null;
  let roles: RoleDims = plainRoles(shape, (axis) => (axis === shape.length - 1 ? 'feature' : 'token'));
  for (const step of path.toReversed()) {
    const next = rolesBehind(ruleOf(operatorOf(graph, step)), [roles], (size) => (size === copies ? 'expert' : null));
    if (!next) return null;
    roles = next;
  }
  return { ...stack, node, root: from, operands: [place === 0 ? null : roles, place === 1 ? null : roles] };
}

/** A walk from the first matmuls to the sum over experts. */
class ExpertWalk {
  private readonly inside = new Map<string, RoleDims>();
  private readonly steps: ExpertStep[] = [];
  private readonly nodes = new Set<Node>();
  private gate: ExpertMixture['gate'] | null = null;
  private weighted: string | null = null;
  private readonly seeds: ReadonlyMap<Node, Seed>;
  private readonly copies: number;

  constructor(
    private readonly graph: Graph,
    private readonly weights: ExpertWeights,
    private readonly group: readonly Seed[],
  ) {
    this.seeds = new Map(group.map((seed) => [seed.node, seed]));
    this.copies = group[0]?.copies ?? 1;
  }

  /** The mixture; null where a tensor inside is read by an operator that does not treat tokens and experts separately. */
  mixture(): ExpertMixture | null {
    const { group } = this;
    const [first] = group;
    if (!first || group.some(({ experts, choice }) => experts !== first.experts || choice !== first.choice))
      return null;
    const { experts, choice } = first;
    let end: Node | null = null;
    for (const node of this.graph.nodes) {
      const gathered = this.weights.chosen.get(node.outputs[0] ?? '');
      if (gathered && gathered.choice === choice) {
        this.nodes.add(node);
        this.step(node, 'weights', [], gathered.roles);
        continue;
      }
      const seed = this.seeds.get(node);
      if (!seed && !node.inputs.some((input) => input !== null && this.inside.has(input))) continue;
      if (end) return null;
      const found = seed ? this.matmul(node, seed, seed.operands) : this.visit(node);
      if (!found) return null;
      this.nodes.add(node);
      if (found === 'end') end = node;
    }
    const { gate, weighted } = this;
    if (!end || !gate || weighted === null) return null;
    if (this.graph.outputs.some((output) => this.inside.has(output))) return null;
    const { steps, nodes } = this;
    const tensors = new Set(this.inside.keys());
    return { experts, choice, root: first.root, steps, gate, weighted, end, nodes, tensors };
  }

  private visit(node: Node): 'inside' | 'end' | null {
    const family = operatorFamily(node);
    const stack = stackOf(this.graph, node, this.weights);
    if (stack) {
      const { experts, choice } = this.group[0] ?? stack;
      if (stack.experts !== experts || stack.choice !== choice) return null;
      const roles = (input: string | null, index: number) =>
        index === stack.place ? null : (this.inside.get(input ?? '') ?? null);
      return this.matmul(node, stack, node.inputs.map(roles));
    }
    const operands = this.operandRoles(node);
    if (!operands) return null;
    const isCut = CUTS.has(node.op) && node.domain === '';
    const made = rolesBehind(ruleOf(operatorOf(this.graph, node)), operands, () => (isCut ? 'feature' : null));
    if (!made) return null;
    const roles = roleList(made);
    const outside = node.inputs.findIndex(
      (input, index) => input !== null && !this.inside.has(input) && roleList(operands[index] ?? []).includes('token'),
    );
    const own = node.inputs.findIndex((input) => this.inside.has(input ?? ''));
    if (outside >= 0) {
      const gate = operands[outside] ?? [];
      const isGate = !roleList(gate).includes('feature') && roleSize(gate, 'expert') === this.copies;
      if (this.gate || !isGate || (node.op !== 'Mul' && family !== 'contraction')) return null;
      this.gate = { tensor: node.inputs[outside] ?? '', roles: gate };
      this.weighted = node.inputs[own] ?? '';
      if (!roles.includes('expert') && this.copies > 1) return this.isEnd(roles) ? 'end' : null;
      const isWhole = roleSize(made, 'token') === roleSize(operands[own] ?? [], 'token');
      return isWhole && this.isCanonical(made) ? this.step(node, 'move', operands, made) : null;
    }
    if (this.gate && family === 'contraction') return this.summingMatmul(node, own, operands, roles);
    if (!roles.includes('expert') && this.copies > 1)
      return this.gate && node.op === 'ReduceSum' && this.isEnd(roles) ? 'end' : null;
    if (isMove(node)) return this.step(node, 'move', operands, made);
    if (this.gate) return null;
    if (isCut) {
      const isOfFeatures = roleSize(made, 'token') === roleSize(operands[0] ?? [], 'token');
      return isOfFeatures ? this.step(node, 'cut', operands, made) : null;
    }
    if (family === 'elementwise') return this.step(node, 'plain', operands, made);
    return null;
  }

  /** Whether dimensions are tokens in their order, then features. */
  private isEnd(roles: readonly string[]): boolean {
    return (
      roles.length >= 2 && roles.every((role, index) => role === (index === roles.length - 1 ? 'feature' : 'token'))
    );
  }

  private matmul(node: Node, stack: ExpertMatrices, operands: readonly (RoleDims | null)[]): 'inside' | null {
    const rule = ruleOf(operatorOf(this.graph, node));
    const weight = rule.inputs[stack.place]?.slice(-2);
    const all = operands.map((roles, index) => (index === stack.place ? stack.roles : roles));
    const made = rolesBehind(rule, all);
    const last = made?.findLastIndex((parts) => parts.some(({ role }) => role === 'feature')) ?? -1;
    const isPlain = weight?.every((names) => names.length === 1) && made?.[last]?.length === 1;
    if (this.gate || !made || !isPlain || !this.isCanonical(made)) return null;
    return this.step(node, 'matmul', operands, made);
  }

  /** A matmul of the weighted tensor that also sums over experts: the gate comes before the last matmul here. */
  private summingMatmul(
    node: Node,
    own: number,
    operands: readonly (RoleDims | null)[],
    roles: readonly string[],
  ): 'end' | null {
    const [place, weight] = [1 - own, node.inputs[1 - own] ?? ''];
    const isStack = roleList(operands[place] ?? []).join() === 'expert,feature,feature';
    const isOfWeights = this.weights.constant.has(weight) && typeOf(this.graph, weight).shape.length === 3;
    if (!isStack || !isOfWeights || node.inputs.length !== 2 || !this.isEnd(roles)) return null;
    this.steps.push({ node, kind: 'matmul', operands: operands.with(place, null) });
    this.weighted = node.outputs[0] ?? null;
    return 'end';
  }

  private step(
    node: Node,
    kind: ExpertStep['kind'],
    operands: ExpertStep['operands'],
    made: RoleDims,
  ): 'inside' | null {
    if (kind !== 'move' && kind !== 'weights' && !this.isCanonical(made)) return null;
    this.steps.push({ node, kind, operands });
    return this.keep(node, made);
  }

  /** Whether a tensor has every expert, and one dimension of features at most. */
  private isCanonical(made: RoleDims): boolean {
    const features = made.filter((parts) => parts.some(({ role }) => role === 'feature'));
    return (
      features.length <= 1 && features.every((parts) => parts.length === 1) && roleSize(made, 'expert') === this.copies
    );
  }

  private keep(node: Node, made: RoleDims): 'inside' | null {
    const rule = ruleOf(operatorOf(this.graph, node));
    for (const [index, output] of node.outputs.entries()) {
      if (output === null) continue;
      if (index === 0) {
        this.inside.set(output, made);
        continue;
      }
      const factors = factorRoles(rule, sidesOf(rule, this.operandRoles(node) ?? []));
      const roles = factors && expertRolesOf(rule.outputs[index], rule, factors);
      if (!roles) return null;
      this.inside.set(output, roles);
    }
    return 'inside';
  }

  /** Roles of all operands: known ones inside, others from the rule; features where the rule gives none. */
  private operandRoles(node: Node): readonly (RoleDims | null)[] | null {
    const rule = ruleOf(operatorOf(this.graph, node));
    const known = node.inputs.map((input) => this.inside.get(input ?? '') ?? null);
    const factors = factorRoles(rule, sidesOf(rule, known));
    if (!factors) return null;
    const all = node.inputs.map((input, index) =>
      input === null ? null : (known[index] ?? expertRolesOf(rule.inputs[index], rule, factors, () => 'feature')),
    );
    return all;
  }
}
