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
    left, scale, step = 330, 120, 34
    height = step * len(rows) + 34
    parts = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 800 {height}" role="img" '
             'aria-label="Speed-up over peers">', STYLE, f'<rect class="ground" width="800" height="{height}" rx="6"/>']
    for i, (work, peer, value) in enumerate(rows):
        y, ratio = 8 + step * i, float(value)
        width, kind = ratio * scale, 'ours' if ratio >= 1 else 'slower'
        parts += [f'<text x="{left - 10}" y="{y + 18}" text-anchor="end">{work}</text>',
                  f'<rect class="{kind}" x="{left}" y="{y}" width="{width:.0f}" height="26" rx="3"/>',
                  f'<text x="{left + width + 8:.0f}" y="{y + 18}">'
                  f'<tspan class="value">{value}</tspan> {peer}</text>']
    parts += [f'<line class="one" x1="{left + scale}" x2="{left + scale}" y1="0" y2="{height - 24}" '
              'stroke-dasharray="4 3"/>',
              f'<text x="{left + scale}" y="{height - 8}" text-anchor="middle">1 = the peer\'s rate</text>', '</svg>']
    (IMAGES / 'speed.svg').write_text('\n'.join(parts) + '\n')


if __name__ == '__main__':
    people()
    speed()
    for name, drawn in architectures.DRAWINGS.items():
        (IMAGES / f'{name}.svg').write_text(drawn())
