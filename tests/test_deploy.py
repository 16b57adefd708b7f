"""What is in deploy/: it renders, agrees with itself and with the program, and may do no more than it has to."""
import ast
import inspect
import json
import re
import shutil
import ssl
import subprocess
from functools import cache
from pathlib import Path
from urllib.parse import urlsplit

import pytest
import yaml

from sched_lab._extras import EXTRA_OF
from sched_lab.fleet.ask.recommend import recommend
from sched_lab.fleet.live.bridge import MODES, Bridge
from sched_lab.fleet.live.bridge_command import serve_command
from sched_lab.fleet.live.core import LiveCluster, LiveSettings
from sched_lab.fleet.live.journal import Journal
from sched_lab.fleet.live.lease import Lease
from sched_lab.fleet.live.serve import Extender
from sched_lab.fleet.read.devices import HAMI
from sched_lab.fleet.read.gangs import KINDS as GROUP_KINDS
from sched_lab.fleet.read.kubernetes import read_kubernetes
from sched_lab.fleet.read.tables import Ledger, ReadOptions, Source, tables_of
from sched_lab.lab.access import Access
from sched_lab.lab.web import Limits
from sched_lab.online.model import PowerSettings
from sched_lab.online.policies import policy_of
from sched_lab.traces import toy_tasks
from tests.fleet.test_control_plane import control_plane, needs_control_plane

ROOT = Path(__file__).parents[1]
DEPLOY = ROOT / "deploy"
FOLDERS = {"observe": "base", "score": "overlays/score", "decide": "overlays/decide", "try": "overlays/try",
           "hami": "overlays/hami"}
MODE = {name: name if name in MODES else "decide" for name in FOLDERS}
# methods of the official client, and the rights that they need
RIGHTS = {
    "list_node": {("nodes", "list"), ("nodes", "watch")},
    "list_pod_for_all_namespaces": {("pods", "list"), ("pods", "watch")},
    "read_namespaced_pod": {("pods", "get")},
    "create_namespaced_pod_binding": {("pods/binding", "create")},
    "read_namespaced_lease": {("leases", "get")},
    "create_namespaced_lease": {("leases", "create")},
    "create_namespaced_event": {("events", "create")},
    "replace_namespaced_lease": {("leases", "update")},
    "get_namespaced_custom_object": {("podgroups", "get"), ("workloads", "get")},
    "read_node": {("nodes", "get")},
    "patch_node": {("nodes", "patch")},
}
READING = RIGHTS["list_node"] | RIGHTS["list_pod_for_all_namespaces"] | RIGHTS["get_namespaced_custom_object"]
LOCKING = RIGHTS["read_node"] | RIGHTS["patch_node"]
needs_kubectl = pytest.mark.skipif(shutil.which("kubectl") is None, reason="no kubectl to render deploy/ with")
every_folder = pytest.mark.parametrize("name", FOLDERS)


@cache
def rendered(name):
    command = ["kubectl", "kustomize", str(DEPLOY / FOLDERS[name])]
    done = subprocess.run(command, text=True, capture_output=True)
    if "unknown command" in done.stderr:
        pytest.skip("kubectl is too old to render deploy/")
    assert done.returncode == 0, done.stderr
    return tuple(yaml.safe_load_all(done.stdout))


def one(name, kind, called="sched-lab"):
    found = [body for body in rendered(name) if body["kind"] == kind and body["metadata"]["name"].startswith(called)]
    exact = [body for body in found if body["metadata"]["name"] == called] or found
    assert len(exact) == 1, (kind, called, [body["metadata"]["name"] for body in found])
    return exact[0]


def pod_of(name, called="sched-lab"):
    return one(name, "Deployment", called)["spec"]["template"]


def options_of(name):
    command, *options = pod_of(name)["spec"]["containers"][0]["args"]
    assert command == "serve"
    return {name: value for name, _, value in (option.removeprefix("--").partition("=") for option in options)}


def scheduler_config(name):
    config = one(name, "ConfigMap", "sched-lab-scheduler-config")["data"]["config.yaml"]
    return yaml.safe_load(config)


def selects(selector, labels):
    return selector.items() <= labels.items()


