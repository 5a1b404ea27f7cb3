"""Counts and latencies of requests, in the names and format of TensorFlow Serving's Prometheus page."""
import bisect
import collections
import threading

# Its 33 buckets: 10 microseconds times powers of 1.8, up to about 20 minutes.
BOUNDS = tuple(10 * 1.8 ** n for n in range(33))
PATH = '/monitoring/prometheus/metrics'


class Monitor:
    """Metrics of one server; several threads write them.

    The first four are TensorFlow Serving's; those named `:landmark:` are ours.
    """

    def __init__(self):
        self._lock = threading.Lock()
        self._counters: dict[str, collections.Counter] = collections.defaultdict(collections.Counter)
        self._histograms: dict[str, dict[str, list]] = collections.defaultdict(dict)
        self._gauges: dict[str, dict[str, int]] = collections.defaultdict(dict)

    def request(self, model: str, status: str, api: str, entrypoint: str, seconds: float) -> None:
        """Count an answered request; only successful ones count in latencies, as in TensorFlow Serving."""
        self.count(':tensorflow:serving:request_count', 1, model_name=model, status=status)
        if status == 'OK':
            self.observe(':tensorflow:serving:request_latency', seconds * 1e6, model_name=model, API=api,
                         entrypoint=entrypoint)

    def batch(self, model: str, rows: int, seconds: float) -> None:
        """Count a computed batch."""
        self.observe(':tensorflow:serving:runtime_latency', seconds * 1e6, model_name=model, API='Predict',
                     runtime='TF2')
        self.count(':landmark:serving:batches', 1, model_name=model)
        self.count(':landmark:serving:rows', rows, model_name=model)

    def waited(self, model: str, seconds: float) -> None:
        """Record how long a request waited for its batch."""
        self.observe(':tensorflow:serving:batching_session:queuing_latency', seconds * 1e6, model_name=model)

    def count(self, name: str, more: int, **labels: str) -> None:
        with self._lock:
            self._counters[name][_labels(labels)] += more

    def gauge(self, name: str, value: int, **labels: str) -> None:
        with self._lock:
            self._gauges[name][_labels(labels)] = value

    def observe(self, name: str, value: float, **labels: str) -> None:
        with self._lock:
            counts = self._histograms[name].setdefault(_labels(labels), [0] * (len(BOUNDS) + 1) + [0.0])
            counts[bisect.bisect_right(BOUNDS, value)] += 1
            counts[-1] += value

    def page(self) -> str:
        """Return all metrics in Prometheus's text format."""
        lines = []
        with self._lock:
            for kind, metrics in (('counter', self._counters), ('gauge', self._gauges)):
                for name, values in sorted(metrics.items()):
                    lines.append(f'# TYPE {name} {kind}')
                    lines += [f'{name}{{{labels}}} {value}' for labels, value in sorted(values.items())]
            for name, histograms in sorted(self._histograms.items()):
                lines.append(f'# TYPE {name} histogram')
                for labels, (*counts, total) in sorted(histograms.items()):
                    seen = 0
                    for bound, count in zip((*(f'{bound:g}' for bound in BOUNDS), '+Inf'), counts):
                        seen += count
                        lines.append(f'{name}_bucket{{{labels},le="{bound}"}} {seen}')
                    lines += [f'{name}_sum{{{labels}}} {total:g}', f'{name}_count{{{labels}}} {seen}']
        return '\n'.join(lines) + '\n'


def _labels(labels: dict[str, str]) -> str:
    return ','.join(f'{name}="{_escaped(value)}"' for name, value in labels.items())


def _escaped(value: str) -> str:
    return value.replace('\\', '\\\\').replace('"', '\\"').replace('\n', '\\n')
