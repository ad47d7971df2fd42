"""Write one small synthetic trace in each of several public raw formats.

Run as ``python sample_traces/make.py [--seed 2017] [-o DIR]`` from any folder. Equal seeds give equal bytes.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent


def main() -> None:
    """Parse the command line, write the traces, and print the sizes."""
    parser = argparse.ArgumentParser(description="Write the synthetic sample traces.")
    parser.add_argument("--seed", type=int, default=2017, help="seed of all random choices (default: 2017)")
    parser.add_argument("-o", "--output", type=Path, default=HERE, help="folder to write to (default: this one)")
    options = parser.parse_args()
    # A script sees only its own folder; its modules are imported by the name under which type checkers know them.
    sys.path.insert(0, str(HERE.parent))
    from sample_traces._acme import write_acme
    from sample_traces._dlrm import write_dlrm
    from sample_traces._helios import write_helios
    from sample_traces._kubernetes import write_kubernetes
    from sample_traces._lsf import write_lsf
    from sample_traces._openb import write_openb
    from sample_traces._pai import write_pai
    from sample_traces._pbs import write_pbs
    from sample_traces._philly import write_philly
    from sample_traces._readme import write_readme
    from sample_traces._slurm import write_slurm
    from sample_traces._slurm_outages import write_slurm_outages
    from sample_traces._spot import write_spot
    from sample_traces._swf import write_swf

    quirks = []
    for write in (write_philly, write_helios, write_pai, write_openb):
        quirks += write(options.output, options.seed)
    for write in (write_dlrm, write_spot, write_acme, write_swf):
        quirks += write(options.output, options.seed)
    for write in (write_slurm, write_pbs, write_lsf, write_kubernetes):
        quirks += write(options.output, options.seed)
    quirks += write_slurm_outages(options.output, options.seed)
    write_readme(options.output, options.seed, quirks)
    for path in sorted({quirk.file for quirk in quirks}):
        print(f"{(options.output / path).stat().st_size:>8} bytes  {path}")


if __name__ == "__main__":
    main()
