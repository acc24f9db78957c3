"""``torchrun --nproc-per-node N -m spacy_elmo.training INPUT... OUTPUT``: many processes.

The same command as ``python -m spacy elmo pretrain``, every process taking its share of each
batch. Weights, vocabulary and logs are written once, by the first, into a folder that all must
see. The one module of the package that looks up the dependency order, since it is a door to the
command and nothing imports it.
"""

import typer

from ..cli.pretrain import CONTEXT, pretrain_cli

if __name__ == "__main__":
    app = typer.Typer(add_completion=False)
    app.command(context_settings=CONTEXT)(pretrain_cli)
    app()
