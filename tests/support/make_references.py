"""Recompute the recorded references with PyTorch: `make references`, or some by name.

    PYTHONPATH=.:tests python -m support.make_references alias alias_full
"""
import pathlib
import sys

import torch

from support import torch_files, torch_layers, torch_published, torch_viton
from support.recorder import Recorder
from support.references import FOLDER

VITON_HD = {'segmentation': torch_viton.record_segmentation,
            'geometric_matching': torch_viton.record_matching,
            'alias': torch_viton.record_alias}
PEOPLE = {f'{net}_person': VITON_HD[net] for net in ('segmentation', 'alias')}
MAKERS = {**VITON_HD, **PEOPLE, **{f'{net}_full': record for net, record in VITON_HD.items()},
          'discriminator': torch_layers.record_discriminator,
          'inception': torch_published.record_inception,
          'lpips': torch_published.record_lpips,
          'resizing': torch_layers.record_resizing,
          'spectral_norm': torch_layers.record_spectral_norm,
          'torch_files': torch_files.record,
          'vgg19': torch_published.record_vgg19}


def make(name: str, folder: pathlib.Path) -> None:
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    try:
        recorder = Recorder(name, folder)
        MAKERS[name](recorder)
        recorder.save()
    finally:
        torch.set_default_dtype(before)


if __name__ == '__main__':
    for chosen in sys.argv[1:] or MAKERS:
        make(chosen, FOLDER)
        print(chosen, flush=True)
