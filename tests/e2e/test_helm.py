"""The Helm chart: what values become, that Kubernetes' schemas and Weir itself accept it, and what is refused before anything is installed."""

import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest

import host
import weir as pooler

yaml = pytest.importorskip("yaml", reason="PyYAML is missing; scripts/prepare-tests says why")
kubernetes_validate = pytest.importorskip("kubernetes_validate", reason="kubernetes-validate is missing; scripts/prepare-tests says why")

pytestmark = [pytest.mark.weir_only, pytest.mark.any_driver]

CHART = host.REPOSITORY / "packaging/helm/weir"
HELM = host.REPOSITORY / "target/dist-tools/helm"
KUBECONFORM = host.REPOSITORY / "target/dist-tools/kubeconform"
KUBERNETES = "1.37"
USERLIST = '"web" "SCRAM-SHA-256$4096:c2FsdA==$c3RvcmVk:c2VydmVy"\n'
SHOP = {"databases": {"shop": {"host": "postgres.default.svc", "port": 5432, "dbname": "shop", "pool_size": 20}}, "userlist": USERLIST}
PANEL = "prometheus:sha256:" + "0" * 64 + ":read\n"
FLEET = {**SHOP, "settings": {"fleet_user": "web"}, "fleet": {"enabled": True}}
EVERYTHING = {
    **SHOP,
    "replicaCount": 3,
    "imagePullSecrets": [{"name": "registry"}],
    "users": {"batch": {"pool_mode": "session", "max_user_connections": 5}},
    "settings": {"pool_mode": "transaction", "auth_type": "scram-sha-256", "max_client_conn": 5000, "query_wait_timeout": 0.5, "log_connections": False, "fleet_user": "web"},
    "panel": {"auth": PANEL, "metricsOpen": False},
    "serviceMonitor": {"enabled": True, "labels": {"release": "prometheus"}, "tokenSecret": {"name": "weir-token", "key": "token"}},
    "fleet": {"enabled": True},
    "tlsSecret": "weir-tls",
    "service": {"type": "LoadBalancer", "annotations": {"a": "b"}, "sessionAffinity": "ClientIP"},
    "autoscaling": {"enabled": True, "minReplicas": 2, "maxReplicas": 8},
    "networkPolicy": {"enabled": True, "from": [{"podSelector": {"matchLabels": {"app": "shop"}}}], "to": [{"ipBlock": {"cidr": "10.0.0.0/8"}}]},
    "deploymentAnnotations": {"reloader.stakater.com/auto": "true"},
    "podAnnotations": {"note": "x"},
    "podLabels": {"team": "data"},
    "nodeSelector": {"disk": "ssd"},
    "tolerations": [{"key": "db", "operator": "Exists", "effect": "NoSchedule"}],
    "affinity": {"podAntiAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": []}},
    "topologySpreadConstraints": [{"maxSkew": 1, "topologyKey": "kubernetes.io/hostname", "whenUnsatisfiable": "ScheduleAnyway", "labelSelector": {"matchLabels": {"app.kubernetes.io/name": "weir"}}}],
    "priorityClassName": "high",
}


def helm(*words, values, chart=CHART):
    if not HELM.exists():
        pytest.skip("Helm is missing; scripts/prepare-tests says why")
    command = [HELM, *words, chart, "--kube-version", KUBERNETES, "--values", "-"]
    return subprocess.run(command, input=json.dumps(values), capture_output=True, text=True, check=False, timeout=60)


@pytest.fixture(scope="module")
def conform(tmp_path_factory):
    """kubeconform by the schemas of kubernetes-validate, whose references it would fetch from the network: they are made relative."""
    if not KUBECONFORM.exists():
        pytest.skip("kubeconform is missing; scripts/prepare-tests says why")
    schemas = tmp_path_factory.mktemp("schemas")
    [published] = (Path(kubernetes_validate.__file__).parent / "kubernetes-json-schema").glob(f"v{KUBERNETES}.*-local-strict")
    for file in published.glob("*.json"):
        schema = json.loads(file.read_text().replace('"/api/_definitions.json#', '"_definitions.json#'))
        schema.pop("$id", None)
        (schemas / file.name).write_text(json.dumps(schema))

    def conform(manifests):
        command = [KUBECONFORM, "-strict", "-summary", "-skip", "ServiceMonitor", "-schema-location", schemas / "{{.ResourceKind}}{{.KindSuffix}}.json"]
        return subprocess.run(command, input=manifests, capture_output=True, text=True, check=False, timeout=60)

    return conform


