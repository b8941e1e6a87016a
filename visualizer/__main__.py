"""`python -m visualizer`: open the page, record the runs that ship with it, or write them as a static site."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from core.errors import InflightError


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m visualizer", description=__doc__)
    commands = parser.add_subparsers(dest="command")
    page = commands.add_parser("page", help="open the page (the default)")
    page.add_argument("--port", type=int, default=None)
    record = commands.add_parser("record", help="run the presets and write their traces to assets/traces")
    record.add_argument("names", nargs="*", help="presets to record; all by default")
    record.add_argument("--device", default="cpu")
    site = commands.add_parser("export-site", help="write the recorded runs and comparisons as a site that needs no server")
    site.add_argument("folder", type=Path)
    options = parser.parse_args(arguments)
    try:
        if options.command == "record":
            from visualizer.documents.record import record as record_presets

            for name, path in record_presets(device=options.device, names=tuple(options.names)):
                print(f"{name}: {path.stat().st_size:,} bytes")
        elif options.command == "export-site":
            from visualizer.page.site import export_site

            print(f"Open {export_site(options.folder)} in a browser; the folder needs no server.")
        else:
            from visualizer.ui import launch  # the page is what loads Gradio

            launch(server_port=getattr(options, "port", None))
    except InflightError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
