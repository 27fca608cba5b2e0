"""``fourfold compile``: writes the pipeline as YAML, to be uploaded to Kubeflow."""

from pathlib import Path

import click


@click.command("compile")
@click.option(
    "-o",
    "--out",
    type=click.Path(file_okay=False, path_type=Path),
    default=Path("compiled"),
    show_default=True,
    help="Folder that the YAML is written into; made if missing.",
)
def compile_command(out: Path) -> None:
    """Writes the pipelines as YAML, to be uploaded in the Kubeflow UI.

    \b
    Example:
      fourfold compile -o compiled
    """  # noqa: D301 - click takes the backslash-b itself as its mark
    from kfp import compiler

    from fourfold_pipelines.experiment import experiment

    target = out / "experiment.yaml"
    try:
        out.mkdir(parents=True, exist_ok=True)
        part = out / ".part-experiment.yaml"
        compiler.Compiler().compile(experiment, str(part))  # pyright: ignore[reportArgumentType]
        part.replace(target)
    except OSError as error:
        raise click.ClickException(f"cannot write {target}: {error.strerror or error}") from error
    click.echo(f"wrote {target}")
