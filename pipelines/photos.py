"""Makes a try-on folder of your own photographs, and says what looks wrong in them.

    python -m pipelines.fetch blazepose
    python -m pipelines.photos --person me.jpg --garment shirt.jpg --parser parsing_lip.onnx --out mine
    python -m pipelines.photos --person people/ --garment garments/ --pairs pairs.txt --parser parsing_atr.onnx
    python -m pipelines.predict --config viton_hd mine/test_pairs.txt

Photographs are turned upright and cut to 3:4. The pose is BlazePose's, the parse map that of an ONNX file of yours, and
a garment's mask is cut out of a plain ground. `photos.html` in the folder shows each step, and what to do better.
Flags that are not listed are Beam's, as `--runner DataflowRunner`.
"""
import argparse
import os
import sys

from data_prep import UserError
from pipelines.core import cli


def run(people: list[str], garments: list[str], out: str, argv: list[str], **settings) -> bool:
    """Makes the folder and its page. Returns whether a try-on can be made of it.

    Args:
      settings: of `job.Config`.

    Raises:
      UserError: as `job.run`.
    """
    from data_prep.photos import folder, job
    from pipelines.reporting import photo_page
    rows = job.run(job.Config(people, garments, **settings), out, argv)
    for row in rows:
        for finding in row.findings:
            print(f'photos: {row.path}: {finding.sentence}', flush=True)
    page = photo_page.write(rows, out)
    pairs = os.path.join(out, folder.PAIRS)
    complete = [[row.complete for row in rows if row.kind == kind] for kind in folder.KINDS]
    (people_made, people_read), (garments_made, garments_read) = ((sum(each), len(each)) for each in complete)
    print(f'photos: {people_made:,} of {people_read:,} people and {garments_made:,} of {garments_read:,} garments '
          f'can be used; {page} shows them.', flush=True)
    if people_made and garments_made:
        print(f'Next: python -m pipelines.predict --config viton_hd {pairs}', flush=True)
    return bool(people_made and garments_made)


def main(argv: list[str] | None = None) -> None:
    flags = argparse.ArgumentParser(prog='python -m pipelines.photos', description=__doc__, allow_abbrev=False,
                                    formatter_class=argparse.RawDescriptionHelpFormatter)
    flags.add_argument('--person', nargs='+', required=True, metavar='FILE',
                       help='photographs of people, or folders')
    flags.add_argument('--garment', nargs='+', required=True, metavar='FILE',
                       help='photographs of garments, or folders')
    flags.add_argument('--pairs', metavar='FILE', default='',
                       help='a text of `person garment` a line (default: each person with each garment)')
    flags.add_argument('--parser', metavar='FILE', default='',
                       help='an ONNX file of a human parser (default: parse maps that are in DIR/image-parse)')
    flags.add_argument('--parser_labels', metavar='NAME', default='',
                       help="the parser's label map: lip, atr or cihp (default: lip of 20 labels, atr of 18)")
    flags.add_argument('--blazepose', metavar='DIR', default='weights/blazepose',
                       help='where BlazePose is (default: weights/blazepose)')
    flags.add_argument('--size', nargs=2, type=cli.positive, metavar=('HEIGHT', 'WIDTH'), default=(1024, 768),
                       help='of the pictures that are made, 4 to 3 (default: 1024 768)')
    flags.add_argument('--out', metavar='DIR', default='photos', help='the folder that is made (default: photos)')
    args, rest = flags.parse_known_args(argv)

    def work() -> None:
        cli.quiet_libraries()
        given = rest
        if given:
            from pipelines.engines import beam_flags
            given = beam_flags.check(given, args.out, set(vars(args)))
        made = run(args.person, args.garment, args.out, given, pairs=args.pairs, parser=args.parser,
                   parser_labels=args.parser_labels, blazepose=args.blazepose, size=tuple(args.size))
        if not made:
            raise UserError(f'{args.out}: no try-on can be made of these photographs; what is missing is above and in '
                            f'{args.out}/photos.html.')
    cli.run_command(work)


if __name__ == '__main__':
    main(sys.argv[1:])
