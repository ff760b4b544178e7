/**
 * @file The calls that update parameters. Updates in one function of optimizer.py are one call with lists, as long as nothing
 * between them reads what they make.
 */
import { elementCount } from '../../ir/graph.js';
import { type ComputeNode, readsOf } from '../../partition/sharded-graph.js';
import type { Header } from './body.js';
import { joinedPasses } from './joined-passes.js';
import { type ListedNames, listed, wordsOf } from './listed.js';
import type { MethodNaming } from './naming.js';
import {
  isHosted,
  localType,
  type MadeStatements,
  numberIn,
  operatorStatements,
  passStatement,
  typeIn,
} from './operator-statements.js';
import { functionBody, type UpdateArgument, type UpdateGroup, UpdateNames } from './optimizer-file.js';
import type { TorchTensors } from './tensors.js';
import { isFresh, writtenOver } from './written-over.js';

/**
 * Parameters of so many elements are updated together. The function's temporary tensors are as large as they are, and a kernel
 * for more runs longer than it takes to start another.
 */
const MOST_ELEMENTS = 2 ** 22;

/** An update of one parameter, or of several. */
interface UpdateCall {
  readonly called: string;
  /** A tensor that it updates. */
  readonly first: string;
  readonly elements: number;
  /** What is given for parameters that are no lists. */
  readonly singles: string;
  /** By parameter of the model: the arguments, and the results that the function returns. */
  readonly updates: readonly { readonly given: readonly UpdateArgument[]; readonly results: readonly string[] }[];
}

/** Joins the updates of a segment, in its order. */
export class UpdateCalls {
  /** By function and what all of its updates have in common. */
  private readonly open = new Map<string, UpdateCall>();

  constructor(
    private readonly tensors: TorchTensors,
    private readonly naming: MethodNaming,
    private readonly headersOf: (tensor: string) => readonly Header[],
  ) {}

  /** The calls that have to stand before an operator. */
  before(node: ComputeNode): readonly MadeStatements[] {
    const read = new Set(readsOf(node));
    const keys = [...this.open].flatMap(([key, { updates }]) =>
      updates.some(({ results }) => results.some((name) => read.has(name))) ? [key] : [],
    );
    return keys.flatMap((key) => this.close(key));
  }

  /** Adds an update to a call. The call that has become too large for it, if one has. */
  add(group: UpdateGroup, owned: readonly string[]): readonly MadeStatements[] {
    const call = callOf(group, owned, this.tensors, this.naming);
    const key = JSON.stringify([call.called, call.singles, this.headersOf(call.first)]);
    const known = this.open.get(key);
    const elements = (known?.elements ?? 0) + call.elements;
    const isJoined = known !== undefined && elements <= MOST_ELEMENTS;
    const ended = isJoined ? [] : this.close(key);
    this.open.set(key, isJoined ? { ...known, elements, updates: [...known.updates, ...call.updates] } : call);
    return ended;
  }

  /** Ends all calls. */
  end(): readonly MadeStatements[] {
    return [...this.open.keys()].flatMap((key) => this.close(key));
  }

  private close(key: string): readonly MadeStatements[] {
    const call = this.open.get(key);
    if (!call) return [];
    this.open.delete(key);
    const { called, updates, first } = call;
    const [any] = updates;
    const given = (any?.given ?? []).map(({ text, isList }, index) =>
      isList ? `[${updates.map((update) => update.given[index]?.text).join(', ')}]` : text,
    );
    const results = (any?.results ?? []).flatMap((_, index) => updates.map((update) => update.results[index] ?? ''));
    const targets = results.map((name) => this.naming.make(name, 'updated'));
    const left = targets.length === 1 ? `(${targets[0]},) = ` : targets.length > 0 ? `${targets.join(', ')} = ` : '';
    return [{ statements: [{ text: `${left}${called}(${given.join(', ')})`, comment: '' }], targets, first }];
  }
}

