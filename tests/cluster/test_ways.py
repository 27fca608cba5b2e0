"""Ways to split that need more than a pod a worker, as real TFJobs."""

import json

import pytest

from fourfold.contract import exits
from fourfold.train import tfjob
from tests.cluster.conftest import objects

pytestmark = pytest.mark.cluster


def test_a_pipeline_with_one_stage_a_pod_gives_the_weights_of_one_with_all_stages_in_one(launch):
    apart = launch("pipeline", epochs=2, ways=json.dumps({"placement": "pods"}))
    assert apart.wait(240) == exits.OK, apart.said
    (job,) = apart.jobs()
    pods = {pod["metadata"]["name"] for pod in objects("pods", f"{tfjob.JOB_NAME}={job['metadata']['name']}")}
    (report,) = apart.trained().reports
    assert len(pods) == 2
    assert {report.process, *report.stage_processes} == pods
    together = launch("pipeline", epochs=2, run="together")
    assert together.wait(240) == exits.OK, together.said
    (other,) = together.trained().reports
    assert report.digests == other.digests
    assert {span.stage for span in other.busy} == {0, 1}


def test_an_ensemble_on_fewer_pods_than_members_gives_the_weights_of_one_with_as_many(launch):
    few = launch("ensemble", epochs=2, ways=json.dumps({"member_workers": 2}))
    assert few.wait(240) == exits.OK, few.said
    many = launch("ensemble", epochs=2, run="many")
    assert many.wait(240) == exits.OK, many.said
    for launcher, pods in ((few, 2), (many, 3)):
        assert len({report.process for report in launcher.trained().reports}) == pods
    assert [r.digests for r in few.trained().reports] == [r.digests for r in many.trained().reports]
