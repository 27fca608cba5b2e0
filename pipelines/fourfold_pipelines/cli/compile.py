"""``fourfold compile``: writes the pipelines as YAML, to be uploaded to Kubeflow."""

from pathlib import Path
from typing import Any

import click

from fourfold_pipelines.chosen import for_kubeflow
from fourfold_pipelines.cli import options


@click.command("compile")
@click.argument("pipelines", nargs=-1, metavar="[PIPELINE]...")
@click.option(
    "-o",
    "--out",
    type=click.Path(file_okay=False, path_type=Path),
    default=Path("compiled"),
    show_default=True,
    help="Folder that the YAML is written into; made if missing.",
)
@options.with_options(options.COMPILED)
def compile_command(
    pipelines: tuple[str, ...], out: Path, name: str, gpus: int | None, pods_text: str, **chosen: Any
) -> None:
    """Writes pipelines as YAML, to be uploaded in the Kubeflow UI: experiment, train, merge-study, or all.

    experiment trains every way and compares; train trains one way, which its parameter `scenario` names;
    merge-study merges by every rule on the splits, members and starts that its parameter `cells` names. What
    a run may want to change is a parameter of the pipeline; what belongs to the cluster is chosen here.

    \b
    Examples:
      fourfold compile --registry registry.example.org/team
      fourfold compile experiment --gpus 1 --pods '{"memory": "16Gi", "cpu": "4"}'
      fourfold compile train --store s3://models/fourfold --name nightly
    """  # noqa: D301 - click takes the backslash-b itself as its mark
    built = for_kubeflow(options.said_of_pods(None, gpus, pods_text), **chosen)
    # kfp takes a second to import; what is wrong above is told at once.
    from fourfold_pipelines import compiled

    wanted = list(dict.fromkeys(pipelines)) or list(compiled.PIPELINES)
    unknown = [pipeline for pipeline in wanted if pipeline not in compiled.PIPELINES]
    if unknown:
        raise click.UsageError(f"there is no pipeline {unknown[0]!r}: use {' or '.join(compiled.PIPELINES)}")
    if name and len(wanted) > 1:
        raise click.UsageError(f"--name names one pipeline, {len(wanted)} would be written: say which one")
    for pipeline in wanted:
        target = out / f"{pipeline}.yaml"
        compiled.write(pipeline, built, target, name)
        click.echo(f"wrote {target}")
