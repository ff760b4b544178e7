/**
 * @file optimizer.py of an emitted program: the operators that update parameters as a function, which all parameters with the
 * same operators share. In a function an operator writes over an operand that nothing reads after it.
 */
import { elementCount, type TensorType } from '../../ir/graph.js';
import { type ComputeNode, readsOf, resultsOf } from '../../partition/sharded-graph.js';
import { INDENT } from './body.js';
import { Names, statement, torchImports } from './python.js';

const BODY = INDENT.slice(4);

/** Operators that belong together, and the tensors that others read of them. */
export interface UpdateGroup {
  readonly nodes: readonly ComputeNode[];
  readonly results: readonly string[];
}

/** Fewer operators do not become a function. */
const LEAST_OPERATORS = 4;

/**
 * By last operator: operators of a segment's updates that are connected through tensors that they compute. Single numbers (a
 * norm, a corrected rate) belong to all parameters; operators with others between them, such as those around a parameter's own
 * norm, are not a group.
 */
export function updateGroups(
  nodes: readonly ComputeNode[],
  isSingle: (name: string) => boolean,
  isRead: (name: string, by: ReadonlySet<ComputeNode>) => boolean,
): ReadonlyMap<ComputeNode, UpdateGroup> {
  const groupOf = new Map<string, Set<ComputeNode>>();
  for (const node of nodes) {
    if (node.phase !== 'update' || resultsOf(node).some(isSingle)) continue;
    const own = new Set([node, ...readsOf(node).flatMap((name) => [...(groupOf.get(name) ?? [])])]);
    for (const other of own) for (const name of resultsOf(other)) groupOf.set(name, own);
  }
  const groups = new Map<ComputeNode, UpdateGroup>();
  for (const members of new Set(groupOf.values())) {
    const own = nodes.filter((node) => members.has(node));
    const last = own.at(-1) as ComputeNode;
    const made = new Set(own.flatMap(resultsOf));
    const between = nodes.slice(nodes.indexOf(own[0] as ComputeNode), nodes.indexOf(last));
    const isCut = between.some((node) => !members.has(node) && readsOf(node).some((name) => made.has(name)));
    if (members.size < LEAST_OPERATORS || isCut) continue;
    groups.set(last, { nodes: own, results: [...made].filter((name) => isRead(name, members)) });
  }
  return groups;
}

/** The functions of a program. */
export class OptimizerFile {
  /** By text without the name. */
  private readonly functions = new Map<string, string>();

  /** The name of the function with these parameters and this body. */
  nameOf(parameters: readonly string[], body: readonly string[]): string {
    const text = [`(${parameters.join(', ')}):`, ...body].join('\n');
    const known = this.functions.get(text);
    if (known !== undefined) return known;
    const name = this.functions.size === 0 ? 'update_parameters' : `update_parameters_${this.functions.size + 1}`;
    this.functions.set(text, name);
    return name;
  }

  get names(): readonly string[] {
    return [...this.functions.values()];
  }

  /** The file, or null if there are no functions. */
  text(): string | null {
    if (this.functions.size === 0) return null;
    const functions = [...this.functions].map(([text, name]) => {
      const [head = '', ...body] = text.split('\n');
      return [...statement(`def ${name}${head}`, ''), ...body].join('\n');
    });
    const imports = torchImports(functions.join('\n'));
    const imported = imports.length > 0 ? [...imports, '', ''] : [''];
    return [
      '"""The operators that update parameters, in the order of the graph: of several parameters at once, which are lists."""',
      '',
      ...imported,
      functions.join('\n\n\n'),
      '',
    ].join('\n');
  }
}

/** A parameter of a function, and the expression that is given for it. */
export interface UpdateArgument {
  readonly parameter: string;
  readonly text: string;
  /** It is a list, with an expression for each parameter of the model. */
  readonly isList: boolean;
}

/** The names of tensors in a function, and its arguments for them. */
export class UpdateNames {
  readonly given: UpdateArgument[] = [];
  private readonly names = new Names();
  private readonly known = new Map<string, string>();
  /** By operand's expression: its parameter. */
  private readonly byText = new Map<string, string>();

  read(name: string, outside: (name: string) => string, { shape }: Pick<TensorType, 'shape'>): string {
    const known = this.known.get(name);
    if (known !== undefined) return known;
    const text = outside(name);
    const own = this.byText.get(text) ?? this.parameter(text, shape);
    this.known.set(name, own);
    return own;
  }

  private parameter(text: string, shape: readonly number[]): string {
    const state = /^self\..*_(mean|square|momentum|master)$/.exec(text)?.[1];
    const isWeight = text.startsWith('self.') && !/^self\.(constant|offset)/.test(text);
    const base = state ?? (isWeight ? 'weight' : elementCount(shape) > 1 ? 'gradient' : 'number');
    const isList = base !== 'number';
    const own = this.names.take(isList ? `${base}s` : base);
    this.byText.set(text, own);
    this.given.push({ parameter: own, text, isList });
    return own;
  }

  make(name: string, base: string): string {
    const own = this.names.take(base);
    this.known.set(name, own);
    return own;
  }

  /** The variable of a tensor that another is written over. */
  over(name: string, operand: string): string | undefined {
    const own = this.known.get(operand);
    if (own !== undefined) this.known.set(name, own);
    return own;
  }

  local(base: string): string {
    return this.names.take(base);
  }

  nameOf(name: string): string {
    return this.known.get(name) as string;
  }
}

/** The lines of a function's body, which returns the tensors of some lists in one. */
export function functionBody(statements: readonly string[], results: readonly string[]): readonly string[] {
  return [
    ...statements.flatMap((text) => statement(text, BODY)),
    ...(results.length > 0 ? statement(`return [${results.map((name) => `*${name}`).join(', ')}]`, BODY) : []),
  ];
}
