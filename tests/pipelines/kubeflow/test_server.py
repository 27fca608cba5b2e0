"""The client of Kubeflow's API: what is found and made, which token is sent, what an error says to do."""

import shutil
import ssl
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from fourfold.contract import exits
from fourfold.contract.errors import ClusterError, ClusterUnavailableError, FourfoldError, InvalidInputError
from fourfold_pipelines.kubeflow.server import PARAMETER_LENGTH, Server, check_lengths
from tests.pipelines.kubeflow.conftest import TOKEN
from tests.pipelines.kubeflow.fake_kubeflow import API, PAGE, VERSION, FakeKubeflow, refused
from tests.pipelines.kubeflow.fake_workflow import Scene


@pytest.fixture
def server(kubeflow: FakeKubeflow) -> Server:
    return Server(kubeflow.host, sleep=lambda seconds: pytest.fail("waited to ask again"))


@pytest.fixture
def of_alice(several_users: FakeKubeflow, token_file: Path) -> Server:
    return Server(several_users.host, "alice", token_file)


def said(error: type[FourfoldError], call: Callable[[], object]) -> str:
    with pytest.raises(error) as raised:
        call()
    assert TOKEN not in str(raised.value)
    return str(raised.value)


@pytest.mark.parametrize("front_end", [True, False])
def test_the_version_is_told_by_the_front_end_and_by_the_api_alone(front_end):
    with FakeKubeflow(front_end=front_end) as kubeflow:
        assert Server(kubeflow.host).check() == VERSION


def test_a_server_with_several_users_is_checked_with_a_namespace_and_a_token(of_alice, several_users):
    assert of_alice.check() == VERSION
    assert {request.token for request in several_users.requests} == {TOKEN}


def test_a_server_with_several_users_wants_a_namespace(several_users, token_file):
    server = Server(several_users.host, "", token_file)
    assert "--namespace" in said(InvalidInputError, server.check)


def test_a_server_with_one_user_has_no_namespaces(kubeflow):
    assert "leave --namespace away" in said(InvalidInputError, Server(kubeflow.host, "alice").check)


def test_who_is_not_known_is_told_how_to_get_a_token(several_users):
    message = said(ClusterError, Server(several_users.host, "alice").check)
    assert "401" in message
    assert "--token-file" in message
    assert "kubectl -n NAMESPACE create token" in message


def test_who_may_not_is_told_which_namespace(several_users, token_file):
    message = said(ClusterError, Server(several_users.host, "bob", token_file).check)
    assert "403" in message
    assert "namespace 'bob'" in message


def test_the_trace_that_a_server_adds_is_not_told(server, kubeflow):
    kubeflow.wrong(f"{API}/experiments", refused(400, "Invalid input\n/go/src/main.go:12"))
    message = said(ClusterError, server.check)
    assert "Invalid input" in message
    assert "main.go" not in message


def test_a_page_to_log_in_is_recognised(server, kubeflow):
    kubeflow.wrong(f"{API}/healthz", (200, PAGE))
    message = said(ClusterError, server.check)
    assert "a page, perhaps the one to log in with" in message
    assert "--token-file" in message


def test_being_sent_to_a_page_to_log_in_is_recognised_and_not_followed(of_alice, several_users):
    several_users.wrong(f"{API}/experiments", (302, ""))
    message = said(ClusterError, of_alice.check)
    assert "'https://dex.example.org/auth'" in message
    assert "--token-file" in message
    assert "s3cret" not in message


def test_a_front_end_without_its_api_is_told(server, kubeflow):
    kubeflow.wrong(f"{API}/healthz", (200, {"apiServerReady": False, "frontendTagName": VERSION}))
    message = said(ClusterUnavailableError, server.check)
    assert "ml-pipeline, does not answer" in message


@pytest.mark.parametrize("answer", [{"status": "ok"}, {}])
def test_another_server_that_speaks_json_is_recognised(server, kubeflow, answer):
    kubeflow.wrong(f"{API}/healthz", (200, answer))
    assert "no Kubeflow Pipelines API" in said(ClusterError, server.check)


def test_an_answer_that_is_no_utf_8_is_told_like_any_other(server, kubeflow):
    kubeflow.wrong(f"{API}/healthz", (404, b"\xff\xfe nothing here"))
    assert "nothing here" in said(ClusterError, server.check)