@needs_kubectl
@needs_control_plane
def test_a_real_api_server_takes_all_of_it(tmp_path):
    """By a dry run on the server, which reads every field and refuses what it does not know."""
    folders = [yaml.safe_dump_all(rendered(name)) for name in FOLDERS]
    files = [(DEPLOY / "overlays" / "try" / name).read_text() for name in ("nodes.yaml", "pods.yaml")]
    with control_plane(tmp_path) as (client, kubeconfig, _):
        namespace = yaml.safe_load((DEPLOY / "base" / "namespace.yaml").read_text())
        client.call("POST", "/api/v1/namespaces", namespace)
        for text in [*folders, *files]:
            command = ["kubectl", "--kubeconfig", str(kubeconfig), "apply", "--dry-run=server", "--validate=strict",
                       "-f", "-"]
            done = subprocess.run(command, input=text, text=True, capture_output=True)
            assert done.returncode == 0, done.stderr


# --- names, ports and options

@needs_kubectl
@every_folder
def test_options_are_those_of_the_command(name):
    options = options_of(name)
    known = inspect.signature(serve_command).parameters
    assert [option for option in options if option.replace("-", "_") not in known] == []
    assert options["mode"] == MODE[name] and options["mode"] in MODES
    assert options.get("dialect", "openb") == ("hami" if name == "hami" else "openb")
    assert policy_of(options["policy"])
    Access(options["host"], int(options["port"]), options.get("token-file"), options["tls-cert"], options["tls-key"],
           options["client-ca"]).check("reserve GPUs")


@needs_kubectl
@every_folder
def test_names_and_ports_agree(name):
    pod = pod_of(name)
    labels = pod["metadata"]["labels"]
    port = int(options_of(name)["port"])
    ports = {each["name"]: each["containerPort"] for each in pod["spec"]["containers"][0]["ports"]}
    service = one(name, "Service")
    assert list(ports.values()) == [port] and selects(service["spec"]["selector"], labels)
    assert [(each["port"], each["targetPort"]) for each in service["spec"]["ports"]] == [(port, next(iter(ports)))]
    for kind, path in (("NetworkPolicy", "podSelector"), ("PodDisruptionBudget", "selector")):
        assert selects(one(name, kind)["spec"][path]["matchLabels"], labels), kind
    (ingress,) = one(name, "NetworkPolicy")["spec"]["ingress"]
    assert [each["port"] for each in ingress["ports"]] == [port] and ingress["from"]
    for probe, path in (("startupProbe", "/healthz"), ("livenessProbe", "/healthz"), ("readinessProbe", "/readyz")):
        asked = pod["spec"]["containers"][0][probe]["httpGet"]
        assert (asked["path"], asked["scheme"]) == (path, "HTTPS") and asked["port"] in ports
    assert pod["spec"]["serviceAccountName"] == one(name, "ServiceAccount")["metadata"]["name"]
    spaces = {body["metadata"].get("namespace") for body in rendered(name)} - {None, "kube-system"}
    assert spaces == {one(name, "Namespace")["metadata"]["name"]}


@needs_kubectl
@every_folder
def test_files_that_options_name_are_mounted(name):
    spec = pod_of(name)["spec"]
    mounts = {each["mountPath"]: each for each in spec["containers"][0]["volumeMounts"]}
    volumes = {each["name"]: each for each in spec["volumes"]}
    assert {each["name"] for each in mounts.values()} == set(volumes)
    written = [*(value for value in options_of(name).values() if value.startswith("/")), cache_folder() + "/x"]
    for path in written:
        mount = mounts[str(Path(path).parent)]
        assert mount.get("readOnly", False) == ("secret" in volumes[mount["name"]]), path


def cache_folder():
    """Return where the image lets numba write."""
    words = (DEPLOY / "Containerfile").read_text().split()
    return next(word.split("=")[1] for word in words if word.startswith("NUMBA_CACHE_DIR="))


