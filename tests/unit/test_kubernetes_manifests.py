"""The manifests for Kubernetes: valid for its schemas, and consistent with each other and with the server."""

import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml

from app.cli.environment import variables
from tests.support.containers import image_environment
from tests.support.documents import ROOT

KUBERNETES = ROOT / "deploy" / "kubernetes"
VERSIONS = ("1.29", "1.32", kubernetes_validate.latest_version())
Manifest = dict[str, Any]


def documents(folder: str) -> Iterator[Manifest]:
    """The manifests that a kustomization names, without those of its base."""
    for name in kustomization(folder)["resources"]:
        path = KUBERNETES / folder / name
        if path.is_file():
            yield from yaml.safe_load_all(path.read_text())


def kustomization(folder: str) -> Manifest:
    found: Manifest = yaml.safe_load((KUBERNETES / folder / "kustomization.yaml").read_text())
    return found


MANIFESTS = [*documents("base"), *documents("example")]
WITH_PODS = [one for one in MANIFESTS if one["kind"] in ("Deployment", "Job")]
DEPLOYMENTS = [one for one in WITH_PODS if one["kind"] == "Deployment"]


def name_of(manifest: Manifest) -> str:
    return f"{manifest['kind']} {manifest['metadata']['name']}"


def named(kind: str) -> dict[str, Manifest]:
    return {one["metadata"]["name"]: one for one in MANIFESTS if one["kind"] == kind}


def container_of(manifest: Manifest) -> Manifest:
    [container] = manifest["spec"]["template"]["spec"]["containers"]
    found: Manifest = container
    return found


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("manifest", MANIFESTS, ids=name_of)
def test_each_manifest_is_valid(manifest: Manifest, version: str) -> None:
    kubernetes_validate.validate(manifest, version, strict=True)


def test_the_schemas_refuse_a_misspelt_field() -> None:
    wrong = {**named("Service")["holdfast"], "spec": {"selectors": {}}}
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(wrong, VERSIONS[-1], strict=True)


def test_a_kustomization_names_all_files_of_its_folder() -> None:
    base = {path.name for path in (KUBERNETES / "base").glob("*.yaml")}
    assert {*kustomization("base")["resources"], "kustomization.yaml"} == base
    example = kustomization("example")
    patches = [patch["path"] for patch in example["patches"]]
    files = [file for one in example["configMapGenerator"] for file in one.get("files", ())]
    for name in (*example["resources"], *patches, *files):
        assert (KUBERNETES / "example" / name).exists(), name


# --- pods -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("manifest", WITH_PODS, ids=name_of)
def test_a_pod_has_no_rights_that_it_does_not_need(manifest: Manifest) -> None:
    """What the Pod Security Standard `restricted` demands, and a read-only root file system."""
    pod, container = manifest["spec"]["template"]["spec"], container_of(manifest)
    assert pod["automountServiceAccountToken"] is False
    assert pod["securityContext"]["runAsNonRoot"] is True
    assert pod["securityContext"]["runAsUser"] == 10001, "the user of the image"
    assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    mounted = {one["name"]: one for one in container["volumeMounts"]}
    assert mounted.keys() == {one["name"] for one in pod["volumes"]}
    assert mounted["tmp"]["mountPath"] == "/tmp"
    assert {"requests", "limits"} <= container["resources"].keys()
    assert "memory" in container["resources"]["limits"]


@pytest.mark.parametrize("manifest", WITH_PODS, ids=name_of)
def test_the_environment_of_a_pod_has_settings_only(manifest: Manifest) -> None:
    known = {one.name for one in variables()}
    container = container_of(manifest)
    own = {one["name"] for one in container["env"]}
    [source] = container["envFrom"]
    shared = named("ConfigMap")[source["configMapRef"]["name"]]["data"]
    assert own | shared.keys() <= known
    assert "DATABASE_URL" in own
    keys = Path(shared["HOLDFAST_API_KEYS_FILE"])
    assert str(keys.parent) in {one["mountPath"] for one in container["volumeMounts"]}


