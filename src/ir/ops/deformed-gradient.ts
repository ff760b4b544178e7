/**
 * @file The gradient of DeformConv (Dai et al. 2017; with a mask, Zhu et al. 2019). Every place k of a window p looks where its
 * offset sends it; what it finds there is sampled between four pixels, weighed by its mask, and convolved:
 *
 *     S = Σ over corners of x · weight        y = W · (S · mask)        per group of channels
 *
 * S is made again, W hands dy back to it, and from there on it is GridSample's gradient: the image takes back what each corner
 * weighed, an offset gets what the corners differ by.
 */
import { elementCount } from '../graph.js';
import { constant } from './constants.js';
import { addBiasGradient } from './convolution-gradient.js';
import { numberOf, operand, result } from './operands.js';
import type { OperatorGradient } from './operator-gradient.js';
import { type Along, cornerPlace, cornerWeight } from './sampling-gradient.js';
import { windowsOf } from './windows.js';

/** Places of the operands. */
const [IMAGE, KERNEL, OFFSETS, BIAS, MASK] = [0, 1, 2, 3, 4];

/** Channels are seen by groups of offsets where they are sampled, by groups of the convolution where they are multiplied. */
interface Parts {
  /** Samples, groups of offsets, channels of each, places of a window, windows, groups of the convolution. */
  readonly batch: number;
  readonly groups: number;
  readonly channels: number;
  readonly taps: number;
  readonly windows: number;
  readonly group: number;
}

export function deformedGradient(write: OperatorGradient): void {
  const { view } = write;
  const type = write.sumType;
  const parts = partsOf(write);
  const { batch, groups, channels, taps, windows, group } = parts;
  const raised = (index: number) => write.inType(`in${index}`, operand(view, index).dtype, type);
  addBiasGradient(write, 'grad0', BIAS);
  if (![IMAGE, KERNEL, OFFSETS, MASK].some((index) => write.wants(index))) return;
  const { shape: image } = operand(view, IMAGE);
  const { shape: weights } = operand(view, KERNEL);
  const pixels = elementCount(image.slice(2));
  const rows = (weights[0] ?? 1) / group;
  const slope = write.inType('grad0', operand(view, IMAGE).dtype, type);
  const grown = write.add('Reshape', [slope], {
    shape: [batch, group, rows, windows],
  });
  const corners = cornersOf(write, parts);
  const mask = view.inputs[MASK]
    ? write.add('Reshape', [raised(MASK)], { shape: [batch, groups, 1, taps * windows] })
    : null;
  const whole = write.on(type);
  const reads = [KERNEL, OFFSETS, MASK].some((index) => write.wants(index));
  const flat = reads ? write.add('Reshape', [raised(IMAGE)], { shape: [batch, groups, channels, pixels] }) : '';
  const found = reads ? corners.map(({ places }) => write.add('GatherElements', [flat, places], { axis: 3 })) : [];
  const sampled = () =>
    corners
      .map(({ weight }, corner) => whole.mul(found[corner] ?? '', weight(null)))
      .reduce((sum, part) => whole.add(sum, part));
  const inner = (weights[1] ?? 1) * taps;
  if (write.wants(KERNEL)) {
    const held = mask === null ? sampled() : whole.mul(sampled(), mask);
    const shaped = write.add('Reshape', [held], { shape: [batch, group, inner, windows] });
    const made = write.add('Einsum', [grown, shaped], { equation: 'ngmp,ngkp->gmk' });
    write.become(KERNEL, write.add('Reshape', [made], { shape: weights }), type);
  }
  if (![IMAGE, OFFSETS, MASK].some((index) => write.wants(index))) return;
  const matrix = write.add('Reshape', [raised(KERNEL)], { shape: [group, rows, inner] });
  const turned = write.add('Transpose', [matrix], { perm: [0, 2, 1] });
  const product = write.add('MatMul', [turned, grown]);
  const back = write.add('Reshape', [product], { shape: [batch, groups, channels, taps * windows] });
  const shape = (index: number) => ({ shape: operand(view, index).shape });
  if (write.wants(MASK)) {
    const each = write.on(type).sum(whole.mul(back, sampled()), [2]);
    write.become(MASK, write.add('Reshape', [each], shape(MASK)), type);
  }
  const owed = mask === null ? back : whole.mul(back, mask);
  if (write.wants(IMAGE)) {
    const value = constant(type, [0], [1]);
    let laid = write.add('ConstantOfShape', [], { shape: [batch, groups, channels, pixels], value });
    for (const { places, weight } of corners)
      laid = write.add('ScatterElements', [laid, places, whole.mul(owed, weight(null))], {
        axis: 3,
        reduction: 'add',
      });
    write.become(IMAGE, write.add('Reshape', [laid], shape(IMAGE)), type);
  }
  if (!write.wants(OFFSETS)) return;
  const at = write.on(type);
  const differences = corners.map((_, corner) => whole.sum(whole.mul(found[corner] ?? '', owed), [2]));
  const moved = [0, 1].map((axis) =>
    corners
      .map(({ weight, far }, corner) => {
        const part = at.mul(differences[corner] ?? '', weight(axis));
        return far[axis] ? part : at.of('Neg', part);
      })
      .reduce((sum, part) => at.add(sum, part)),
  );
  const apart = moved.map((name) => write.add('Reshape', [name], { shape: [batch, groups, taps, 1, windows] }));
  const joined = write.add('Concat', apart, { axis: 3 });
  write.become(OFFSETS, write.add('Reshape', [joined], shape(OFFSETS)), type);
}