def rendered(values, release="pool"):
    done = helm("template", release, "--namespace", "shop", values=values)
    assert done.returncode == 0, done.stderr
    objects = [each for each in yaml.safe_load_all(done.stdout) if each]
    found = {(each["kind"], each["metadata"]["name"]): each for each in objects}
    assert len(found) == len(objects), "two objects of one name"
    return found


def of_kind(objects, kind):
    return [each for (found, _), each in objects.items() if found == kind]


def one(objects, kind):
    [found] = of_kind(objects, kind)
    return found


def container(objects):
    [only] = one(objects, "Deployment")["spec"]["template"]["spec"]["containers"]
    return only


def ini(objects):
    return objects["Secret", "pool-weir-config"]["stringData"]["weir.ini"]


def check(objects, directory):
    """What `weir check` says of the configuration, with the files that it names in a directory."""
    places = {"/etc/weir-secret": "userlist.txt", "/etc/weir-panel": "panel.auth"}
    text = ini(objects)
    for secret in of_kind(objects, "Secret"):
        for name, content in secret["stringData"].items():
            (directory / name).write_text(content)
    for place in places:
        text = text.replace(place, str(directory))
    file = directory / "weir.ini"
    file.write_text(text)
    done = subprocess.run([pooler.PROGRAM, "check", "--json", file], capture_output=True, text=True, check=False, timeout=30)
    return json.loads(done.stdout)


# --- what is accepted ---------------------------------------------------------------------------------------------
def test_lint_finds_nothing():
    for values in (SHOP, EVERYTHING):
        done = helm("lint", "--strict", values=values)
        assert done.returncode == 0 and "1 chart(s) linted, 0 chart(s) failed" in done.stdout, done.stdout + done.stderr
        assert "[WARNING]" not in done.stdout and "[ERROR]" not in done.stdout, done.stdout


@pytest.mark.parametrize("values", [SHOP, EVERYTHING], ids=["few", "all"])
def test_kubernetes_accepts_what_is_rendered(values):
    for (kind, _), each in rendered(values).items():
        if kind == "ServiceMonitor":
            continue  # Prometheus Operator's
        kubernetes_validate.validate(each, KUBERNETES, strict=True)


def test_a_misspelt_field_would_not_be_accepted():
    deployment = one(rendered(SHOP), "Deployment")
    deployment["spec"]["template"]["spec"]["containers"][0]["readynessProbe"] = {}
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(deployment, KUBERNETES, strict=True)


@pytest.mark.parametrize("values", [SHOP, EVERYTHING], ids=["few", "all"])
def test_kubeconform_accepts_what_is_rendered(conform, values):
    manifests = helm("template", "pool", "--namespace", "shop", values=values).stdout
    done = conform(manifests)
    assert done.returncode == 0 and "Invalid: 0, Errors: 0" in done.stdout, done.stdout + done.stderr
    assert f"{len(rendered(values))} resources found" in done.stdout, done.stdout
    # As text, what a parser of YAML would pass over: a key that stands twice.
    twice = manifests.replace("kind: Deployment", "kind: Deployment\nkind: Deployment")
    assert twice != manifests and conform(twice).returncode != 0


@pytest.mark.parametrize("values", [SHOP, EVERYTHING], ids=["few", "all"])
def test_weir_accepts_its_configuration(values, tmp_path):
    objects = rendered({**values, "tlsSecret": ""})
    checked = check(objects, tmp_path)
    assert (checked["errors"], checked["warnings"]) == (0, 0), checked["findings"]


