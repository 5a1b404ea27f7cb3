"""Run a benchmark by the path it had before benchmarks were divided into speed, robustness and studies."""
import pathlib
import runpy
import sys

HERE = pathlib.Path(__file__).resolve().parent


def run(path: str) -> None:
    """Name the new path, then run the script as if it had been given."""
    print(f'note: this benchmark is now benchmarks/{path}; the old path goes with the next version.', file=sys.stderr)
    sys.argv[0] = str(HERE / path)
    sys.path[0] = str(HERE / pathlib.Path(path).parent)
    runpy.run_path(sys.argv[0], run_name='__main__')
