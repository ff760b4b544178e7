/**
 * @file Resizing and sampling of images in torch functions.
 */
import { numbersOf } from '../../../ir/ops/constants.js';
import {
  atom,
  dtypeText,
  fromFront,
  integersIn,
  isFloat,
  number,
  numberIn,
  rankOf,
  resultOf,
  shapeOf,
  type TorchNode,
  type TorchOperator,
  textIn,
  torch,
  tuple,
  typeOf,
  x,
} from './operator.js';

/** A dimension that changes its size. */
interface Resized {
  readonly axis: number;
  readonly from: number;
  readonly to: number;
  readonly scale: number;
}

/** null where the aspect ratio is kept, whose scales are not in the attributes. */
function resizedIn(node: TorchNode): readonly Resized[] | null {
  const [shape, result] = [shapeOf(node), resultOf(node).shape];
  const axes = integersIn(node, 'axes')?.map((axis) => fromFront(axis, shape.length)) ?? shape.map((_, axis) => axis);
  const given = node.attributes['scales'];
  const isTensor = typeof given === 'object' && !Array.isArray(given) && 'data' in given;
  const scales = isTensor ? numbersOf(given) : [];
  const sizes = integersIn(node, 'sizes') ?? [];
  if (sizes.length > 0 && textIn(node, 'keep_aspect_ratio_policy', 'stretch') !== 'stretch') return null;
  return axes.flatMap((axis, index) => {
    const [from = 1, to = 1] = [shape[axis], result[axis]];
    const scale = sizes.length > 0 ? to / from : (scales[index] ?? 1);
    return from === to && scale === 1 ? [] : [{ axis, from, to, scale }];
  });
}

const MODES = ['', 'linear', 'bilinear', 'trilinear'];

/** torch's own function where it takes the same positions; else one dimension after the other. */
function resize(node: TorchNode): string | null {
  const resized = resizedIn(node);
  const mode = textIn(node, 'mode', 'nearest');
  const positions = textIn(node, 'coordinate_transformation_mode', 'half_pixel');
  if (resized === null || positions === 'tf_crop_and_resize' || numberIn(node, 'antialias', 0)) return null;
  if (resized.length === 0) return x(node);
  const rank = rankOf(node) - 2;
  const isSpatial = rank >= 1 && rank <= 3 && resized.every(({ axis }) => axis >= 2);
  const isExact = resized.every(({ from, to, scale }) => from * scale === to);
  const size = `size=${tuple(resultOf(node).shape.slice(2))}`;
  const rounding = textIn(node, 'nearest_mode', 'round_prefer_floor');
  const enlarges = resized.every(({ scale }) => Number.isInteger(scale));
  const isFloor =
    (positions === 'asymmetric' && rounding === 'floor') ||
    (positions === 'half_pixel' && rounding.startsWith('round') && enlarges);
  const { dtype } = typeOf(node);
  // torch interpolates no whole numbers but bytes, of which ONNX Runtime drops the fraction and torch rounds it.
  if (mode !== 'nearest' && !isFloat(typeOf(node))) {
    const operand = {
      ...node,
      operands: [`${atom(x(node))}.float()`],
      inputs: [{ ...typeOf(node), dtype: 'float32' as const }],
    };
    const value = resize(operand);
    return value === null ? null : `${value}.to(${dtypeText(dtype)})`;
  }
  if (mode === 'nearest' && isSpatial && isExact && isFloor && isFloat(typeOf(node)))
    return `F.interpolate(${x(node)}, ${size}, mode="nearest")`;
  const aligned = positions === 'align_corners';
  const isTorch = aligned || positions === 'half_pixel' || positions === 'pytorch_half_pixel';
  const corners = aligned ? ', align_corners=True' : '';
  const isLong = resized.every(({ to }) => to > 1);
  if (mode === 'linear' && isSpatial && isExact && isTorch && isLong)
    return `F.interpolate(${x(node)}, ${size}, mode="${MODES[rank]}"${corners})`;
  if (mode === 'cubic') {
    const isPlain = numberIn(node, 'cubic_coeff_a', -0.75) === -0.75 && !numberIn(node, 'exclude_outside', 0);
    if (rank !== 2 || !isSpatial || !isExact || !isTorch || !isLong || !isPlain) return null;
    return `F.interpolate(${x(node)}, ${size}, mode="bicubic"${corners})`;
  }
  const chosen = mode === 'nearest' ? `, rounding="${rounding}"` : '';
  return resized.reduce((text, { axis, to, scale }) => {
    return `resize(${text}, ${axis}, ${to}, ${number(scale)}, "${positions}"${chosen})`;
  }, x(node));
}

