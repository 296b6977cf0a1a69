# A Hugging Face Docker Space (with Dev Mode) and plain `docker run`; see "In a container" in README.md.
ARG BASE=python:3.12-slim
# hadolint ignore=DL3006 # the default carries its tag
FROM ${BASE}

# What Dev Mode needs: bash for SSH; curl, wget and procps for VS Code; git and git-lfs to commit.
# Without versions, so that a rebuild takes the security fixes.
# hadolint ignore=DL3008
RUN apt-get update \
 && apt-get install -y --no-install-recommends bash curl wget procps git git-lfs \
 && apt-get clean \
 && rm -rf /var/lib/apt/lists/*

# Spaces run as uid 1000, and Dev Mode edits in /app as that user.
RUN useradd --create-home --uid 1000 user \
 && install -d -o user -g user /app

# Dependencies before the code: a change of the code does not install them again.
COPY requirements.txt requirements-providers.txt /tmp/
RUN python3 -m venv --without-pip /opt/venv \
 && python3 -m pip --python /opt/venv/bin/python3 install --no-cache-dir --disable-pip-version-check \
    -r /tmp/requirements-providers.txt \
 && rm /tmp/requirements*.txt
# A login shell, such as Dev Mode's SSH session, sets PATH anew.
RUN echo "PATH=/opt/venv/bin:\$PATH" >/etc/profile.d/m3.sh
ENV PATH=/opt/venv/bin:$PATH LANG=C.UTF-8 PYTHONUNBUFFERED=1

WORKDIR /app
COPY --chown=1000:1000 *.py LICENSE ./
COPY --chown=1000:1000 --chmod=0755 entrypoint.sh ./
COPY --chown=1000:1000 m3 m3
COPY --chown=1000:1000 sample_corpus sample_corpus

USER 1000
EXPOSE 7860
HEALTHCHECK --interval=30s --timeout=3s --start-period=10s \
  CMD ["sh", "-c", "curl -fsS -o /dev/null http://127.0.0.1:${PORT:-7860}/"]
CMD ["./entrypoint.sh"]
