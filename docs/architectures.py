"""Drawings of the papers' architectures, as SVG, from what the models' modules say: layers, sizes, towers.

`draw.py` writes them to docs/images; a test holds the files to the models.
"""
import html
import re

from keras_models import alexnet, prelu_net, transformer, vgg
from keras_models.viton import alias, geometric_matching, segmentation

STYLE = '''<style>
text { font: 14px system-ui, sans-serif; fill: #1f2328; text-anchor: middle } .title { font-weight: 600 }
.ground { fill: #fff }
.small { font-size: 12px; fill: #59636e } .box { fill: #ddf4ff; stroke: #2a6fb0 }
.dense { fill: #fff1d6; stroke: #b4602a } .pool { fill: #eef1f4; stroke: #6e7781 }
.group { fill: none; stroke: #6e7781; stroke-dasharray: 5 3 }
.data { fill: none; stroke: #6e7781 } .arrow { stroke: #6e7781; stroke-width: 1.5; fill: none } .head { fill: #6e7781 }
@media (prefers-color-scheme: dark) {
.ground { fill: #16191d } text { fill: #e6edf3 } .small { fill: #9198a1 } .box { fill: #12263a; stroke: #58a6ff }
.dense { fill: #3a2a12; stroke: #e0904f } .pool { fill: #1f262e; stroke: #9198a1 }
.data, .group, .arrow { stroke: #9198a1 } .head { fill: #9198a1 } }
</style>
<defs><marker id="a" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto">\
<path class="head" d="M0 0 8 4 0 8z"/></marker></defs>'''
LINE = 17  # pixels from one line of text to the next


class Drawing:
    """An SVG of boxes and arrows, `width` x `height` pixels; `label` is read out in its place."""

    def __init__(self, width: int, height: int, label: str):
        self._parts = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" role="img" '
                       f'aria-label="{html.escape(label)}">', STYLE,
                       f'<rect class="ground" width="{width}" height="{height}" rx="6"/>']

    def text(self, x: float, y: float, *lines: str, kind: str = '') -> None:
        """Write lines around a centre."""
        for i, line in enumerate(lines):
            place = f'x="{x:g}" y="{y + LINE * (i - (len(lines) - 1) / 2) + 5:g}"'
            self._parts.append(f'<text class="{kind}" {place}>{html.escape(line)}</text>')

    def box(self, x: float, y: float, width: float, height: float, *lines: str, kind: str = 'box') -> None:
        """Draw a box whose upper left corner is at (x, y)."""
        self._parts.append(f'<rect class="{kind}" x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}" rx="5"/>')
        self.text(x + width / 2, y + height / 2, *lines)

    def arrow(self, *points: tuple[float, float]) -> None:
        """Draw an arrow along points."""
        self._parts.append('<path class="arrow" marker-end="url(#a)" d="M' +
                           'L'.join(f'{x:g} {y:g}' for x, y in points) + '"/>')

    def svg(self) -> str:
        return '\n'.join([*self._parts, '</svg>']) + '\n'


def columns(label: str, nets: dict[str, list[list[str]]], width: int, above: str, below: str) -> str:
    """Draw nets side by side, layer by layer from above, stages of equal resolution beside each other.

    Args:
      label: read out in place of the picture.
      nets: title -> stages, each a list of layers; a pooling ends a stage, and dense layers are the last one.
      width: of a column, in pixels.
      above, below: what goes in and comes out.
    """
    step, gap = 25, 14
    rows = [max(len(stages[i]) for stages in nets.values()) for i in range(max(map(len, nets.values())))]
    tops = [62 + sum(rows[:i]) * step + i * gap for i in range(len(rows) + 1)]
    drawing = Drawing(len(nets) * width + 20, tops[-1] + 24, label)
    for column, (title, stages) in enumerate(nets.items()):
        left = 10 + column * width
        centre = left + width / 2
        drawing.text(centre, 12, title, kind='title')
        drawing.text(centre, 38, above, kind='small')
        for top, stage in zip(tops, stages):
            for row, layer in enumerate(stage):
                kind = 'dense' if layer.startswith('fc') else 'box' if re.match(r'\dx\d, ', layer) else 'pool'
                drawing.box(left + 6, top + row * step, width - 12, step - 4, layer, kind=kind)
        ends = [top + len(stage) * step - 4 for top, stage in zip(tops, stages)]
        for start, end in zip([46, *ends], [*tops[:len(stages)], tops[-1] + 4]):
            drawing.arrow((centre, start), (centre, end))
        drawing.text(centre, tops[-1] + 12, below, kind='small')
    return drawing.svg()


