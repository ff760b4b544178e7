/**
 * @file Annotations and configurations as callers use them: read once, resolved to pins for each mesh that is planned for.
 */
import { AutoparError } from '../../ir/error.js';
import type { Graph } from '../../ir/graph.js';
import type { OnnxModel } from '../../ir/onnx/model.js';
import { withoutUndefined } from '../../ir/without-undefined.js';
import type { AnnotationRecord, Annotations } from '../../sharding-propagation/annotations/annotation.js';
import {
  type AnnotationEdit,
  editAnnotations as edited,
} from '../../sharding-propagation/annotations/edit-annotations.js';
import { refuseIdleAxes } from '../../sharding-propagation/annotations/idle-axes.js';
import { pinsOfModel, stagePinsOfModel } from '../../sharding-propagation/annotations/model-pins.js';
import { resolveAnnotations } from '../../sharding-propagation/annotations/resolve-annotations.js';
import { settled } from '../../sharding-propagation/annotations/settle.js';
import { type Mesh, makeMesh } from '../../sharding-propagation/mesh.js';
import type { Pin, RecomputePin, StagePin } from '../../sharding-propagation/pin.js';
import { checkArguments, having, object, objects, options, text } from '../options/kinds.js';
import { pinsOfConfig } from '../parallel-config/config-pins.js';
import type { ParallelConfig } from '../parallel-config/parallel-config.js';

export type { AnnotationRecord, Annotations, PinRecord } from '../../sharding-propagation/annotations/annotation.js';
export { type AnnotationEdit, writeAnnotations } from '../../sharding-propagation/annotations/edit-annotations.js';
export { annotationsOf, readAnnotations } from '../../sharding-propagation/annotations/read-annotations.js';
export { type ConfigOptions, optionsOf } from '../parallel-config/config-options.js';
export { checkAgainstModel } from '../parallel-config/config-rules.js';
export type { ParallelConfig } from '../parallel-config/parallel-config.js';
export { readParallelConfig } from '../parallel-config/read-config.js';
export { type ParallelSettings, setParallelConfig } from '../parallel-config/set-parallel-config.js';

const EDIT = having(options<AnnotationEdit>({ pins: objects, mesh: object, remove: objects }), 'pins');

/**
 * The text of a file with pins added, replaced and removed. Keys of a replaced pin that keep their value keep their comments.
 * @throws AutoparError (input) where the text is not valid, before or after
 */
export async function editAnnotations(content: string, file: string, edit: AnnotationEdit): Promise<string> {
  checkArguments('editAnnotations', { content: [content, text], file: [file, text], edit: [edit, EDIT] });
  return edited(content, file, edit);
}

/** All sources of pins. */
export interface PinSources {
  readonly annotations?: Annotations | null;
  readonly config?: ParallelConfig | null;
  /** The model's own device annotations. */
  readonly model?: Pick<OnnxModel, 'file' | 'multiDevice'> | null;
  /** Degrees that the user has fixed. The others are chosen, and a pin that names such an axis needs several ranks on it. */
  readonly degrees?: AnnotatedDegrees;
  /** Stages of the pipeline, each on a mesh; 1 if left out. */
  readonly stages?: number;
}

type AnnotatedDegrees = NonNullable<AnnotationRecord['mesh']>;

/**
 * All pins for a graph on a mesh. The annotations file takes precedence over the model and the configuration.
 * @throws AutoparError (input) where a pin is impossible, or two contradict each other
 */
export function pinsFor(
  { annotations, config, model, degrees = {}, stages = 1 }: PinSources,
  graph: Graph,
  mesh: Mesh,
): { readonly pins: readonly Pin[]; readonly notes: readonly string[] } {
  if (annotations) refuseIdleAxes(annotations, mesh, new Set(Object.keys({ ...annotations.mesh, ...degrees })));
  const own = annotations ? resolveAnnotations(annotations, graph, mesh) : [];
  const fromModel = model ? pinsOfModel(model, graph, mesh, stages) : { pins: [], notes: [] };
  const fromConfig = config ? pinsOfConfig(config, graph, mesh) : [];
  const lower = settled([...fromModel.pins, ...fromConfig], graph, mesh).map((pin): Pin => {
    const priority = own.length === 0 ? pin.source.priority : Number.MIN_SAFE_INTEGER;
    return { ...pin, source: { ...pin.source, priority } };
  });
  return { pins: settled([...own, ...lower], graph, mesh), notes: fromModel.notes };
}

/**
 * Operators that are pinned to a stage, independent of the mesh.
 * @param devices number of devices in the whole cluster: the model's own annotations are for a certain number
 * @throws AutoparError (input) where a pin is impossible
 */
export function stagePinsFor({ annotations, model }: PinSources, graph: Graph, devices: number): readonly StagePin[] {
  const isStage = (pin: Pin): pin is StagePin => pin.kind === 'stage';
  const own = annotations
    ? resolveAnnotations(only(annotations, ['stage', 'chunk']), graph, makeMesh([])).filter(isStage)
    : [];
  const said = new Set(own.map(({ node }) => node));
  const fromModel = model ? stagePinsOfModel(model, graph, devices).filter(({ node }) => !said.has(node)) : [];
  return [...own, ...fromModel];
}

/** Operators that annotations pin to recompute or not, independent of the mesh. */
export function recomputePinsFor(annotations: Annotations | null, graph: Graph): readonly RecomputePin[] {
  const isRecompute = (pin: Pin): pin is RecomputePin => pin.kind === 'recompute';
  if (!annotations) return [];
  return resolveAnnotations(only(annotations, ['recompute']), graph, makeMesh([])).filter(isRecompute);
}

/** Annotations with these keys only, which do not depend on a mesh, and only the pins that have the first key. */
function only(annotations: Annotations, keys: readonly ('stage' | 'chunk' | 'recompute')[]): Annotations {
  const [first] = keys;
  const pins = annotations.pins.flatMap((pin) => {
    if (first === undefined || pin[first] === undefined) return [];
    const { match, priority, why, index, line, lines, target } = pin;
    return [
      {
        ...{ match, index, line, lines, target },
        ...Object.fromEntries(keys.flatMap((key) => (pin[key] === undefined ? [] : [[key, pin[key]]]))),
        ...withoutUndefined({ priority, why }),
      },
    ];
  });
  return { ...annotations, pins };
}

/**
 * Degrees given elsewhere (options, a configuration) together with those that the annotations fix.
 * @throws AutoparError (input) `annotated-degree` where they differ
 */
export function withAnnotatedDegrees(given: AnnotatedDegrees, annotations: Annotations): AnnotatedDegrees {
  const { file, mesh, meshLine } = annotations;
  for (const [axis, size] of Object.entries(mesh) as [keyof AnnotatedDegrees, number][]) {
    const other = given[axis];
    if (other === undefined || other === size) continue;
    throw new AutoparError(
      'annotated-degree',
      'input',
      `the annotations are for ${axis} ${size}, and --${axis} is ${other}`,
      { ...(file === null ? {} : { file }), ...(meshLine === null ? {} : { line: meshLine }) },
      `leave out --${axis}, or change mesh.${axis} in the annotations`,
    );
  }
  return { ...given, ...mesh };
}