def test_the_example_makes_the_secrets_and_agents_that_pods_use() -> None:
    example = kustomization("example")
    secrets = {one["name"] for one in example["secretGenerator"]}
    for manifest in WITH_PODS:
        pod = manifest["spec"]["template"]["spec"]
        used = {one["secret"]["secretName"] for one in pod["volumes"] if "secret" in one}
        used |= {
            one["valueFrom"]["secretKeyRef"]["name"]
            for one in container_of(manifest)["env"]
            if "valueFrom" in one
        }
        assert used == secrets
    patch = yaml.safe_load((KUBERNETES / "example" / "agents-volume.yaml").read_text())
    volume, mount = (one["value"] for one in patch)
    made = {one["name"]: one for one in example["configMapGenerator"]}
    assert volume["configMap"]["name"] in made
    [setting] = made["holdfast-settings"]["literals"]
    assert setting == f"HOLDFAST_AGENTS={mount['mountPath']}/agents.toml"


@pytest.mark.parametrize("manifest", DEPLOYMENTS, ids=name_of)
def test_probes_ask_the_port_on_which_the_process_listens(manifest: Manifest) -> None:
    container = container_of(manifest)
    environment = image_environment() | {
        one["name"]: one["value"] for one in container["env"] if "value" in one
    }
    listens = {"serve": "HOLDFAST_PORT", "worker": "HOLDFAST_HEALTH_PORT"}[container["args"][0]]
    [port] = container["ports"]
    assert port["containerPort"] == int(environment[listens])
    annotations = manifest["spec"]["template"]["metadata"]["annotations"]
    assert annotations["prometheus.io/port"] == str(port["containerPort"])
    for probe, path in (
        ("startupProbe", "/health/live"),
        ("livenessProbe", "/health/live"),
        ("readinessProbe", "/health"),
    ):
        assert container[probe]["httpGet"] == {"path": path, "port": port["name"]}


@pytest.mark.parametrize("manifest", DEPLOYMENTS, ids=name_of)
def test_a_rollout_leaves_time_for_the_hand_over(manifest: Manifest) -> None:
    settings = named("ConfigMap")["holdfast-settings"]["data"]
    pod = manifest["spec"]["template"]["spec"]
    delay = int(settings["HOLDFAST_DRAIN_DELAY"])
    assert pod["terminationGracePeriodSeconds"] >= delay + 10
    assert manifest["spec"]["strategy"]["rollingUpdate"] == {"maxUnavailable": 0, "maxSurge": 1}
    assert "replicas" not in manifest["spec"], "the autoscaler sets it"


# --- what refers to pods --------------------------------------------------------------------------


@pytest.mark.parametrize("manifest", DEPLOYMENTS, ids=name_of)
def test_budgets_autoscalers_and_policies_select_the_pods(manifest: Manifest) -> None:
    name = manifest["metadata"]["name"]
    labels = manifest["spec"]["template"]["metadata"]["labels"]
    assert manifest["spec"]["selector"]["matchLabels"] == labels
    assert named("PodDisruptionBudget")[name]["spec"]["selector"]["matchLabels"] == labels
    scaler = named("HorizontalPodAutoscaler")[name]["spec"]
    assert scaler["scaleTargetRef"] == {"apiVersion": "apps/v1", "kind": "Deployment", "name": name}
    assert 2 <= scaler["minReplicas"] < scaler["maxReplicas"]
    policy = named("NetworkPolicy")[name]["spec"]
    assert policy["podSelector"]["matchLabels"] == labels
    [rule] = policy["ingress"]
    [port] = container_of(manifest)["ports"]
    assert rule["ports"] == [{"port": port["name"]}]


def test_the_service_sends_requests_to_the_api_only() -> None:
    service, api = named("Service")["holdfast"], named("Deployment")["holdfast-api"]
    assert service["spec"]["selector"] == api["spec"]["template"]["metadata"]["labels"]
    [port] = service["spec"]["ports"]
    assert port["targetPort"] == container_of(api)["ports"][0]["name"]


def test_the_agents_of_the_example_are_an_agents_file() -> None:
    file = tomllib.loads((KUBERNETES / "example" / "agents" / "agents.toml").read_text())
    for module in file["tools"]["modules"]:
        assert (KUBERNETES / "example" / "agents" / f"{module}.py").exists()