function partsOf(write: OperatorGradient): Parts {
  const { view } = write;
  const [batch = 1, all = 1] = operand(view, IMAGE).shape;
  const [, , ...window] = operand(view, KERNEL).shape;
  const [group, groups] = [numberOf(view, 'group', 1), numberOf(view, 'offset_group', 1)];
  return {
    batch,
    groups,
    channels: all / groups,
    taps: elementCount(window),
    windows: elementCount(result(view, 0).shape.slice(2)),
    group,
  };
}

interface Corner {
  readonly far: readonly boolean[];
  /** Its position among the pixels, [n, offset group, channel, (k p)]. */
  readonly places: string;
  /** Its weight, [n, offset group, 1, (k p)], but for the axis left out. */
  readonly weight: (without: number | null) => string;
}

function cornersOf(write: OperatorGradient, parts: Parts): readonly Corner[] {
  const { batch, groups, channels, taps, windows } = parts;
  const axes = placesOf(write, parts);
  const at = write.on(write.sumType);
  return [0, 1, 2, 3].map((corner) => {
    const far = [(corner & 1) === 1, corner >= 2];
    const { index, inside } = cornerPlace(axes, far, at);
    const places = write.add('Expand', [index], { shape: [batch, groups, channels, taps * windows] });
    const count = at.count(inside);
    return { far, places, weight: (without) => cornerWeight(axes, far, at, { count, without }) };
  });
}

/** Where every place of every window looks: its own position, and the offset. */
function placesOf(write: OperatorGradient, { batch, groups, taps, windows }: Parts): readonly Along[] {
  const { view } = write;
  const type = write.sumType;
  const { shape } = operand(view, IMAGE);
  const kernel = operand(view, KERNEL).shape.slice(2);
  const steps = windowsOf(view, shape, kernel);
  const [height = 1, width = 1] = steps.map(({ output }) => output);
  const given = write.inType(`in${OFFSETS}`, operand(view, OFFSETS).dtype, type);
  const pairs = write.add('Reshape', [given], { shape: [batch, groups, taps, 2, height, width] });
  return steps.map(({ input, stride, dilation, pads, output }, axis) => {
    const component = write.tensor(constant('int64', [axis], []));
    const offset = write.add('Gather', [pairs, component], { axis: 3 });
    const inWindow = Array.from({ length: taps }, (_, tap) => {
      const at = axis === 0 ? Math.floor(tap / (kernel[1] ?? 1)) : tap % (kernel[1] ?? 1);
      return at * dilation - pads[0];
    });
    const starts = Array.from({ length: output }, (_, at) => at * stride);
    const at = write.on(type);
    const tap = write.tensor(constant(type, inWindow, [taps, 1, 1]));
    const start = write.tensor(constant(type, starts, axis === 0 ? [output, 1] : [output]));
    const place = write.add('Reshape', [at.add(at.add(offset, tap), start)], {
      shape: [batch, groups, 1, taps * windows],
    });
    const low = write.on(type).of('Floor', place);
    return { size: input, low, rest: write.on(type).sub(place, low), slope: 1 };
  });
}
