"""Compute every number of a report again from what its evaluation stored, without a model.

    python -m pipelines.verify runs/demo_translation/evaluate/4/report/report.html

Reads the stored answers or per-example scores, references and protocols: metrics, slices, the intervals of changes and
the verdict are computed again, files are compared by SHA-256 (images only so), and the page is searched for each
number. Prints what differs, and ends with exit code 1 if anything does. Needs no TensorFlow.
"""
import argparse
import sys

from pipelines.core import cli


def main(argv=None) -> None:
    flags = argparse.ArgumentParser(prog='python -m pipelines.verify', description=__doc__, allow_abbrev=False,
                                    formatter_class=argparse.RawDescriptionHelpFormatter)
    flags.add_argument('report', metavar='REPORT', help='a report.html, or the folder of an evaluation')
    flags.add_argument('--all', action='store_true', help='also print what is equal')
    args = flags.parse_args(argv)

    def work():
        from pipelines.evaluation import verification
        evaluation = verification.opened(args.report)
        findings = verification.verify(evaluation)
        for finding in findings:
            if args.all or not finding.equal:
                print(f'verify: {finding.what}: ' + (finding.recorded if finding.equal else
                                                     f'recorded {finding.recorded}, but found {finding.again}'))
        wrong = sum(not finding.equal for finding in findings)
        whole = evaluation.found.get('whole', ())
        if whole:
            print(f'verify: {", ".join(whole)}: computed over all examples at once, so every row holds the result, '
                  'and that was compared.')
        print(f'verify: {len(findings)} numbers, texts and files of {evaluation.folder}: '
              + (f'{wrong} differ.' if wrong else 'all equal.'), flush=True)
        if wrong:
            sys.exit(1)
    cli.run_command(work)


if __name__ == '__main__':
    main(sys.argv[1:])
