# Holdfast without the embedded Postgres: set DATABASE_URL, and keys (HOLDFAST_API_KEYS_FILE).
FROM python:3.13-slim AS build
ENV UV_PYTHON_DOWNLOADS=never UV_LINK_MODE=copy UV_COMPILE_BYTECODE=1
RUN pip install --no-cache-dir 'uv>=0.9,<1'
WORKDIR /holdfast
COPY pyproject.toml uv.lock README.md ./
RUN uv sync --frozen --no-default-groups --no-install-project
COPY alembic.ini ./
COPY migrations ./migrations
COPY app ./app
RUN uv sync --frozen --no-default-groups

FROM python:3.13-slim
RUN useradd --system --uid 10001 --no-create-home holdfast
COPY --from=build --chown=root:root /holdfast /holdfast
WORKDIR /holdfast
ENV PATH=/holdfast/.venv/bin:$PATH HOLDFAST_HOST=0.0.0.0 HOLDFAST_PORT=8000 HOLDFAST_LOG_JSON=1
USER holdfast
EXPOSE 8000
HEALTHCHECK --interval=10s --timeout=5s --start-period=20s \
  CMD ["python", "-c", "import urllib.request; urllib.request.urlopen('http://127.0.0.1:8000/health/live', timeout=4)"]
# Exec form: SIGTERM reaches the process, which hands its runs over. HOLDFAST_MIGRATE=1 migrates at start.
ENTRYPOINT ["holdfast"]
CMD ["serve"]