def test_values_become_settings(tmp_path):
    values = {
        **EVERYTHING,
        "databases": {"my shop": {"host": "a,b", "dbname": "it's", "auth_user": 'x"y'}, "*": {"host": "pg", "port": 5433}},
    }
    text = ini(rendered({**values, "settings": {**values["settings"], "max_client_conn": 1000000}}))
    lines = text.splitlines()
    assert "\"my shop\" = auth_user='x\"y' dbname='it''s' host='a,b'" in lines and "* = host='pg' port='5433'" in lines
    for line in ("max_client_conn = 1000000", "query_wait_timeout = 0.5", "log_connections = 0", "listen_port = 6432", "unix_socket_dir = /run/weir"):
        assert line in lines, line
    assert "batch = max_user_connections='5' pool_mode='session'" in lines
    for line in ("http_addr = 0.0.0.0", "http_auth_file = /etc/weir-panel/panel.auth", "http_metrics_open = 0", "client_tls_cert_file = /etc/weir-tls/tls.crt", "client_tls_sslmode = allow"):
        assert line in lines, line
    assert check(rendered({**values, "tlsSecret": ""}), tmp_path)["errors"] == 0


# --- how it runs --------------------------------------------------------------------------------------------------
def test_a_pod_drains_before_it_ends():
    objects = rendered({**SHOP, "drain": {"delaySeconds": 3, "clientsSeconds": 40, "transactionsSeconds": 20}})
    assert container(objects)["lifecycle"]["preStop"]["exec"]["command"] == ["/usr/bin/weir", "container", "--drain", "40", "--delay", "3"]
    deployment = one(objects, "Deployment")["spec"]
    assert deployment["template"]["spec"]["terminationGracePeriodSeconds"] == 73
    assert deployment["minReadySeconds"] == 73, "the next pod is replaced when the last one has ended"
    assert deployment["progressDeadlineSeconds"] > 73, "Kubernetes refuses less"
    mounts = {mount["mountPath"] for mount in container(objects)["volumeMounts"]}
    assert "/run/weir" in mounts, "the console's socket, where the root is read-only"


def test_the_command_of_the_hook_is_one_of_the_program():
    command = container(rendered(SHOP))["lifecycle"]["preStop"]["exec"]["command"]
    probes = [container(rendered(SHOP))[name]["exec"]["command"] for name in ("readinessProbe", "livenessProbe")]
    for words in (command, *probes):
        said = subprocess.run([pooler.PROGRAM, *words[1:], "--help"], capture_output=True, text=True, check=False, timeout=30)
        assert said.returncode == 0 and "container" in said.stdout
        assert all(word in said.stdout for word in words if word.startswith("--")), words


def test_a_pod_has_no_rights():
    objects = rendered(SHOP)
    pod = one(objects, "Deployment")["spec"]["template"]["spec"]
    assert pod["securityContext"] == {"runAsNonRoot": True, "runAsUser": 65532, "runAsGroup": 65532, "fsGroup": 65532, "seccompProfile": {"type": "RuntimeDefault"}}
    assert container(objects)["securityContext"] == {"allowPrivilegeEscalation": False, "readOnlyRootFilesystem": True, "capabilities": {"drop": ["ALL"]}}
    assert pod["automountServiceAccountToken"] is False


