# Two images of one source:
#   docker build --target service  -t meshwright .            plans over HTTP; no torch
#   docker build --target executor -t meshwright-executor .   adds torch and DeepSpeed, for training nodes
# Choose torch's build with --build-arg PIP_EXTRA_INDEX_URL=... (an index of CPU or CUDA wheels).

ARG PYTHON_VERSION=3.12

# --- what both share ---------------------------------------------------------------------------------------------

FROM python:${PYTHON_VERSION}-slim AS base
ENV PATH=/opt/meshwright/bin:$PATH \
    PYTHONDONTWRITEBYTECODE=1 \
    PYTHONUNBUFFERED=1
RUN useradd --uid 10001 --create-home --shell /usr/sbin/nologin meshwright
WORKDIR /srv/meshwright

FROM base AS build
ENV PIP_NO_CACHE_DIR=1 \
    PIP_DISABLE_PIP_VERSION_CHECK=1
RUN python -m venv /opt/meshwright
WORKDIR /src
COPY constraints.txt pyproject.toml README.md LICENSE ./
COPY calibration_data calibration_data
COPY cost_models cost_models
COPY solver solver
COPY planner planner
COPY service service
COPY executor executor

# --- service -----------------------------------------------------------------------------------------------------

FROM build AS build-service
RUN pip install --constraint constraints.txt '.[postgres,oidc,otel,dask]'

FROM base AS service
LABEL org.opencontainers.image.title="Meshwright" \
      org.opencontainers.image.description="Plans for LLM training over HTTP, before a GPU is taken" \
      org.opencontainers.image.licenses="Apache-2.0"
# `meshwright db backup` and `restore` run pg_dump and pg_restore.
# hadolint ignore=DL3008
RUN apt-get update \
    && apt-get install -y --no-install-recommends postgresql-client \
    && rm -rf /var/lib/apt/lists/*
COPY --from=build-service /opt/meshwright /opt/meshwright
# Nothing else is written: the root may be read-only (docker run --read-only --tmpfs /tmp).
# Plans are kept here unless MESHWRIGHT_DATABASE_URL names a PostgreSQL database.
RUN install --directory --owner=10001 /var/lib/meshwright
ENV MESHWRIGHT_DATABASE_URL=sqlite:////var/lib/meshwright/meshwright.db
VOLUME /var/lib/meshwright
USER 10001
EXPOSE 8000
# It finishes the requests it has, gives unfinished plans back to the queue, and leaves within 30 s.
STOPSIGNAL SIGTERM
HEALTHCHECK --interval=10s --timeout=3s --start-period=15s --retries=3 \
    CMD ["python", "-c", "import urllib.request; urllib.request.urlopen('http://127.0.0.1:8000/livez', timeout=2)"]
# Nobody gets in without a key; `meshwright keys create`, run in the container, makes one.
ENV MESHWRIGHT_AUTHENTICATION=required
CMD ["meshwright", "serve", "--host", "0.0.0.0", "--port", "8000"]

# --- executor ----------------------------------------------------------------------------------------------------

FROM build AS build-executor
ARG PIP_EXTRA_INDEX_URL=
# DeepSpeed builds against the torch that is there, hence the order and no build isolation.
RUN pip install --constraint constraints.txt setuptools wheel ninja torch \
    && pip install --constraint constraints.txt --no-build-isolation deepspeed \
    && pip install --constraint constraints.txt '.[executor,hub]'

FROM base AS executor
# DeepSpeed compiles its operators on first use.
# hadolint ignore=DL3008
RUN apt-get update \
    && apt-get install -y --no-install-recommends g++ \
    && rm -rf /var/lib/apt/lists/*
COPY --from=build-executor /opt/meshwright /opt/meshwright
USER 10001
STOPSIGNAL SIGTERM
ENTRYPOINT ["meshwright-exec"]
CMD ["--help"]
