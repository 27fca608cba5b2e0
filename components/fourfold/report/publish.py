"""Runs the step and hands its result to KFP: the page and the results as artifacts."""

from collections.abc import Sequence
from pathlib import Path

from fourfold.contract import events
from fourfold.contract.records import to_json


def run(
    store: str,
    fingerprint: str,
    split_id: str,
    arguments: str,
    pods: str,
    code: str,
    evaluations: Sequence[str],
    merged: str,
    page_path: str,
    results_path: str,
) -> None:
    """The component's body; arguments as in ``component``."""
    with events.step("report", code):
        from fourfold.report.step import report

        gathered, page = report(store, fingerprint, split_id, evaluations, merged, arguments, pods)
        for path, data in ((page_path, page.encode()), (results_path, to_json(gathered))):
            Path(path).parent.mkdir(parents=True, exist_ok=True)
            Path(path).write_bytes(data)
