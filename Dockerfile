# workload-identity-agent. Runs as uid 65532 on a read-only root; writes only to the volumes that its configuration names.

# By digest, so that a build takes what was reviewed and nothing newer. The tag is for people; `make base` renews both stages.
FROM python:3.13-slim@sha256:9d2e5553305c7c7b0097999bb17187c69b921ccd6bc9d40e4bb5ebe652c00285 AS base

FROM base AS build
WORKDIR /src
ENV PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_CACHE_DIR=1 PIP_NO_INPUT=1 PIP_ROOT_USER_ACTION=ignore
RUN python -m venv /opt/agent
COPY requirements.lock ./
RUN /opt/agent/bin/pip install --require-hashes --only-binary=:all: -r requirements.lock
COPY pyproject.toml README.md LICENSE ./
COPY agent agent
RUN /opt/agent/bin/pip install --no-deps --no-build-isolation . \
# None of them is needed to run. The agent brings the one part of botocore's data it uses: agent/providers/aws/data.
 && /opt/agent/bin/pip uninstall --yes setuptools wheel pip \
 && rm -rf /opt/agent/lib/python3.13/site-packages/botocore/data \
# Compiled here, because at run time the root is read-only; by hash, so that no time of day is in the image. Without docstrings:
# 3 MiB of memory less with AWS, 14 less with the kubernetes source. Nothing here is decided by an assert.
 && find /opt/agent -name __pycache__ -prune -exec rm -rf {} + \
 && python -OO -m compileall -q -j 0 --invalidation-mode unchecked-hash /opt/agent/lib

FROM base
# Python without its installers, and no program that runs as another user than the one who starts it. The shell and dpkg's list stay: the chart's
# demonstration runs the one, scanners read the other.
RUN PIP_ROOT_USER_ACTION=ignore python -m pip --no-cache-dir uninstall --quiet --yes pip \
 && rm -rf /usr/local/lib/python3.13/ensurepip /usr/local/lib/python3.13/idlelib /usr/local/bin/idle* \
 && find / -xdev -type f -perm /6000 -exec chmod ug-s {} +
COPY --from=build /opt/agent /opt/agent
ENV PATH=/opt/agent/bin:$PATH PYTHONDONTWRITEBYTECODE=1 PYTHONOPTIMIZE=2 PYTHONUNBUFFERED=1
# A number, so that runAsNonRoot can be verified. The same everywhere by custom: "nonroot".
USER 65532:65532
WORKDIR /
ENTRYPOINT ["wi-agent"]
CMD ["run"]
HEALTHCHECK NONE