def test_the_pods_of_a_fleet_may_use_the_api_as_its_manual_says():
    objects = rendered({**FLEET, "replicaCount": 3, "networkPolicy": {"enabled": True}})
    lines = ini(objects).splitlines()
    assert "fleet = kubernetes:////pool-weir" in lines and "fleet_nodes = 5" in lines, "a pod that starts and one that ends while an update rolls"
    assert "pools_file = /run/weir/pools.ini" in lines, "pools of all pods are kept in the store"
    assert "pools_file" not in ini(rendered(SHOP))
    named = {**FLEET, "settings": {**FLEET["settings"], "pools_file": "/run/weir/other.ini"}}
    assert re.findall(r"pools_file = (.*)", ini(rendered(named))) == ["/run/weir/other.ini"]
    assert "fleet = etcd://h/p" in ini(rendered({**SHOP, "settings": {"fleet": "etcd://h/p"}}))
    assert "fleet_nodes = 10" in ini(rendered(EVERYTHING)).splitlines()
    pod = one(objects, "Deployment")["spec"]["template"]["spec"]
    assert (pod["serviceAccountName"], pod["automountServiceAccountToken"]) == ("pool-weir", True)
    text = (host.REPOSITORY / "docs/fleet.md").read_text()
    role, binding = yaml.safe_load_all(re.search(r"```yaml\n(apiVersion: rbac.*?)```", text, re.DOTALL)[1])
    assert one(objects, "Role")["rules"] == role["rules"]
    assert one(objects, "RoleBinding")["subjects"] == [{**binding["subjects"][0], "name": "pool-weir", "namespace": "shop"}]
    assert one(objects, "RoleBinding")["roleRef"] == {**binding["roleRef"], "name": one(objects, "Role")["metadata"]["name"]}
    policy = one(objects, "NetworkPolicy")["spec"]
    labels = pod_labels(objects)
    between = [rule[side] for rules, side in ((policy["ingress"], "from"), (policy["egress"], "to")) for rule in rules if rule["ports"] == [{"port": "postgres", "protocol": "TCP"}]]
    assert [{"podSelector": {"matchLabels": labels}}] in between[:2] and [{"podSelector": {"matchLabels": labels}}] == between[-1]
    assert {"ports": [{"port": 443, "protocol": "TCP"}, {"port": 6443, "protocol": "TCP"}]} in policy["egress"]


def pod_labels(objects):
    return one(objects, "Deployment")["spec"]["selector"]["matchLabels"]


def test_another_configuration_is_another_pod():
    def sums(values):
        return one(rendered(values), "Deployment")["spec"]["template"]["metadata"]["annotations"]

    first = sums(SHOP)
    assert sums(SHOP) == first
    assert sums({**SHOP, "settings": {"pool_mode": "session"}})["checksum/config"] != first["checksum/config"]
    assert sums({**SHOP, "userlist": '"other" "x"'})["checksum/secrets"] != first["checksum/secrets"]
    # Secrets of others are in no sum; tools that look at them find what they need at the Deployment.
    assert one(rendered(EVERYTHING), "Deployment")["metadata"]["annotations"] == EVERYTHING["deploymentAnnotations"]
    assert "annotations" not in one(rendered(SHOP), "Deployment")["metadata"]


def test_secrets_are_in_secrets():
    objects = rendered({**EVERYTHING, "userlist": '"web" "hush"\n', "settings": {**EVERYTHING["settings"], "otlp_headers": "authorization=hush"}})
    assert "otlp_headers = authorization=hush" in ini(objects).splitlines()
    for (kind, _), each in objects.items():
        assert kind == "Secret" or "hush" not in json.dumps(each)
    given = rendered({**SHOP, "userlist": "", "existingSecret": "mine"})
    assert [name for kind, name in given if kind == "Secret"] == ["pool-weir-config"]
    volumes = {volume["name"]: volume.get("secret") for volume in one(given, "Deployment")["spec"]["template"]["spec"]["volumes"]}
    assert volumes["secret"] == {"secretName": "mine", "defaultMode": 0o440}
    assert volumes["config"] == {"secretName": "pool-weir-config", "defaultMode": 0o440}


def test_the_panel_is_the_pods_own_unless_it_is_known_who_may_use_it():
    closed, opened = rendered(SHOP), rendered({**SHOP, "panel": {"auth": PANEL}})
    assert [port["name"] for port in one(closed, "Service")["spec"]["ports"]] == ["postgres"] and "http_addr" not in ini(closed)
    assert [port["name"] for port in one(opened, "Service")["spec"]["ports"]] == ["postgres", "http"] and "http_metrics_open = 1" in ini(opened)