def draw_vgg() -> str:
    """Draw table 1, column by column."""
    nets = {}
    for variant, text in vgg.TABLE_1.items():
        words = [re.sub(r'conv(\d)-(\d+)', r'\1x\1, \2', word) for word in text.split()]
        nets[variant] = [*_stages(words), [f'fc, {vgg.DENSE}', f'fc, {vgg.DENSE}', 'fc, 1000']]
    return columns('The six nets of VGG, layer by layer', nets, 128, '224 x 224 x 3', 'soft-max')


def draw_prelu() -> str:
    """Draw the small net of table 1, and the large ones of table 3."""
    nets = {}
    for variant in (14, 'A', 'B', 'C'):
        layers = [re.sub(', pad 0', '', layer) for layer in prelu_net.VARIANTS[variant]]
        dense = [layer for layer in layers if layer.startswith('fc')]
        nets[f'{variant} layers' if variant == 14 else variant] = [
            *_stages(layers[:-len(dense)]), [*dense, 'fc, 1000']]
    # The small net has one stage fewer: its dense layers stand beside those of the others.
    deepest = max(map(len, nets.values()))
    for stages in nets.values():
        stages[-1:-1] = [[] for _ in range(deepest - len(stages))]
    return columns('The nets of the PReLU paper, layer by layer', nets, 180, '224 x 224 x 3', 'soft-max')


def _stages(layers: list[str]) -> list[list[str]]:
    """Split layers after each pooling."""
    stages: list[list[str]] = [[]]
    for before, layer in zip(['', *layers], layers):
        if 'pool' in before:
            stages.append([])
        stages[-1].append(layer)
    return stages


def draw_alexnet() -> str:
    """Draw figure 2: two towers, which exchange maps where a layer sees both."""
    net, width, gap, tops, height = alexnet.NETS['imagenet'], 92, 26, (14, 122), 76
    layers = {**net.convolutions, 'fc6': None, 'fc7': None, 'fc8': None}
    drawing = Drawing(100 + len(layers) * (width + gap), 240, 'The two towers of AlexNet, layer by layer')
    drawing.box(8, 74, 66, 64, '224 x', '224 x 3', kind='data')
    drawing.text(41, 156, 'image', kind='small')
    x, sources = 100, [(74, 106)]  # where a layer begins, and where the maps of the last one leave
    for name, layer in layers.items():
        towers = tops if name != 'fc8' else (68,)
        for tower, top in enumerate(towers):
            apart = layer is not None and layer.apart
            for source in (sources[tower:tower + 1] if apart else sources):
                drawing.arrow(source, (x - 2, top + height / 2))
            if layer:
                stride = f', /{layer.stride}' if layer.stride > 1 else ''
                drawing.box(x, top, width, height, name, f'{layer.size} x {layer.size}{stride}',
                            f'{layer.kernels // len(towers)} maps')
            else:
                drawing.box(x, top, width, height, name, f"{1000 if name == 'fc8' else alexnet.DENSE // len(towers)}",
                            kind='dense')
        after = {'normalised': layer and layer.normalised, 'pooled': layer and layer.pooled}
        drawing.text(x + width / 2, 218, *(word for word, follows in after.items() if follows), kind='small')
        sources = [(x + width, top + height / 2) for top in towers]
        x += width + gap
    return drawing.svg()


def draw_transformer() -> str:
    """Draw figure 1, with the sizes of the base model."""
    config = transformer.Config()
    drawing = Drawing(700, 620, 'The encoder and the decoder of the Transformer')
    heads, width = f'{config.h} heads', 210
    forward = 'feed-forward', f'{config.d_model} to {config.d_ff}, ReLU'
    stacks = {  # left edge -> input, and sublayers from below
        60: ('source subwords', [('self-attention', heads), forward]),
        420: ('target subwords, shifted right',
              [('masked self-attention', heads), ('attention to the encoder', heads), forward])}
    tops, into = [], (0, 0)
    for left, (source, sublayers) in stacks.items():
        middle, top = left + width / 2, 526
        drawing.text(middle, top + 80, source)
        drawing.arrow((middle, top + 66), (middle, top + 48))
        drawing.box(left, top, width, 46, f'embedding, {config.d_model}', '+ sinusoidal positions', kind='pool')
        group = top - 114 * len(sublayers) - 28
        drawing.box(left - 34, group, width + 68, top - 14 - group, kind='group')
        drawing.text(left + width - 6, group + 14, f'{config.N} times', kind='small')
        for name, size in sublayers:
            drawing.arrow((middle, top), (middle, top - 32))
            drawing.arrow((middle, top - 22), (left - 18, top - 22), (left - 18, top - 101), (left - 2, top - 101))
            drawing.box(left, top - 80, width, 46, name, size)
            drawing.arrow((middle, top - 80), (middle, top - 88))
            drawing.box(left, top - 114, width, 24, 'sum, layer normalisation', kind='pool')
            if name == 'attention to the encoder':
                into = (left - 2, top - 50)
            top -= 114
        tops.append((middle, top))
    (middle, top), (x, y) = tops[0], into
    drawing.arrow((middle, top), (middle, top - 48), (x - 72, top - 48), (x - 72, y), (x, y))
    drawing.text(middle + 90, top - 60, 'keys and values', kind='small')
    middle, top = tops[1]
    drawing.arrow((middle, top), (middle, top - 46))
    drawing.box(middle - width / 2, top - 94, width, 46, 'linear, by the embedding', 'soft-max over subwords',
                kind='dense')
    drawing.arrow((middle, top - 94), (middle, top - 116))
    drawing.text(middle, top - 130, 'probabilities of the next subword')
    return drawing.svg()


