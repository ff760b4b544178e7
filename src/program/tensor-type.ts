/**
 * @file Types of a program's tensors as text: dtype, how each dimension is sharded, over which axes the value is partial, varies
 * or is held by the first rank alone.
 *
 *     float32 [8:dp, 3|64:tp]                      sharded over dp and tp, in pieces (see layouts)
 *     float32 [8:dp, 16] sum(tp)                   partial sums over tp
 *     int64 [1] varies(tp)                         unrelated values on the ranks of tp
 *     float32 [8, 16] first(dp)                    held by the first rank of dp alone
 *     int64 [1] coordinate(tp)*4+0                 the rank's index on tp, times 4
 *     float32 [8, 1] varies(sp) rows(1, sp*4-1)    a border: in dimension 1 the row before each rank's shard of 4
 *
 * A segment states with these texts what it was made for, so that no other tensor can take its operand's place.
 */
import { borderText } from '../sharding-propagation/collective-rule.js';
import type { ProgramStage, ProgramTensor, ProgramWeight } from './program.js';

/** A tensor as its type is written. */
export type Typed = Pick<ProgramTensor, 'dtype' | 'layout' | 'varying' | 'first' | 'border'>;

/** The type of a tensor. */
export function typeText({ dtype, layout, varying = [], first = [], border }: Typed): string {
  const dims = layout.dims.map((pieces, dimension) => {
    const parts = layout.extents?.[dimension];
    const padding = parts ? ` of ${parts.map(({ size, valid }) => `${valid}/${size}`).join('|')}` : '';
    return `${pieces.map(({ size, axes }) => [size, ...axes].join(':')).join('|')}${padding}`;
  });
  const partial = layout.partial.map(({ axis, reduction }) => ` ${reduction}(${axis})`);
  const over = (word: string, axes: readonly string[]) => (axes.length > 0 ? ` ${word}(${axes.join(',')})` : '');
  const held = `${over('varies', varying)}${over('first', first)}${border ? ` ${borderText(border)}` : ''}`;
  return `${dtype} [${dims.join(', ')}]${partial.join('')}${held}`;
}

/**
 * The type of a stored weight's shard; where its record does not state its layout, its shape and the axes that number its
 * shards.
 */
export function weightType({ dtype, layout, localShape, axes, zeroUnlessFirst, first = [] }: ProgramWeight): string {
  const partial = zeroUnlessFirst.map((axis) => ({ axis, reduction: 'sum' as const }));
  if (layout) return typeText({ dtype, layout: { ...layout, partial }, first });
  const shard = typeText({ dtype, layout: { dims: localShape.map((size) => [{ size, axes: [] }]), partial }, first });
  return axes.length > 0 ? `${shard} shards(${axes.join(',')})` : shard;
}

/** The type of a rank's coordinate. */
export function coordinateType({ axes, block, bias }: ProgramStage['coordinates'][string]): string {
  return `int64 [1] coordinate(${axes.join(',')})*${block}+${bias}`;
}

/** The type of an instruction's operand or result by name; undefined for a name that the stage lacks. */
export function typeTextIn(
  stage: Pick<ProgramStage, 'tensors' | 'weights' | 'coordinates'>,
  name: string,
): string | undefined {
  const coordinate = stage.coordinates[name];
  if (coordinate) return coordinateType(coordinate);
  const tensor = stage.tensors[name];
  if (tensor) return typeText(tensor);
  const weight = stage.weights[name];
  return weight && weightType(weight);
}