const SAMPLING: Readonly<Record<string, string>> = { linear: 'bilinear', cubic: 'bicubic' };

function gridSample(node: TorchNode): string | null {
  const mode = textIn(node, 'mode', 'linear');
  if (mode === 'cubic' && rankOf(node) !== 4) return null;
  if (rankOf(node) < 4 || rankOf(node) > 5) return null;
  const more = [
    `mode="${SAMPLING[mode] ?? mode}"`,
    `padding_mode="${textIn(node, 'padding_mode', 'zeros')}"`,
    `align_corners=${numberIn(node, 'align_corners', 0) ? 'True' : 'False'}`,
  ];
  return `F.grid_sample(${x(node)}, ${x(node, 1)}, ${more.join(', ')})`;
}

function affineGrid(node: TorchNode): string | null {
  const { shape } = resultOf(node);
  const size = [shape[0] ?? 1, 1, ...shape.slice(1, -1)];
  const corners = numberIn(node, 'align_corners', 0) ? 'True' : 'False';
  return `F.affine_grid(${x(node)}, ${tuple(size)}, align_corners=${corners})`;
}

/** Blocks of an image are put together; where they overlap they are added. */
function columnsToImage(node: TorchNode): string | null {
  const image = integersIn(node, 'image_shape') ?? [];
  const block = integersIn(node, 'block_shape') ?? [];
  if (image.length !== 2) return null;
  const pads = integersIn(node, 'pads') ?? [0, 0, 0, 0];
  const [top = 0, left = 0, bottom = 0, right = 0] = pads;
  if (top !== bottom || left !== right) return null;
  const more = [
    `dilation=${tuple(integersIn(node, 'dilations') ?? [1, 1])}`,
    `padding=${tuple([top, left])}`,
    `stride=${tuple(integersIn(node, 'strides') ?? [1, 1])}`,
  ];
  return `F.fold(${x(node)}, ${tuple(image)}, ${tuple(block)}, ${more.join(', ')})`;
}

/** Crops the middle, or pads zeros around it. */
function centerCropPad(node: TorchNode): string {
  const [shape, result] = [shapeOf(node), resultOf(node).shape];
  const around = shape.map((size, axis) => {
    const more = (result[axis] ?? size) - size;
    const before = more < 0 ? -Math.floor(-more / 2) : Math.floor(more / 2);
    return [before, more - before];
  });
  return `F.pad(${x(node)}, ${tuple(around.reverse().flat())})`;
}

export const imageOperators: readonly TorchOperator[] = [
  torch('Resize', resize),
  torch('GridSample', gridSample),
  torch('AffineGrid', affineGrid),
  torch('Col2Im', columnsToImage),
  torch('CenterCropPad', centerCropPad),
];

export const IMAGE_HELPERS = {
  resize: `def resize(x, dim, size, scale, positions, rounding=None):
    """ONNX's Resize along one dimension: linear, or nearest where it says how positions are rounded."""
    old, new = x.shape[dim], torch.arange(size, dtype=torch.float32)
    if positions == "asymmetric":
        at = new / scale
    elif positions == "align_corners":
        at = new * ((old - 1) / (size - 1)) if size > 1 else new * 0
    elif positions == "pytorch_half_pixel" and size == 1:
        at = new * 0
    else:
        at = (new + 0.5) / scale - 0.5
        if positions == "half_pixel_symmetric":
            at = at + old / 2 * (1 - size / (scale * old))
    if rounding is not None:
        rounded = {
            "floor": torch.floor(at),
            "ceil": torch.ceil(at),
            "round_prefer_floor": torch.ceil(at - 0.5),
            "round_prefer_ceil": torch.floor(at + 0.5),
        }
        return x.index_select(dim, rounded[rounding].clamp(0, old - 1).long())
    at = at.clamp(0, old - 1)
    low = at.floor().long()
    shape = [-1 if place == dim else 1 for place in range(x.dim())]
    share = (at - low).to(x.dtype).reshape(shape)
    high = (low + 1).clamp(max=old - 1)
    return x.index_select(dim, low) * (1 - share) + x.index_select(dim, high) * share
`,
} as const;