@needs_kubectl
@every_folder
def test_the_scheduler_finds_the_bridge(name):
    config = scheduler_config(name)
    assert (config["apiVersion"], config["kind"]) == ("kubescheduler.config.k8s.io/v1", "KubeSchedulerConfiguration")
    assert config["percentageOfNodesToScore"] == 100 and config["leaderElection"] == {"leaderElect": False}
    (extender,) = config["extenders"]
    service = one(name, "Service")["metadata"]
    url = urlsplit(extender["urlPrefix"])
    assert url.scheme == "https" and extender["enableHTTPS"] is True
    assert url.hostname == extender["tlsConfig"]["serverName"] == f"{service['name']}.{service['namespace']}.svc"
    assert url.port == int(options_of(name)["port"])
    verbs = {"observe": {"filter"}, "score": {"filter", "prioritize", "bind"}, "decide": {"filter", "bind"}}[MODE[name]]
    stated = {key.removesuffix("Verb"): value for key, value in extender.items() if key.endswith("Verb")}
    assert stated == {verb: verb for verb in verbs} and extender["nodeCacheCapable"] is True
    assert ("weight" in extender) == ("prioritize" in verbs)
    assert extender["ignorable"] is (MODE[name] == "observe")
    ignored = HAMI.marks if name == "hami" else ["alibabacloud.com/gpu-milli"]
    assert {each["name"]: each["ignoredByScheduler"] for each in extender["managedResources"]} == {
        "nvidia.com/gpu": False, **dict.fromkeys(ignored, True)}


@needs_kubectl
def test_the_trial_has_a_scheduler_with_this_configuration():
    spec = pod_of("try", "sched-lab-scheduler")["spec"]
    volumes = {each["name"]: each for each in spec["volumes"]}
    mounts = {each["mountPath"]: volumes[each["name"]] for each in spec["containers"][0]["volumeMounts"]}
    _, option = spec["containers"][0]["command"]
    config = Path(option.removeprefix("--config="))
    assert mounts[str(config.parent)]["configMap"]["name"] == one("try", "ConfigMap")["metadata"]["name"]
    assert config.name in one("try", "ConfigMap")["data"]
    for key in ("caFile", "certFile", "keyFile"):
        path = Path(scheduler_config("try")["extenders"][0]["tlsConfig"][key])
        assert "secret" in mounts[str(path.parent)]
    (ingress,) = one("try", "NetworkPolicy")["spec"]["ingress"]
    (source,) = ingress["from"]
    labels = pod_of("try", "sched-lab-scheduler")["metadata"]["labels"]
    assert selects(source["podSelector"]["matchLabels"], labels)
    account = one("try", "ServiceAccount", "sched-lab-scheduler")["metadata"]
    assert spec["serviceAccountName"] == account["name"]
    subjects = [subject for body in rendered("try") if body["kind"].endswith("RoleBinding")
                and body["metadata"]["name"].startswith("sched-lab-scheduler") for subject in body["subjects"]]
    assert len(subjects) == 3
    assert all((each["name"], each["namespace"]) == (account["name"], account["namespace"]) for each in subjects)


# --- what is watched

def exported():
    """Return the names of all metrics of a bridge with a lease, as Prometheus stores them."""
    bridge = Bridge(Journal(None, LiveCluster(LiveSettings(target=toy_tasks()))))
    extender = Extender(bridge, None, Limits(), warm=lambda: None, lease=Lease("lab/bridge", "me", 15.0, 5.0))
    extender.health.waits_for.clear()
    endings = {"counter": ("_total",), "histogram": ("_bucket", "_sum", "_count")}
    return {f"{family.name}{ending}" for family in extender.registry.collect()
            for ending in endings.get(family.type, ("",))}


def named_in(text):
    """Return the names of our metrics in a text, and of those of a process."""
    return set(re.findall(r"\b(?:sched_lab|process)_[a-z_]+\b", text))


def test_dashboard_and_alerts_ask_for_metrics_that_exist_and_all_are_documented():
    known = exported()
    board = json.loads((DEPLOY / "monitoring" / "dashboard.json").read_text())
    queries = [target["expr"] for panel in board["panels"] for target in panel["targets"]]
    (group,) = yaml.safe_load((DEPLOY / "monitoring" / "alerts.yaml").read_text())["groups"]
    rules = [rule["expr"] for rule in group["rules"]]
    assert len(queries) >= 10 and len(rules) == 6 and all(rule["annotations"]["summary"] for rule in group["rules"])
    assert all(named_in(query) or "up{" in query for query in queries + rules)
    assert named_in(" ".join(queries + rules)) <= known
    table = (DEPLOY / "README.md").read_text(encoding="utf-8").partition("## What is watched")[2].partition("\n## ")[0]
    shown = {re.sub("_(sum|count)$", "_bucket", name) for name in known if name.startswith("sched_lab")}
    assert named_in(table) == shown


# --- rights

