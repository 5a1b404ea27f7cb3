# syntax=docker/dockerfile:1
# Image of every stage, for the steps of a compiled pipeline and the workers of a training job. Build it from the
# checkout's folder, because the context is the whole package:
#
#   docker build --file pipelines/engines/stage.Dockerfile --tag IMAGE . && docker push IMAGE
#
# `--build-arg EXTRAS=gpu,kubeflow` adds NVIDIA's libraries; then a machine needs only the driver. A test compares the
# version of Python with the one that compiles.
ARG EXTRAS=train,kubeflow
FROM python:3.11 AS build
ARG EXTRAS
WORKDIR /landmark
COPY requirements.lock setup.py README.md ./
COPY configs configs
COPY data_prep data_prep
COPY keras_models keras_models
COPY pipelines pipelines
# Versions without hashes: with hashes, pip would require one for this folder too.
RUN --mount=type=cache,target=/root/.cache/pip \
    grep -o '^[^ #]*==[^ ]*' requirements.lock > versions.txt && \
    pip install --prefix=/installed --ignore-installed --constraint versions.txt ".[${EXTRAS}]"

FROM python:3.11-slim
COPY --from=build /installed /usr/local