def test_policies_meet_the_pods():
    objects = rendered(EVERYTHING)
    labels = one(objects, "Deployment")["spec"]["template"]["metadata"]["labels"]
    selectors = [
        one(objects, "Service")["spec"]["selector"],
        *(one(objects, kind)["spec"]["selector"]["matchLabels"] for kind in ("Deployment", "PodDisruptionBudget", "ServiceMonitor")),
        one(objects, "NetworkPolicy")["spec"]["podSelector"]["matchLabels"],
    ]
    for selector in selectors:
        assert selector.items() <= labels.items()
    assert one(objects, "ServiceMonitor")["spec"]["selector"]["matchLabels"].items() <= one(objects, "Service")["metadata"]["labels"].items()
    ports = {port["name"] for port in container(objects)["ports"]}
    assert one(objects, "ServiceMonitor")["spec"]["endpoints"] == [{"port": "http", "path": "/metrics", "interval": "15s", "authorization": {"credentials": {"name": "weir-token", "key": "token"}}}]
    assert {port["targetPort"] for port in one(objects, "Service")["spec"]["ports"]} <= ports
    scaler = one(objects, "HorizontalPodAutoscaler")["spec"]
    assert scaler["scaleTargetRef"]["name"] == one(objects, "Deployment")["metadata"]["name"] and scaler["maxReplicas"] == 8
    assert "replicas" not in one(objects, "Deployment")["spec"], "the autoscaler's"
    assert one(objects, "PodDisruptionBudget")["spec"]["maxUnavailable"] == 1


def test_the_network_is_open_to_what_is_needed():
    policy = one(rendered({**SHOP, "databases": {"a": {"host": "x", "port": 5433}, "b": {"host": "y"}}, "networkPolicy": {"enabled": True}}), "NetworkPolicy")["spec"]
    assert [rule["ports"] for rule in policy["ingress"]] == [[{"port": "postgres", "protocol": "TCP"}]], "the panel is closed"
    allowed = [port for rule in policy["egress"] for port in rule["ports"]]
    assert allowed == [{"port": 53, "protocol": "UDP"}, {"port": 53, "protocol": "TCP"}, {"port": 5432, "protocol": "TCP"}, {"port": 5433, "protocol": "TCP"}]
    given = one(rendered(EVERYTHING), "NetworkPolicy")["spec"]
    assert {"to": [{"ipBlock": {"cidr": "10.0.0.0/8"}}]} in given["egress"]


def test_the_version_is_the_programs():
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    version = re.search(r'^version = "(.*)"', (host.REPOSITORY / "Cargo.toml").read_text(), re.M)[1]
    assert (chart["version"], chart["appVersion"]) == (version, version)
    assert container(rendered(SHOP))["image"] == f"weir:{version}"
    assert container(rendered({**SHOP, "image": {"repository": "registry.example/weir", "tag": "x"}}))["image"] == "registry.example/weir:x"