def methods_used():
    """Return methods of the official client that the bridge's own client calls, by its source."""
    tree = ast.parse((ROOT / "sched_lab" / "fleet" / "live" / "follow.py").read_text(encoding="utf-8"))
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Attribute) and node.attr != "api_client"]
    return {node.attr for node in calls if isinstance(node.value, ast.Attribute)
            and node.value.attr in ("_core", "_coordination", "_custom")}


def test_every_call_of_the_api_has_its_right_in_the_table():
    assert methods_used() == set(RIGHTS)


@needs_kubectl
@every_folder
def test_rights_are_those_that_the_mode_uses(name):
    needed = READING if MODE[name] == "observe" else set().union(*RIGHTS.values())
    needed = needed if name == "hami" else needed - LOCKING
    leases = {right for right in needed if right[0] == "leases"}
    for kind, rights, group in (("ClusterRole", needed - leases, ""), ("Role", leases, "coordination.k8s.io")):
        if not rights:
            assert not [body for body in rendered(name) if body["kind"] == kind]
            continue
        role = one(name, kind)
        stated = [(resource, verb) for rule in role["rules"]
                  for resource in rule["resources"] for verb in rule["verbs"]]
        assert len(stated) == len(set(stated)) and set(stated) == rights
        assert all(set(rule["apiGroups"]) == ({one for ones in GROUP_KINDS.values() for one in ones if one}
                   if "podgroups" in rule["resources"] else {group}) for rule in role["rules"])
        binding = one(name, f"{kind}Binding")
        assert (binding["roleRef"]["kind"], binding["roleRef"]["name"]) == (kind, role["metadata"]["name"])
        account = one(name, "ServiceAccount")["metadata"]
        (subject,) = binding["subjects"]
        assert (subject["name"], subject["namespace"]) == (account["name"], account["namespace"])


@needs_kubectl
@every_folder
def test_no_container_has_a_privilege(name):
    """All that the level "restricted" of the pod security standards asks for, and nothing to write on."""
    for body in (body for body in rendered(name) if body["kind"] == "Deployment"):
        spec = body["spec"]["template"]["spec"]
        assert spec["securityContext"]["runAsNonRoot"] is True and spec["securityContext"]["runAsUser"] > 0
        assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
        assert not {"hostNetwork", "hostPID", "hostIPC", "hostUsers", "initContainers"} & set(spec)
        assert all(set(volume) - {"name"} <= {"secret", "configMap", "emptyDir"} for volume in spec["volumes"])
        for container in spec["containers"]:
            assert container["securityContext"] == {"allowPrivilegeEscalation": False, "readOnlyRootFilesystem": True,
                                                    "capabilities": {"drop": ["ALL"]}}
            assert {"cpu", "memory"} <= set(container["resources"]["requests"])


@needs_kubectl
@every_folder
def test_one_answers_and_another_stands_by_where_pods_wait_for_it(name):
    """Two replicas have a lease that they may write, are apart, and can be moved though one of them is ready."""
    spec = one(name, "Deployment")["spec"]
    lease = options_of(name).get("lease", "")
    assert (spec["replicas"], bool(lease)) == ((1, False) if MODE[name] == "observe" else (2, True))
    assert all(body["kind"] != "HorizontalPodAutoscaler" for body in rendered(name))
    if not lease:
        assert spec["strategy"] == {"type": "Recreate"}
        return
    assert spec["strategy"]["rollingUpdate"] == {"maxSurge": "100%", "maxUnavailable": "100%"}  # no follower gets ready
    pod = spec["template"]["spec"]
    ((_, before_the_end_s),) = [one["lifecycle"]["preStop"]["exec"]["command"] for one in pod["containers"]]
    assert int(before_the_end_s) + 2 + 20 + 15 < pod["terminationGracePeriodSeconds"]  # and what `serve` takes then
    role = one(name, "Role")
    named = [rule["resourceNames"] for rule in role["rules"] if "resourceNames" in rule]
    assert [[role["metadata"]["namespace"], *names] for names in named] == [lease.split("/")]
    (term,) = spec["template"]["spec"]["affinity"]["podAntiAffinity"]["preferredDuringSchedulingIgnoredDuringExecution"]
    assert selects(term["podAffinityTerm"]["labelSelector"]["matchLabels"], spec["template"]["metadata"]["labels"])
    assert term["podAffinityTerm"]["topologyKey"] == "kubernetes.io/hostname"
    assert one(name, "PodDisruptionBudget")["spec"]["maxUnavailable"] == spec["replicas"]


