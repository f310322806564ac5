"""NetworkPolicies: who may reach a job's pods, and what they may reach."""

from __future__ import annotations

from cluster.kuberay.pods import JOB_LABEL, Manifest
from cluster.kuberay.settings import KubernetesSettings, ip_and_port

_OPERATOR = {"namespaceSelector": {}, "podSelector": {"matchLabels": {"app.kubernetes.io/name": "kuberay-operator"}}}
_DASHBOARD, _METRICS = 8265, 8080
_DNS = {"ports": [{"port": 53, "protocol": "UDP"}, {"port": 53, "protocol": "TCP"}]}
_KUBERNETES = (443, 6443)  # the address of its service, and what stands behind it where a policy sees that


def job_policy(name: str, job: str, settings: KubernetesSettings, more_ports: list[int]) -> Manifest:
    """Returns the policy of a job's pods.

    They reach each other; the operator reaches the dashboard, monitoring the metrics, and nobody else anything.

    Args:
        name: Of the policy.
        job: Value of the pods' label.
        settings: With the ports outside that are reached.
        more_ports: Further ones.
    """
    pods = {"podSelector": {"matchLabels": {JOB_LABEL: job}}}
    ingress: list[Manifest] = [
        {"from": [pods]},
        {"from": [_OPERATOR], "ports": [{"port": _DASHBOARD, "protocol": "TCP"}]},
    ]
    if settings.monitoring_namespace:
        namespace = {"matchLabels": {"kubernetes.io/metadata.name": settings.monitoring_namespace}}
        ingress.append({"from": [{"namespaceSelector": namespace}], "ports": [{"port": _METRICS, "protocol": "TCP"}]})
    egress: list[Manifest] = [{"to": [pods]}, _DNS, _to_ports(sorted({*settings.egress_ports, *more_ports}))]
    for block, port in map(ip_and_port, settings.egress_addresses):
        egress.append({"to": [{"ipBlock": {"cidr": block}}]} | _to_ports([port]))
    return _policy(name, {JOB_LABEL: job}, settings.namespace, ingress, egress)


def creator_policy(name: str, labels: dict[str, str], settings: KubernetesSettings) -> Manifest:
    """Returns the policy of the pod that creates a night's RayJob: it reaches Kubernetes, and nobody reaches it.

    Where Kubernetes answers on another port, `egress_ports` has it.
    """
    ports = sorted({*_KUBERNETES, *settings.egress_ports})
    return _policy(name, labels, settings.namespace, [], [_DNS, _to_ports(ports)])


def _to_ports(ports: list[int]) -> Manifest:
    return {"ports": [{"port": port, "protocol": "TCP"} for port in ports]}


def _policy(name: str, labels: dict[str, str], namespace: str, ingress: list[Manifest], egress: list[Manifest]) -> Manifest:
    return {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "NetworkPolicy",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {
            "podSelector": {"matchLabels": labels},
            "policyTypes": ["Ingress", "Egress"],
            "ingress": ingress,
            "egress": egress,
        },
    }
