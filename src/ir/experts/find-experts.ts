/**
 * @file Mixtures of experts as exporters write them, every token through every expert: products with weights
 * [experts, rows, columns] (Einsum or MatMul, dimensions in any order), what stands between them token by token, a product with
 * what each expert counts for each token, and the sum over experts.
 *
 *     root [tokens, d] ─► products ─► activation ─► products ─► · gate [tokens, experts] ─► Σ experts ─► result [tokens, d]
 */
import { isFloating } from '../dtype.js';
import type { FactorRule } from '../factor-rule.js';
import { elementCount, type Graph, type Node, typeOf } from '../graph.js';
import { entryOf } from '../ops/index.js';
import { ruleOf, viewOf } from '../view.js';
import { dimensionRoles, factorRoles, plainRoles, type RoleDims, roleList, roleSize, tokenOrder } from './roles.js';

/** An operator between root and gate. `axis`: of operators that cut features. */
export interface ExpertStep {
  readonly node: Node;
  readonly kind: 'product' | 'plain' | 'cut' | 'move';
  /** Roles of the dimensions of each operand; null for operands that are left out, and for weights of products. */
  readonly operands: readonly (RoleDims | null)[];
}

export interface ExpertBlock {
  readonly experts: number;
  /** [..., features], tokens in their order. */
  readonly root: string;
  readonly steps: readonly ExpertStep[];
  /** What each expert counts for each token, with the roles of its dimensions. */
  readonly gate: { readonly tensor: string; readonly roles: RoleDims };
  /** What the gate is multiplied with. */
  readonly weighted: string;
  /** The last operator, whose result is the root's tokens behind the experts. */
  readonly end: Node;
  /** All operators of the block. */
  readonly nodes: ReadonlySet<Node>;
  readonly tensors: ReadonlySet<string>;
}

/** Operators that change no value, and keep the order of elements but for Transpose. */
const MOVES: ReadonlySet<string> = new Set([
  ...['Reshape', 'Squeeze', 'Unsqueeze', 'Flatten', 'Identity', 'Transpose', 'Expand', 'Tile'],
]);
const IN_ORDER: ReadonlySet<string> = new Set(['Reshape', 'Squeeze', 'Unsqueeze', 'Flatten', 'Identity']);
const CUTS: ReadonlySet<string> = new Set(['Split', 'Slice']);

/** The blocks of a graph, in its order. */
export function findExperts(graph: Graph): readonly ExpertBlock[] {
  const makers = new Map(graph.nodes.flatMap((node) => node.outputs.map((output) => [output, node] as const)));
  const constant = constantTensors(graph);
  const seeds = new Map<string, Seed[]>();
  for (const node of graph.nodes) {
    const seed = seedOf(graph, node, makers, constant);
    if (seed) seeds.set(seed.root, [...(seeds.get(seed.root) ?? []), seed]);
  }
  return [...seeds.values()].flatMap((group) => new ExpertWalk(graph, constant, group).block() ?? []);
}

/** How many experts products have, expert by expert. */
export function expertCounts(graph: Graph): ReadonlySet<number> {
  const constant = constantTensors(graph);
  return new Set(
    graph.nodes.flatMap((node) => {
      if (node.phase !== 'forward' || entryOf(node.op, node.domain)?.family !== 'contraction') return [];
      const place = stackedOperand(graph, node, ruleOf(viewOf(graph, node)), constant);
      return typeOf(graph, node.inputs[place] ?? node.outputs[0] ?? '').shape.slice(0, place < 0 ? 0 : 1);
    }),
  );
}

/** Weights, and what is computed of them alone. */
function constantTensors(graph: Graph): ReadonlySet<string> {
  const found = new Set(graph.weights.keys());
  for (const { inputs, outputs } of graph.nodes)
    if (inputs.length > 0 && inputs.every((input) => input === null || found.has(input)))
      for (const output of outputs) if (output !== null) found.add(output);
  return found;
}

/** A product of tokens with a matrix per expert. */
interface Seed {
  readonly node: Node;
  readonly experts: number;
  readonly root: string;
  /** The roles of its operands, by their places; of its weights null. */
  readonly operands: readonly (RoleDims | null)[];
  /** What brings the tokens before it, the last first. */
  readonly path: readonly Node[];
}

type Makers = ReadonlyMap<string | null, Node>;

/** The place of the operand [experts, rows, columns] of a product, expert by expert; -1 where it has none. */
function stackedOperand(graph: Graph, node: Node, rule: FactorRule, constant: ReadonlySet<string>): number {
  if (entryOf(node.op, node.domain)?.family !== 'contraction' || node.inputs.length !== 2) return -1;
  return node.inputs.findIndex((input, index) => {
    if (input === null || !constant.has(input)) return false;
    const { dtype, shape } = typeOf(graph, input);
    const [first] = rule.inputs[index]?.[0] ?? [];
    const isEach = first !== undefined && rule.outputs[0]?.flat().includes(first) === true;
    return shape.length === 3 && (shape[0] ?? 1) > 1 && isFloating(dtype) && isEach;
  });
}

