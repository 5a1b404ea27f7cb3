"""Make a try-on folder from your own photographs, and report what looks wrong in them.

    python -m pipelines.fetch blazepose
    python -m pipelines.photos --person me.jpg --garment shirt.jpg --parser parsing_lip.onnx --out mine
    python -m pipelines.photos --person people/ --garment garments/ --pairs pairs.txt --parser parsing_atr.onnx
    python -m pipelines.predict --config viton_hd mine/test_pairs.txt

Photographs are rotated upright and cropped to 3:4. BlazePose estimates poses, your ONNX file makes parse maps, and
garments are segmented from a plain background. `photos.html` in the folder shows every step, the problems found and
their remedies. Other flags are passed to Beam, for example `--runner DataflowRunner`.
"""
import argparse
import os
import sys

from data_prep import UserError
from data_prep.photos import BLAZEPOSE
from pipelines.core import cli, commands


def run(people: list[str], garments: list[str], out: str, argv: list[str], **settings) -> bool:
    """Make the folder and its page; return whether it has both a person and a garment that try-on can use.

    Args:
      people, garments: photographs, or folders of them.
      out: the folder to make.
      argv: Beam's flags.
      settings: the other fields of `job.Config`.

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
    (usable_people, all_people), (usable_garments, all_garments) = ((sum(each), len(each)) for each in complete)
    print(f'photos: {usable_people:,} of {all_people:,} people and {usable_garments:,} of {all_garments:,} garments '
          f'can be used; {page} shows them.', flush=True)
    if usable_people and usable_garments:
        print(f'Next: {commands.line("predict", ["--config", "viton_hd", pairs])}', flush=True)
    return bool(usable_people and usable_garments)


def main(argv: list[str] | None = None) -> None:
    flags = argparse.ArgumentParser(prog='python -m pipelines.photos', description=__doc__, allow_abbrev=False,
                                    formatter_class=argparse.RawDescriptionHelpFormatter)
    flags.add_argument('--person', nargs='+', required=True, metavar='FILE',
                       help='photographs of people, or folders of them')
    flags.add_argument('--garment', nargs='+', required=True, metavar='FILE',
                       help='photographs of garments, or folders of them')
    flags.add_argument('--pairs', metavar='FILE', default='',
                       help='text file with one `person garment` per line (default: each person with each garment)')
    flags.add_argument('--parser', metavar='FILE', default='',
                       help='ONNX file of a human parser (default: use the parse maps in DIR/image-parse)')
    flags.add_argument('--parser_labels', metavar='NAME', default='',
                       help="the parser's label map: lip, atr or cihp (default: lip for 20 labels, atr for 18)")
    flags.add_argument('--blazepose', metavar='DIR', default=BLAZEPOSE,
                       help='folder of BlazePose (default: %(default)s)')
    flags.add_argument('--size', nargs=2, type=cli.positive, metavar=('HEIGHT', 'WIDTH'), default=(1024, 768),
                       help='size of the images made, 4 to 3 (default: 1024 768)')
    flags.add_argument('--out', metavar='DIR', default='photos', help='folder to write (default: photos)')
    args, rest = flags.parse_known_args(argv)

    def work() -> None:
        cli.prepare_libraries()
        beam = rest
        if beam:
            from pipelines.engines import beam_flags
            beam = beam_flags.check(beam, args.out, set(vars(args)))
        usable = run(args.person, args.garment, args.out, beam, pairs=args.pairs, parser=args.parser,
                     parser_labels=args.parser_labels, blazepose=args.blazepose, size=tuple(args.size))
        if not usable:
            raise UserError(f'{args.out}: try-on needs at least one usable person and one usable garment. Follow the '
                            f'remedies above, which are also in {args.out}/photos.html.')
    cli.run_command(work)


if __name__ == '__main__':
    main(sys.argv[1:])