def draw_viton_hd() -> str:
    """Draw the three networks in the order in which a try-on runs them, with inputs and outputs (figure 3)."""
    drawing = Drawing(920, 390, 'The three networks of VITON-HD, one after the other')
    rows = [
        ([('S_a', 'parse'), ('P', 'pose'), ('c', 'garment')],
         ('segmentation generator', 'a U-Net of', ', '.join(map(str, segmentation.WIDTHS)) + ' maps'),
         ('S', 'parse in c')),
        ([('S_c', "c's part of S"), ('P', 'pose'), ('I_a', 'person'), ('c', 'garment')],
         ('geometric matching', f'two extractors of {len(geometric_matching.EXTRACTOR)} layers,',
          'correlation, regression'),
         ('W(c, theta)', 'warped c')),
        ([('W(c, theta)', 'warped c'), ('I_a', 'person'), ('P', 'pose'), ('S, S_div', 'M_misalign')],
         ('ALIAS generator', f'{len(alias.CHANNELS)} ResBlks of', f'{alias.CHANNELS[0]} to {alias.CHANNELS[-1]} maps'),
         ('image', 'person in c'))]
    top = 20
    for row, (inputs, network, output) in enumerate(rows):
        for column, lines in enumerate(inputs):
            drawing.box(10 + 108 * column, top + 12, 100, 48, *lines, kind='data')
        drawing.arrow((10 + 108 * len(inputs) - 8, top + 36), (498, top + 36))
        drawing.box(500, top, 230, 72, *network)
        drawing.arrow((730, top + 36), (778, top + 36))
        drawing.box(780, top + 12, 130, 48, *output, kind='data' if row < 2 else 'dense')
        if row < 2:
            drawing.arrow((845, top + 60), (845, top + 96), (60, top + 96), (60, top + 140))
        top += 130
    drawing.text(460, 376, 'S_a and I_a lack the garment that the person wears; S_div and M_misalign follow from S and '
                 'the warped mask', kind='small')
    return drawing.svg()


def draw_learning_machine() -> str:
    """Draw what happens from a situation to its memory."""
    drawing = Drawing(920, 250, 'How the learning machine chooses a move and remembers it')
    steps = [('situation', 'position,', 'words heard'), ('indexes', 'features, words,', 'its own thoughts'),
             ('votes', 'good memories', 'less bad ones'), ('choice', 'most votes;', 'ties by the tape'),
             ('move or word', 'played, said', '')]
    for column, (name, *lines) in enumerate(steps):
        left = 10 + 184 * column
        drawing.box(left, 20, 140, 76, name, *filter(None, lines), kind='data' if column in (0, 4) else 'box')
        if column:
            drawing.arrow((left - 44, 58), (left - 2, 58))
    drawing.box(194, 166, 140, 64, 'memory', 'all that happened', kind='pool')
    drawing.box(446, 166, 256, 64, 'pleasure, pain', 'and conditions that stand for them', kind='dense')
    drawing.arrow((816, 96), (816, 198), (704, 198))
    drawing.arrow((446, 198), (336, 198))
    drawing.arrow((264, 166), (264, 98))
    drawing.text(264 + 70, 132, 'looked up', kind='small')
    drawing.text(776, 150, 'outcome', kind='small')
    return drawing.svg()


DRAWINGS = {'transformer': draw_transformer, 'alexnet': draw_alexnet, 'vgg': draw_vgg, 'prelu': draw_prelu,
            'viton-hd': draw_viton_hd, 'learning-machine': draw_learning_machine}
