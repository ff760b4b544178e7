/**
 * @file Einsums of three operands and more as a chain of Einsums with two, the cheapest first: gates, activations and weights of
 * experts in one Einsum,
 *
 *     te,tef,efd->td   →   te,tef->tef   tef,efd->td
 */
import { elementCount, type Graph, type Node, typeOf } from '../graph.js';
import { ForwardWriter } from '../passes/forward-writer.js';

interface Operand {
  readonly tensor: string;
  readonly letters: string;
}

/** The graph with Einsums of at most two operands, or the graph itself. Einsums with repeated letters or ellipses stay. */
export function splitEinsums(graph: Graph): Graph {
  const writer = new ForwardWriter(graph);
  let isChanged = false;
  const nodes = graph.nodes.flatMap((node) => {
    const terms = termsOf(node);
    if (!terms) return [node];
    isChanged = true;
    split(graph, writer, node, terms);
    return writer.take();
  });
  return isChanged ? writer.graph(nodes) : graph;
}

function termsOf({ op, domain, inputs, attributes, phase }: Node): readonly Operand[] | null {
  const equation = attributes['equation'];
  if (op !== 'Einsum' || domain !== '' || phase !== 'forward' || inputs.length < 3 || typeof equation !== 'string')
    return null;
  const [operands = ''] = equation.split('->');
  const terms = operands.split(',').map((letters, index) => ({ tensor: inputs[index] ?? '', letters: letters.trim() }));
  const isPlain = terms.every(({ letters }) => /^[a-zA-Z]*$/.test(letters) && new Set(letters).size === letters.length);
  return isPlain && equation.includes('->') ? terms : null;
}

function split(graph: Graph, writer: ForwardWriter, node: Node, given: readonly Operand[]): void {
  const equation = String(node.attributes['equation']);
  const result = equation.split('->')[1]?.trim() ?? '';
  const sizes = new Map<string, number>();
  for (const { tensor, letters } of given)
    typeOf(graph, tensor).shape.forEach((size, axis) => {
      const letter = letters[axis] ?? '';
      sizes.set(letter, Math.max(size, sizes.get(letter) ?? 1));
    });
  let terms = given;
  while (terms.length > 2) {
    const pairs = terms.flatMap((first, index) => terms.slice(index + 1).map((second) => [first, second] as const));
    const priced = pairs.map(([first, second]) => {
      const rest = terms.filter((term) => term !== first && term !== second);
      const all = [...new Set(first.letters + second.letters)];
      const kept = all.filter(
        (letter) => result.includes(letter) || rest.some(({ letters }) => letters.includes(letter)),
      );
      return {
        first,
        second,
        rest,
        letters: kept.join(''),
        flops: elementCount(all.map((one) => sizes.get(one) ?? 1)),
      };
    });
    const [best] = priced.toSorted((one, other) => one.flops - other.flops);
    if (!best) return;
    const { first, second, rest, letters } = best;
    const tensor = writer.add(`${node.name}/pair`, node, 'Einsum', [first.tensor, second.tensor], {
      equation: `${first.letters},${second.letters}->${letters}`,
    });
    terms = [...rest, { tensor, letters }];
  }
  const inputs = terms.map(({ tensor }) => tensor);
  const letters = terms.map((term) => term.letters).join();
  writer.into(node.outputs[0] ?? '', node, 'Einsum', inputs, { equation: `${letters}->${result}` });
}
