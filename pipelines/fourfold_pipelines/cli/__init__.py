"""The command line: a file a command. TensorFlow and kfp are imported only by a command that needs them."""

import click

from fourfold import __version__
from fourfold.contract import exits
from fourfold.contract.errors import FourfoldError
from fourfold_pipelines.cli.cache import cache_command
from fourfold_pipelines.cli.compile import compile_command
from fourfold_pipelines.cli.doctor import doctor_command
from fourfold_pipelines.cli.manifest import manifest_command
from fourfold_pipelines.cli.merge import merge_command
from fourfold_pipelines.cli.merge_study import merge_study_command
from fourfold_pipelines.cli.run import run_command
from fourfold_pipelines.cli.show import show_command
from fourfold_pipelines.cli.submit import submit_command


class _Group(click.Group):
    """Shows an error that is meant for users as its message alone."""

    def invoke(self, ctx: click.Context) -> object:
        try:
            return super().invoke(ctx)
        except FourfoldError as error:
            told = click.ClickException(str(error))
            told.exit_code = exits.of(error)
            raise told from error


@click.group(cls=_Group, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110})
@click.version_option(__version__, "-V", "--version", package_name="fourfold")
def main() -> None:
    """Trains one Keras model every way there is to split the work, and compares.

    Start with `fourfold run`: it trains on a sample of MNIST in about a minute and writes a report.
    """


main.add_command(run_command)
main.add_command(show_command)
main.add_command(cache_command)
main.add_command(merge_command)
main.add_command(merge_study_command)
main.add_command(compile_command)
main.add_command(submit_command)
main.add_command(doctor_command)
main.add_command(manifest_command)
