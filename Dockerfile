# Holdfast without the embedded Postgres: it needs DATABASE_URL, and keys (HOLDFAST_API_KEYS_FILE).
# Migrations run out of band (`migrate` in place of `serve`), or at start with HOLDFAST_MIGRATE=1.
FROM python:3.13-slim AS build
ENV UV_PYTHON_DOWNLOADS=never UV_LINK_MODE=copy UV_COMPILE_BYTECODE=1
RUN pip install --no-cache-dir 'uv>=0.9,<1'
WORKDIR /holdfast
COPY pyproject.toml uv.lock README.md ./
RUN uv sync --frozen --no-default-groups --extra nats --no-install-project
COPY migrations ./migrations
COPY app ./app
COPY holdfast ./holdfast
RUN uv sync --frozen --no-default-groups --extra nats --no-editable

FROM python:3.13-slim
RUN useradd --system --uid 10001 --no-create-home holdfast
COPY --from=build /holdfast/.venv /holdfast/.venv
ENV PATH=/holdfast/.venv/bin:$PATH HOLDFAST_HOST=0.0.0.0 HOLDFAST_PORT=8000 HOLDFAST_LOG_JSON=1
USER holdfast
EXPOSE 8000
# Of a server; a worker serves nothing, so it is started without.
HEALTHCHECK --interval=10s --timeout=5s --start-period=20s \
  CMD ["python", "-c", "import http.client, os; c = http.client.HTTPConnection('127.0.0.1', int(os.environ['HOLDFAST_PORT']), timeout=4); c.request('GET', '/health/live'); raise SystemExit(c.getresponse().status != 200)"]
# Exec form: SIGTERM reaches the process, which hands its runs over.
ENTRYPOINT ["holdfast"]
CMD ["serve"]
