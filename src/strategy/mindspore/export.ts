/**
 * @file A plan as a MindSpore strategy checkpoint. Features that MindSpore cannot express are left out and named: partial sums
 * that are passed on, dimensions in pieces, a parameter that two operators hold in two layouts, and all that its file lacks
 * (docs/checkpoints.md).
 */
import { fileTensorOf, type Graph } from '../../ir/graph.js';
import { fileLayout, fileShape } from '../../sharding-propagation/file-form.js';
import { type Layout, sameShards } from '../../sharding-propagation/layout.js';
import { layoutText } from '../../sharding-propagation/layout-text.js';
import { axesSize, type Mesh } from '../../sharding-propagation/mesh.js';
import type { PlacedOperator, PlacedPlan } from '../placed-operators.js';
import { deviceLayout, splitCounts } from './device-matrix.js';
import type { KeyedStrategy, MindSporeStrategy, NamedLayout, ParameterLayout } from './document.js';
import { isParameter, isRounding, strategyKeys } from './keys.js';

export interface ExportedStrategy {
  readonly document: MindSporeStrategy;
  /** Features of the plan that MindSpore cannot express, a line each. */
  readonly notes: readonly string[];
  /** Parameters without a layout in the document: in pieces or padded. */
  readonly leftOut: readonly string[];
}

/** The value that MindSpore writes into `current_stage`: how often a file was saved. */
const FIRST_SAVE = 1;

/**
 * The checkpoint of a plan on its graph.
 * @param stage only this pipeline stage, as each of MindSpore's stages writes its own file; left out: all of them in one,
 *   parameters prefixed with `<stage>-` where there are several, as merging does
 */
export function mindSporeStrategy(graph: Graph, placed: PlacedPlan, stage?: number): ExportedStrategy {
  const meshOf = (of: number): Mesh => placed.meshes?.[of] ?? placed.assignment.mesh;
  const keys = new Map([...strategyKeys(graph)].map(([{ name }, key]) => [name, key]));
  // MindSpore derives strategies of gradients and updates from the forward's, and saves none of them; it rounds nothing, and
  // brings no sequence into zig-zag order.
  const forward = placed.operators
    .filter(({ node }) => node.phase === 'forward' && !isRounding(node) && keys.has(node.name))
    .map((operator) => ({ ...operator, operands: operandsInFile(graph, operator) }));
  // As merging the files of the stages gives them.
  const chosen = forward
    .filter((operator) => stage === undefined || operator.stage === stage)
    .sort((a, b) => a.stage - b.stage);
  const stages = new Set(chosen.map((operator) => operator.stage));
  const perKey = <Value>(value: (operator: PlacedOperator) => Value | null): ReadonlyMap<string, Value> =>
    new Map(
      chosen.flatMap((operator) => {
        const stated = value(operator);
        return stated === null ? [] : [[keys.get(operator.node.name) ?? '', stated] as const];
      }),
    );
  const strategy = (layouts: readonly (Layout | null)[], of: number): KeyedStrategy => ({
    stage: of,
    splits: layouts.flatMap((layout) => (layout ? [splitCounts(layout, meshOf(of))] : [])),
  });
  const { parameters, notes, leftOut } = parameterLayouts(graph, placed, chosen, meshOf, stages.size > 1);
  const carrying = chosen.filter(({ results }) => results.some((layout) => (layout?.partial.length ?? 0) > 0)).length;
  return {
    document: {
      currentStage: FIRST_SAVE,
      operators: perKey((operator) => strategy(operator.operands, operator.stage)),
      parameters,
      outputs: perKey((operator) => strategy(operator.results, operator.stage)),
      operandLayouts: perKey((operator) => namedLayouts(operator.operands, meshOf(operator.stage))),
      resultLayouts: perKey((operator) => namedLayouts(operator.results, meshOf(operator.stage))),
    },
    notes: [
      ...notes,
      ...(placed.chunks > 1
        ? [`stages have ${placed.chunks} chunks each; MindSpore stores only the stage of an operator`]
        : []),
      ...(carrying > 0 ? [`${carrying} operators have a pending reduction; MindSpore reduces immediately`] : []),
    ],
    leftOut,
  };
}