function seedOf(graph: Graph, node: Node, makers: Makers, constant: ReadonlySet<string>): Seed | null {
  if (node.phase !== 'forward' || entryOf(node.op, node.domain)?.family !== 'contraction') return null;
  const rule = ruleOf(viewOf(graph, node));
  const place = stackedOperand(graph, node, rule, constant);
  const data = node.inputs[1 - place];
  if (place < 0 || !data || constant.has(data)) return null;
  const [expert = ''] = rule.inputs[place]?.[0] ?? [];
  const experts = rule.factors.get(expert)?.size ?? 1;
  const isCopied = rule.inputs[1 - place]?.flat().includes(expert) === true;
  const tokens = elementCount(typeOf(graph, data).shape) / (isCopied ? experts : 1);
  const path: Node[] = [];
  let from = data;
  for (;;) {
    const maker = makers.get(from);
    const size = elementCount(typeOf(graph, from).shape);
    const allowed = size > tokens ? MOVES : IN_ORDER;
    const [source] = maker?.inputs ?? [];
    if (!maker || !source || maker.domain !== '' || !allowed.has(maker.op)) break;
    if (elementCount(typeOf(graph, source).shape) < tokens) break;
    path.push(maker);
    from = source;
  }
  const { shape } = typeOf(graph, from);
  if (elementCount(shape) !== tokens || shape.length < 2) return null;
  let roles: RoleDims = plainRoles(shape, (axis) => (axis === shape.length - 1 ? 'feature' : 'token'));
  for (const step of path.toReversed()) {
    const next = rolesBehind(graph, step, [roles], (size) => (size === experts ? 'expert' : null));
    if (!next) return null;
    roles = next;
  }
  const operands = [place === 0 ? null : roles, place === 1 ? null : roles];
  return { node, experts, root: from, operands, path };
}

/** Roles of the first result's dimensions; null where they do not follow, or tokens change their order. */
function rolesBehind(
  graph: Graph,
  node: Node,
  operands: readonly (RoleDims | null)[],
  missing?: Parameters<typeof dimensionRoles>[3],
): RoleDims | null {
  const rule = ruleOf(viewOf(graph, node));
  const factors = factorRoles(rule, sidesOf(rule, operands));
  if (!factors) return null;
  const order = tokenOrder(rule.outputs[0], rule, factors);
  const isKept = rule.inputs.every((names) => ['', order].includes(tokenOrder(names, rule, factors)));
  return isKept ? dimensionRoles(rule.outputs[0], rule, factors, missing) : null;
}

function sidesOf(rule: FactorRule, operands: readonly (RoleDims | null)[]) {
  return operands.flatMap((roles, index) => (roles ? [{ names: rule.inputs[index], roles }] : []));
}

/** From the first products on to the sum over experts. */
class ExpertWalk {
  private readonly inside = new Map<string, RoleDims>();
  private readonly steps: ExpertStep[] = [];
  private readonly nodes = new Set<Node>();
  private gate: ExpertBlock['gate'] | null = null;
  private weighted: string | null = null;
  private readonly seeds: ReadonlyMap<Node, Seed>;
  private readonly experts: number;

  constructor(
    private readonly graph: Graph,
    private readonly constant: ReadonlySet<string>,
    private readonly group: readonly Seed[],
  ) {
    this.seeds = new Map(group.map((seed) => [seed.node, seed]));
    this.experts = group[0]?.experts ?? 1;
  }

  /** null where something else than experts of one token each reads what is inside. */
  block(): ExpertBlock | null {
    const { group, experts } = this;
    const [first] = group;
    if (!first || group.some((seed) => seed.experts !== experts)) return null;
    let end: Node | null = null;
    for (const node of this.graph.nodes) {
      const seed = this.seeds.get(node);
      if (!seed && !node.inputs.some((input) => input !== null && this.inside.has(input))) continue;
      if (end) return null;
      const found = seed ? this.product(node, seed.operands) : this.visit(node);
      if (!found) return null;
      this.nodes.add(node);
      if (found === 'end') end = node;
    }
    const { gate, weighted } = this;
    if (!end || !gate || weighted === null) return null;
    if (this.graph.outputs.some((output) => this.inside.has(output))) return null;
    const { steps, nodes } = this;
    const tensors = new Set(this.inside.keys());
    return { experts, root: first.root, steps, gate, weighted, end, nodes, tensors };
  }

