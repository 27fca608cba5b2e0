"""Runs the step and hands its result to KFP: the page and the results as artifacts."""

from collections.abc import Mapping, Sequence
from typing import Any

from fourfold.contract import events, ways
from fourfold.contract.again import again
from fourfold.contract.strict import to_json
from fourfold.contract.whole import whole
from fourfold.store.folder import write_file


def run(
    store: str,
    fingerprint: str,
    split_id: str,
    pods: str,
    code: str,
    arguments: Mapping[str, Any],
    evaluations: Sequence[str],
    merged: str,
    page_path: str,
    summary_path: str,
    results_path: str,
) -> None:
    """The component's body; arguments as in ``component``."""
    with events.step("report", code):
        names = ("rows", "holdout", "workers", "epochs", "batch", "seed", *ways.NUMBERS)
        known = {name: arguments[name] for name in names if name in arguments}
        arguments = {**arguments, **dict(zip(known, whole(**known), strict=True))}
        from fourfold.report import summary
        from fourfold.report.step import report

        gathered, page = again(
            lambda: report(store, fingerprint, split_id, evaluations, merged, arguments, pods)
        )
        write_file(page_path, page.encode())
        write_file(summary_path, summary.write(gathered).encode())
        write_file(results_path, to_json(gathered))
