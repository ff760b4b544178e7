/**
 * @file DeformConv in plain operators (Dai et al. 2017; with a mask, Zhu et al. 2019). Every place k of a window p reads the
 * image at its offset; the value is interpolated between four pixels, weighted by its mask, and convolved:
 *
 *     S = Σ over corners of x · weight        y = W · (S · mask)        per group of channels
 */
import { elementCount } from '../graph.js';
import { constant } from './constants.js';
import { numberOf, operand, result } from './operands.js';
import type { OperatorWriter } from './operator-writer.js';
import { type AxisSamples, cornerPlace, cornerWeight } from './sampling-gradient.js';
import { windowsOf } from './windows.js';

/** Indices of the operands. */
const [IMAGE, KERNEL, OFFSETS, BIAS, MASK] = [0, 1, 2, 3, 4];

/** Channels are split into groups of offsets for sampling, and into groups of the convolution for the matmul. */
interface DeformedSizes {
  /** Samples, groups of offsets, channels of each, places of a window, windows, groups of the convolution. */
  readonly batch: number;
  readonly groups: number;
  readonly channels: number;
  readonly taps: number;
  readonly windows: number;
  readonly group: number;
}

export function plainDeformed(write: OperatorWriter): void {
  const { operator } = write;
  const type = write.sumType;
  const parts = partsOf(write);
  const { batch, groups, channels, taps, windows, group } = parts;
  const raised = (index: number) => write.inType(`in${index}`, operand(operator, index).dtype, type);
  const { shape: image } = operand(operator, IMAGE);
  const { shape: weights } = operand(operator, KERNEL);
  const [all = 1, own = 1] = weights;
  const flat = write.add('Reshape', [raised(IMAGE)], {
    shape: [batch, groups, channels, elementCount(image.slice(2))],
  });
  const at = write.on(type);
  const sampled = cornersOf(write, parts)
    .map(({ places, weight }) => at.mul(write.add('GatherElements', [flat, places], { axis: 3 }), weight))
    .reduce((sum, part) => at.add(sum, part));
  const mask = () => write.add('Reshape', [raised(MASK)], { shape: [batch, groups, 1, taps * windows] });
  const held = operator.inputs[MASK] ? at.mul(sampled, mask()) : sampled;
  const inner = own * taps;
  const columns = write.add('Reshape', [held], { shape: [batch, group, inner, windows] });
  const matrix = write.add('Reshape', [raised(KERNEL)], { shape: [group, all / group, inner] });
  const { shape } = result(operator, 0);
  const matmul = write.add('Reshape', [write.add('MatMul', [matrix, columns])], { shape });
  const bias = () => write.add('Unsqueeze', [raised(BIAS)], { axes: [1, 2] });
  write.makes(0, operator.inputs[BIAS] ? write.add('Add', [matmul, bias()]) : matmul, type);
}

function partsOf(write: OperatorWriter): DeformedSizes {
  const { operator } = write;
  const [batch = 1, all = 1] = operand(operator, IMAGE).shape;
  const [, , ...window] = operand(operator, KERNEL).shape;
  const [group, groups] = [numberOf(operator, 'group', 1), numberOf(operator, 'offset_group', 1)];
  return {
    batch,
    groups,
    channels: all / groups,
    taps: elementCount(window),
    windows: elementCount(result(operator, 0).shape.slice(2)),
    group,
  };
}

interface Corner {
  /** Its position among the pixels, [n, offset group, channel, (k p)]. */
  readonly places: string;
  /** Its weight, [n, offset group, 1, (k p)]. */
  readonly weight: string;
}

function cornersOf(write: OperatorWriter, parts: DeformedSizes): readonly Corner[] {
  const { batch, groups, channels, taps, windows } = parts;
  const axes = placesOf(write, parts);
  const at = write.on(write.sumType);
  return [0, 1, 2, 3].map((corner) => {
    const far = [(corner & 1) === 1, corner >= 2];
    const { index, inside } = cornerPlace(axes, far, at);
    const places = write.add('Expand', [index], { shape: [batch, groups, channels, taps * windows] });
    return { places, weight: cornerWeight(axes, far, at, { count: at.count(inside), without: null }) };
  });
}

/** The position that every place of every window reads: its own position plus the offset. */
function placesOf(write: OperatorWriter, { batch, groups, taps, windows }: DeformedSizes): readonly AxisSamples[] {
  const { operator } = write;
  const type = write.sumType;
  const { shape } = operand(operator, IMAGE);
  const kernel = operand(operator, KERNEL).shape.slice(2);
  const steps = windowsOf(operator, shape, kernel);
  const [height = 1, width = 1] = steps.map(({ output }) => output);
  const given = write.inType(`in${OFFSETS}`, operand(operator, OFFSETS).dtype, type);
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
    return { size: input, low, rest: write.on(type).sub(place, low), derivative: 1 };
  });
}
