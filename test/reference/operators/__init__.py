"""ONNX operators in plain PyTorch functions, a module per family; importing this fills the table of `registry`."""

from . import (
    attention,
    contractions,
    elementwise,
    experts,
    fused,
    fused_attention,
    indexing,
    microsoft,
    normalisation,
    recurrent,
    reductions,
    regions,
    resize,
    shaping,
    signals,
    windows,
)

__all__ = [
    "attention",
    "contractions",
    "elementwise",
    "experts",
    "fused",
    "fused_attention",
    "indexing",
    "microsoft",
    "normalisation",
    "recurrent",
    "reductions",
    "regions",
    "resize",
    "shaping",
    "signals",
    "windows",
]
