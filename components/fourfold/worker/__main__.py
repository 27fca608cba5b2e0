"""``python -m fourfold.worker``: trains as one worker of a TFJob, or as all workers here."""

import argparse
import os
import socket
import sys

from fourfold.contract import exits, images
from fourfold.contract.errors import FourfoldError
from fourfold.contract.records import Training
from fourfold.contract.strict import from_json


def main(argv: list[str]) -> int:
    """Runs the program.

    Args:
        argv: the arguments after the program's name.

    Returns:
        The exit code, as in ``contract.exits``.
    """
    parser = argparse.ArgumentParser(
        prog="python -m fourfold.worker",
        description="Trains one model of a Fourfold training. In a TFJob the place among the peers is read "
        "from TF_CONFIG; with --local all workers are started here, talking over loopback.",
    )
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--training", help="what to train: a Training record as JSON")
    what.add_argument(
        "--serve", type=int, metavar="FD", help="answer trainings asked for on this listening socket"
    )
    parser.add_argument(
        "--local", action="store_true", help="start all workers of the training on this machine"
    )
    arguments = parser.parse_args(argv)
    if arguments.serve is not None:
        from fourfold.worker import serve

        return serve.serve(socket.socket(fileno=arguments.serve))
    try:
        training = from_json(Training, arguments.training, "--training")
        images.expect(training.code)
        from fourfold.worker import supervise

        roles = (
            supervise.local_roles(training) if arguments.local else supervise.pod_role(training, os.environ)
        )
        return supervise.run(training, roles)
    except FourfoldError as error:
        print(f"fourfold: {error}", file=sys.stderr, flush=True)
        return exits.of(error)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