# --- image, certificates, trial

def test_the_image_installs_what_serving_needs_and_no_more():
    lines = [line for line in (DEPLOY / "Containerfile").read_text().splitlines() if not line.startswith("#")]
    text = "\n".join(lines)
    assert "'.[kubernetes]'" in text and "--constraint constraints.txt" in text
    assert [line for line in lines if line.startswith("USER")] == ["USER 65532:65532"]
    bases = [line.split()[1] for line in lines if line.startswith("FROM")]
    assert len(bases) == 2 and len(set(bases)) == 1 and bases[0].endswith("-slim")
    copied = [word for line in lines if line.startswith("COPY") and "--from" not in line for word in line.split()[1:-1]]
    assert [name for name in copied if not (ROOT / name).exists()] == []
    needs = (ROOT / "settings.ini").read_text().split("kubernetes_requirements = ")[1].splitlines()[0]
    others = {package for package, extra in EXTRA_OF.items() if extra in ("charts", "solvers")}
    assert not {package for package in others if package.replace("_", "-") in needs}


def test_certificates_of_the_trial_are_good(tmp_path):
    if shutil.which("openssl") is None:
        pytest.skip("openssl, which makes the certificates, is not here")
    subprocess.run([DEPLOY / "certificates.sh", tmp_path / "certs"], check=True, capture_output=True)
    folder = tmp_path / "certs"
    server = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=folder / "ca.crt")
    server.load_cert_chain(folder / "server.crt", folder / "server.key")
    server.verify_mode = ssl.CERT_REQUIRED
    client = ssl.create_default_context(cafile=folder / "ca.crt")
    client.load_cert_chain(folder / "client.crt", folder / "client.key")
    config = yaml.safe_load((DEPLOY / "base" / "scheduler-config.yaml").read_text())
    name = config["extenders"][0]["tlsConfig"]["serverName"]
    assert shaken_hands(server, client, name)
    with pytest.raises(ssl.SSLCertVerificationError):
        shaken_hands(server, client, "other.svc")
    assert all(path.stat().st_mode & 0o077 == 0 for path in folder.glob("*.key"))


def shaken_hands(server, client, name):
    """Let two ends of TLS talk in memory; whether each knows the other in the end."""
    there, back = ssl.MemoryBIO(), ssl.MemoryBIO()
    ends = [client.wrap_bio(back, there, server_hostname=name), server.wrap_bio(there, back, server_side=True)]
    for _ in range(6):
        for end in ends:
            try:
                end.do_handshake()
            except ssl.SSLWantReadError:
                continue
    return all(end.getpeercert() for end in ends)


def test_the_pods_of_the_trial_find_a_place():
    objects = [body for name in ("nodes", "pods") for body in yaml.safe_load_all(
        (DEPLOY / "overlays" / "try" / f"{name}.yaml").read_text())]
    ledger = Ledger()
    source = Source("all.json", json.dumps({"items": [body | {"status": body.get("status", {"phase": "Pending"})}
                                                      for body in objects]}).encode())
    tables = tables_of(*read_kubernetes([source], ledger, ReadOptions()), ledger, "all.json")
    found = recommend(tables, "pwr-fgd:0.1", PowerSettings())
    assert len(found.table) == 4 and found.is_served, found.lines()
    profile = yaml.safe_load((DEPLOY / "overlays" / "decide" / "scheduler-config.yaml").read_text())["profiles"][0]
    for body in (body for body in objects if body["kind"] == "Pod"):
        limits = body["spec"]["containers"][0]["resources"]["limits"]
        said = {name.rpartition("-")[2]: int(value) for name, value in body["metadata"]["annotations"].items()}
        assert int(limits["alibabacloud.com/gpu-milli"]) == said["count"] * said["milli"]
        assert body["spec"]["schedulerName"] == profile["schedulerName"]


def test_the_page_names_what_is_there():
    page = (DEPLOY / "README.md").read_text(encoding="utf-8")
    named = {word.strip("`,.") for word in page.split() if word.startswith("deploy/")}
    assert named and [name for name in named if not (ROOT / name).exists()] == []
    toc = (ROOT / "_toc.yml").read_text(encoding="utf-8")
    assert "file: deploy/README" in toc
