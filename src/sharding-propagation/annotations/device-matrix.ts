/**
 * @file MindSpore's layouts: a device matrix, and per dimension of the tensor the axes of that matrix that shard it.
 *
 *     device matrix (4, 2), tensor map (1, 0)      dimension 0 over the axis of 4, dimension 1 over the axis of 2
 *     Layout((4, 2), ("dp", "mp"))("dp", "None")   the same axes by names: dimension 1 whole
 *
 * A map's number counts the matrix' axes from the right; -1 is whole. Ranks fill the matrix row by row, as they fill our
 * mesh, so an axis of the matrix is a run of the mesh's sub-axes, wherever the two align.
 */

import { offer } from '../../ir/nearest.js';
import { deviceCount, type Mesh, type SubAxis, subAxes } from '../mesh.js';
import type { LayoutDemand, PinSource } from '../pin.js';
import type { DeviceMatrixMap, MapEntry } from './annotation.js';
import { type AxesOfPieces, type DemandSubject, demandOfAxes } from './layout-demand.js';
import { doesNotFit, meshText } from './pin-error.js';
import { type TupleValue, tupleValues } from './tuple-text.js';

/** The layout that a map gives a tensor. @throws AutoparError `pin-does-not-fit` */
export function demandOfMap(map: DeviceMatrixMap, tensor: DemandSubject, mesh: Mesh, source: PinSource): LayoutDemand {
  const { shape } = tensor;
  const matrix = map.device_matrix;
  const written = `device matrix [${matrix.join(', ')}]`;
  const aliases = map.alias_name ?? [];
  if (map.alias_name && aliases.length !== matrix.length)
    throw doesNotFit(
      source,
      `${written} has ${matrix.length} axes and alias_name ${aliases.length} names`,
      'give each axis of the matrix one name',
    );
  if (map.tensor_map.length !== shape.length)
    throw doesNotFit(
      source,
      `its tensor map has ${map.tensor_map.length} entries, the tensor [${shape.join(', ')}] has ${shape.length} dimensions`,
      'give one entry per dimension, -1 if it is not sharded',
    );
  const runs = alignedRuns(matrix, mesh, source);
  const used = new Set<number>();
  const dims = map.tensor_map.map((entry, dimension): AxesOfPieces => {
    const indices = indicesOf(entry, matrix.length, aliases, source);
    for (const index of indices) {
      if (used.has(index))
        throw doesNotFit(
          source,
          `its tensor map uses axis ${index} of ${written} twice`,
          'an axis shards one dimension only',
        );
      used.add(index);
    }
    return [{ size: shape[dimension] ?? 1, axes: indices.flatMap((index) => runs[index] ?? []) }];
  });
  return demandOfAxes(dims, tensor, mesh, source);
}

/** `Layout((4, 2), ("dp", "mp"))("dp", "mp")` as data; null where the text is something else. */
export function mapOfText(text: string): DeviceMatrixMap | null {
  const [, rest] = /^\s*(?:ms\.)?Layout\s*(\(.*)$/s.exec(text) ?? [];
  const values = rest === undefined ? null : tupleValues(rest);
  const [construction, map] = values ?? [];
  if (values?.length !== 2 || !isList(construction) || !isList(map)) return null;
  const [matrix, aliases] = construction;
  const valid =
    isList(matrix) &&
    matrix.every((size) => typeof size === 'number' && size > 0) &&
    (aliases === undefined || (isList(aliases) && aliases.every((name) => typeof name === 'string'))) &&
    map.every((entry) => isName(entry) || (isList(entry) && entry.every(isName)));
  if (!valid) return null;
  return {
    device_matrix: matrix as readonly number[],
    ...(aliases === undefined ? {} : { alias_name: aliases as readonly string[] }),
    tensor_map: map as readonly MapEntry[],
  };
}

function isList(value: TupleValue | undefined): value is readonly TupleValue[] {
  return Array.isArray(value);
}

function isName(value: TupleValue): boolean {
  return typeof value === 'string' || typeof value === 'number';
}

/** Per axis of the matrix: the sub-axes of the mesh that make it up, in rank order. */
function alignedRuns(matrix: readonly number[], mesh: Mesh, source: PinSource): readonly (readonly SubAxis[])[] {
  const written = `device matrix [${matrix.join(', ')}]`;
  const product = matrix.reduce((total, size) => total * size, 1);
  const devices = deviceCount(mesh);
  if (product !== devices)
    throw doesNotFit(
      source,
      `${written} is for ${product} devices, the mesh (${meshText(mesh)}) has ${devices}`,
      'write the map for as many devices, or plan for as many as it has',
    );
  const waiting = [...subAxes(mesh)];
  return matrix.map((size, index) => {
    const run: SubAxis[] = [];
    let rest = size;
    while (rest > 1) {
      const next = waiting.shift();
      if (!next || rest % next.size !== 0)
        throw doesNotFit(
          source,
          `axis ${index} (size ${size}) of ${written} begins or ends within an axis of the mesh (${meshText(mesh)})`,
          'choose degrees whose products, from the left, are those of the matrix',
        );
      run.push(next.name);
      rest /= next.size;
    }
    return run;
  });
}

/** Axes of the matrix, counted from the left, that an entry of a tensor map names. */
function indicesOf(entry: MapEntry, length: number, aliases: readonly string[], source: PinSource): readonly number[] {
  if (typeof entry === 'object') return entry.flatMap((item) => indicesOf(item, length, aliases, source));
  if (entry === -1 || entry === 'None') return [];
  if (typeof entry === 'number') {
    if (entry >= 0 && entry < length) return [length - 1 - entry];
    throw doesNotFit(
      source,
      `its tensor map names axis ${entry}, and the device matrix has axes 0 (the last) to ${length - 1} (the first)`,
      'count the axes of the matrix from the right; -1 does not shard a dimension',
    );
  }
  const index = aliases.indexOf(entry);
  if (index >= 0) return [index];
  throw doesNotFit(
    source,
    `its tensor map names '${entry}', which alias_name lacks`,
    offer(entry, [...aliases, 'None']),
  );
}