  private visit(node: Node): 'inside' | 'end' | null {
    const family = entryOf(node.op, node.domain)?.family;
    const isStacked = stackedOperand(this.graph, node, ruleOf(viewOf(this.graph, node)), this.constant) >= 0;
    if (isStacked)
      return this.product(
        node,
        node.inputs.map((input) => this.inside.get(input ?? '') ?? null),
      );
    const operands = this.operandRoles(node);
    if (!operands) return null;
    const made = rolesBehind(this.graph, node, operands);
    if (!made) return null;
    const roles = roleList(made);
    const outside = node.inputs.findIndex(
      (input, index) => input !== null && !this.inside.has(input) && roleList(operands[index] ?? []).includes('token'),
    );
    const own = node.inputs.findIndex((input) => this.inside.has(input ?? ''));
    if (outside >= 0) {
      const gate = operands[outside] ?? [];
      const isGate = !roleList(gate).includes('feature') && roleSize(gate, 'expert') === this.experts;
      if (this.gate || !isGate || (node.op !== 'Mul' && family !== 'contraction')) return null;
      this.gate = { tensor: node.inputs[outside] ?? '', roles: gate };
      this.weighted = node.inputs[own] ?? '';
      if (!roles.includes('expert')) return this.isEnd(roles) ? 'end' : null;
      return node.op === 'Mul' ? this.keep(node, made) : null;
    }
    if (!roles.includes('expert')) return this.gate && node.op === 'ReduceSum' && this.isEnd(roles) ? 'end' : null;
    if (MOVES.has(node.op) && node.domain === '') return this.step(node, 'move', operands, made);
    if (this.gate) return null;
    if (CUTS.has(node.op) && node.domain === '') return this.step(node, 'cut', operands, made);
    if (family === 'elementwise') return this.step(node, 'plain', operands, made);
    return null;
  }

  /** Tokens in their order, then features. */
  private isEnd(roles: readonly string[]): boolean {
    return (
      roles.length >= 2 && roles.every((role, index) => role === (index === roles.length - 1 ? 'feature' : 'token'))
    );
  }

  private product(node: Node, operands: readonly (RoleDims | null)[]): 'inside' | null {
    const rule = ruleOf(viewOf(this.graph, node));
    const place = operands.indexOf(null);
    const weight = rule.inputs[place];
    const shape = typeOf(this.graph, node.inputs[place] ?? '').shape;
    const all = operands.map((roles) => roles ?? plainRoles(shape, (axis) => (axis === 0 ? 'expert' : 'feature')));
    const made = rolesBehind(this.graph, node, all);
    const last = made?.findLastIndex((parts) => parts.some(({ role }) => role === 'feature')) ?? -1;
    const isPlain = weight?.every((names) => names.length === 1) && made?.[last]?.length === 1;
    if (this.gate || !made || !isPlain || !this.isCanonical(made)) return null;
    return this.step(node, 'product', operands, made);
  }

  private step(
    node: Node,
    kind: ExpertStep['kind'],
    operands: ExpertStep['operands'],
    made: RoleDims,
  ): 'inside' | null {
    if (kind !== 'move' && !this.isCanonical(made)) return null;
    this.steps.push({ node, kind, operands });
    return this.keep(node, made);
  }

  /** Every expert, and one dimension of features at most. */
  private isCanonical(made: RoleDims): boolean {
    const features = made.filter((parts) => parts.some(({ role }) => role === 'feature'));
    return (
      features.length <= 1 && features.every((parts) => parts.length === 1) && roleSize(made, 'expert') === this.experts
    );
  }

  private keep(node: Node, made: RoleDims): 'inside' | null {
    const rule = ruleOf(viewOf(this.graph, node));
    for (const [index, output] of node.outputs.entries()) {
      if (output === null) continue;
      if (index === 0) {
        this.inside.set(output, made);
        continue;
      }
      const factors = factorRoles(rule, sidesOf(rule, this.operandRoles(node) ?? []));
      const roles = factors && dimensionRoles(rule.outputs[index], rule, factors);
      if (!roles) return null;
      this.inside.set(output, roles);
    }
    return 'inside';
  }

  /** Roles of all operands: those from inside, and what the rule makes of the others; features where nothing says more. */
  private operandRoles(node: Node): readonly (RoleDims | null)[] | null {
    const rule = ruleOf(viewOf(this.graph, node));
    const known = node.inputs.map((input) => this.inside.get(input ?? '') ?? null);
    const factors = factorRoles(rule, sidesOf(rule, known));
    if (!factors) return null;
    const all = node.inputs.map((input, index) =>
      input === null ? null : (known[index] ?? dimensionRoles(rule.inputs[index], rule, factors, () => 'feature')),
    );
    return all;
  }
}
