/**
 * @file Fourier transforms and windows in torch functions; the last dimension holds real and imaginary parts.
 */
import {
  axisIn,
  constantIn,
  dtypeText,
  has,
  number,
  numberIn,
  rankOf,
  resultOf,
  shapeOf,
  type TorchNode,
  type TorchOperator,
  torch,
  x,
} from './operator.js';

function complex(node: TorchNode): string {
  const isReal = shapeOf(node).at(-1) === 1 || rankOf(node) === 2;
  if (!isReal) return `torch.view_as_complex(${x(node)}.contiguous())`;
  return rankOf(node) === 2 ? x(node) : `${x(node)}.squeeze(-1)`;
}

function fourier(node: TorchNode): string | null {
  const axis = axisIn(node, -2);
  const count = numberIn(node, 'dft_length', shapeOf(node)[axis] ?? 1);
  const [isInverse, isOneSided] = [numberIn(node, 'inverse', 0), numberIn(node, 'onesided', 0)];
  if (isInverse && isOneSided) return null;
  const text = `torch.fft.${isInverse ? 'ifft' : 'fft'}(${complex(node)}, n=${count}, dim=${axis})`;
  const half = isOneSided ? `${text}.narrow(${axis}, 0, ${Math.floor(count / 2) + 1})` : text;
  // torch has the inverse transform of real numbers conjugated, which has no view.
  return `torch.view_as_real(${isInverse ? `${half}.resolve_conj()` : half})`;
}

/** Frames of the signal, each transformed. */
function shortTime(node: TorchNode): string | null {
  const [step] = constantIn(node, 'frame_step') ?? [];
  const length = constantIn(node, 'frame_length')?.[0] ?? (has(node, 2) ? shapeOf(node, 2)[0] : undefined);
  if (step === undefined || length === undefined) return null;
  const frames = `${complex(node)}.unfold(1, ${length}, ${step})`;
  const text = `torch.fft.fft(${has(node, 2) ? `${frames} * ${x(node, 2)}` : frames}, dim=-1)`;
  const half = numberIn(node, 'onesided', 1) ? `${text}[..., : ${Math.floor(length / 2) + 1}]` : text;
  return `torch.view_as_real(${half})`;
}

/** `more` as its coefficients are in ONNX. */
function window(name: string, more = ''): (node: TorchNode) => string | null {
  return (node) => {
    const { shape, dtype } = resultOf(node);
    if (dtype !== 'float32' && dtype !== 'float64') return null;
    const periodic = numberIn(node, 'periodic', 1) ? 'True' : 'False';
    return `torch.${name}_window(${shape[0]}, periodic=${periodic}${more}, dtype=${dtypeText(dtype)})`;
  };
}

const HAMMING = [25 / 46, 21 / 46] as const;

export const signalOperators: readonly TorchOperator[] = [
  torch('DFT', fourier),
  torch('STFT', shortTime),
  torch('HannWindow', window('hann')),
  torch('HammingWindow', window('hamming', `, alpha=${number(HAMMING[0])}, beta=${number(HAMMING[1])}`)),
  torch('BlackmanWindow', window('blackman')),
];
