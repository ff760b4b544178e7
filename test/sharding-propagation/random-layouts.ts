/**
 * @file Random meshes, shapes and layouts for property tests: a layout is drawn by sharding a whole tensor at random places.
 */
import fc from 'fast-check';
import { type Digit, joinWhole, piecesOf } from '../../src/sharding-propagation/digits.js';
import { type Layout, layoutFromFactors, type PartialAxis } from '../../src/sharding-propagation/layout.js';
import { axesSize, type Mesh, makeMesh, subAxes } from '../../src/sharding-propagation/mesh.js';

export interface Case {
  readonly mesh: Mesh;
  readonly shape: readonly number[];
  readonly from: Layout;
  readonly to: Layout;
}

const CHOICES = fc.array(fc.nat(1000), { minLength: 12, maxLength: 12 });

/** A mesh, a shape that its axes can shard, and two layouts of it. */
export function reshardCases(sizes: readonly (readonly [number, number])[]): fc.Arbitrary<Case> {
  return casesOf(sizes, fc.array(fc.constantFrom(1, 2, 4, 6, 8, 12, 16), { minLength: 0, maxLength: 3 }), drawLayout);
}

/** As `reshardCases`, of sizes that axes do not divide: dimensions of one or two factors, padded where they must be. */
export function unevenCases(sizes: readonly (readonly [number, number])[]): fc.Arbitrary<Case> {
  return casesOf(sizes, fc.array(fc.constantFrom(3, 5, 6, 7, 10, 12, 15), { minLength: 1, maxLength: 3 }), drawUneven);
}

function casesOf(
  sizes: readonly (readonly [number, number])[],
  shapes: fc.Arbitrary<number[]>,
  draw: (mesh: Mesh, shape: readonly number[], numbers: readonly number[]) => Layout,
): fc.Arbitrary<Case> {
  return fc
    .record({ sizes: fc.constantFrom(...sizes), shape: shapes, from: CHOICES, to: CHOICES })
    .map(({ sizes: [dp, tp], shape, from, to }) => {
      const mesh = makeMesh([
        ['dp', dp],
        ['tp', tp],
      ]);
      return { mesh, shape, from: draw(mesh, shape, from), to: draw(mesh, shape, to) };
    });
}

function drawUneven(mesh: Mesh, shape: readonly number[], numbers: readonly number[]): Layout {
  let position = 0;
  const draw = (below: number): number => (numbers[position++ % numbers.length] ?? 0) % below;
  const factors = new Map<string, number>();
  const dims = shape.map((size, dimension) => {
    const majors = divisors(size);
    const major = majors[draw(majors.length)] ?? 1;
    factors.set(`${dimension}a`, major).set(`${dimension}b`, size / major);
    return [`${dimension}a`, `${dimension}b`];
  });
  const axes: Record<string, string[]> = {};
  const partial: PartialAxis[] = [];
  for (const { name, size } of subAxes(mesh)) {
    const role = draw(6);
    if (role === 0) continue;
    if (role === 1) {
      partial.push({ axis: name, reduction: 'sum' });
      continue;
    }
    const open = [...factors].filter(([factor, whole]) => whole >= axesSize(mesh, axes[factor] ?? []) * size);
    const chosen = open[draw(Math.max(1, open.length))];
    if (chosen) axes[chosen[0]] = [...(axes[chosen[0]] ?? []), name];
  }
  return layoutFromFactors(dims, (factor) => factors.get(factor) ?? 1, axes, partial, mesh);
}

/** Shards a tensor over some axes of the mesh, at places and in an order that the numbers choose; it is partial over others. */
function drawLayout(mesh: Mesh, shape: readonly number[], numbers: readonly number[]): Layout {
  let position = 0;
  const draw = (below: number): number => (numbers[position++ % numbers.length] ?? 0) % below;
  const dims: (readonly Digit[])[] = shape.map((size) => joinWhole([{ axis: null, size }]));
  const partial: PartialAxis[] = [];
  const waiting = [...subAxes(mesh)];
  while (waiting.length > 0) {
    const [{ name, size }] = waiting.splice(draw(waiting.length), 1) as [{ name: string; size: number }];
    const role = draw(6);
    if (role === 0) continue;
    if (role === 1) {
      partial.push({ axis: name, reduction: 'sum' });
      continue;
    }
    const places = cuts(dims, name, size);
    const place = places[draw(Math.max(1, places.length))];
    if (place) dims[place.dimension] = place.digits;
  }
  partial.sort((a, b) => (a.axis < b.axis ? -1 : 1));
  return { dims: dims.map(piecesOf), partial };
}

/** Every way to put an axis into the dimensions. */
export function cuts(
  dims: readonly (readonly Digit[])[],
  axis: string,
  axisSize: number,
): readonly { readonly dimension: number; readonly digits: readonly Digit[] }[] {
  return dims.flatMap((digits, dimension) =>
    digits.flatMap((digit, index) => {
      if (digit.axis !== null) return [];
      const rest = digit.size / axisSize;
      return divisors(rest).map((minor) => ({
        dimension,
        digits: joinWhole([
          ...digits.slice(0, index),
          { axis: null, size: rest / minor },
          { axis, size: axisSize },
          { axis: null, size: minor },
          ...digits.slice(index + 1),
        ]),
      }));
    }),
  );
}

function divisors(size: number): readonly number[] {
  if (!Number.isInteger(size)) return [];
  return Array.from({ length: size }, (_, index) => index + 1).filter((divisor) => size % divisor === 0);
}
