"""The agent's link: what a running agent reports of the identity over its control socket."""

from collections.abc import Mapping
from typing import Any

from agent.doctor.case import Case, View, broken, ok, warning
from agent.doctor.report import Finding

LINK = "agent"
MAX_VARIANT_CHARACTERS = 80
"""Shown of what a workload asked for at run time: scopes can be many."""
BELOW = "see the links below"
WATCH = "apply docs/rbac/watch.yaml: the agent needs the right to watch the ServiceAccount"
RESTART = "restart the agent, or undo the change"
CHECK = "run wi-agent check, as the agent's user and with its environment"


def look(case: Case) -> list[Finding]:
    """Return the agent's view of the identity, of its variants and of the configuration file."""
    view = case.view
    if view.status is None:
        return [broken(LINK, view.absence, view.remedy)]
    found: Mapping[str, Any] | None = next((one for one in view.status["identities"] if one["name"] == case.name), None)
    if found is None:
        remedy = "send the agent SIGHUP to reload the configuration; its log says why an earlier reload was refused"
        return [broken(LINK, f"answers on {view.socket}, and its configuration does not have this identity", remedy), *_refused(view)]
    return [_identity(case, found), *_variants(case, found), *_refused(view)]


def _identity(case: Case, found: Mapping[str, Any]) -> Finding:
    text, fresh = f"answers on {case.view.socket}: {found['state']}", found["state"] == "fresh"
    failures = [found["failure"], *(sink["failure"] for sink in found["sinks"])]
    if failure := next((one for one in failures if one), None):
        text += f", last failure {failure['result']} ({failure['count']} in a row): {case.without_name(failure['message'])}"
        return (warning if fresh else broken)(LINK, text, str(failure["remedy"]) or BELOW)
    if not fresh:
        return broken(LINK, text, BELOW)
    if unseen := (found.get("serviceAccount") or {}).get("unseen"):
        return warning(LINK, f"{text}; {unseen}", WATCH)
    return ok(LINK, text)


def _variants(case: Case, found: Mapping[str, Any]) -> list[Finding]:
    """Return a warning for each variant that a workload asked for and the cloud refused: no other output of the workload has it."""
    return [
        warning(
            LINK,
            f"a workload asked for {variant[:MAX_VARIANT_CHARACTERS]}: {failure['result']}: {case.without_name(failure['message'])}",
            failure["remedy"],
        )
        for variant, failure in found.get("variantFailures", {}).items()
    ]


def _refused(view: View) -> list[Finding]:
    """Return a warning if the agent runs on an earlier configuration: the doctor walks the file as it is now."""
    status = view.status or {}
    refused = status.get("refusedConfiguration")
    if not refused:
        return []
    text = f"the agent refused the configuration file as it is now, and runs on the previous one: {refused[0]}"
    return [warning(LINK, text, RESTART if status.get("restartNeeded") else CHECK)]
