"""Draw images of docs/images: people of the try-on demo beside their garments, speed-ups, and architectures.

    python docs/draw.py

All are made: the people by `data_prep`, the chart from the table of README, architectures from the models. No
photograph, no network.
"""
import pathlib
import re
import sys

import numpy as np
from PIL import Image

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / 'docs')]

import architectures  # noqa: E402

from data_prep.people import sample_people  # noqa: E402

IMAGES = ROOT / 'docs' / 'images'
STYLE = '''<style>
.ground { fill: #fff }
text { font: 14px system-ui, sans-serif; fill: #1f2328 } .value { font-weight: 600 } .one { stroke: #6e7781 }
.ours { fill: #2a6fb0 } .slower { fill: #b4602a }
@media (prefers-color-scheme: dark) {
.ground { fill: #16191d }
text { fill: #e6edf3 } .one { stroke: #9198a1 } .ours { fill: #58a6ff } .slower { fill: #e0904f } }
</style>'''


def people(count: int = 5, size: tuple[int, int] = (256, 192)) -> None:
    """Garment laid flat and the person wearing it, side by side, as people.png."""
    made = [sample_people.make_person(1, sample_people.FIRST_TEST + i, size) for i in range(count)]
    tiles = [np.concatenate([person.cloth, person.image], 1) for person in made]
    image = Image.fromarray(np.concatenate(tiles, 1)).convert('P', palette=Image.Palette.ADAPTIVE, colors=96)
    image.save(IMAGES / 'people.png', optimize=True)


def speed() -> None:
    """Draw the speed-ups of README's table as bars, as speed.svg."""
    rows = re.findall(r'^\| ([^|]+) \| ([^|]+) \| (\d+\.\d\d) \(', (ROOT / 'README.md').read_text(), re.M)
    width, scale, step = 530, 165, 48  # narrow, with the names above, to be read on a phone, too
    height = step * len(rows) + 30
    parts = [f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" viewBox="0 0 {width} {height}" role="img" '
             'aria-label="Speed-up over peers">', STYLE,
             f'<rect class="ground" width="{width}" height="{height}" rx="6"/>']
    for i, (work, peer, value) in enumerate(rows):
        y, ratio = 8 + step * i, float(value)
        kind = 'ours' if ratio >= 1 else 'slower'
        parts += [f'<text x="8" y="{y + 12}"><tspan class="value">{value}</tspan> {work}, over {peer}</text>',
                  f'<rect class="{kind}" x="8" y="{y + 19}" width="{ratio * scale:.0f}" height="18" rx="3"/>',
                  f'<line class="one" x1="{8 + scale}" x2="{8 + scale}" y1="{y + 17}" y2="{y + 39}"/>']
    parts += [f'<text x="{8 + scale}" y="{height - 8}" text-anchor="middle">1 = the peer\'s rate</text>', '</svg>']
    (IMAGES / 'speed.svg').write_text('\n'.join(parts) + '\n')


if __name__ == '__main__':
    people()
    speed()
    for name, drawn in architectures.DRAWINGS.items():
        (IMAGES / f'{name}.svg').write_text(drawn())
