"""Which pods may be stopped: those whose owner makes them anew, that leave nothing behind, and whose budget allows it."""

# A module, written by hand.

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from .objects import dig, meets, objects_at, rules_in, text_at, texts_at

MAKERS = {"ReplicaSet", "StatefulSet", "ReplicationController", "CloneSet"}  # of pods that go on for ever
SAFE = "cluster-autoscaler.kubernetes.io/safe-to-evict"
SAFE_VOLUMES = "cluster-autoscaler.kubernetes.io/safe-to-evict-local-volumes"
FORBIDS = {SAFE: "false", "karpenter.sh/do-not-disrupt": "true", "karpenter.sh/do-not-evict": "true",
           "descheduler.alpha.kubernetes.io/prefer-no-eviction": ""}
MIRROR = "kubernetes.io/config.mirror"
Body = Mapping[str, Any]


def why_lost(pod: Body) -> str:
    """Why nobody would make a pod anew, or its work would begin anew; empty if neither is so."""
    said = texts_at(pod, "metadata", "annotations")
    owner = next((text_at(one, "kind") for one in objects_at(pod, "metadata", "ownerReferences")
                  if one.get("controller") is True), "")
    if said.get(MIRROR) or owner == "Node":
        return "a static pod, which its node makes"
    if not owner:
        return "nothing owns it, so nobody makes it anew"
    if owner == "DaemonSet":
        return "a DaemonSet has it on its node"
    if said.get(SAFE) == "true":
        return ""
    if owner == "Job" or text_at(pod, "spec", "restartPolicy") in ("Never", "OnFailure"):
        return f"its {owner} would begin its work anew; {SAFE}=true says that it may"
    if owner not in MAKERS:
        return f"whether its {owner} makes it anew is not known; {SAFE}=true says so"
    return ""


def why_kept(pod: Body) -> str:
    """What in a pod itself forbids to stop it; empty if nothing does."""
    if text_at(pod, "metadata", "deletionTimestamp"):
        return "it is being deleted already"
    said = texts_at(pod, "metadata", "annotations")
    return next((f"its annotation {name} forbids it" for name, value in FORBIDS.items()
                 if name in said and value in ("", said[name])), "")


def why_tied(pod: Body, body_of: Callable[[str, str, str], Body]) -> str:
    """Which volume a pod would leave on its node; empty if there is none.

    Parameters
    ----------
    pod : the pod
    body_of : finds an object by kind, namespace and name, empty if there is none
    """
    said = texts_at(pod, "metadata", "annotations")
    safe = {name.strip() for name in said.get(SAFE_VOLUMES, "").split(",")}
    namespace = text_at(pod, "metadata", "namespace")
    for volume in objects_at(pod, "spec", "volumes"):
        name = text_at(volume, "name")
        claim = text_at(volume, "persistentVolumeClaim", "claimName") or (
            f"{text_at(pod, 'metadata', 'name')}-{name}" if "ephemeral" in volume else "")
        bound = text_at(body_of("PersistentVolumeClaim", namespace, claim), "spec", "volumeName")
        held = body_of("PersistentVolume", "", bound)
        if dig(held, "spec", "local") or dig(held, "spec", "hostPath"):
            return f"its volume {name} is on its node"
        is_local = dig(volume, "hostPath") or (
            "emptyDir" in volume and text_at(volume, "emptyDir", "medium") != "Memory")
        if is_local and said.get(SAFE) != "true" and name not in safe:
            return f"its volume {name} is on its node; {SAFE}=true says that it may be lost"
    return ""


def why_budgeted(pod: Body, budgets: Sequence[Body]) -> str:
    """Which PodDisruptionBudget does not allow to stop a pod now; empty if none forbids it."""
    labels = texts_at(pod, "metadata", "labels")
    namespace = text_at(pod, "metadata", "namespace")
    mine = [budget for budget in budgets if text_at(budget, "metadata", "namespace") == namespace
            and isinstance(selector := dig(budget, "spec", "selector"), Mapping)  # an empty one is for all
            and all(meets(rule, labels.get(rule.key)) for rule in rules_in(selector))]
    if len(mine) > 1:
        return "several PodDisruptionBudgets are for it, so that no eviction is allowed"
    for budget in mine:
        allowed = dig(budget, "status", "disruptionsAllowed")
        if not isinstance(allowed, int) or allowed < 1:
            return f"its PodDisruptionBudget {text_at(budget, 'metadata', 'name')} allows no disruption"
    return ""
