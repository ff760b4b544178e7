/**
 * @file From annotations to pins: globs become the nodes and tensors they fit, notations become layouts, axes of factors and
 * split counts on the mesh at hand. Pins that contradict each other on one operator or tensor are an error that names both; where
 * their priorities differ, the higher one applies and the other does not apply there.
 */
import type { Graph, Node } from '../../ir/graph.js';
import { fileTensorOf, typeOf } from '../../ir/graph.js';
import { operatorOf } from '../../ir/operator-of.js';
import { entryOf, ruleOf } from '../../ir/ops/index.js';
import { graphDemand } from '../file-form.js';
import type { Mesh } from '../mesh.js';
import type { LayoutDemand, OperatorPin, Pin, PinSource } from '../pin.js';
import { contradiction, demandsAgree, demandText, tooManyParts } from './agreement.js';
import { type Annotations, NOTATIONS, type Notation, type PinAnnotation } from './annotation.js';
import { operatorDemands, type Subjects, tensorDemands } from './demands.js';
import { factorAxes } from './factor-axes.js';
import type { DemandSubject } from './layout-demand.js';
import { type GraphNames, graphNames, type NodeGroup, targetsOf } from './match-targets.js';
import { isGlob } from './name-glob.js';
import { doesNotFit } from './pin-error.js';
import { settled } from './settle.js';
import { type StyleContext, styleContext, stylePins } from './styles.js';

/**
 * The pins that annotations mean for a graph on a mesh, in the file's order.
 * @throws AutoparError (input) `pin-matches-nothing`, `pin-does-not-fit`, `pins-contradict`, with file and line
 */
export function resolveAnnotations(annotations: Annotations, graph: Graph, mesh: Mesh): readonly Pin[] {
  const names = graphNames(graph);
  const styles = styleContext(graph, mesh);
  const pins = annotations.pins.flatMap((pin) => pinsOf(pin, annotations.file, names, styles));
  return settled(pins, graph, mesh);
}

/** The place and the content of a pin, in short: `pins[2]: layout [dp, -] on h.*.c_fc`. */
export function sourceOf(pin: PinAnnotation, file: string | null, keys: readonly (keyof PinAnnotation)[]): PinSource {
  const given = keys.filter((key) => pin[key] !== undefined);
  const written = given.map((key) => `${key} ${valueText(pin[key])}`).join(', ');
  const [first] = given;
  const line = (given.length === 1 && first !== undefined ? pin.lines[first as Notation] : undefined) ?? pin.line;
  return {
    file,
    line,
    text: `pins[${pin.index}]: ${written} on ${pin.target.glob}`,
    priority: pin.priority ?? 0,
    why: pin.why ?? null,
  };
}

function valueText(value: unknown): string {
  const text = typeof value === 'string' ? value : JSON.stringify(value).replaceAll('"', '');
  return text.length > 60 ? `${text.slice(0, 57)}…` : text;
}

function pinsOf(pin: PinAnnotation, file: string | null, names: GraphNames, styles: StyleContext): readonly Pin[] {
  const notations = NOTATIONS.filter((key) => pin[key] !== undefined);
  const source = sourceOf(pin, file, notations.length > 0 ? notations : ['stage', 'recompute', 'place']);
  const targets = targetsOf(pin, names, source);
  if (targets.kind === 'tensors')
    return targets.tensors.map((tensor): Pin => {
      const file = fileTensorOf(names.graph, tensor);
      const subject = { says: tensor, shape: file?.shape ?? typeOf(names.graph, tensor).shape };
      const demands = tensorDemands(pin, subject, styles.mesh, source);
      const demand = graphDemand(theOne(demands, styles.mesh, source, tensor), file);
      return { kind: 'tensor', tensor, source, demand };
    });
  return [
    ...operatorPins(pin, targets.groups, styles, source),
    ...targets.groups.flatMap(({ nodes }) => nodes.flatMap((node) => decisionsOf(pin, node, file))),
  ];
}

/** Stage, recompute and place: for the steps after planning. */
function decisionsOf(pin: PinAnnotation, { name: node }: Node, file: string | null): readonly Pin[] {
  const { stage, chunk, recompute, place } = pin;
  const source = (...keys: readonly ('stage' | 'chunk' | 'recompute' | 'place')[]) => sourceOf(pin, file, keys);
  return [
    ...(stage === undefined
      ? []
      : [
          {
            kind: 'stage',
            node,
            stage,
            ...(chunk === undefined ? {} : { chunk }),
            source: source('stage', 'chunk'),
          } as const,
        ]),
    ...(recompute === undefined ? [] : [{ kind: 'recompute', node, recompute, source: source('recompute') } as const]),
    ...(place === undefined ? [] : [{ kind: 'place', node, place, source: source('place') } as const]),
  ];
}

