"""Fourier transforms, with a last dimension of real and imaginary parts."""

import torch

from .registry import axis_of, op


def as_complex(x):
    return torch.complex(x[..., 0], torch.zeros_like(x[..., 0]) if x.shape[-1] == 1 else x[..., 1])


def as_parts(x):
    return torch.stack([x.real, x.imag], dim=-1)


@op("DFT")
def fourier(node, x, length=None, axis=None):
    place = axis_of(int(axis) if axis is not None else node.get("axis", 1 if node.opset < 20 else -2), x.dim())
    count = x.shape[place] if length is None else int(length)
    if node.get("inverse", 0):
        if node.get("onesided", 0):
            raise NotImplementedError("DFT that is inverse and one-sided")
        return as_parts(torch.fft.ifft(as_complex(x), n=count, dim=place))
    found = torch.fft.fft(as_complex(x), n=count, dim=place)
    return as_parts(torch.narrow(found, place, 0, count // 2 + 1) if node.get("onesided", 0) else found)


@op("STFT")
def short_time_fourier(node, signal, step, window=None, length=None):
    parts = signal.unsqueeze(-1) if signal.dim() == 2 else signal
    count = int(length) if length is not None else window.shape[0]
    frames = as_complex(parts).unfold(1, count, int(step))
    found = torch.fft.fft(frames if window is None else frames * window, dim=-1)
    return as_parts(found[..., : count // 2 + 1] if node.get("onesided", 1) else found)
