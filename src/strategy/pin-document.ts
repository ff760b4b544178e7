/**
 * @file Pins as an annotation file (docs/annotations.md), for a checkpoint of a model in another notation.
 *
 *     version: 1
 *     mesh: { dp: 2, tp: 2 }
 *     pins:
 *       - match: { node: "h.0.attn.c_attn" }
 *         split: [[2, 1], [1, 2]]
 */
import {
  ANNOTATIONS_VERSION,
  type AnnotationRecord,
  type PinRecord,
} from '../sharding-propagation/annotations/annotation.js';
import { writeAnnotations } from '../sharding-propagation/annotations/edit-annotations.js';
import type { Mesh } from '../sharding-propagation/mesh.js';
import { PARALLEL_AXES } from '../sharding-propagation/roles.js';

/**
 * A file of these pins.
 * @param mesh of one stage
 * @param stages of the pipeline; 1 without one
 */
export function pinDocument(mesh: Mesh, pins: readonly PinRecord[], stages = 1): AnnotationRecord {
  const degrees = mesh.axes.flatMap(({ name, size }) => {
    const axis = PARALLEL_AXES.find((known) => known === name);
    return axis ? [[axis, size] as const] : [];
  });
  return {
    version: ANNOTATIONS_VERSION,
    mesh: { ...(stages > 1 ? { pp: stages } : {}), ...Object.fromEntries(degrees) },
    pins,
  };
}

/** A glob that fits just this name. */
export function exactly(name: string): string {
  return name.replace(/[*?[{\\]/g, '\\$&');
}

/** The document as YAML, a comment on top. @throws AutoparError (input) for pins that are not valid */
export async function pinsToYaml(document: AnnotationRecord, comment: string): Promise<string> {
  return `# ${comment.replaceAll(/\p{Cc}+/gu, ' ')}\n${await writeAnnotations(document)}`;
}

/** The document as JSON, keys in the order in which they are read. */
export function pinsToJson(document: AnnotationRecord): string {
  return `${JSON.stringify(document, null, 2)}\n`;
}
