# `ftld crash-test` with what it and the shipped checks need, as an ordinary user. Add your own software by a stage from it.
#   docker build -t ftld -f deploy/Dockerfile .
#   docker build -t ftld-crash-test -f deploy/crash-test.Dockerfile .
#   docker run --rm -v "$PWD:/work" -w /work ftld-crash-test --check './check.sh $FTLD_FILES' -- ./workload.sh {}
FROM ftld
USER root
RUN apt-get update && apt-get install -y --no-install-recommends user-mode-linux e2fsprogs python3 python3-libnbd sqlite3 && rm -rf /var/lib/apt/lists/*
COPY deploy/checks /usr/share/ftld/checks
COPY docs/examples/ledger.py docs/examples/orders.py /usr/share/doc/ftld/examples/
USER ftld
ENTRYPOINT ["ftld", "crash-test"]