/** Layouts of operands, for weights in the file's dimensions. */
function operandsInFile(graph: Graph, { node, operands }: PlacedOperator): PlacedOperator['operands'] {
  return operands.map((layout, index) => layout && fileLayout(layout, fileTensorOf(graph, node.inputs[index] ?? null)));
}

/** Null where one of them has no device matrix, or there are none. */
function namedLayouts(layouts: readonly (Layout | null)[], mesh: Mesh): readonly NamedLayout[] | null {
  const named = layouts.flatMap((layout) => (layout ? [deviceLayout(layout, mesh)] : []));
  return named.length > 0 && named.every((layout) => layout !== null) ? named : null;
}

function parameterLayouts(
  graph: Graph,
  { assignment }: PlacedPlan,
  operators: readonly PlacedOperator[],
  meshOf: (stage: number) => Mesh,
  prefixed: boolean,
): { readonly parameters: ReadonlyMap<string, ParameterLayout> } & Pick<ExportedStrategy, 'notes' | 'leftOut'> {
  const kept = new Map<
    string,
    { readonly layout: Layout; readonly mesh: Mesh; readonly reader: string; readonly tensor: string }
  >();
  const notes: string[] = [];
  const torn = new Set<string>();
  for (const { node, stage, operands } of operators) {
    const mesh = meshOf(stage);
    node.inputs.forEach((tensor, index) => {
      const layout = operands[index];
      if (!layout || !isParameter(graph, tensor)) return;
      const name = prefixed ? `${stage}-${tensor}` : tensor;
      const before = kept.get(name);
      if (!before) kept.set(name, { layout, mesh, reader: node.name, tensor });
      else if (!torn.has(name) && !sameShards({ ...before.layout, partial: [] }, { ...layout, partial: [] }, mesh)) {
        torn.add(name);
        const [first, second] = [before.layout, layout].map((item) => layoutText(item, mesh));
        notes.push(
          `parameter ${tensor} is ${first} for ${before.reader} and ${second} for ${node.name}; MindSpore stores ` +
            'one layout, the first',
        );
      }
    });
  }
  const parameters = new Map<string, ParameterLayout>();
  const leftOut: string[] = [];
  for (const [name, { layout, mesh, tensor }] of kept) {
    const device = deviceLayout(layout, mesh);
    if (device) {
      const { deviceMatrix, tensorMap } = device;
      parameters.set(name, {
        ...{ deviceMatrix, tensorMap, shape: fileShape(graph, tensor), splitShape: [], indicesOffset: [], field: 0 },
        ...optimizerShards(layout, assignment.inputs.get(tensor), mesh),
      });
    } else {
      leftOut.push(tensor);
      notes.push(
        `parameter ${tensor} is ${layoutText(layout, mesh)}, in pieces or padded, which MindSpore cannot express; it is omitted`,
      );
    }
  }
  return { parameters, notes, leftOut };
}

/** Further shards of a parameter at rest, over axes that do not shard it for operators: ZeRO 3. */
function optimizerShards(
  read: Layout,
  atRest: Layout | undefined,
  mesh: Mesh,
): Pick<ParameterLayout, 'optimizerShardStep' | 'optimizerShardSize'> {
  const axesOf = ({ dims }: Layout) => dims.flat().flatMap(({ axes }) => axes);
  const known = axesOf(read);
  const further = atRest ? axesOf(atRest).filter((axis) => !known.includes(axis)) : [];
  if (further.length === 0) return { optimizerShardStep: 0, optimizerShardSize: 0 };
  return { optimizerShardStep: axesSize(mesh, known), optimizerShardSize: axesSize(mesh, further) };
}