/** The update of one parameter, which may write over some of its operands. */
function callOf(group: UpdateGroup, owned: readonly string[], tensors: TorchTensors, naming: MethodNaming): UpdateCall {
  const { nodes, results } = group;
  const names = new UpdateNames();
  const order = joinedPasses(
    nodes,
    new Set(results),
    (name) => numberIn(name, tensors),
    (name, result) => String(localType(name, tensors).shape) === String(localType(result, tensors).shape),
  );
  const run = order.map(({ node }) => node);
  const over = writtenOver(run, new Set(results), (name) => localType(name, tensors), owned);
  const hosted = nodes.some(({ outputs }) => outputs.some((name) => isHosted(name, tensors)));
  const outside = (name: string) => (hosted ? naming.onHost(name) : undefined) ?? naming.read(name);
  const scalars = new Set<string>();
  const inside: MethodNaming = {
    ...naming,
    read: (name) => {
      const type = typeIn(name, tensors);
      const own = names.read(name, outside, type);
      if (type.shape.length === 0) scalars.add(own);
      return own;
    },
    onHost: () => undefined,
    make: (name, base) => names.make(name, base),
    over: (name, operand) => names.over(name, operand),
    local: (base) => names.local(base),
  };
  const statements = order.flatMap(({ node, pass }) =>
    pass
      ? [passStatement(node, pass, tensors, inside, over.get(node))]
      : operatorStatements(node, tensors, inside, over.get(node)).statements,
  );
  const lists = new Set(names.given.filter(({ isList }) => isList).map(({ parameter }) => parameter));
  const known: ListedNames = { lists, scalars, rebound: new Set() };
  const texts = statements.map(({ text }) => listed(text, known));
  const returned = results.filter((name) => {
    const own = names.nameOf(name);
    const given = names.given.find(({ parameter }) => parameter === own);
    return !given || known.rebound.has(own) || !naming.staysIn(name, given.text);
  });
  const called = tensors.optimizer.nameOf(
    names.given.map(({ parameter }) => parameter),
    functionBody(
      withDeletions(
        texts,
        new Set([...names.given.map(({ parameter }) => parameter), ...results.map((name) => names.nameOf(name))]),
      ),
      returned.map((name) => names.nameOf(name)),
    ),
  );
  const singles = names.given.filter(({ isList }) => !isList).map(({ text }) => text);
  const elements = Math.max(
    ...nodes.flatMap(({ outputs }) => outputs.map((name) => (name ? sizeOf(name, tensors) : 0))),
  );
  return {
    ...{ called, elements, singles: singles.join(', '), first: results[0] ?? '' },
    updates: [{ given: names.given, results: returned }],
  };
}

/** Deletes lists behind the statement that reads them last: others take their memory. */
function withDeletions(texts: readonly string[], kept: ReadonlySet<string>): readonly string[] {
  const last = new Map<string, number>();
  for (const [index, text] of texts.entries())
    for (const word of wordsOf(text)) if (!kept.has(word)) last.set(word, index);
  const made = new Set(texts.flatMap((text) => /^(\w+) = /.exec(text)?.[1] ?? []));
  return texts.flatMap((text, index) => {
    const gone = [...made].filter((name) => last.get(name) === index);
    return gone.length > 0 && index < texts.length - 1 ? [text, `del ${gone.join(', ')}`] : [text];
  });
}

function sizeOf(name: string, tensors: TorchTensors): number {
  return elementCount(localType(name, tensors).shape);
}

/**
 * Operands that a group may write over: state whose next value it makes, and gradients in memory of their own, that nothing reads
 * besides or afterwards.
 */
export function ownedBy(
  { nodes, results }: UpdateGroup,
  segment: readonly ComputeNode[],
  frees: readonly string[],
  tensors: TorchTensors,
): readonly string[] {
  const { sharded, nodeOf, readers } = tensors;
  const own = new Set(nodes);
  const others = new Set(segment.filter((node) => !own.has(node)).flatMap(readsOf));
  const isFreed = (name: string) =>
    frees.includes(name) && !others.has(name) && !sharded.outputs.some(({ tensor }) => tensor === name);
  const state = sharded.state.flatMap(({ from, to }) => (results.includes(from) && isFreed(to) ? [to] : []));
  const gradients = [...new Set(nodes.flatMap(readsOf))].filter((name) => {
    const maker = nodeOf.get(name);
    const isOwn = maker !== undefined && !own.has(maker) && isFresh(maker, (tensor) => localType(tensor, tensors));
    return isOwn && isFreed(name) && (readers.get(name) ?? []).every((node) => own.has(node));
  });
  return [...state, ...gradients];
}