# --- what is refused ----------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    "values, said",
    [
        ({"userlist": USERLIST}, "databases: name at least one"),
        ({"databases": SHOP["databases"]}, "userlist or existingSecret: without a user list no client can log in"),
        ({**SHOP, "existingSecret": "mine"}, "userlist and existingSecret: give one of them"),
        ({**SHOP, "databases": {"shop": {"host": "h", "password": "hush"}}}, "databases.shop.password: passwords are in the user list"),
        ({**SHOP, "databases": {"shop": {"host": "h\nadmin_users = eve"}}}, "databases.shop.host: a line break is not possible"),
        ({**SHOP, "databases": {"a\nb": {"host": "h"}}}, "a line break in a name"),
        ({**SHOP, "databases": {"shop": {"host": "h", "x = 1 y": "z"}}}, "no key of an entry has such a name"),
        ({**SHOP, "databases": {"shop": {"port": 5432}}}, "host"),
        ({**SHOP, "databases": {"shop": "host=h"}}, "shop"),
        ({**SHOP, "settings": {"listen_port": 5432}}, "settings.listen_port: the chart sets it itself"),
        ({**SHOP, "settings": {"auth_query": "select\n1"}}, "settings.auth_query: a line break is not possible"),
        ({**SHOP, "settings": {"a = b": "c"}}, "no setting has such a name"),
        ({**SHOP, "settings": {"fleet": "etcd://h/p"}, "fleet": {"enabled": True}}, "settings.fleet: the chart sets it itself"),
        ({**SHOP, "fleet": {"enable": True}}, "enable"),
        ({**SHOP, "fleet": {"enabled": True}}, "settings.fleet_user: fleet.enabled needs a user"),
        ({**SHOP, "replicaCount": -1}, "replicaCount"),
        ({**SHOP, "replicas": 3}, "replicas"),
        ({**SHOP, "drain": {"clientSeconds": 3}}, "clientSeconds"),
        ({**SHOP, "drain": {"clientsSeconds": "soon"}}, "clientsSeconds"),
        ({**SHOP, "service": {"type": "Sometimes"}}, "type"),
        ({**SHOP, "existingSecret": "Not A Name", "userlist": ""}, "existingSecret"),
        ({**SHOP, "serviceMonitor": {"enabled": True}}, "serviceMonitor.enabled: metrics are served outside of the pod only with panel.auth"),
        ({**SHOP, "panel": {"auth": PANEL, "metricsOpen": False}, "serviceMonitor": {"enabled": True}}, "serviceMonitor.tokenSecret: needed"),
        ({**SHOP, "panel": {"auth": PANEL, "existingSecret": "mine"}}, "panel.auth and panel.existingSecret: give one of them"),
        ({**SHOP, "autoscaling": {"enabled": True, "minReplicas": 5, "maxReplicas": 2}}, "minReplicas is above maxReplicas"),
        ({**SHOP, "autoscaling": {"enabled": True}, "resources": {"requests": {"cpu": None}}}, "resources.requests.cpu: autoscaling measures by it"),
    ],
)
def test_what_cannot_work_is_refused(values, said):
    done = helm("template", "pool", values=values)
    assert done.returncode != 0 and said in done.stderr, done.stderr
    assert "hush" not in done.stderr


def test_a_setting_that_is_misspelt_is_found_by_the_check(tmp_path):
    checked = check(rendered({**SHOP, "settings": {"pool_mod": "transaction", "auth_type": "scram-sha-256"}}), tmp_path)
    assert checked["errors"] and "pool_mod" in json.dumps(checked["findings"])


def notes(values, directory):
    """Helm renders them only with a cluster; here they are in an object of a copy of the chart."""
    chart = shutil.copytree(CHART, directory / "weir")
    (chart / "templates/notes.yaml").write_text('notes: {{ include "weir.notes" . | quote }}\n')
    done = helm("template", "pool", "--namespace", "shop", "--show-only", "templates/notes.yaml", values=values, chart=chart)
    assert done.returncode == 0, done.stderr
    return yaml.safe_load(done.stdout)["notes"]


def test_notes_say_how_many_server_connections_there_may_be(tmp_path):
    said = notes({**SHOP, "replicaCount": 3}, tmp_path)
    assert "pool-weir.shop.svc:5432" in said and "shop: 60 (100) for one user" in said and "ends within 105 s" in said
    assert "The panel is closed" in said and "up to 5 times while an update rolls" in said and "rollout restart" not in said
    (tmp_path / "fleet").mkdir()
    said = notes(FLEET, tmp_path / "fleet")
    assert "the pods share limits" in said and "for one user" not in said
    (tmp_path / "secrets").mkdir()
    said = notes({**SHOP, "userlist": "", "existingSecret": "shop-users", "tlsSecret": "shop-tls"}, tmp_path / "secrets")
    assert "After a change of shop-tls, shop-users: kubectl -n shop rollout restart deployment/pool-weir" in said


@pytest.fixture(autouse=True, scope="module")
def no_settings_of_this_machine():
    """Helm reads no configuration, plug-ins or caches of the user who runs the tests."""
    import os
    import tempfile

    directory = tempfile.mkdtemp(prefix="weir-helm-")
    before = {name: os.environ.get(name) for name in ("HELM_CONFIG_HOME", "HELM_CACHE_HOME", "HELM_DATA_HOME", "KUBECONFIG")}
    os.environ.update({name: f"{directory}/{name}" for name in before})
    yield
    for name, value in before.items():
        os.environ.pop(name) if value is None else os.environ.update({name: value})
    shutil.rmtree(directory, ignore_errors=True)
