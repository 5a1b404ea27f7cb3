"""Draw figures as SVG inside a page: they use the page's font and follow its light and dark colours."""
import html
import io
import re
from collections.abc import Callable, Iterable, Mapping, Sequence

import matplotlib
import numpy as np
from cycler import cycler
from matplotlib.figure import Figure
from matplotlib.ticker import EngFormatter, MaxNLocator

# matplotlib knows no CSS variables: these placeholder colours are replaced in the SVG.
_INK, _FAINT = '#000001', '#000002'
_SERIES = ('#000003', '#000004', '#000005', '#000006', '#000007', '#000008')
_WIDTH, _HEIGHT, _ROW = 3.7, 2.5, 0.2  # inches of a figure, and of a legend row below it
_VARIABLES = {_INK: 'var(--muted)', _FAINT: 'var(--line)',
              **{colour: f'var(--series-{i})' for i, colour in enumerate(_SERIES, 1)}}
# Colours of separate files: the light ones of `templates/report.css`.
_PRINTED = ('#6a6861', '#dedbd2', '#2468a8', '#d1642a', '#3b8f6b', '#8a5aa8', '#a8842a', '#6d7077')
_STYLE = {
    'svg.fonttype': 'none', 'svg.hashsalt': 'landmark', 'text.parse_math': False, 'font.size': 9,
    'text.color': _INK, 'axes.edgecolor': _FAINT, 'axes.labelcolor': _INK, 'axes.titlecolor': _INK,
    'axes.titlelocation': 'left', 'axes.titlesize': 10, 'axes.spines.top': False, 'axes.spines.right': False,
    'axes.grid': True, 'axes.grid.axis': 'y', 'axes.axisbelow': True, 'axes.prop_cycle': cycler(color=_SERIES),
    'grid.color': _FAINT, 'grid.linewidth': 0.6, 'xtick.color': _FAINT, 'ytick.color': _FAINT,
    'xtick.labelcolor': _INK, 'ytick.labelcolor': _INK, 'legend.frameon': False, 'lines.linewidth': 1.6,
}


def lines(title: str, series: Mapping[tuple[str, str], Sequence[tuple[int | str, float]]], marks: Iterable[int] = (),
          x: str = 'step', log: bool = False, png: str = '') -> str:
    """Draw values over steps.

    Args:
      title: what the values are.
      series: (part, side) -> (step, value) points; the legend adds each one's last value. Each of several parts has its
        own colour, and the side 'validation' is dashed. Steps may also be words.
      marks: steps to mark, such as where a run was resumed.
      x: label of the horizontal axis.
      log: whether the vertical axis is logarithmic.
      png: path of a PNG to draw as well.

    Returns:
      An <svg> element.
    """
    def draw():
        figure, axes = _figure(title, _HEIGHT + _ROW * len(series))
        parts = list(dict.fromkeys(part for part, _ in series))
        for number, ((part, side), points) in enumerate(series.items()):
            steps, values = zip(*points)
            colour = parts.index(part) if len(parts) > 1 else number
            axes.plot(steps, values, label=f'{part} {side} {_short(values[-1])}'.strip().replace('  ', ' '),
                      color=f'C{colour % len(_SERIES)}',
                      linestyle='--' if len(parts) > 1 and side == 'validation' else '-',
                      marker='o' if len(points) < 20 else '', markersize=3)
        for step in marks:
            axes.axvline(step, color=matplotlib.rcParams['text.color'], linewidth=0.8, linestyle=':')
        axes.set_xlabel(x)
        if not isinstance(steps[0], str):
            axes.xaxis.set_major_formatter(EngFormatter(sep=''))
        if log:
            axes.set_yscale('log')
            axes.yaxis.set_major_formatter('{x:g}')
        elif max(abs(value) for points in series.values() for _, value in points) >= 10_000:
            axes.yaxis.set_major_formatter(EngFormatter(sep=''))
        figure.legend(loc='outside lower left')  # inside, it would hide lines
        return figure
    return drawn(draw, title, png)


def drawn(draw: Callable[[], Figure], title: str, png: str = '') -> str:
    """Draw a figure in the page's style as <svg>, and also into the file `png` if it is given.

    Args:
      draw: makes the figure with matplotlib's defaults; called once for each output.
    """
    if png:
        ink, faint, *series = _PRINTED
        plain = {**_STYLE, **{key: ink if value == _INK else faint for key, value in _STYLE.items()
                              if value in (_INK, _FAINT)}}
        with matplotlib.rc_context({**plain, 'axes.prop_cycle': cycler(color=series)}):
            draw().savefig(png, dpi=200, metadata={'Software': None})
    with matplotlib.rc_context(_STYLE):
        return svg(draw(), title)


def histogram(title: str, lengths: dict[str, np.ndarray], limits: Sequence[int] = ()) -> str:
    """Draw how many records have each length.

    Args:
      title: what the lengths are of.
      lengths: label -> one length per record.
      limits: the buckets' lengths, drawn as lines.

    Returns:
      An <svg> element.
    """
    with matplotlib.rc_context(_STYLE):
        figure, axes = _figure(title, _HEIGHT + _ROW)
        longest = max(int(values.max()) for values in lengths.values())
        edges = bar_edges(longest)
        for label, values in lengths.items():
            axes.stairs(np.histogram(values, edges)[0], edges, label=label, linewidth=1.4)
        for limit in limits:
            axes.axvline(limit + 0.5, color=_INK, linewidth=0.8, linestyle=':')
        axes.set_xlabel('length')
        axes.set_xlim(0, max([longest, *limits]) + 1)
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
        axes.yaxis.set_major_formatter(EngFormatter(sep=''))
        figure.legend(loc='outside lower left', ncols=len(lengths))
        return svg(figure, title)


def bar_edges(longest: int) -> np.ndarray:
    """Return the edges of at most about 60 bars over 0 to `longest`, with whole numbers in their middle."""
    step = 1 + longest // 60
    return np.arange(0, longest + step + 1, step) - 0.5


def _short(value: float) -> str:
    return f'{value:,.0f}' if abs(value) >= 1000 else f'{value:.4g}'


def _figure(title: str, height: float = _HEIGHT):
    figure = Figure(figsize=(_WIDTH, height), layout='constrained')  # not pyplot, which keeps figures open
    axes = figure.add_subplot()
    axes.set_title(title)
    return figure, axes


def svg(figure: Figure, title: str) -> str:
    """Return a figure's <svg> element, without the parts that only a separate file needs."""
    stream = io.StringIO()
    with matplotlib.rc_context(_STYLE):
        figure.savefig(stream, format='svg', transparent=True,
                       metadata={'Date': None, 'Creator': None, 'Format': None, 'Type': None})
    text = stream.getvalue()
    text = text[text.index('<svg'):]
    text = re.sub(r' xmlns(:xlink)?="[^"]*"| (width|height)="[\d.]+pt"| version="1.1"', '', text)
    text = re.sub(r'<style.*?</style>', '', text, flags=re.DOTALL)  # it would apply to the whole page
    text = re.sub(r'<g id="[^"]*"', '<g', text)  # clip paths and markers keep theirs, which are content hashes
    text = re.sub(r"'DejaVu Sans'[^;\"]*", 'system-ui, sans-serif', text)
    for colour, variable in _VARIABLES.items():
        text = text.replace(colour, variable)
    return text.replace('<svg', f'<svg role="img" aria-label="{html.escape(title)}"', 1).strip()
