# syntax=docker/dockerfile:1
# Worker image of the Beam jobs with all dependencies; without it every Dataflow worker installs TensorFlow at start.
# Build it from the checkout's folder, because the context is the whole package:
#
#   docker build --file pipelines/engines/worker.Dockerfile --tag IMAGE . && docker push IMAGE
#
# The versions of Beam and Python must equal the submitter's; a test compares both with requirements.lock.
ARG BEAM_VERSION=2.72.0
FROM apache/beam_python3.11_sdk:${BEAM_VERSION} AS beam

FROM python:3.11 AS build
WORKDIR /landmark
COPY requirements.lock setup.py README.md ./
COPY configs configs
COPY data_prep data_prep
COPY keras_models keras_models
COPY pipelines pipelines
# Only the core requirement, since training is an extra. Not into a virtual environment: Beam's boot creates its own,
# which sees the interpreter's packages and no other environment's. Versions without hashes: with hashes, pip would
# require one for this folder too.
RUN --mount=type=cache,target=/root/.cache/pip \
    grep -o '^[^ #]*==[^ ]*' requirements.lock > versions.txt && \
    pip install --prefix=/installed --ignore-installed --constraint versions.txt .

FROM python:3.11-slim
COPY --from=build /installed /usr/local
COPY --from=beam /opt/apache/beam /opt/apache/beam
ENTRYPOINT ["/opt/apache/beam/boot"]