function operatorPins(
  pin: PinAnnotation,
  groups: readonly NodeGroup[],
  styles: StyleContext,
  source: PinSource,
): readonly OperatorPin[] {
  const { style, factors } = pin;
  const styled = style ? groups.flatMap(({ says, nodes }) => stylePins(style, says, nodes, styles, source)) : [];
  const about = groups.flatMap(({ nodes }) => nodes);
  // A glob over nodes or types gathers operators of many rules: factors apply to those that have them.
  const exact = pin.target.kind === 'node' && !isGlob(pin.target.glob);
  const withFactors = about.filter((node) => {
    const known = ruleOf(operatorOf(styles.graph, node)).factors;
    return factors !== undefined && (exact || Object.keys(factors).every((name) => known.has(name)));
  });
  const [example] = about;
  if (factors && withFactors.length === 0 && example)
    throw doesNotFit(
      source,
      `no operator that fits has the factors ${Object.keys(factors).join(', ')}`,
      `${example.name} has ${[...ruleOf(operatorOf(styles.graph, example)).factors.keys()].join(', ')}; ` +
        'docs/reference/operators.md lists all rules',
    );
  const tensors = pin.layout !== undefined || pin.split !== undefined || pin.map !== undefined;
  const named = new Set(withFactors);
  const direct = (tensors ? about : withFactors).map((node) =>
    directPin(pin, node, named.has(node), styles.graph, styles.mesh, source),
  );
  return [...styled, ...direct];
}

/** One pin of layouts, splits, maps and factors, after a check that they agree. */
function directPin(
  pin: PinAnnotation,
  node: Node,
  withFactors: boolean,
  graph: Graph,
  mesh: Mesh,
  source: PinSource,
): OperatorPin {
  const operator = operatorOf(graph, node);
  const rule = ruleOf(operator);
  const linear = entryOf(node.op, node.domain)?.linear(operator) ?? [];
  const asked = operatorDemands(pin, subjectsOf(graph, node), mesh, source).map((sides) => ({
    ...sides,
    operands: sides.operands.map(
      (demand, index) => demand && graphDemand(demand, fileTensorOf(graph, node.inputs[index] ?? null)),
    ),
  }));
  const axes = withFactors && pin.factors ? factorAxes(pin.factors, rule, linear, mesh, source) : null;
  const notations = axes ? [...asked, axes] : asked;
  for (const [index, notation] of notations.entries()) {
    const problem = contradiction(notation, notation, rule, mesh, ['in one place', 'in another']);
    if (problem)
      throw doesNotFit(
        source,
        `it does not suit ${node.name} (${rule.text}): ${problem}`,
        'a factor has one sharding in all tensors, and an axis shards one factor',
      );
    for (const other of notations.slice(index + 1)) {
      const difference = contradiction(notation, other, rule, mesh, ['in one notation', 'in another']);
      if (difference)
        throw doesNotFit(source, `its notations differ on ${node.name}: ${difference}`, 'use one notation');
    }
  }
  const merged: OperatorPin = {
    kind: 'operator',
    node: node.name,
    source,
    ...axes,
    ...(asked.length === 0 ? {} : { operands: strongest(asked.map((item) => item.operands)) }),
    ...(asked.length === 0 ? {} : { results: strongest(asked.map((item) => item.results)) }),
  };
  const excess = tooManyParts(merged, rule, mesh);
  if (excess) throw doesNotFit(source, `on ${node.name} ${excess}`, 'the parts of all factors multiply');
  return merged;
}

function subjectsOf(graph: Graph, node: Node): Subjects {
  const side = (names: readonly (string | null)[], word: string) =>
    names.map((name, index): DemandSubject | null => {
      const type = name === null ? undefined : graph.tensors.get(name);
      const shape = fileTensorOf(graph, name)?.shape ?? type?.shape;
      return shape ? { says: `${word} ${index} (${name})`, shape } : null;
    });
  return { operands: side(node.inputs, 'operand'), results: side(node.outputs, 'result') };
}

/** Per tensor the layout where a notation gives one, else the split: they agree, and a layout is more specific. */
function strongest(sides: readonly (readonly (LayoutDemand | null)[])[]): readonly (LayoutDemand | null)[] {
  const length = Math.max(...sides.map((side) => side.length));
  return Array.from({ length }, (_, index) => {
    const demands = sides.flatMap((side) => side[index] ?? []);
    return demands.find(({ kind }) => kind === 'layout') ?? demands[0] ?? null;
  });
}

function theOne(demands: readonly LayoutDemand[], mesh: Mesh, source: PinSource, tensor: string): LayoutDemand {
  const [demand] = strongest(demands.map((item) => [item]));
  if (!demand) throw new Error(`${source.text} requests nothing of ${tensor}`);
  const other = demands.find((item) => !demandsAgree(demand, item, mesh));
  if (other)
    throw doesNotFit(
      source,
      `its notations differ: ${demandText(demand, mesh)} is not ${demandText(other, mesh)}`,
      'use one notation',
    );
  return demand;
}
