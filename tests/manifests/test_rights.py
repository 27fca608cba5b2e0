"""The rights of the launcher are exactly what it asks the API server for, read from its source."""

import ast
import inspect
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from kubernetes import client

from fourfold.train import api, tfjob
from tests.conftest import NAMESPACE
from tests.manifests.objects import MANIFESTS, OVERLAYS, ROOT, Object, of_kind, read, render, written

SOURCE = Path(api.__file__)
TREE = ast.parse(SOURCE.read_text())
ACCESS = MANIFESTS / "base" / "access.yaml"
VERBS = {
    ("GET", True): "get",
    ("GET", False): "list",
    ("POST", False): "create",
    ("DELETE", True): "delete",
    ("DELETE", False): "deletecollection",
    ("PUT", True): "update",
    ("PATCH", True): "patch",
}
"""Kubernetes' verb for an HTTP method, with or without an object's name in the path."""

Right = tuple[str, str, str]
"""API group, resource, verb."""


def clients() -> dict[str, type]:
    """The API classes behind the attributes of ``Api``: ``self._core = client.CoreV1Api(...)``."""
    return {
        node.targets[0].attr: getattr(client, node.value.func.attr)
        for node in ast.walk(TREE)
        if isinstance(node, ast.Assign)
        and isinstance(node.targets[0], ast.Attribute)
        and isinstance(node.value, ast.Call)
        and isinstance(node.value.func, ast.Attribute)
        and node.value.func.attr.endswith("Api")
    }


def requests(within: ast.AST) -> Iterator[Right]:
    """The rights that the requests in a piece of the launcher's source need."""
    for node in ast.walk(within):
        if (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Attribute)
            and isinstance(node.func.value, ast.Attribute)
            and node.func.value.attr in clients()
        ):
            yield right(clients()[node.func.value.attr], node.func.attr, node.args)


def right(kind: type, method: str, arguments: list[ast.expr]) -> Right:
    """The right that one method of the Kubernetes client needs, from the path that it asks for."""
    source = inspect.getsource(getattr(kind, f"{method}_with_http_info"))
    (found,) = re.findall(r"call_api\(\s*['\"]([^'\"]+)['\"], ['\"](\w+)['\"]", source)
    path, verb = found
    if kind is client.CustomObjectsApi:
        said = {
            word.id: getattr(tfjob, word.id)
            for word in arguments
            if isinstance(word, ast.Name) and word.id.isupper()
        }
        assert list(said) == ["GROUP", "VERSION", "PLURAL"], f"{method} is given {list(said)}"
        path = path.format(
            group=tfjob.GROUP, version=tfjob.VERSION, plural=tfjob.PLURAL, namespace="", name="{name}"
        )
        path = path.replace("/namespaces//", "/namespaces/{namespace}/")
    match = re.fullmatch(
        r"/(?:api|apis/([^/]+))/[^/]+/namespaces/\{namespace\}/(\w+)(/\{name\})?(/\w+)?", path
    )
    assert match, f"{method} asks for {path}, beyond one namespace"
    group, resource, name, part = match.groups()
    return group or "", resource + (part or ""), VERBS[verb, bool(name)]


def watches() -> Iterator[Right]:
    """``self._watch(what, self._list_x, ...)`` watches what ``_list_x`` lists."""
    methods = {node.name: node for node in ast.walk(TREE) if isinstance(node, ast.FunctionDef)}
    for node in ast.walk(TREE):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "_watch":
            lister = node.args[1]
            assert isinstance(lister, ast.Attribute)
            assert lister.attr in methods, f"what {lister.attr} lists is not known"
            for group, resource, verb in requests(methods[lister.attr]):
                assert verb == "list"
                yield group, resource, "watch"


def granted(role: Object) -> list[Right]:
    return [
        (group, resource, verb)
        for rule in role["rules"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    ]


NEEDED = {*requests(TREE), *watches()}
(ROLE,) = [item for item in read(ACCESS) if item["kind"] == "Role"]


def test_the_role_grants_exactly_what_the_launcher_asks_for():
    assert sorted(granted(ROLE)) == sorted(NEEDED)


def test_every_use_of_a_client_is_understood():
    """A client that is handed on, or asked through another one's name, would be a right unseen."""
    parents = {child: node for node in ast.walk(TREE) for child in ast.iter_child_nodes(node)}
    uses = [
        node
        for node in ast.walk(TREE)
        if isinstance(node, ast.Attribute) and node.attr in clients() and isinstance(node.ctx, ast.Load)
    ]
    methods = [parents[use] for use in uses]
    assert all(isinstance(method, ast.Attribute) for method in methods)
    assert all(isinstance(parents[method], ast.Call) for method in methods)
    assert len(uses) == len(list(requests(TREE))) > 5
    named = [node for node in ast.walk(TREE) if isinstance(node, ast.Attribute) and node.attr == "_client"]
    assert {type(parents[node]).__name__ for node in named} <= {"Assign", "Call", "Attribute"}
    assert {p.attr for p in map(parents.get, named) if isinstance(p, ast.Attribute)} <= {"configuration"}
    assert SOURCE.read_text().count("watch.Watch(") == 1
    assert list(watches())


def test_nothing_else_in_the_components_knows_the_kubernetes_client():
    for path in sorted((ROOT / "components").rglob("*.py")):
        if path != SOURCE:
            assert not re.search(r"^\s*(from|import) kubernetes\b", path.read_text(), re.MULTILINE), path


def test_no_resource_is_granted_twice():
    assert len(granted(ROLE)) == len(set(granted(ROLE)))


def check_least(objects: list[Object]) -> None:
    assert not of_kind(objects, "ClusterRole", "ClusterRoleBinding")
    for role in of_kind(objects, "Role"):
        assert all("*" not in "".join(found) for found in granted(role)), role["metadata"]["name"]
        assert all(not rule.get("nonResourceURLs") for rule in role["rules"])
    for binding in of_kind(objects, "RoleBinding"):
        assert binding["roleRef"]["kind"] == "Role"


def test_no_file_grants_rights_beyond_a_namespace_or_by_a_star():
    check_least(written())


@pytest.mark.parametrize("overlay", OVERLAYS)
def test_no_overlay_grants_rights_beyond_a_namespace_or_by_a_star(overlay):
    check_least(render(MANIFESTS / "overlays" / overlay))


def test_who_makes_the_account_may_create_secrets_and_nothing_else():
    others = {
        name: granted(role) for role in written("Role") if (name := role["metadata"]["name"]) != "fourfold"
    }
    assert others == {"fourfold-account": [("", "secrets", "create")]}


@pytest.mark.cluster
def test_a_real_cluster_lets_the_launcher_do_this_and_no_more(s3_server):
    def may(group: str, resource: str, verb: str) -> bool:
        name, _, part = resource.partition("/")
        what = [f"{name}.{group}".rstrip("."), *([f"--subresource={part}"] if part else [])]
        account = f"--as=system:serviceaccount:{NAMESPACE}:fourfold"
        command = ["kubectl", "auth", "can-i", verb, *what, "-n", NAMESPACE, account]
        said = subprocess.run(command, capture_output=True, text=True, timeout=60).stdout.strip()
        assert said in ("yes", "no")
        return said == "yes"

    assert [found for found in sorted(NEEDED) if not may(*found)] == []
    for resource, verb in [
        ("secrets", "get"),
        ("pods", "create"),
        ("pods", "delete"),
        ("pods/exec", "create"),
    ]:
        assert not may("", resource, verb), (verb, resource)