def test_nobody_at_the_address_is_told_with_the_port_forward(kubeflow):
    host = kubeflow.host
    kubeflow.go_away()
    message = said(ClusterUnavailableError, Server(host).check)
    kubeflow.come_back()
    assert host in message
    assert "port-forward svc/ml-pipeline-ui" in message
    assert exits.of(ClusterUnavailableError(message)) == exits.CLUSTER_FAILED


@pytest.mark.parametrize("host", ["localhost:8080", "kubeflow.example.org", "ftp://kubeflow", "http://", ""])
def test_a_host_without_a_scheme_is_refused(host):
    assert repr(host) in said(InvalidInputError, lambda: Server(host))


@pytest.mark.parametrize("host", ["http://a:port", "http://[::1", "http://no-such-host.invalid"])
def test_a_host_that_is_none_is_told(host):
    assert "is the address right?" in said(ClusterUnavailableError, Server(host).check)


@pytest.mark.parametrize("ending", ["/", "/#", "/#/"])
def test_the_address_of_a_browser_is_taken_as_it_is(kubeflow, ending):
    server = Server(kubeflow.host + ending)
    assert server.check() == VERSION
    assert server.page("id") == f"{kubeflow.host}/#/runs/details/id"


@pytest.mark.parametrize("text", [None, "", " \n", "two words", "a\nb", "t\u00f6ken"])
def test_a_token_that_cannot_be_one_is_refused_before_anything_is_sent(kubeflow, tmp_path, text):
    path = tmp_path / "my-token"
    if text is not None:
        path.write_text(text, encoding="utf-8")
    message = said(InvalidInputError, lambda: Server(kubeflow.host, token_file=path))
    assert str(path) in message
    assert not text or not text.strip() or text not in message
    assert kubeflow.requests == []


def test_the_token_that_kubeflow_mounts_into_notebooks_is_used(several_users, token_file, monkeypatch):
    monkeypatch.setenv("KF_PIPELINES_SA_TOKEN_PATH", str(token_file))
    assert Server(several_users.host, "alice").check() == VERSION


def test_a_token_that_changes_is_read_anew(of_alice, several_users, token_file):
    of_alice.check()
    several_users.users = {"the-next": {"alice"}}
    token_file.write_text("the-next")
    of_alice.check()
    assert [request.token for request in several_users.asked("GET", f"{API}/experiments")] == [
        TOKEN,
        "the-next",
    ]


def test_an_experiment_is_made_once(server, kubeflow):
    assert server.experiment("mine") == server.experiment("mine")
    assert server.experiment("other") != server.experiment("mine")
    assert [row["display_name"] for row in kubeflow.experiments] == ["mine", "other"]


@pytest.mark.parametrize("name", ["100% a+b", 'a "b" \\c', "\u00e4 & b=c#d", "%41"])
def test_an_experiment_of_any_name_is_found_again(server, kubeflow, name):
    assert server.experiment(name) == server.experiment(name)
    assert len(kubeflow.experiments) == 1


def test_a_pipeline_is_known_by_its_name_and_not_by_what_people_see(server, kubeflow):
    theirs = {"name": "theirs", "display_name": "mine", "pipeline_id": "1"}
    renamed = {"name": "mine", "display_name": "A nice name", "pipeline_id": "2"}
    kubeflow.pipelines += [theirs, renamed]
    assert server.pipeline("mine", "about") == "2"
    assert len(kubeflow.pipelines) == 2


def test_what_is_made_for_several_users_is_in_the_namespace(of_alice, several_users):
    of_alice.experiment("mine")
    of_alice.pipeline("mine", "about")
    assert {row["namespace"] for row in several_users.experiments + several_users.pipelines} == {"alice"}


def test_why_an_upload_is_refused_is_told(server, tmp_path):
    path = tmp_path / "pipeline.yaml"
    path.write_text("a: 1\n")
    message = said(ClusterError, lambda: server.version_of("no-such-pipeline", "1", path))
    assert "400 Failed to create a pipeline version" in message


def test_a_server_that_is_away_for_a_while_is_waited_for(kubeflow):
    slept = []

    def sleep(seconds):
        slept.append(seconds)
        if len(slept) == 3:
            kubeflow.come_back()

    server = Server(kubeflow.host, sleep=sleep)
    server.check()
    kubeflow.go_away()
    assert server.experiments("any") == []
    assert slept == [1.0, 2.0, 4.0]


@pytest.mark.parametrize("answer", [refused(503, "no upstream"), refused(500, "database is locked"), None])
def test_what_changes_nothing_is_asked_again(kubeflow, answer):
    server = Server(kubeflow.host, sleep=lambda seconds: None)
    server.check()
    kubeflow.wrong(f"{API}/experiments", answer, times=3)
    assert server.experiments("any") == []


@pytest.mark.parametrize("answer", [refused(503, "no upstream"), refused(500, "deadlock"), None])
def test_what_makes_something_is_asked_once(server, kubeflow, answer):
    server.check()
    kubeflow.wrong(f"{API}/runs", answer)
    said(ClusterUnavailableError, lambda: server.run("r", "e", "p", "v", {}, ""))
    assert len(kubeflow.asked("POST", f"{API}/runs")) == 1


def test_what_a_server_refuses_is_not_asked_again(server):
    server.check()
    assert "404" in said(ClusterError, lambda: server.state("no-such-run"))


@pytest.mark.parametrize("text", ["a line\n", '{"json": 1}', "5", "<b>bold</b> \u00e4\n"])
def test_a_log_is_given_as_it_is(server, kubeflow, text):
    run = server.run("r", "e", "p", "v", {}, "")
    kubeflow.script = [Scene({"state": "RUNNING"}, {"pod-1": text})]
    server.state(run)
    assert server.log(run, ["no-such-pod", "pod-1"], "2026-08-21") == text
    asked = kubeflow.asked("GET", "/k8s/pod/logs")[-1].query
    assert asked == {"runid": run, "podname": "pod-1", "createdat": "2026-08-21"}


def test_a_log_that_is_no_utf_8_is_given_as_far_as_it_is(server, kubeflow):
    kubeflow.wrong("/k8s/pod/logs", (200, b"\xff\xfe and more\n"))
    assert server.log("run", ["pod-1"]).endswith(" and more\n")


def test_a_log_is_asked_for_in_the_profile_where_there_are_several(of_alice, several_users):
    run = of_alice.run("r", "e", "p", "v", {}, "")
    several_users.script = [Scene({"state": "RUNNING"}, {"pod-1": "a line\n"})]
    of_alice.state(run)
    assert of_alice.log(run, ["pod-1"]) == "a line\n"


@pytest.mark.parametrize("answer", [(404, "pod not found"), (500, "Could not get main container logs"),
                                    (200, PAGE), None])  # fmt: skip
def test_a_log_that_is_not_served_is_empty_and_not_waited_for(server, kubeflow, answer):
    server.check()
    kubeflow.wrong("/k8s/pod/logs", answer)
    assert server.log("run", ["pod-1"]) == ""


def test_parameters_as_long_as_the_server_takes_pass_and_longer_ones_name_the_limit():
    check_lengths({"store": "x" * PARAMETER_LENGTH, "scenarios": ["a"], "rows": 5})
    message = said(InvalidInputError, lambda: check_lengths({"store": "x" * (PARAMETER_LENGTH + 1)}))
    assert "store has 10,001 characters" in message
    assert "Kubeflow takes 10,000" in message
    assert "the store" in message


@pytest.fixture(scope="module")
def certificate(tmp_path_factory) -> Path:
    if not shutil.which("openssl"):
        pytest.skip("openssl, which makes the certificate, is not installed")
    folder = tmp_path_factory.mktemp("tls")
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=127.0.0.1",
         "-addext", "subjectAltName=IP:127.0.0.1", "-keyout", folder / "key", "-out", folder / "cert"],
        check=True, capture_output=True,
    )  # fmt: skip
    (folder / "both").write_text((folder / "key").read_text() + (folder / "cert").read_text())
    return folder


def test_a_certificate_of_ones_own_is_trusted_once_it_is_named(certificate):
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate / "both")
    with FakeKubeflow(tls=context) as kubeflow:
        assert "--ca-file" in said(ClusterError, Server(kubeflow.host).check)
        assert Server(kubeflow.host, ca_file=certificate / "cert").check() == VERSION
